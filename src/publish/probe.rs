//! Checks that a store has the one property that publishing relies on: that an object can be created only once.
//!
//! In: a table's URL. Out: whether a second creation fails, and the rates of transfers. Some stores that are compatible
//! with S3 ignore the condition.

use std::time::Instant;

use futures_util::stream::{self, StreamExt};
use serde::Serialize;

use super::error::PublishError;
use super::location::Location;
use super::transfer::{PART_LEN_BYTES, REQUESTS_MAX, random_bytes};

/// What a store can do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StoreProbe {
    /// Whether creating an object that exists fails and leaves the object unchanged.
    pub creates_once: bool,
    /// Whether exactly one of several simultaneous creations of one object succeeds.
    pub creates_once_in_a_race: bool,
    /// Whether the listing has an object that was created just before.
    pub lists_new_objects: bool,
    /// The rate of uploads, in bytes per second.
    pub upload_bytes_per_s: u64,
    /// The rate of downloads, in bytes per second.
    pub download_bytes_per_s: u64,
}

impl StoreProbe {
    /// Returns whether tables can be published to the store.
    pub fn is_usable(&self) -> bool {
        self.creates_once && self.creates_once_in_a_race
    }
}

/// Writes objects below `probe/` of the table, and deletes them.
pub(super) async fn probe(location: &Location) -> Result<StoreProbe, PublishError> {
    location.check_writable()?;
    let folder = format!("probe/{:032x}", u128::from_le_bytes(random_bytes()));
    let probed = run(location, &folder).await;
    let paths = location.store.list(Some(&location.path(&folder))).map(|object| object.map(|object| object.location));
    // An object that is left over wastes little space, so a failure to delete it is not reported.
    let _ = location.store.delete_stream(paths.boxed()).collect::<Vec<_>>().await;
    probed
}

async fn run(location: &Location, folder: &str) -> Result<StoreProbe, PublishError> {
    let once = format!("{folder}/once");
    location.create_bytes(&once, b"first").await?;
    let is_second_created = location.create_bytes(&once, b"second").await?;
    let creates_once =
        !is_second_created && location.read_bytes(&once, PART_LEN_BYTES).await?.as_deref() == Some(b"first");

    let raced = format!("{folder}/race");
    let create = |number: u8| {
        let raced = &raced;
        async move { location.create_bytes(raced, &[number]).await }
    };
    let created: Vec<_> = stream::iter((0..8).map(create)).buffer_unordered(8).collect().await;
    let winners = created.into_iter().collect::<Result<Vec<bool>, _>>()?.into_iter().filter(|is_created| *is_created);
    let creates_once_in_a_race = winners.count() == 1;

    let listed = location.path(folder);
    let lists_new_objects =
        location.store.list(Some(&listed)).filter_map(async |object| object.ok()).count().await >= 2;

    let part = vec![0x5a; PART_LEN_BYTES as usize];
    let part_object = |number: usize| format!("{folder}/part-{number}");
    let started = Instant::now();
    let upload = |number| {
        let (object, part) = (part_object(number), part.clone());
        async move { location.overwrite_bytes(&object, part).await }
    };
    let uploads: Vec<_> = stream::iter((0..REQUESTS_MAX).map(upload)).buffer_unordered(REQUESTS_MAX).collect().await;
    uploads.into_iter().collect::<Result<Vec<()>, _>>()?;
    let upload_bytes_per_s = rate_bytes_per_s(started);
    let started = Instant::now();
    let download = |number| {
        let object = part_object(number);
        async move { location.read_bytes(&object, PART_LEN_BYTES).await.map(drop) }
    };
    let downloads: Vec<_> =
        stream::iter((0..REQUESTS_MAX).map(download)).buffer_unordered(REQUESTS_MAX).collect().await;
    downloads.into_iter().collect::<Result<Vec<()>, _>>()?;
    let download_bytes_per_s = rate_bytes_per_s(started);
    Ok(StoreProbe { creates_once, creates_once_in_a_race, lists_new_objects, upload_bytes_per_s, download_bytes_per_s })
}

fn rate_bytes_per_s(started: Instant) -> u64 {
    (REQUESTS_MAX as f64 * PART_LEN_BYTES as f64 / started.elapsed().as_secs_f64()) as u64
}
