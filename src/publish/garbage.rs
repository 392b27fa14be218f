//! Deletes the files of old generations.
//!
//! In: how many generations to retain, and how old an object must be. Out: the objects that an upload created, and that
//! no retained or pinned generation references. Manifests and pins are never deleted.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, SystemTime};

use object_store::ObjectStoreExt;
use serde::Serialize;

use super::document::Series;
use super::error::PublishError;
use super::limits::FILES_MAX;
use super::location::Location;
use super::manifest::Manifest;
use super::pin::Pin;
use super::status::NodeStatus;
use super::upload::is_object_name;
use crate::counted::counted;

/// The rules of [`collect_garbage`](super::Publication::collect_garbage).
#[derive(Clone, Copy, Debug)]
pub struct GarbageRules {
    /// The number of newest generations whose files are retained, at least 1.
    pub keep: u64,
    /// The minimum age of a deleted object. Younger objects may belong to a generation that is being published.
    pub age_min: Duration,
    /// Whether to delete objects. Otherwise, they are only reported.
    pub delete: bool,
}

/// The deleted objects, or those that would be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Garbage {
    /// The names of the objects, relative to the table's URL.
    pub objects: Vec<String>,
    /// The length of these objects, in bytes.
    pub bytes: u64,
    /// The number of objects that are not referenced but younger than the minimum age.
    pub young: u64,
    /// The number of statuses that cannot be read. Their nodes may serve any generation, so the files of all
    /// generations are retained.
    pub unreadable_statuses: u64,
}

/// Deletes, or only reports, unneeded objects. Passes a message about each status that cannot be read to `warn`.
pub(super) async fn collect(
    location: &Location,
    rules: &GarbageRules,
    warn: &mut dyn FnMut(String),
) -> Result<Garbage, PublishError> {
    location.check_writable()?;
    // The objects are listed first: an object that is uploaded and referenced afterwards is not in the list.
    let listed = location.list("data", None, FILES_MAX).await?;
    if !listed.is_empty() {
        check_manifests(location).await?;
    }
    let (referenced, unreadable_statuses) = referenced(location, rules.keep.max(1), warn).await?;
    let mut garbage = Garbage { unreadable_statuses, ..Garbage::default() };
    let now = SystemTime::now();
    for meta in listed {
        let parts: Vec<String> = meta.location.parts().map(|part| part.as_ref().to_owned()).collect();
        // The path of an object ends with `data/JOB/NAME`.
        let object = parts[parts.len().saturating_sub(3)..].join("/");
        // Other objects in the folder are not this table's.
        if referenced.contains(&object) || location.path(&object) != meta.location || !is_object_name(&object) {
            continue;
        }
        // The clock of this machine may be ahead of the store's clock, so an object from the future counts as young.
        let age = now.duration_since(SystemTime::from(meta.last_modified)).unwrap_or_default();
        if age < rules.age_min {
            garbage.young += 1;
            continue;
        }
        if rules.delete {
            match location.store.delete(&meta.location).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(location.fault(&object)(error)),
            }
        }
        garbage.bytes = garbage.bytes.saturating_add(meta.size);
        garbage.objects.push(object);
    }
    Ok(garbage)
}

/// Rejects a table whose newest manifests were deleted, for example by a lifecycle rule: its files are those of
/// generations that nodes serve, or that may be restored.
async fn check_manifests(location: &Location) -> Result<(), PublishError> {
    // The statuses that cannot be read are reported when they are read again.
    let last = location.last_used(Series::Manifests, &mut |_| ()).await?;
    // A generation that is published meanwhile is found by this read.
    let newest = location.highest(Series::Manifests, 0).await?;
    let problem = match newest {
        0 => "has files, but no manifest".to_owned(),
        newest if newest < last => format!("the newest manifest is {newest}, but generation {last} was used"),
        _ => return Ok(()),
    };
    Err(PublishError::NoGeneration {
        url: location.url().to_owned(),
        problem: format!(
            "{problem}: nothing is deleted: restore the deleted manifests, or publish the next generation, or delete \
             the folder of the table if nobody needs it"
        ),
    })
}

/// Returns how files can be deleted although the manifest of a needed generation cannot be read.
fn remedy(number: u64, first_kept: u64, newest: u64) -> String {
    if number == newest {
        "it is the newest generation: publish the next one, and then retain only generations after this one".to_owned()
    } else if (first_kept..newest).contains(&number) {
        format!("retain at most {}", counted(newest - number, "generation"))
    } else {
        // Also a number after a gap.
        "a pin or a node needs it: pin another generation, and wait until no node serves this one".to_owned()
    }
}

/// Returns the objects of the newest generations, and of those that are pinned or that nodes serve. If a status cannot
/// be read, returns the objects of all generations.
async fn referenced(
    location: &Location,
    keep: u64,
    warn: &mut dyn FnMut(String),
) -> Result<(HashSet<String>, u64), PublishError> {
    let newest = location.highest(Series::Manifests, 0).await?;
    let first_kept = newest.saturating_sub(keep - 1).max(1);
    // A generation whose manifest was deleted cannot be served, unless it is pinned or served already.
    let mut needed: BTreeSet<u64> =
        location.numbers_after(Series::Manifests, first_kept - 1).await?.into_iter().collect();
    // The newest pin also names the generation of the nodes that it does not apply to, so it is enough.
    let pin = location.highest(Series::Pins, 0).await?;
    let pin = Pin::read(location, pin).await.map_err(|error| match error {
        // Nodes keep what the pin before it selects.
        PublishError::Document { object, problem } => {
            PublishError::Document { object, problem: format!("{problem}: nothing is deleted: create another pin") }
        }
        error => error,
    })?;
    needed.extend(pin.into_iter().flat_map(|pin| [pin.generation, pin.others]).flatten());
    let mut unreadable = 0;
    let mut count_unreadable = |problem| {
        unreadable += 1;
        warn(problem);
    };
    for status in NodeStatus::read_all(location, &mut count_unreadable).await? {
        needed.extend([status.serving, status.prepared].into_iter().filter(|number| *number > 0));
    }
    let mut objects = HashSet::new();
    if unreadable > 0 {
        let older = location.numbers_after(Series::Manifests, 0).await?.into_iter();
        for number in older.take_while(|number| *number < first_kept) {
            let manifest = Manifest::read(location, number).await?;
            objects.extend(manifest.into_iter().flat_map(|manifest| manifest.entries).map(|entry| entry.object));
        }
    }
    for number in needed {
        // A manifest that cannot be read might reference any object, so nothing is deleted.
        let retaining = |problem: String| {
            let problem = format!("{problem}: nothing is deleted: {}", remedy(number, first_kept, newest));
            location.document_fault(&Series::Manifests.object(number), problem)
        };
        let manifest = match Manifest::read(location, number).await {
            Err(PublishError::Document { problem, .. }) => return Err(retaining(problem)),
            manifest => manifest?.ok_or_else(|| retaining("is missing".to_owned()))?,
        };
        objects.extend(manifest.entries.into_iter().map(|entry| entry.object));
    }
    Ok((objects, unreadable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_generation_has_a_remedy() {
        assert_eq!(remedy(6, 5, 7), "retain at most 1 generation");
        assert_eq!(remedy(5, 5, 7), "retain at most 2 generations");
        assert!(remedy(7, 5, 7).contains("publish the next one"));
        for number in [0, 4, 8, u64::MAX] {
            assert!(remedy(number, 5, 7).contains("pin another generation"), "{number}");
        }
    }
}
