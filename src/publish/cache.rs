//! The folder in which a node keeps generations.
//!
//! In: manifests. Out: verified files. The folder has:
//!
//! ```text
//! lock                       locked by the process that uses the folder
//! data/DIGEST.zkv            verified files
//! data/DIGEST.zkv.partial    a download in progress
//! manifests/NUMBER.json      the manifests of the complete generations
//! serving.db                 a hard link to the file that is served
//! serving.json               the number of the generation that is served, and the pin that applied
//! ```

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::bandwidth::Bandwidth;
use super::document::{decode, encode};
use super::download::{download, remove, sync_folder_of, with_suffix};
use super::error::PublishError;
use super::location::Location;
use super::manifest::{Entry, Manifest};
use super::transfer::OnProgress;
use crate::bake::{self, BakeError, Cancel, Options};
use crate::store::MappedStore;

/// The name of the file that is served, in the folder.
pub(super) const SERVING: &str = "serving.db";

/// A node's folder of generations.
pub(super) struct Cache {
    folder: PathBuf,
    /// Keeps the lock.
    _lock: File,
}

/// What the node serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Serving {
    pub(super) generation: u64,
    /// The number of the newest pin that the node has read, or 0.
    pub(super) pin: u64,
}

impl Cache {
    /// Creates the folder if it does not exist, and locks it.
    pub(super) fn open(folder: &Path) -> Result<Cache, PublishError> {
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
        Ok(Cache { folder: folder.to_path_buf(), _lock: lock })
    }

    /// Returns the path of the file that is served.
    pub(super) fn serving_path(&self) -> PathBuf {
        self.folder.join(SERVING)
    }

    /// Returns the path of the verified file with a digest.
    fn data_path(&self, digest: &str) -> PathBuf {
        self.folder.join("data").join(format!("{digest}.zkv"))
    }

    fn manifest_path(&self, number: u64) -> PathBuf {
        self.folder.join("manifests").join(format!("{number:020}.json"))
    }

    /// Returns the manifests of the complete generations, in ascending order. Skips manifests that are damaged.
    pub(super) fn complete(&self) -> Vec<Manifest> {
        let names = fs::read_dir(self.folder.join("manifests")).into_iter().flatten().flatten();
        let numbers = names.filter_map(|name| name.file_name().to_str()?.strip_suffix(".json")?.parse().ok());
        let read = |number| Manifest::decode(&fs::read(self.manifest_path(number)).ok()?, number).ok();
        let mut manifests: Vec<Manifest> = numbers.filter_map(read).filter(|manifest| self.has(manifest)).collect();
        manifests.sort_by_key(|manifest| manifest.number);
        manifests
    }

    /// Returns whether the file of a generation is complete.
    pub(super) fn has(&self, manifest: &Manifest) -> bool {
        self.manifest_path(manifest.number).exists() && self.data_path(&manifest.digest()).exists()
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
        let path = self.data_path(&manifest.digest());
        if !path.exists() {
            fetch_merged(location, manifest, &path, bandwidth, cancel, progress).await?;
        }
        write_durably(&self.manifest_path(manifest.number), &encode(manifest))
    }

    /// Makes a generation the one at [`Cache::serving_path`].
    pub(super) fn place(&self, manifest: &Manifest) -> Result<(), PublishError> {
        let (path, new) = (self.serving_path(), self.folder.join("serving.db.new"));
        remove(&new)?;
        fs::hard_link(self.data_path(&manifest.digest()), &new).map_err(PublishError::io(&new))?;
        fs::rename(&new, &path).map_err(PublishError::io(&path))?;
        // A rename does nothing if both names are links to the same file.
        remove(&new)?;
        sync_folder_of(&path)
    }

    /// Records what the node serves.
    pub(super) fn record(&self, serving: Serving) -> Result<(), PublishError> {
        write_durably(&self.folder.join("serving.json"), &encode(&serving))
    }

    /// Deletes the file of a generation that turned out to be damaged.
    pub(super) fn discard(&self, manifest: &Manifest) -> Result<(), PublishError> {
        remove(&self.manifest_path(manifest.number))?;
        remove(&self.data_path(&manifest.digest()))
    }

    /// Deletes complete generations until `keep` are left, and downloads that were given up. Deletes the oldest
    /// generations first, but none of `needed`, and no download of the generation `fetched`.
    pub(super) fn trim(&self, keep: usize, needed: &[u64], fetched: &Manifest) -> Result<(), PublishError> {
        let complete = self.complete();
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
        let kept: Vec<String> = kept.into_iter().chain([fetched]).map(Manifest::digest).collect();
        for file in fs::read_dir(self.folder.join("data")).map_err(PublishError::io(&self.folder))?.flatten() {
            let name = file.file_name();
            let digest = name.to_str().and_then(|name| name.split('.').next()).unwrap_or_default();
            if !kept.iter().any(|kept| kept == digest) {
                remove(&file.path())?;
            }
        }
        Ok(())
    }
}

/// Downloads the files of a generation, and merges several files into one at `path`.
pub(super) async fn fetch_merged(
    location: &Location,
    manifest: &Manifest,
    path: &Path,
    bandwidth: &Bandwidth,
    cancel: &Cancel,
    progress: OnProgress<'_>,
) -> Result<(), PublishError> {
    if let [entry] = &manifest.entries[..] {
        return download(location, entry, path, bandwidth, cancel, progress).await;
    }
    let shard_path = |entry: &Entry| with_suffix(path, &format!(".{}.shard", entry.slots));
    for entry in &manifest.entries {
        let path = shard_path(entry);
        if !path.exists() || super::download::verify(location, entry, &path, cancel).is_err() {
            download(location, entry, &path, bandwidth, cancel, progress).await?;
        }
    }
    let shards: Vec<PathBuf> = manifest.entries.iter().map(shard_path).collect();
    let merged = with_suffix(path, ".merged");
    merge(&shards, &merged, cancel)?;
    let rows = MappedStore::open(&merged)?.len() as u64;
    if rows != manifest.rows() {
        remove(&merged)?;
        let problem = format!("the merged files have {rows} rows, expected {}: publish again", manifest.rows());
        return Err(PublishError::Corrupt { object: location.url().to_owned(), problem });
    }
    fs::rename(&merged, path).map_err(PublishError::io(path))?;
    shards.iter().try_for_each(|shard| remove(shard))?;
    sync_folder_of(path)
}

/// Merges the files of a generation. Keys of several files are an error, because slots are disjoint.
fn merge(shards: &[PathBuf], merged: &Path, cancel: &Cancel) -> Result<(), PublishError> {
    let mut options = Options { cancel: cancel.clone(), ..Options::default() };
    options.replace.allow_empty = true;
    bake::merge(shards, merged, &options, &mut |_| ()).map(drop).map_err(|error| match error {
        BakeError::Canceled => PublishError::Canceled,
        error => PublishError::Corrupt { object: merged.display().to_string(), problem: error.to_string() },
    })
}

/// Writes a small file, so that after a power loss the path has either the old bytes or the new ones.
fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), PublishError> {
    let new = with_suffix(path, ".new");
    let write = || -> std::io::Result<()> {
        fs::write(&new, bytes)?;
        File::open(&new)?.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(PublishError::io(path))?;
    sync_folder_of(path)
}
