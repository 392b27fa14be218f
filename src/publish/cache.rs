//! The folder in which a node keeps generations.
//!
//! In: manifests. Out: verified files. The folder has:
//!
//! ```text
//! lock                       locked by the process that uses the folder topology.json              the topology that a
//! node of a cluster follows data/DIGEST.zkv            verified files; data/DIGEST-SLOTS.zkv if the node has only some
//! slots, or a hash of them data/DIGEST.zkv.partial    a download in progress manifests/NUMBER.json      the manifests
//! of the complete generations serving.db                 a hard link to the served file serving.json               the
//! number of the served generation, and the pin that the node follows
//! ```
//!
//! Only files that belong to the process's user or to root are read. No link in the folder is followed.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, FlockOperation, fadvise, flock};
use twox_hash::XxHash3_64;

use super::Record;
use super::document::{decode, encode};
use super::download::{download, open_verified, verify};
use super::error::PublishError;
use super::limits::{MANIFEST_LEN_MAX_BYTES, RECORD_LEN_MAX_BYTES};
use super::location::Location;
use super::manifest::{Entry, Manifest};
use super::partial::salvage;
use super::transfer::{Bandwidth, OnProgress, check_space, remove, sync_folder, with_suffix};
use crate::Lookup;
use crate::bake::{self, BakeError, Cancel, Options};
use crate::cluster::SlotSet;
use crate::counted::counted;
use crate::folder::Folder;
use crate::store::{MappedStore, StoreError};

/// The name of the served file, in the folder.
const SERVING: &str = "serving.db";

/// The file of a generation that a node fetches.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'w> {
    pub(super) manifest: &'w Manifest,
    pub(super) slots: &'w SlotSet,
    /// Whether a complete file is damaged, and is replaced.
    pub(super) replaces: bool,
}

/// Which files of a generation the folder keeps.
pub(super) struct Kept {
    /// The sets of slots that the node serves and needs.
    pub(super) slots: Vec<SlotSet>,
    /// The sets that it has served before. A file with one of them stays if the generation has none of the others.
    pub(super) earlier_slots: Vec<SlotSet>,
    /// The generation whose file is damaged, and is being fetched again.
    pub(super) repaired: Option<u64>,
}

impl Kept {
    fn all(&self) -> Vec<SlotSet> {
        self.slots.iter().chain(&self.earlier_slots).cloned().collect()
    }
}

/// A node's folder of generations.
pub(super) struct Cache {
    folder: Folder,
    data: Folder,
    manifests: Folder,
    /// `None` if this process can write nothing to the folder.
    lock: Option<Arc<Lock>>,
}

/// The locked file of a folder.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // A child process that this process forked may have the descriptor, too, and would keep the lock.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Cache {
    /// Creates the folder if it does not exist, and locks it.
    pub(super) fn open(folder: &Path) -> Result<Cache, PublishError> {
        let folder = Folder::create_all(folder).map_err(PublishError::io(folder))?;
        let (data, manifests) = create_subfolders(&folder)?;
        let lock = lock(&folder)?;
        folder.remove_hidden_files().map_err(PublishError::io(folder.path()))?;
        Ok(Cache { folder, data, manifests, lock })
    }

    /// Opens the folder again if it, or a folder in it, was deleted, or if another one has its name.
    pub(super) fn reopen_if_replaced(&self) -> Option<Result<Cache, PublishError>> {
        if self.folder.is_replaced() {
            return Some(Cache::open(self.folder.path()));
        }
        let reopen = || {
            let (data, manifests) = create_subfolders(&self.folder)?;
            let folder = self.folder.try_clone().map_err(PublishError::io(self.folder.path()))?;
            Ok(Cache { folder, data, manifests, lock: self.lock.clone() })
        };
        [&self.data, &self.manifests].into_iter().any(Folder::is_replaced).then(reopen)
    }

    pub(super) fn folder(&self) -> &Folder {
        &self.folder
    }

    pub(super) fn serving_path(&self) -> PathBuf {
        self.folder.path().join(SERVING)
    }

    /// Returns the manifests of the generations whose files have any of these sets of slots, in ascending order. Skips
    /// manifests that are damaged. Returns none if the folder cannot be read.
    pub(super) fn complete(&self, slots: &[SlotSet]) -> Vec<Manifest> {
        self.read_complete(slots).unwrap_or_default()
    }

    fn read_complete(&self, slots: &[SlotSet]) -> Result<Vec<Manifest>, PublishError> {
        let mut manifests = Vec::new();
        for name in self.manifests.names().map_err(PublishError::io(self.manifests.path()))? {
            let number = name.to_str().and_then(|name| name.strip_suffix(".json")?.parse().ok());
            let Some(number) = number else { continue };
            let (name, io) = (manifest_name(number), PublishError::io(self.manifests.path()));
            let json = match self.manifests.read(&name, MANIFEST_LEN_MAX_BYTES) {
                // Nothing that this process wrote.
                Err(error) if [io::ErrorKind::InvalidInput, io::ErrorKind::NotFound].contains(&error.kind()) => {
                    continue;
                }
                json => json.map_err(&io)?,
            };
            let Ok(manifest) = Manifest::decode(&json, number) else { continue };
            for slots in slots {
                if self.is_complete(&manifest, slots).map_err(&io)? {
                    manifests.push(manifest);
                    break;
                }
            }
        }
        manifests.sort_by_key(|manifest| manifest.number);
        Ok(manifests)
    }

    /// Returns whether the file that has these slots of a generation is known to be complete.
    pub(super) fn has(&self, manifest: &Manifest, slots: &SlotSet) -> bool {
        self.is_complete(manifest, slots).unwrap_or(false)
    }

    fn is_complete(&self, manifest: &Manifest, slots: &SlotSet) -> io::Result<bool> {
        Ok(self.manifests.has_own_file(manifest_name(manifest.number))?
            && self.data.has_own_file(data_name_of(manifest, slots))?)
    }

    /// Returns the last recorded state, or zeros if it is unknown.
    pub(super) fn record(&self) -> Record {
        let json = self.folder.read("serving.json", RECORD_LEN_MAX_BYTES);
        let record = json.ok().and_then(|json| decode::<Record>(&json).ok());
        record.filter(Record::is_possible).unwrap_or_default()
    }

    /// Fetches and verifies a file, unless it is complete.
    pub(super) async fn fetch(
        &self,
        location: &Location,
        wanted: Wanted<'_>,
        bandwidth: &Bandwidth,
        cancel: &Cancel,
        progress: OnProgress<'_>,
    ) -> Result<(), PublishError> {
        let Wanted { manifest, slots, replaces } = wanted;
        let name = data_name_of(manifest, slots);
        if replaces || !self.data.has_own_file(&name).map_err(PublishError::io(self.data.path()))? {
            let target = Target { folder: &self.data, name: name.as_ref() };
            fetch_merged(location, manifest, slots, target, bandwidth, cancel, progress).await?;
        }
        write_durably(&self.manifests, &manifest_name(manifest.number), &encode(manifest))
    }

    /// Links a generation's file to [`Cache::serving_path`].
    pub(super) fn place(&self, manifest: &Manifest, slots: &SlotSet) -> Result<(), PublishError> {
        let name = data_name_of(manifest, slots);
        // A node starts with the generation that it served, even if it cannot write to the folder.
        if self.data.is_same_file(&name, &self.folder, SERVING) {
            return Ok(());
        }
        // With a hard link, the name has one of two complete files at any moment, and nothing is copied.
        let placed = self.folder.replace_with_link(&self.data, &name, SERVING);
        placed.map_err(PublishError::io(&self.serving_path()))?;
        sync_folder(&self.folder)
    }

    /// Records the served generation.
    pub(super) fn write_record(&self, record: &Record) -> Result<(), PublishError> {
        write_durably(&self.folder, "serving.json", &encode(record))
    }

    /// Verifies the file of a generation, and deletes it if it is damaged, so that it is fetched again. Returns whether
    /// the file was damaged: see [`Cache::salvage_if_damaged`].
    pub(super) fn discard_if_damaged(
        &self,
        location: &Location,
        manifest: &Manifest,
        slots: &SlotSet,
        cancel: &Cancel,
    ) -> Result<bool, PublishError> {
        let is_damaged = self.salvage_if_damaged(location, manifest, slots, cancel)?;
        if is_damaged {
            remove(&self.data, data_name_of(manifest, slots).as_ref())?;
        }
        Ok(is_damaged)
    }

    /// Verifies the file of a generation. If it is damaged, blocks that match their checksums become an incomplete
    /// download, if the file is one that the store has. Returns whether the file is damaged. It stays, so that a node
    /// that starts again before the download ends still serves the intact rows. Other failures, such as a full disk, do
    /// not make it useless.
    pub(super) fn salvage_if_damaged(
        &self,
        location: &Location,
        manifest: &Manifest,
        slots: &SlotSet,
        cancel: &Cancel,
    ) -> Result<bool, PublishError> {
        let name = data_name_of(manifest, slots);
        let Ok(file) = self.data.open_own_file(&name) else { return Ok(false) };
        // The check must read the disk, not the page cache.
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
        match open_verified(&file, &self.data.path().join(&name), cancel) {
            Err(PublishError::File(StoreError::Format { .. })) => {
                if let [entry] = needed_entries(manifest, slots)[..]
                    && of_entry(entry).is_subset(slots)
                    && let Err(PublishError::Canceled) =
                        salvage(location, entry, &self.data, name.as_ref(), &file, cancel)
                {
                    return Err(PublishError::Canceled);
                }
                Ok(true)
            }
            Err(PublishError::Canceled) => Err(PublishError::Canceled),
            _ => Ok(false),
        }
    }

    /// Deletes complete generations until `keep` are left, downloads that were given up, and files that a killed
    /// process left. Deletes the oldest generations first, but none of `needed`, and none of their downloads.
    pub(super) fn trim(&self, keep: usize, needed: &[Arc<Manifest>], kept: &Kept) -> Result<(), PublishError> {
        let slots = &kept.slots;
        // If the folder cannot be read, nothing is deleted.
        let complete = self.read_complete(&kept.all())?;
        let is_needed = |number: u64| needed.iter().any(|manifest| manifest.number == number);
        let surplus = complete.len().saturating_sub(keep.max(1));
        let (deleted, retained): (Vec<&Manifest>, Vec<&Manifest>) = {
            let mut left = surplus;
            complete.iter().partition(|manifest| {
                let is_deleted = left > 0 && !is_needed(manifest.number);
                left -= usize::from(is_deleted);
                is_deleted
            })
        };
        for manifest in deleted {
            remove(&self.manifests, manifest_name(manifest.number).as_ref())?;
        }
        let is_complete = |manifest: &Manifest| slots.iter().any(|slots| self.has(manifest, slots));
        let mut kept_names = HashSet::new();
        for manifest in retained {
            let all = if is_complete(manifest) { slots } else { &kept.earlier_slots };
            kept_names.extend(all.iter().map(|slots| OsString::from(data_name_of(manifest, slots))));
            kept_names.insert(manifest_name(manifest.number).into());
        }
        // The names of the parts of a download begin with the digest.
        let is_complete = |manifest: &Manifest| kept.repaired != Some(manifest.number) && is_complete(manifest);
        let downloads = needed.iter().filter(|manifest| !is_complete(manifest));
        let digests: Vec<String> = downloads.map(|manifest| manifest.digest()).collect();
        let is_download = |name: &str| digests.iter().any(|digest| name.starts_with(digest.as_str()));
        for folder in [&self.manifests, &self.data] {
            let names = folder.names().map_err(PublishError::io(folder.path()))?;
            for name in names {
                // A folder is nothing that this process created.
                let is_kept = kept_names.contains(&name) || name.to_str().is_some_and(is_download);
                if !is_kept && !folder.is_folder(&name).map_err(PublishError::io(folder.path()))? {
                    remove(folder, &name)?;
                }
            }
        }
        self.folder.remove_hidden_files().map_err(PublishError::io(self.folder.path()))
    }
}

/// Locks a folder. Returns `None` if this process can neither lock the folder nor write to it, for example because root
/// has filled it and mounted it read-only. Such a process only reads complete files, which do not change.
fn lock(folder: &Folder) -> Result<Option<Arc<Lock>>, PublishError> {
    let file = match folder.open_lock_file("lock") {
        Err(_) if !folder.is_writable() => return Ok(None),
        opened => opened.map_err(|error| unusable(folder, "lock".as_ref(), error))?,
    };
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        let error = io::Error::other("another process uses this folder: stop it, or choose another folder");
        PublishError::Io { path: folder.path().join("lock"), error }
    })?;
    Ok(Some(Arc::new(Lock(file))))
}

fn create_subfolders(folder: &Folder) -> Result<(Folder, Folder), PublishError> {
    let create = |name: &str| folder.create_subfolder(name).map_err(|error| unusable(folder, name.as_ref(), error));
    Ok((create("data")?, create("manifests")?))
}

fn data_name_of(manifest: &Manifest, slots: &SlotSet) -> String {
    let slots = match &slots.ranges()[..] {
        _ if *slots == SlotSet::ALL => String::new(),
        [range] => format!("-{range}"),
        // A text with many ranges would be too long for the name of a file.
        _ => format!("-{:016x}", XxHash3_64::oneshot(slots.to_string().as_bytes())),
    };
    format!("{}{slots}.zkv", manifest.digest())
}

fn of_entry(entry: &Entry) -> SlotSet {
    SlotSet::from_iter([entry.slots])
}

fn needed_entries<'m>(manifest: &'m Manifest, slots: &SlotSet) -> Vec<&'m Entry> {
    manifest.entries.iter().filter(|entry| of_entry(entry).overlaps(slots)).collect()
}

fn manifest_name(number: u64) -> String {
    format!("{number:020}.json")
}

/// Adds the remedy to the error about a name that another user may have taken.
fn unusable(folder: &Folder, name: &OsStr, error: io::Error) -> PublishError {
    let path = folder.path().join(name);
    let error = match error.kind() {
        io::ErrorKind::InvalidInput => {
            let remedy = "remove it, or choose a folder that only this process's user can write to";
            io::Error::new(error.kind(), format!("{error}: {remedy}"))
        }
        _ => error,
    };
    PublishError::Io { path, error }
}

/// The place of a file that is fetched.
#[derive(Clone, Copy)]
pub(super) struct Target<'t> {
    pub(super) folder: &'t Folder,
    pub(super) name: &'t OsStr,
}

/// Downloads the files of a generation that have some of these slots, and merges their rows into one file. A single
/// file that has no other slots is not changed.
pub(super) async fn fetch_merged(
    location: &Location,
    manifest: &Manifest,
    slots: &SlotSet,
    target: Target<'_>,
    bandwidth: &Bandwidth,
    cancel: &Cancel,
    progress: OnProgress<'_>,
) -> Result<(), PublishError> {
    let Target { folder, name } = target;
    let contains = |entry: &Entry| of_entry(entry).is_subset(slots);
    let entries = needed_entries(manifest, slots);
    if let [entry] = entries[..]
        && contains(entry)
    {
        return download(location, entry, folder, name, bandwidth, cancel, progress).await;
    }
    let shard_name = |entry: &Entry| with_suffix(name, &format!(".{}.shard", entry.slots));
    for entry in &entries {
        let shard = shard_name(entry);
        let is_intact = |file: File| verify(location, entry, &file, &folder.path().join(&shard), cancel).is_ok();
        if !folder.open_own_file(&shard).is_ok_and(is_intact) {
            download(location, entry, folder, &shard, bandwidth, cancel, progress).await?;
        }
    }
    let shards: Vec<PathBuf> = entries.iter().map(|entry| folder.path().join(shard_name(entry))).collect();
    let merged_name = with_suffix(name, ".merged");
    let merged = folder.path().join(&merged_name);
    check_space(&merged, entries.iter().map(|entry| entry.bytes).sum())?;
    // A rename would not replace a folder that another user has put there.
    remove(folder, &merged_name)?;
    merge(&shards, slots, &merged, cancel)?;
    let (rows, rows_max) = (MappedStore::open(&merged)?.len() as u64, entries.iter().map(|entry| entry.rows).sum());
    let has_all = entries.iter().all(|entry| contains(entry));
    if rows > rows_max || has_all && rows < rows_max {
        remove(folder, &merged_name)?;
        let problem = format!("the merged files have {}, expected {rows_max}: publish again", counted(rows, "row"));
        return Err(PublishError::Corrupt { object: location.url().to_owned(), problem });
    }
    let kept = folder.open_file(&merged_name).and_then(|file| folder.keep_rights(name, &file));
    kept.and_then(|()| folder.rename(&merged_name, name)).map_err(PublishError::io(&merged))?;
    entries.iter().try_for_each(|entry| remove(folder, &shard_name(entry)))?;
    sync_folder(folder)
}

/// Merges the rows of these slots. Keys of several files are an error, because the slots of files are disjoint.
fn merge(shards: &[PathBuf], slots: &SlotSet, merged: &Path, cancel: &Cancel) -> Result<(), PublishError> {
    let mut options = Options { cancel: cancel.clone(), ..Options::default() };
    options.table_slots = Some(Arc::new(slots.clone()));
    options.replace.allow_empty = true;
    bake::merge(shards, merged, &options).map(drop).map_err(|error| match error {
        BakeError::Canceled => PublishError::Canceled,
        BakeError::Output { path, error } => PublishError::Io { path, error },
        BakeError::Temporary { folder, error } => PublishError::Io { path: folder, error },
        error => PublishError::Corrupt { object: merged.display().to_string(), problem: error.to_string() },
    })
}

/// Writes a small file, so that after a power loss the name has either the old bytes or the new ones.
pub(super) fn write_durably(folder: &Folder, name: &str, bytes: &[u8]) -> Result<(), PublishError> {
    folder.write_durably(name, bytes).map_err(PublishError::io(&folder.path().join(name)))
}
