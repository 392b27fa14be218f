//! Checks that a store has the properties that publishing relies on: an object can be created only once, and is
//! returned right after its creation.
//!
//! In: a table's URL. Out: whether a second creation fails, in how many races of simultaneous creations exactly one
//! succeeded, and the rates of transfers. Some stores that are compatible with S3 ignore the condition, and others
//! check it before they write, so that they lose some of the races.

use std::time::Instant;

use futures_util::stream::{self, StreamExt};
use object_store::ObjectMeta;
use serde::Serialize;

use super::document::is_taken;
use super::error::PublishError;
use super::location::Location;
use super::transfer::{PART_LEN_BYTES, REQUESTS_MAX, random_bytes};

/// The number of clients of a race. Each has its own connections.
const CLIENTS: usize = 4;
/// The number of simultaneous creations of one object in a race.
const CREATORS: usize = 8;
/// The lengths of raced objects, in bytes. A store needs longer to write a long object.
const RACED_LENS_BYTES: [usize; 2] = [16, 64 << 10];
/// The number of objects of a check besides the raced ones.
const OTHER_OBJECTS: usize = 1 + REQUESTS_MAX;

/// The measured properties of a store.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StoreProbe {
    /// Whether creating an object that exists fails and leaves the object unchanged.
    pub creates_once: bool,
    /// Whether exactly one of several simultaneous creations of one object succeeded in all races.
    pub creates_once_in_a_race: bool,
    /// The number of races.
    pub races: u64,
    /// The number of races in which several creations succeeded, or the object is not the one whose creation did.
    pub lost_races: u64,
    /// Whether all objects were returned right after their creation.
    pub reads_new_objects: bool,
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
        self.creates_once && self.creates_once_in_a_race && self.reads_new_objects
    }

    /// Returns the probability that a store that loses a share of all races loses none of the races of this check.
    pub fn pass_probability(&self, lost_share: f64) -> f64 {
        (1.0 - lost_share).powf(self.races as f64)
    }
}

/// Writes objects below `probe/` of the table, and deletes them.
pub(super) async fn probe(location: &Location, races: u64) -> Result<StoreProbe, PublishError> {
    location.check_writable()?;
    let folder = format!("probe/{:032x}", u128::from_le_bytes(random_bytes()));
    let probed = run(location, &folder, races).await;
    let count_max = (races as usize).saturating_add(OTHER_OBJECTS);
    let listed = location.list(&folder, None, count_max).await.unwrap_or_default();
    let paths = stream::iter(listed).map(|object: ObjectMeta| Ok(object.location));
    // An object that is left over wastes little space, so a failure to delete it is not reported.
    let _ = location.store.delete_stream(paths.boxed()).collect::<Vec<_>>().await;
    probed
}

async fn run(location: &Location, folder: &str, races: u64) -> Result<StoreProbe, PublishError> {
    let once = format!("{folder}/once");
    create(location, &once, b"first").await?;
    let is_second_created = create(location, &once, b"second").await?;
    let found = location.read_bytes(&once, PART_LEN_BYTES).await?;
    let creates_once = !is_second_created && found.as_deref() == Some(b"first");

    let clients = (0..CLIENTS).map(|_| Location::parse(location.url())).collect::<Result<Vec<_>, _>>()?;
    let (mut lost_races, mut reads_new_objects) = (0, true);
    for race in 0..races {
        match run_race(&clients, &format!("{folder}/race-{race}"), race).await? {
            Race::Won => {}
            Race::Lost => lost_races += 1,
            Race::Missing => reads_new_objects = false,
        }
    }

    let listed = location.list(folder, None, races as usize + OTHER_OBJECTS).await?;
    let lists_new_objects = listed.len() as u64 == races + 1;

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
    Ok(StoreProbe {
        creates_once,
        creates_once_in_a_race: lost_races == 0,
        races,
        lost_races,
        reads_new_objects,
        lists_new_objects,
        upload_bytes_per_s,
        download_bytes_per_s,
    })
}

/// Requests the creation of an object. Returns false if the store reports that it exists.
async fn create(location: &Location, object: &str, bytes: &[u8]) -> Result<bool, PublishError> {
    match location.create_once(object, bytes).await {
        Ok(()) => Ok(true),
        Err(error) if is_taken(&error) => Ok(false),
        Err(error) => Err(location.fault(object)(error)),
    }
}

/// The outcome of a race.
enum Race {
    /// At most one creation was reported as successful, and the object is this one.
    Won,
    Lost,
    /// The object was not returned.
    Missing,
}

async fn run_race(clients: &[Location], object: &str, race: u64) -> Result<Race, PublishError> {
    let body = |creator: usize| vec![creator as u8; RACED_LENS_BYTES[race as usize % RACED_LENS_BYTES.len()]];
    let creator = |creator: usize| {
        let client = &clients[creator % clients.len()];
        async move { Ok((creator, create(client, object, &body(creator)).await?)) }
    };
    let created: Vec<Result<(usize, bool), PublishError>> =
        stream::iter((0..CREATORS).map(creator)).buffer_unordered(CREATORS).collect().await;
    let created = created.into_iter().collect::<Result<Vec<_>, _>>()?;
    let winners: Vec<usize> =
        created.into_iter().filter(|(_, is_created)| *is_created).map(|(creator, _)| creator).collect();
    // The creator whose request was repeated, because its response was lost, does not know that it has won.
    let is_possible = |creator: usize| winners.is_empty() || winners == [creator];
    for client in clients {
        let Some(found) = client.read_bytes(object, PART_LEN_BYTES).await? else { return Ok(Race::Missing) };
        if !(0..CREATORS).any(|creator| is_possible(creator) && found == body(creator)) {
            return Ok(Race::Lost);
        }
    }
    Ok(Race::Won)
}

fn rate_bytes_per_s(started: Instant) -> u64 {
    (REQUESTS_MAX as f64 * PART_LEN_BYTES as f64 / started.elapsed().as_secs_f64()) as u64
}
