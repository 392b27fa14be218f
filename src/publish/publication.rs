//! The operations on a published table, for threads.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use object_store::ObjectStoreExt;
use serde::Serialize;
use tokio::time::timeout;

use super::cache::{Target, fetch_merged};
use super::change::{Change, Facts};
use super::document::{Series, encode, pause_after_race};
use super::download::download;
use super::error::{PublishError, StoreFault};
use super::garbage::{self, Garbage, GarbageRules};
use super::limits::{NUMBER_MAX, NUMBERS_MAX};
use super::location::Location;
use super::manifest::{Entry, Manifest, check_coverage, check_note_and_canaries, schema_names};
use super::pin::{Decision, Pin};
use super::probe::{self, StoreProbe};
use super::status::{NodeReports, NodeStatus, READS_MAX};
use super::transfer::{
    Bandwidth, REQUESTS_MAX, TransferProgress, TransferRuntime, random_bytes, until_canceled, with_suffix,
};
use super::upload::{ShardFile, upload};
use crate::Lookup;
use crate::bake::Cancel;
use crate::canary::Canary;
use crate::cluster::SlotSet;
use crate::folder::Folder;
use crate::progress::WithProgress;
use crate::slots::slot_of_typed;
use crate::store::MappedStore;
use crate::sync::unpoisoned;

/// How often a commit without an expected parent is repeated when another publisher was first.
pub(super) const COMMITS_MAX: u32 = 100;
/// The number of generations before the newest one with which a new one is compared if the newer ones cannot be read.
const COMPARED_MAX: u64 = 8;
/// The number of newest generations that are looked for if a pin names one that does not exist.
const LISTED_MAX: u64 = 100;
/// The maximum number of warnings that are kept.
const WARNINGS_MAX: usize = 16;

/// A published table: its place in an object store.
///
/// # Example
/// ```
/// use zero_kv::bake::{self, Cancel, Options};
/// use zero_kv::publish::{CommitOptions, Publication, ShardFile};
///
/// let folder = tempfile::tempdir()?;
/// let (db, copy) = (folder.path().join("users.db"), folder.path().join("copy.db"));
/// bake::bake_csv("7,seven\n".as_bytes(), &db, &Options::default())?;
///
/// let publication = Publication::create(&format!("file://{}/published/users", folder.path().display()))?;
/// let entry = publication.upload(&ShardFile::whole(&db), &Cancel::default())?;
/// let manifest = publication.commit(vec![entry], &CommitOptions::default())?;
/// assert_eq!((manifest.number, manifest.rows()), (1, 1));
///
/// publication.pull(&manifest, &copy, None, &Cancel::default())?;
/// assert_eq!(std::fs::read(db)?, std::fs::read(copy)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Publication {
    pub(super) location: Location,
    pub(super) runtime: TransferRuntime,
    /// A name that no other job of the table has.
    job: String,
    /// Messages for operators, which do not change the result of an operation.
    warnings: Mutex<BTreeSet<String>>,
}

/// The properties of a new generation, besides its files.
#[derive(Clone, Debug, Default)]
pub struct CommitOptions {
    /// The number of the generation that must be the newest one before the commit. `None` for any generation.
    pub parent: Option<u64>,
    /// Keys with the digests of their values, which servers look up before they serve the generation.
    pub canaries: Vec<Canary>,
    /// The suspicious changes from the preceding generation that are allowed.
    pub allow: Vec<Change>,
    /// The maximum percentage of the preceding generation's rows that the new generation may lose. `None` for less than
    /// half. Has no effect if `allow` has [`Change::Shrink`].
    pub shrink_max_percent: Option<u8>,
    /// A text for people.
    pub note: String,
}

impl CommitOptions {
    /// Checks that all numbers and lengths are within the limits. The error states the problem.
    fn check(&self) -> Result<(), String> {
        check_note_and_canaries(&self.note, &self.canaries)
    }
}

/// A generation in a listing.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PublishedGeneration {
    /// The manifest.
    pub manifest: Manifest,
    /// Whether the newest pin names the generation.
    pub pinned: bool,
    /// The nodes that serve the generation.
    pub nodes: Vec<String>,
    /// The nodes that cannot serve the generation, each with its reason.
    pub failed: Vec<(String, String)>,
}

impl Publication {
    /// Opens a table. Sends no request to the store.
    ///
    /// # Errors
    /// [`PublishError::Url`], [`PublishError::Io`].
    pub fn open(url: &str) -> Result<Publication, PublishError> {
        Publication::new(Location::parse(url)?)
    }

    /// Opens a table for publishing. If the URL names a folder of this machine, creates the folder.
    ///
    /// # Errors
    /// [`PublishError::Url`], [`PublishError::Io`].
    pub fn create(url: &str) -> Result<Publication, PublishError> {
        Publication::create_with(url, "")
    }

    /// Opens a table as [`Publication::create`] does. Environment variables of the store whose names have a prefix,
    /// such as `TO_AWS_REGION`, replace those without it, so that one process can use two stores.
    ///
    /// # Errors
    /// [`PublishError::Url`], [`PublishError::Io`].
    pub fn create_with(url: &str, variables_prefix: &str) -> Result<Publication, PublishError> {
        let location = Location::create(url, variables_prefix)?;
        location.check_writable()?;
        Publication::new(location)
    }

    pub(super) fn new(location: Location) -> Result<Publication, PublishError> {
        let runtime = TransferRuntime::new().map_err(PublishError::io("the runtime of the transfer".as_ref()))?;
        Ok(Publication { location, runtime, job: new_job(), warnings: Mutex::default() })
    }

    pub(super) fn block_on<T>(
        &self,
        operation: impl AsyncFnOnce(&Location) -> Result<T, PublishError>,
    ) -> Result<T, PublishError> {
        self.runtime.block_on(operation(&self.location))
    }

    /// Returns the table's URL.
    pub fn url(&self) -> &str {
        self.location.url()
    }

    /// Sets how the operations on the table wait for a store that is busy and asks for a pause (`Retry-After`), which
    /// is at most a minute. Passes a message to `notice` if a pause takes longer than some seconds. An operation whose
    /// pause would end after the deadline fails at once.
    pub fn set_patience(&self, deadline: Option<Instant>, notice: impl Fn(&str) + Send + Sync + 'static) {
        self.location.busy.set_patience(deadline.map(Into::into), Arc::new(notice));
    }

    /// Returns whether an interrupted upload continues if the same file is uploaded again.
    pub fn resumes_uploads(&self) -> bool {
        self.location.multipart.is_some()
    }

    /// Verifies a baked file, uploads it, and compares the stored bytes with the file. Readers do not see the file
    /// until a manifest references it. An interrupted upload continues if the same file is uploaded again, except in a
    /// folder: see [`Publication::resumes_uploads`].
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn upload<'a>(
        &self,
        shard: &ShardFile,
        cancel: impl Into<WithProgress<'a, Cancel, TransferProgress>>,
    ) -> Result<Entry, PublishError> {
        cancel.into().run(|cancel, progress| {
            let upload = upload(&self.location, &self.job, shard, cancel, progress);
            self.runtime.block_on(until_canceled(cancel, upload))
        })
    }

    /// Checks that the expected generation is the newest one. Without an expected generation, checks nothing.
    ///
    /// # Errors
    /// [`PublishError::Parent`], [`PublishError::Store`].
    pub fn check_parent(&self, parent: Option<u64>) -> Result<(), PublishError> {
        let Some(parent) = parent else { return Ok(()) };
        match self.last_generation()? {
            newest if newest == parent => Ok(()),
            newest => Err(PublishError::Parent { url: self.url().to_owned(), parent, newest }),
        }
    }

    /// Checks the slots and the canaries of files, compares them with the preceding generation, uploads the files, and
    /// creates the generation that consists of them.
    /// [`Cancel::with_progress`] observes each transfer with the position of its file in `shards`.
    ///
    /// # Errors
    /// [`PublishError`]. After an error, readers see no new generation.
    pub fn publish<'a>(
        &self,
        shards: &[ShardFile],
        options: &CommitOptions,
        cancel: impl Into<WithProgress<'a, Cancel, (usize, TransferProgress)>>,
    ) -> Result<Manifest, PublishError> {
        cancel.into().run(|cancel, progress| self.publish_observed(shards, options, cancel, progress))
    }

    fn publish_observed(
        &self,
        shards: &[ShardFile],
        options: &CommitOptions,
        cancel: &Cancel,
        progress: &mut (dyn FnMut((usize, TransferProgress)) + Send),
    ) -> Result<Manifest, PublishError> {
        ShardFile::check_coverage(shards)?;
        options.check().map_err(|problem| self.malformed_manifest(problem))?;
        check_canaries(&options.canaries, shards)?;
        // The file may be large, so it is compared before its upload.
        let (facts, bytes) = facts(shards)?;
        self.check_new(&facts, bytes, options)?;
        let mut entries = Vec::new();
        for (at, shard) in shards.iter().enumerate() {
            entries.push(self.upload(shard, cancel.with_progress(&mut |state| progress((at, state))))?);
        }
        super::transfer::check(cancel)?;
        self.commit(entries, options)
    }

    /// Creates the next generation from uploaded files. The slots of the files must cover every slot exactly once.
    ///
    /// # Errors
    /// [`PublishError::Coverage`]; [`PublishError::Parent`] if another generation than the expected one is the newest;
    /// [`PublishError::Quota`]; [`PublishError::Change`]; [`PublishError::Store`].
    pub fn commit(&self, entries: Vec<Entry>, options: &CommitOptions) -> Result<Manifest, PublishError> {
        check_coverage(entries.iter().map(|entry| entry.slots))
            .map_err(|problem| PublishError::Coverage { problem })?;
        let mut manifest = Manifest::new(&self.location, &self.job, entries);
        manifest.canaries = options.canaries.clone();
        manifest.note = options.note.clone();
        self.commit_new(manifest, options)
    }

    /// Gives a manifest the next number, and creates it. Of the options, uses only the parent and the changes that
    /// are allowed.
    pub(super) fn commit_new(&self, manifest: Manifest, options: &CommitOptions) -> Result<Manifest, PublishError> {
        manifest.check().map_err(|problem| self.malformed_manifest(problem))?;
        self.runtime.block_on(self.commit_manifest(manifest, options))
    }

    /// Returns the highest number of a generation that was ever used.
    pub(super) fn last_generation(&self) -> Result<u64, PublishError> {
        self.runtime.block_on(self.last_used(Series::Manifests))
    }

    /// Checks the quotas for a new generation, and compares it with the newest one that can be read.
    pub(super) fn check_new(&self, facts: &Facts, bytes: u64, options: &CommitOptions) -> Result<(), PublishError> {
        self.runtime.block_on(async {
            self.check_policy(facts.rows, bytes).await?;
            let newest = self.location.highest(Series::Manifests, 0).await?;
            self.check_changes(facts, newest, options).await.map(drop)
        })
    }

    pub(super) async fn commit_manifest(
        &self,
        mut manifest: Manifest,
        options: &CommitOptions,
    ) -> Result<Manifest, PublishError> {
        let (location, parent, facts) = (&self.location, options.parent, manifest.facts());
        location.check_writable()?;
        self.check_policy(facts.rows, manifest.bytes()).await?;
        let mut newest = self.last_used(Series::Manifests).await?;
        for attempt in 0..COMMITS_MAX {
            if let Some(parent) = parent.filter(|parent| *parent != newest) {
                return Err(PublishError::Parent { url: self.url().to_owned(), parent, newest });
            }
            (manifest.number, manifest.parent) = (newest + 1, newest);
            manifest.allowed = self.check_changes(&facts, newest, options).await?;
            manifest.check().map_err(|problem| self.malformed_manifest(problem))?;
            if location.create_document(Series::Manifests, manifest.number, &encode(&manifest)).await? {
                return Ok(manifest);
            }
            // Another publisher was first.
            pause_after_race(attempt).await;
            newest = location.highest(Series::Manifests, manifest.number).await?;
        }
        let problem = format!("{COMMITS_MAX} other publishers were first: publish again");
        Err(PublishError::NoGeneration { url: self.url().to_owned(), problem })
    }

    /// Compares a new generation with the newest one that can be read, up to a number. Returns the names of the changes
    /// that are allowed.
    async fn check_changes(
        &self,
        facts: &Facts,
        newest: u64,
        options: &CommitOptions,
    ) -> Result<Vec<String>, PublishError> {
        for number in (newest.saturating_sub(COMPARED_MAX).max(1)..=newest).rev() {
            let parent = match Manifest::read(&self.location, number).await {
                // It was deleted, or is damaged.
                Ok(None) | Err(PublishError::Document { .. }) => continue,
                Ok(Some(parent)) => parent,
                Err(error) => return Err(error),
            };
            let mut allowed = Vec::new();
            for (change, problem) in facts.changes_from(&parent.facts(), options.shrink_max_percent) {
                if !options.allow.contains(&change) {
                    return Err(PublishError::Change { url: self.url().to_owned(), parent: number, change, problem });
                }
                allowed.push(change.name().to_owned());
            }
            return Ok(allowed);
        }
        Ok(Vec::new())
    }

    /// Returns the highest number of a series that was ever used.
    pub(super) async fn last_used(&self, series: Series) -> Result<u64, PublishError> {
        self.location.last_used(series, &mut |warning| self.warn(warning)).await
    }

    fn malformed_manifest(&self, problem: String) -> PublishError {
        PublishError::Document { object: format!("{}: the new manifest", self.url()), problem }
    }

    /// Returns the number of the newest generation, or 0 if there is none.
    ///
    /// # Errors
    /// [`PublishError::Store`].
    pub fn newest(&self) -> Result<u64, PublishError> {
        self.runtime.block_on(self.location.highest(Series::Manifests, 0))
    }

    /// Returns the newest manifest, or the manifest of a generation.
    ///
    /// # Errors
    /// [`PublishError::NoGeneration`], [`PublishError::Document`], [`PublishError::Store`].
    pub fn manifest(&self, number: Option<u64>) -> Result<Manifest, PublishError> {
        self.runtime.block_on(async {
            let newest = match number {
                Some(number) => number,
                None => self.location.highest(Series::Manifests, 0).await?,
            };
            let missing = || PublishError::NoGeneration {
                url: self.location.url().to_owned(),
                problem: match number {
                    Some(number) => format!("has no generation {number}: list the generations"),
                    None => "has no generation: check the URL, or publish a file".to_owned(),
                },
            };
            Manifest::read(&self.location, newest).await?.ok_or_else(missing)
        })
    }

    /// Returns the newest generations, at most `count` of them, in ascending order. Leaves out generations whose
    /// manifests cannot be read: see [`Publication::take_warnings`]. If the newest pin cannot be read, no generation
    /// counts as pinned.
    ///
    /// # Errors
    /// [`PublishError`]. [`PublishError::Document`] only if no manifest can be read.
    pub fn generations(&self, count: u64) -> Result<Vec<PublishedGeneration>, PublishError> {
        self.runtime.block_on(async {
            let newest = self.location.highest(Series::Manifests, 0).await?;
            let pin = match self.pin_async().await {
                Err(error @ PublishError::Document { .. }) => {
                    self.warn(format!("{error}: until then, nodes keep what they serve"));
                    None
                }
                pin => pin?.and_then(|(_, pin)| pin.generation),
            };
            let statuses = self.statuses_async().await?;
            let numbers = newest.saturating_sub(count.saturating_sub(1)).max(1)..=newest;
            let read = |number| Manifest::read(&self.location, number);
            let mut manifests = stream::iter(numbers.map(read)).buffered(REQUESTS_MAX);
            let (mut generations, mut unreadable) = (Vec::new(), Vec::new());
            while let Some(manifest) = manifests.next().await {
                let manifest = match manifest {
                    Ok(Some(manifest)) => manifest,
                    Ok(None) => continue,
                    Err(error @ PublishError::Document { .. }) => {
                        unreadable.push(error);
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                let number = manifest.number;
                let serving = statuses.iter().filter(|status| status.serving == number);
                let nodes = serving.map(|status| status.node.clone()).collect();
                let failed = statuses.iter().filter(|status| status.failed == number);
                let failed = failed.map(|status| (status.node.clone(), status.error.clone())).collect();
                generations.push(PublishedGeneration { manifest, pinned: pin == Some(number), nodes, failed });
            }
            match unreadable.pop() {
                // The table is not empty.
                Some(error) if generations.is_empty() => return Err(error),
                last => unreadable.extend(last),
            }
            unreadable.iter().for_each(|error| self.warn(format!("{error}: the generation is not listed")));
            Ok(generations)
        })
    }

    /// Returns the newest pin and its number, or `None` if there is none.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn pin(&self) -> Result<Option<(u64, Pin)>, PublishError> {
        self.runtime.block_on(self.pin_async())
    }

    async fn pin_async(&self) -> Result<Option<(u64, Pin)>, PublishError> {
        let number = self.location.highest(Series::Pins, 0).await?;
        Ok(Pin::read(&self.location, number).await?.map(|pin| (number, pin)))
    }

    /// Returns a pin by its number, or `None` if there is none.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn pin_with_number(&self, number: u64) -> Result<Option<Pin>, PublishError> {
        self.runtime.block_on(Pin::read(&self.location, number))
    }

    /// Creates a pin. Returns its number. The pin's generations must exist, with their files.
    ///
    /// # Errors
    /// [`PublishError`]. [`PublishError::NoGeneration`] names the generations that exist.
    pub fn create_pin(&self, pin: &Pin) -> Result<u64, PublishError> {
        self.location.check_writable()?;
        pin.check()
            .map_err(|problem| PublishError::Document { object: format!("{}: the new pin", self.url()), problem })?;
        self.runtime.block_on(async {
            for number in [pin.generation, pin.others].into_iter().flatten() {
                let problem = match Manifest::read(&self.location, number).await? {
                    None => format!("has no generation {number}"),
                    Some(manifest) if !self.has_files(&manifest).await => {
                        format!("the files of generation {number} were deleted, for example by garbage collection")
                    }
                    Some(_) => continue,
                };
                let problem = format!("{problem}: {}", self.existing_generations().await?);
                return Err(PublishError::NoGeneration { url: self.url().to_owned(), problem });
            }
            pin.create(&self.location, self.last_used(Series::Pins).await?).await
        })
    }

    /// Returns whether the store has all files of a generation. If this process may not ask for them, nodes will find
    /// out.
    async fn has_files(&self, manifest: &Manifest) -> bool {
        let mut found = stream::iter(&manifest.entries)
            .map(|entry| async { self.location.store.head(&self.location.path(&entry.object)).await })
            .buffer_unordered(REQUESTS_MAX);
        while let Some(found) = found.next().await {
            if matches!(found, Err(object_store::Error::NotFound { .. })) {
                return false;
            }
        }
        true
    }

    /// Returns which of the newest generations exist, with their files, as an instruction.
    async fn existing_generations(&self) -> Result<String, PublishError> {
        let newest = self.location.highest(Series::Manifests, 0).await?;
        let numbers = self.location.numbers_after(Series::Manifests, newest.saturating_sub(LISTED_MAX)).await?;
        let mut existing = Vec::new();
        for number in numbers {
            // A generation whose manifest cannot be read cannot be pinned either.
            if let Ok(Some(manifest)) = Manifest::read(&self.location, number).await
                && self.has_files(&manifest).await
            {
                existing.push(number);
            }
        }
        let runs = existing.chunk_by(|number, next| number + 1 == *next).map(|run| match run {
            [first, .., last] => format!("{first} to {last}"),
            _ => run[0].to_string(),
        });
        Ok(match &runs.collect::<Vec<_>>()[..] {
            [] => "no generation has all its files: publish the rows again".to_owned(),
            runs => format!("pin one of the generations that exist: {}", runs.join(", ")),
        })
    }

    /// Decides whether nodes serve the generation that the pin with this number makes them [hold](Pin::hold). The first
    /// decision is final: returns it, even if it is another one.
    ///
    /// # Errors
    /// [`PublishError`]. [`PublishError::Document`] if there is no such pin, or if nodes need no decision about it.
    pub fn decide(&self, pin: u64, decision: Decision) -> Result<Decision, PublishError> {
        self.location.check_writable()?;
        self.runtime.block_on(async {
            if !Pin::read(&self.location, pin).await?.is_some_and(|pin| pin.hold) {
                let problem = "is not a pin whose generation nodes hold: create one before the decision";
                return Err(self.location.document_fault(&Series::Pins.object(pin), problem));
            }
            decision.create(&self.location, pin).await
        })
    }

    /// Returns the decision about the pin with this number, or `None` if there is none.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn decision(&self, pin: u64) -> Result<Option<Decision>, PublishError> {
        self.runtime.block_on(Decision::read(&self.location, pin))
    }

    /// Returns the statuses of all nodes, in the order of their names. Returns none if the store can only be read.
    /// Skips statuses that cannot be read: see [`Publication::take_warnings`].
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn statuses(&self) -> Result<Vec<NodeStatus>, PublishError> {
        self.runtime.block_on(self.statuses_async())
    }

    /// Returns the statuses of all nodes, and which ones cannot be read. Returns none if the store can only be read.
    /// Ends after `time_max`. Malformed statuses are also [warnings](Publication::take_warnings).
    ///
    /// # Errors
    /// [`PublishError`]. If the store fails for some nodes, returns the others.
    pub fn reports(&self, time_max: Duration) -> Result<NodeReports, PublishError> {
        if !self.location.is_writable {
            return Ok(NodeReports::default());
        }
        let timed_out = |_| PublishError::Store {
            object: self.location.object_url("status"),
            cause: StoreFault::Other(format!("not read within {} s", time_max.as_secs())),
        };
        self.runtime.block_on(async {
            let read = NodeReports::read(&self.location, READS_MAX);
            let reports = tokio::time::timeout(time_max, read).await.map_err(timed_out)??;
            // The store may return the others soon.
            reports.statuses.iter().filter_map(NodeStatus::name_problem).for_each(|problem| self.warn(problem));
            let malformed = reports.unreadable.iter().filter(|unreadable| !unreadable.is_temporary);
            malformed.for_each(|unreadable| self.warn(unreadable.message()));
            Ok(reports)
        })
    }

    async fn statuses_async(&self) -> Result<Vec<NodeStatus>, PublishError> {
        if !self.location.is_writable {
            return Ok(Vec::new());
        }
        let statuses = NodeStatus::read_all(&self.location, &mut |warning| self.warn(warning)).await?;
        statuses.iter().filter_map(NodeStatus::name_problem).for_each(|problem| self.warn(problem));
        Ok(statuses)
    }

    fn warn(&self, warning: String) {
        let mut warnings = unpoisoned(&self.warnings);
        if warnings.len() < WARNINGS_MAX {
            warnings.insert(warning);
        }
    }

    /// Returns warnings of the operations since the last call, at most 16: about statuses, manifests, and pins that
    /// could not be read and are left out, about documents that were deleted, and about nodes with the same name. Every
    /// writer to `status/` in the store can put anything there, which must not hide the other nodes.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *unpoisoned(&self.warnings)).into_iter().collect()
    }

    /// Downloads a generation into one file, and verifies it. The file replaces the file at `path` when it is complete.
    /// An interrupted download continues if it is repeated.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn pull<'a>(
        &self,
        manifest: &Manifest,
        path: &Path,
        bandwidth_bytes_per_s: Option<u64>,
        cancel: impl Into<WithProgress<'a, Cancel, TransferProgress>>,
    ) -> Result<(), PublishError> {
        let bandwidth = Bandwidth::new(bandwidth_bytes_per_s);
        let (folder, name) = output(path)?;
        // The name has the digest, because the download of another generation must not be continued.
        let new = with_suffix(&name, &format!(".{}", manifest.digest()));
        let target = Target { folder: &folder, name: &new };
        cancel.into().run(|cancel, progress| {
            let fetch = fetch_merged(&self.location, manifest, &SlotSet::ALL, target, &bandwidth, cancel, progress);
            self.runtime.block_on(until_canceled(cancel, fetch))
        })?;
        folder.rename(&new, &name).and_then(|()| folder.sync()).map_err(PublishError::io(path))
    }

    /// Downloads a shard of a generation, and verifies it. The file at `path` exists when it is complete. An
    /// interrupted download continues if it is repeated.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn pull_shard<'a>(
        &self,
        entry: &Entry,
        path: &Path,
        cancel: impl Into<WithProgress<'a, Cancel, TransferProgress>>,
    ) -> Result<(), PublishError> {
        let (bandwidth, (folder, name)) = (Bandwidth::new(None), output(path)?);
        cancel.into().run(|cancel, progress| {
            let fetch = download(&self.location, entry, &folder, &name, &bandwidth, cancel, progress);
            self.runtime.block_on(until_canceled(cancel, fetch))
        })
    }

    /// Deletes, or only reports, the files that no retained, pinned, or served generation references.
    ///
    /// # Errors
    /// [`PublishError`]. If a manifest that matters cannot be read, nothing is deleted.
    pub fn collect_garbage(&self, rules: &GarbageRules) -> Result<Garbage, PublishError> {
        self.runtime.block_on(garbage::collect(&self.location, rules, &mut |warning| self.warn(warning)))
    }

    /// Checks that the store creates each object only once, in this many races of simultaneous creations, and measures
    /// the rates of transfers with 64 MiB. Writes objects below `probe/`, and deletes them.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn probe(&self, races: u64) -> Result<StoreProbe, PublishError> {
        self.runtime.block_on(probe::probe(&self.location, races))
    }
}

/// Opens the folder of an output. Returns it with the name of the output, which a new file may replace.
fn output(path: &Path) -> Result<(Folder, OsString), PublishError> {
    let open = || {
        let (folder, name) = Folder::of(path)?;
        folder.check_replaceable(&name)?;
        Ok((folder, name))
    };
    open().map_err(PublishError::io(path))
}

/// Looks canaries up in the files of a generation, so that a mistake is found before the generation is published.
///
/// # Errors
/// [`PublishError::Canary`] for the first canary that a server would reject; [`PublishError::File`].
fn check_canaries(canaries: &[Canary], shards: &[ShardFile]) -> Result<(), PublishError> {
    if canaries.is_empty() {
        return Ok(());
    }
    let open = |shard: &ShardFile| Ok((shard.slots, MappedStore::open(&shard.path)?));
    let stores = shards.iter().map(open).collect::<Result<Vec<_>, PublishError>>()?;
    for canary in canaries {
        let Some((_, first)) = stores.first() else { continue };
        let slot = slot_of_typed(first.key_type(), canary.key_of(first.key_type())?.as_key());
        let Some((_, store)) = stores.iter().find(|(slots, _)| slots.has(slot)) else { continue };
        canary.check(store.key_type(), |key| store.get(key))?;
    }
    Ok(())
}

/// Reads the compared properties of a generation's files, and their length in bytes.
fn facts(shards: &[ShardFile]) -> Result<(Facts, u64), PublishError> {
    let (mut facts, mut bytes) = (Facts::default(), 0_u64);
    for shard in shards {
        let store = MappedStore::open(&shard.path)?;
        facts.rows = facts.rows.saturating_add(store.len() as u64);
        bytes = bytes.saturating_add(store.file_len_bytes());
        facts.key_kind = store.key_type().to_string();
        facts.schema = schema_names(store.schema().as_deref());
    }
    Ok((facts, bytes))
}

/// Returns a name that no other job of a table has.
pub(super) fn new_job() -> String {
    // Engines repeat tasks and run copies of slow ones, so that no two uploads may have one name.
    format!("{:032x}", u128::from_le_bytes(random_bytes()))
}

/// The maximum distance from the highest document to a number that only another object names. Otherwise, the writer of
/// a status could use up all numbers.
const DISTANCE_MAX: u64 = 1 << 20;

/// The maximum time of a listing during a poll.
const LIST_MAX: Duration = Duration::from_secs(60);

impl Location {
    /// Returns the highest number of a series, even if preceding documents were deleted. Returns 0 if there is none.
    /// `known` is a number that exists, or 0. A store that cannot be listed has no gaps.
    pub(super) async fn highest(&self, series: Series, known: u64) -> Result<u64, PublishError> {
        let newest = self.newest(series, known).await?;
        Ok(self.numbers_after(series, newest).await?.last().copied().unwrap_or(newest))
    }

    /// Returns the same as [`Location::highest`], but ignores gaps if the store cannot be listed, for example without
    /// the permission.
    pub(super) async fn highest_if_listed(&self, series: Series, known: u64) -> Result<u64, PublishError> {
        let newest = self.newest(series, known).await?;
        match timeout(LIST_MAX, self.numbers_after(series, newest)).await {
            Ok(Ok(numbers)) => Ok(numbers.last().copied().unwrap_or(newest)),
            Ok(Err(_)) | Err(_) => Ok(newest),
        }
    }

    /// Returns the numbers of a series that are higher than a number, in ascending order. Returns none if the store
    /// cannot be listed.
    pub(super) async fn numbers_after(&self, series: Series, number: u64) -> Result<Vec<u64>, PublishError> {
        if !self.is_writable {
            return Ok(Vec::new());
        }
        let after = series.object(number);
        let folder = after.split('/').next().unwrap_or_default();
        let listed = self.list(folder, Some(&after), NUMBERS_MAX).await?;
        let number_of = |location: &object_store::path::Path| {
            let number = location.filename()?.strip_suffix(".json")?.parse().ok()?;
            // Other programs may have put other objects there.
            (number <= NUMBER_MAX && *location == self.path(&series.object(number))).then_some(number)
        };
        let mut numbers: Vec<u64> = listed.iter().filter_map(|object| number_of(&object.location)).collect();
        numbers.retain(|found| *found > number);
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns the highest number of a series that was ever used, as far as the store shows it: by documents, and by
    /// the pins, decisions, and statuses that name numbers of the series. Passes a message to `warn` if documents were
    /// deleted.
    pub(super) async fn last_used(&self, series: Series, warn: &mut dyn FnMut(String)) -> Result<u64, PublishError> {
        let newest = self.newest(series, 0).await?;
        let highest = self.numbers_after(series, newest).await?.last().copied().unwrap_or(newest);
        let mut last = highest;
        for (object, number) in self.named(series, warn).await? {
            if number > highest.saturating_add(DISTANCE_MAX) {
                warn(format!(
                    "{} names {number}, which is ignored: the highest number is {highest}",
                    self.object_url(&object)
                ));
            } else {
                last = last.max(number);
            }
        }
        // Another publisher may have created it meanwhile.
        if last > newest && self.len_bytes(&series.object(newest + 1)).await?.is_none() {
            let (deleted, next) = (self.object_url(&series.object(newest + 1)), last + 1);
            warn(format!(
                "{deleted} was deleted, but later numbers were used: the next number is {next}: check the lifecycle \
                 rules of the bucket"
            ));
        }
        Ok(last)
    }

    /// Returns the objects that name numbers of a series, and these numbers.
    async fn named(&self, series: Series, warn: &mut dyn FnMut(String)) -> Result<Vec<(String, u64)>, PublishError> {
        let number = |status: &NodeStatus| match series {
            Series::Manifests => status.serving.max(status.prepared).max(status.newest),
            Series::Pins => status.pin,
            Series::Topologies => status.topology,
            Series::Decisions | Series::Policies => 0,
        };
        // Writers of statuses must not keep publishers from publishing.
        let statuses = permitted(NodeStatus::read_all(self, warn).await).unwrap_or_else(|error| {
            warn(format!("{error}: numbers that only nodes know are not considered"));
            Vec::new()
        });
        let mut named: Vec<_> =
            statuses.iter().map(|status| (format!("status/{}.json", status.node), number(status))).collect();
        if series == Series::Pins {
            let decided = permitted(self.numbers_after(Series::Decisions, 0).await)?;
            named.extend(decided.last().map(|number| (Series::Decisions.object(*number), *number)));
        }
        if series == Series::Manifests {
            let pin = permitted(self.highest(Series::Pins, 0).await)?;
            // A pin that cannot be read names nothing.
            let pinned = Pin::read(self, pin).await.ok().flatten();
            let generations = pinned.iter().flat_map(|pin| [pin.generation, pin.others]).flatten();
            named.extend(generations.map(|number| (Series::Pins.object(pin), number)));
        }
        Ok(named)
    }
}

/// Ignores the missing permission to read documents of other roles.
fn permitted<T: Default>(found: Result<T, PublishError>) -> Result<T, PublishError> {
    match found {
        Err(PublishError::Store { cause: StoreFault::Credentials(_), .. }) => Ok(T::default()),
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_after_gaps_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::parse(&format!("file://{}", folder.path().display())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let highest = |known| runtime.block_on(location.highest(Series::Pins, known)).unwrap();
        assert_eq!(highest(0), 0);
        for number in 1..=9 {
            assert!(runtime.block_on(location.create_document(Series::Pins, number, b"1")).unwrap());
        }
        for other in ["notes.json", "00000000000000000010.json.tmp", "99999999999999999999.json", "11.json"] {
            std::fs::write(folder.path().join("pins").join(other), "").unwrap();
        }
        for deleted in 1..=8 {
            std::fs::remove_file(folder.path().join(Series::Pins.object(deleted))).unwrap();
            assert_eq!((highest(0), highest(deleted), highest(9)), (9, 9, 9), "{deleted}");
        }
        std::fs::remove_file(folder.path().join(Series::Pins.object(9))).unwrap();
        assert_eq!(highest(0), 0);
    }
}
