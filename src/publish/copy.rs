//! Copies a generation to another table, for example in a store of another region.
//!
//! In: a manifest, and the table to copy to. Out: the same files and the same manifest there, except for the number,
//! the parent, and the names of objects. Each file is downloaded to this machine, verified, uploaded, and read back, so
//! both stores are verified, and both transfers continue after an interruption. The copy has the name of the job that
//! published the generation, which no other generation has, so a repeated copy finds itself.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::change::Change;
use super::document::Series;
use super::download::download;
use super::error::PublishError;
use super::limits::STATE_LEN_MAX_BYTES;
use super::manifest::{Entry, Manifest};
use super::publication::{COMMITS_MAX, CommitOptions, Publication};
use super::transfer::{Bandwidth, TransferProgress, check, remove, until_canceled};
use super::upload::{ShardFile, is_job, upload};
use crate::bake::Cancel;
use crate::folder::Folder;

/// The number of the newest generations among which an earlier copy is searched.
const SEARCHED_MAX: u64 = 32;

/// How a generation is copied.
#[derive(Clone, Debug, Default)]
pub struct CopyOptions {
    /// The folder that keeps each file until it is uploaded. An interrupted copy continues in the same folder.
    pub folder: PathBuf,
    /// The suspicious changes from the newest generation of the target that are allowed, besides those that were
    /// allowed when the generation was published.
    pub allow: Vec<Change>,
    /// The maximum rate of downloads. `None` for no limit.
    pub bandwidth_bytes_per_s: Option<u64>,
}

/// A copied generation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Copied {
    /// The manifest of the copy.
    pub manifest: Manifest,
    /// Whether an earlier call had copied the generation.
    pub was_complete: bool,
}

/// The files that a copy has uploaded, and the tables, so that the state of another copy is not continued.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct CopyState {
    from: String,
    to: String,
    entries: Vec<Entry>,
}

impl Publication {
    /// Copies a generation of this table to another table, where it is the next generation. An interrupted copy
    /// continues if it is repeated. `progress` observes each transfer with its file.
    ///
    /// # Errors
    /// [`PublishError`]. After an error, readers of the target see no new generation.
    pub fn copy_to(
        &self,
        manifest: &Manifest,
        target: &Publication,
        options: &CopyOptions,
        cancel: &Cancel,
        progress: &mut (dyn FnMut(&Path, TransferProgress) + Send),
    ) -> Result<Copied, PublishError> {
        target.location.check_writable()?;
        if !is_job(&manifest.job) {
            let problem = format!("the name of the job is {:?}, expected 32 hexadecimal digits", manifest.job);
            return Err(self.location.document_fault(&Series::Manifests.object(manifest.number), problem));
        }
        if let Some(copy) = target.find_copy(manifest)? {
            return Ok(Copied { manifest: copy, was_complete: true });
        }
        let mut commit = CommitOptions { allow: options.allow.clone(), ..CommitOptions::default() };
        commit.allow.extend(manifest.allowed.iter().filter_map(|name| Change::from_name(name)));
        target.check_new(&manifest.facts(), manifest.bytes(), &commit)?;

        let folder = Folder::open(&options.folder).map_err(PublishError::io(&options.folder))?;
        let state_name = OsString::from(format!("{}.copy.json", manifest.job));
        let mut state = CopyState::read(&folder, &state_name, self.url(), target.url());
        let bandwidth = Bandwidth::new(options.bandwidth_bytes_per_s);
        let mut entries = Vec::new();
        for entry in &manifest.entries {
            if let Some(done) = state.entries.iter().find(|done| is_copy(done, entry)) {
                entries.push(done.clone());
                continue;
            }
            let name = OsString::from(format!("{}-{}.zkv", manifest.job, entry.slots));
            let shard = ShardFile { path: options.folder.join(&name), slots: entry.slots };
            let mut report = |state: TransferProgress| progress(&shard.path, state);
            let fetch = download(&self.location, entry, &folder, &name, &bandwidth, cancel, &mut report);
            self.runtime.block_on(until_canceled(cancel, fetch))?;
            let send = upload(&target.location, &manifest.job, &shard, cancel, &mut report);
            let uploaded = target.runtime.block_on(until_canceled(cancel, send))?;
            let copy = Entry { object: uploaded.object, ..entry.clone() };
            state.entries.push(copy.clone());
            state.write(&folder, &state_name);
            remove(&folder, &name)?;
            entries.push(copy);
        }
        check(cancel)?;
        target.check_stored(&entries, cancel)?;
        let copied = target.commit_copy(manifest, entries, commit)?;
        remove(&folder, &state_name)?;
        Ok(copied)
    }

    /// Creates the next generation, which is a copy, unless another process has copied it meanwhile.
    fn commit_copy(
        &self,
        original: &Manifest,
        entries: Vec<Entry>,
        mut options: CommitOptions,
    ) -> Result<Copied, PublishError> {
        let mut manifest = Manifest::new(&self.location, &original.job, entries);
        (manifest.canaries, manifest.note) = (original.canaries.clone(), original.note.clone());
        for _ in 0..COMMITS_MAX {
            if let Some(copy) = self.find_copy(original)? {
                return Ok(Copied { manifest: copy, was_complete: true });
            }
            options.parent = Some(self.last_generation()?);
            match self.commit_new(manifest.clone(), &options) {
                // Another publisher was first.
                Err(PublishError::Parent { .. }) => {}
                committed => return Ok(Copied { manifest: committed?, was_complete: false }),
            }
        }
        let problem = format!("{COMMITS_MAX} other publishers were first: copy again");
        Err(PublishError::NoGeneration { url: self.url().to_owned(), problem })
    }

    /// Returns the newest copy of a generation of another table.
    fn find_copy(&self, original: &Manifest) -> Result<Option<Manifest>, PublishError> {
        let generations = self.generations(SEARCHED_MAX).or_else(|error| match error {
            // A table whose manifests cannot be read has no copy.
            PublishError::Document { .. } => Ok(Vec::new()),
            error => Err(error),
        })?;
        let is_same = |copy: &Manifest| copy.job == original.job && copy.digest() == original.digest();
        Ok(generations.into_iter().map(|generation| generation.manifest).rfind(is_same))
    }
}

fn is_copy(copy: &Entry, original: &Entry) -> bool {
    *copy == Entry { object: copy.object.clone(), ..original.clone() }
}

impl CopyState {
    /// Reads the state of an earlier copy between the same tables. Returns an empty state if there is none.
    fn read(folder: &Folder, name: &OsString, from: &str, to: &str) -> CopyState {
        let json = folder.read(name, STATE_LEN_MAX_BYTES).ok();
        let state = json.and_then(|json| serde_json::from_slice::<CopyState>(&json).ok());
        let is_same = |state: &CopyState| state.from == from && state.to == to;
        let empty = || CopyState { from: from.to_owned(), to: to.to_owned(), entries: Vec::new() };
        state.filter(is_same).unwrap_or_else(empty)
    }

    /// Writes the state. A failure only means that an interrupted copy starts again.
    fn write(&self, folder: &Folder, name: &OsString) {
        let _ = serde_json::to_vec(self).map(|json| folder.write(name, &json));
    }
}
