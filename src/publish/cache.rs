//! The folder in which a node keeps generations.
//!
//! In: manifests. Out: verified files. The folder has:
//!
//! ```text
//! lock                       locked by the process that uses the folder
//! data/DIGEST.zkv            verified files; data/DIGEST-SLOTS.zkv if the node has only some slots, or a hash of them
//! data/DIGEST.zkv.partial    a download in progress
//! manifests/NUMBER.json      the manifests of the complete generations
//! serving.db                 a hard link to the file that is served
//! serving.json               the number of the generation that is served, and the pin that applied
//! ```

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::bandwidth::Bandwidth;
use super::document::{decode, encode};
use super::download::{check_space, download, open_verified, remove, sync_folder_of, with_suffix};
use super::error::PublishError;
use super::location::Location;
use super::manifest::{Entry, Manifest};
use super::transfer::OnProgress;
use crate::bake::{self, BakeError, Cancel, Options};
use crate::cluster::SlotSet;
use crate::slots::SlotRange;
use crate::store::{MappedStore, StoreError};

/// The name of the file that is served, in the folder.
pub(super) const SERVING: &str = "serving.db";

/// A node's folder of generations.
pub(super) struct Cache {
    folder: PathBuf,
    /// The slots of the files that are fetched.
    slots: SlotSet,
    /// The slots of the file that is served, which differ from `slots` while other slots are fetched.
    served_slots: SlotSet,
    lock: File,
}

impl Drop for Cache {
    fn drop(&mut self) {
        // A child process that this process forked may have the descriptor, too, and would keep the lock.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

/// What the node serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Serving {
    pub(super) generation: u64,
    /// The number of the newest pin that the node has read, or 0.
    pub(super) pin: u64,
    /// The slots of the file. Empty if an earlier version recorded them.
    #[serde(default)]
    pub(super) slots: Vec<SlotRange>,
}

impl Cache {
    /// Creates the folder if it does not exist, and locks it.
    pub(super) fn open(folder: &Path, slots: SlotSet) -> Result<Cache, PublishError> {
        for folder in [folder, &folder.join("data"), &folder.join("manifests")] {
            fs::create_dir_all(folder).map_err(PublishError::io(folder))?;
        }
        let path = folder.join("lock");
        let lock =
            File::options().create(true).truncate(false).write(true).open(&path).map_err(PublishError::io(&path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            let error = std::io::Error::other("another process uses this folder: stop it, or choose another folder");
            PublishError::Io { path, error }
        })?;
        Ok(Cache { folder: folder.to_path_buf(), served_slots: slots.clone(), slots, lock })
    }

    /// Returns the slots of the files that are fetched.
    pub(super) fn slots(&self) -> &SlotSet {
        &self.slots
    }

    /// Sets the slots of the files that are fetched. Generations whose files have other slots are not complete, except
    /// the one that is served.
    pub(super) fn set_slots(&mut self, slots: SlotSet) {
        self.slots = slots;
    }

    /// Records that the file that is served has the slots of the files that are fetched.
    pub(super) fn serves_slots(&mut self) {
        self.served_slots = self.slots.clone();
    }

    /// Returns the path of the file that is served.
    pub(super) fn serving_path(&self) -> PathBuf {
        self.folder.join(SERVING)
    }

    /// Returns the path of the verified file that has the node's slots of a generation.
    fn data_path(&self, manifest: &Manifest) -> PathBuf {
        self.data_path_of(manifest, &self.slots)
    }

    fn data_path_of(&self, manifest: &Manifest, slots: &SlotSet) -> PathBuf {
        let slots = match &slots.ranges()[..] {
            _ if *slots == SlotSet::ALL => String::new(),
            [range] => format!("-{range}"),
            // A text with many ranges would be too long for the name of a file.
            _ => format!("-{:016x}", XxHash3_64::oneshot(slots.to_string().as_bytes())),
        };
        self.folder.join("data").join(format!("{}{slots}.zkv", manifest.digest()))
    }

    fn manifest_path(&self, number: u64) -> PathBuf {
        self.folder.join("manifests").join(format!("{number:020}.json"))
    }

    /// Returns the manifests of the complete generations, in ascending order. Skips manifests that are damaged. Returns
    /// none if the folder cannot be read.
    pub(super) fn complete(&self) -> Vec<Manifest> {
        self.read_complete().unwrap_or_default()
    }

    /// Returns the manifests of the complete generations, in ascending order. Skips manifests that are damaged.
    fn read_complete(&self) -> Result<Vec<Manifest>, PublishError> {
        let folder = self.folder.join("manifests");
        let mut manifests = Vec::new();
        for file in fs::read_dir(&folder).map_err(PublishError::io(&folder))? {
            let name = file.map_err(PublishError::io(&folder))?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".json")?.parse().ok());
            let Some(number) = number else { continue };
            let path = self.manifest_path(number);
            let json = fs::read(&path).map_err(PublishError::io(&path))?;
            let Ok(manifest) = Manifest::decode(&json, number) else { continue };
            let is_complete = |slots| self.is_complete(&manifest, slots).map_err(PublishError::io(&path));
            if is_complete(&self.slots)? || is_complete(&self.served_slots)? {
                manifests.push(manifest);
            }
        }
        manifests.sort_by_key(|manifest| manifest.number);
        Ok(manifests)
    }

    /// Returns whether the file of a generation is known to be complete.
    pub(super) fn has(&self, manifest: &Manifest) -> bool {
        self.is_complete(manifest, &self.slots).unwrap_or(false)
    }

    fn is_complete(&self, manifest: &Manifest, slots: &SlotSet) -> std::io::Result<bool> {
        Ok(self.manifest_path(manifest.number).try_exists()? && self.data_path_of(manifest, slots).try_exists()?)
    }

    /// Returns what the node served last. Returns zeros if it is unknown.
    pub(super) fn serving(&self) -> Serving {
        let json = fs::read(self.folder.join("serving.json"));
        json.ok().and_then(|json| decode(&json).ok()).unwrap_or_default()
    }

    /// Fetches and verifies the file of a generation, unless it is complete.
    pub(super) async fn fetch(
        &self,
        location: &Location,
        manifest: &Manifest,
        bandwidth: &Bandwidth,
        cancel: &Cancel,
        progress: OnProgress<'_>,
    ) -> Result<(), PublishError> {
        let path = self.data_path(manifest);
        if !path.exists() {
            fetch_merged(location, manifest, &self.slots, &path, bandwidth, cancel, progress).await?;
        }
        write_durably(&self.manifest_path(manifest.number), &encode(manifest))
    }

    /// Makes a generation the one at [`Cache::serving_path`].
    pub(super) fn place(&self, manifest: &Manifest) -> Result<(), PublishError> {
        let (path, new) = (self.serving_path(), self.folder.join("serving.db.new"));
        remove(&new)?;
        fs::hard_link(self.data_path(manifest), &new).map_err(PublishError::io(&new))?;
        fs::rename(&new, &path).map_err(PublishError::io(&path))?;
        // A rename does nothing if both names are links to the same file.
        remove(&new)?;
        sync_folder_of(&path)
    }

    /// Records what the node serves.
    pub(super) fn record(&self, serving: &Serving) -> Result<(), PublishError> {
        write_durably(&self.folder.join("serving.json"), &encode(serving))
    }

    /// Verifies the file of a generation that could not be served, and deletes it if it is damaged, so that it is fetched
    /// again. Other failures, such as a full disk, do not make the file useless.
    pub(super) fn discard_if_damaged(&self, manifest: &Manifest, cancel: &Cancel) -> Result<(), PublishError> {
        let path = self.data_path(manifest);
        let Ok(file) = File::open(&path) else { return Ok(()) };
        match open_verified(&file, &path, cancel) {
            Err(PublishError::File(StoreError::Format { .. })) => {
                remove(&self.manifest_path(manifest.number))?;
                remove(&path)
            }
            _ => Ok(()),
        }
    }

    /// Deletes complete generations until `keep` are left, downloads that were given up, and files that a killed process
    /// left. Deletes the oldest generations first, but none of `needed`, and no download of the generation `fetched`.
    pub(super) fn trim(&self, keep: usize, needed: &[u64], fetched: &Manifest) -> Result<(), PublishError> {
        // If the folder cannot be read, nothing is deleted.
        let complete = self.read_complete()?;
        let surplus = complete.len().saturating_sub(keep.max(1));
        let (deleted, kept): (Vec<&Manifest>, Vec<&Manifest>) = {
            let mut left = surplus;
            complete.iter().partition(|manifest| {
                let is_deleted = left > 0 && !needed.contains(&manifest.number);
                left -= usize::from(is_deleted);
                is_deleted
            })
        };
        for manifest in deleted {
            remove(&self.manifest_path(manifest.number))?;
        }
        let kept_paths = kept.iter().flat_map(|kept| {
            let served = self.data_path_of(kept, &self.served_slots);
            [self.manifest_path(kept.number), self.data_path(kept), served]
        });
        let kept_paths: HashSet<PathBuf> = kept_paths.collect();
        // The names of the parts of a download begin with the digest.
        let fetched_digest = (!self.has(fetched)).then(|| fetched.digest());
        let is_download = |name: &str| fetched_digest.as_ref().is_some_and(|digest| name.starts_with(digest.as_str()));
        for folder in ["manifests", "data"].map(|name| self.folder.join(name)) {
            for file in fs::read_dir(&folder).map_err(PublishError::io(&folder))? {
                let file = file.map_err(PublishError::io(&folder))?;
                if !kept_paths.contains(&file.path()) && !file.file_name().to_str().is_some_and(is_download) {
                    remove(&file.path())?;
                }
            }
        }
        Ok(())
    }
}

/// Downloads the files of a generation that have some of these slots, and merges their rows into one file at `path`. A
/// single file that has no other slots is not changed.
pub(super) async fn fetch_merged(
    location: &Location,
    manifest: &Manifest,
    slots: &SlotSet,
    path: &Path,
    bandwidth: &Bandwidth,
    cancel: &Cancel,
    progress: OnProgress<'_>,
) -> Result<(), PublishError> {
    let of_entry = |entry: &Entry| SlotSet::from_iter([entry.slots]);
    let (contains, is_needed) =
        (|entry: &Entry| of_entry(entry).is_subset(slots), |entry: &&Entry| of_entry(entry).overlaps(slots));
    let entries: Vec<&Entry> = manifest.entries.iter().filter(is_needed).collect();
    if let [entry] = entries[..]
        && contains(entry)
    {
        return download(location, entry, path, bandwidth, cancel, progress).await;
    }
    let shard_path = |entry: &Entry| with_suffix(path, &format!(".{}.shard", entry.slots));
    for entry in &entries {
        let path = shard_path(entry);
        if !path.exists() || super::download::verify(location, entry, &path, cancel).is_err() {
            download(location, entry, &path, bandwidth, cancel, progress).await?;
        }
    }
    let shards: Vec<PathBuf> = entries.iter().map(|entry| shard_path(entry)).collect();
    let merged = with_suffix(path, ".merged");
    check_space(&merged, entries.iter().map(|entry| entry.bytes).sum())?;
    merge(&shards, slots, &merged, cancel)?;
    let (rows, rows_max) = (MappedStore::open(&merged)?.len() as u64, entries.iter().map(|entry| entry.rows).sum());
    let has_all = entries.iter().all(|entry| contains(entry));
    if rows > rows_max || has_all && rows < rows_max {
        remove(&merged)?;
        let problem = format!("the merged files have {rows} rows, expected {rows_max}: publish again");
        return Err(PublishError::Corrupt { object: location.url().to_owned(), problem });
    }
    fs::rename(&merged, path).map_err(PublishError::io(path))?;
    shards.iter().try_for_each(|shard| remove(shard))?;
    sync_folder_of(path)
}

/// Merges the rows of these slots. Keys of several files are an error, because the slots of files are disjoint.
fn merge(shards: &[PathBuf], slots: &SlotSet, merged: &Path, cancel: &Cancel) -> Result<(), PublishError> {
    let mut options = Options { cancel: cancel.clone(), ..Options::default() };
    options.table_slots = Some(Arc::new(slots.clone()));
    options.replace.allow_empty = true;
    bake::merge(shards, merged, &options, &mut |_| ()).map(drop).map_err(|error| match error {
        BakeError::Canceled => PublishError::Canceled,
        BakeError::Output { path, error } => PublishError::Io { path, error },
        BakeError::Temporary { folder, error } => PublishError::Io { path: folder, error },
        error => PublishError::Corrupt { object: merged.display().to_string(), problem: error.to_string() },
    })
}

/// Writes a small file, so that after a power loss the path has either the old bytes or the new ones.
pub(super) fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), PublishError> {
    let new = with_suffix(path, ".new");
    let write = || -> std::io::Result<()> {
        fs::write(&new, bytes)?;
        File::open(&new)?.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(PublishError::io(path))?;
    sync_folder_of(path)
}
