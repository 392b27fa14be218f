//! Shards that an engine such as Spark bakes in many processes, and commits in one.
//!
//! In: the rows of some slots, in each task of the engine. Out: an uploaded file under a name that no other attempt
//! has, and its entry, which the task sends to the driver. The driver commits the entries of all tasks as one
//! generation. Files of failed, repeated, and speculative tasks stay unreferenced, and garbage collection deletes them.
//!
//! Reasons and evidence: `docs/decisions/engine-shards.md`.

use futures_util::stream::{self, StreamExt};
use tempfile::TempDir;

use super::error::PublishError;
use super::manifest::{Entry, Manifest, check_coverage};
use super::publication::{CommitOptions, Publication, new_job};
use super::transfer::{REQUESTS_MAX, TransferProgress, until_canceled};
use super::upload::{ShardFile, upload};
use crate::bake::{self, BakeError, Cancel, Column, Input, Keys, Options, Progress, Report, TypedColumns};
use crate::format::key_type::KeyType;
use crate::progress::WithProgress;
use crate::slots::SlotRange;

/// A shard that has been baked into a temporary file, but not uploaded yet.
#[derive(Debug)]
pub struct BakedShard {
    file: ShardFile,
    report: Report,
    /// Contains the file. Dropping the folder deletes it.
    _folder: TempDir,
}

impl BakedShard {
    /// Bakes the rows of some slots into a temporary file. Its folder is [`Options::temp_dir`], by default the folder
    /// for temporary files of this machine.
    ///
    /// A row with another slot makes [`BakedShard::upload`] fail, unless [`Options::slots`] leaves such rows out.
    /// [`Options::keys`] must not be [`Keys::Auto`], because all shards of a table need keys of one kind.
    ///
    /// # Errors
    /// [`PublishError::Bake`], [`PublishError::Io`].
    pub fn bake<'a>(
        inputs: Vec<Input<'_>>,
        slots: SlotRange,
        options: impl Into<WithProgress<'a, Options, Progress>>,
    ) -> Result<BakedShard, PublishError> {
        options.into().run(|options, progress| BakedShard::bake_observed(inputs, slots, options, progress))
    }

    fn bake_observed(
        inputs: Vec<Input<'_>>,
        slots: SlotRange,
        options: &Options,
        progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<BakedShard, PublishError> {
        if !slots.is_valid() {
            return Err(BakeError::Slots { slots }.into());
        }
        if options.keys == Keys::Auto {
            return Err(BakeError::SlotsKeysUnknown.into());
        }
        let parent = options.temp_dir.clone().unwrap_or_else(std::env::temp_dir);
        // The error of the crate tempfile does not have the system's error code.
        std::fs::metadata(&parent).map_err(PublishError::io(&parent))?;
        let folder = tempfile::Builder::new().prefix("zero-kv-shard-").tempdir_in(&parent);
        let folder = folder.map_err(PublishError::io(&parent))?;
        let path = folder.path().join(format!("{slots}.db"));
        let report = bake::bake(inputs, &path, options.with_progress(progress)).map_err(|error| match error {
            BakeError::Canceled => PublishError::Canceled,
            error => error.into(),
        })?;
        Ok(BakedShard { file: ShardFile { path, slots }, report, _folder: folder })
    }

    /// Returns the facts about the bake.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Verifies the file, uploads it under a name that no other upload has, and compares the stored bytes with the
    /// file. Readers do not see the file until a manifest references it.
    ///
    /// # Errors
    /// [`PublishError::Slot`] if a row has another slot; [`PublishError`].
    pub fn upload<'a>(
        &self,
        publication: &Publication,
        cancel: impl Into<WithProgress<'a, Cancel, TransferProgress>>,
    ) -> Result<Entry, PublishError> {
        let job = new_job();
        cancel.into().run(|cancel, progress| {
            let upload = upload(&publication.location, &job, &self.file, cancel, progress);
            publication.runtime.block_on(until_canceled(cancel, upload))
        })
    }
}

impl Publication {
    /// Bakes the rows of some slots, and uploads the file: see [`BakedShard::bake`] and [`BakedShard::upload`]. Tasks
    /// of an engine call this function, each for its slots, and send the entries to the driver, which calls
    /// [`Publication::commit_shards`].
    ///
    /// # Errors
    /// [`PublishError`].
    ///
    /// # Example
    /// ```
    /// use zero_kv::bake::{Cancel, Column, Input, Keys, Options};
    /// use zero_kv::publish::{CommitOptions, Entry, Publication};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let url = format!("file://{}/users", folder.path().display());
    /// let mut options = Options::default();
    /// options.keys = Keys::U64;
    ///
    /// // In a task. The slot of 42 is 8000.
    /// let rows = Input::reader("rows", "42,forty-two\n".as_bytes());
    /// let entry = Publication::create(&url)?.write_shard(vec![rows], "0-8191".parse()?, &options)?;
    /// let sent = entry.to_json();
    ///
    /// // In the driver.
    /// let entries = vec![Entry::from_json(&sent)?];
    /// let (empty, cancel) = (["8192-16383".parse()?], Cancel::default());
    /// let manifest = Publication::open(&url)?.commit_shards(entries, &empty, &CommitOptions::default(), &cancel)?;
    /// assert_eq!((manifest.number, manifest.rows(), manifest.entries.len()), (1, 1, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_shard(
        &self,
        inputs: Vec<Input<'_>>,
        slots: SlotRange,
        options: &Options,
    ) -> Result<Entry, PublishError> {
        self.location.check_writable()?;
        BakedShard::bake(inputs, slots, options)?.upload(self, &options.cancel)
    }

    /// Creates the next generation from the entries of shards, which other processes may have uploaded.
    ///
    /// The entries and the ranges of `empty` must cover every slot exactly once. `empty` are the slots without rows,
    /// for which no task has written a shard: this function uploads a shard without rows for each of these ranges.
    /// Checks that the store has all shards, so that entries of another table are rejected.
    ///
    /// # Errors
    /// [`PublishError::Coverage`] names the slots that no entry or several entries have; [`PublishError::Corrupt`] if
    /// the store does not have a shard; [`PublishError::Parent`]; [`PublishError`]. After an error, readers see no new
    /// generation.
    pub fn commit_shards(
        &self,
        mut entries: Vec<Entry>,
        empty: &[SlotRange],
        options: &CommitOptions,
        cancel: &Cancel,
    ) -> Result<Manifest, PublishError> {
        let coverage = |problem| PublishError::Coverage { problem };
        // Slots without rows are named, because a task that was lost would otherwise look like one without rows.
        check_coverage(entries.iter().map(|entry| entry.slots).chain(empty.iter().copied())).map_err(coverage)?;
        self.check_parent(options.parent)?;
        // Otherwise, only readers would notice an entry of another table.
        self.check_stored(&entries, cancel)?;
        if let Some(first) = entries.first().cloned() {
            for slots in empty {
                entries.push(self.write_empty(*slots, &first, cancel)?);
            }
        } else {
            let problem = "no shard was written, so that the kind of keys is unknown: write a shard without rows";
            return Err(coverage(problem.to_owned()));
        }
        super::transfer::check(cancel)?;
        self.commit(entries, options)
    }

    /// Checks that the store has the objects of all entries.
    pub(super) fn check_stored(&self, entries: &[Entry], cancel: &Cancel) -> Result<(), PublishError> {
        let check = |entry: &Entry| {
            let entry = entry.clone();
            async move {
                match self.location.len_bytes(&entry.object).await? {
                    Some(bytes) if bytes == entry.bytes => Ok(()),
                    found => Err(PublishError::Corrupt {
                        object: self.location.object_url(&entry.object),
                        problem: format!(
                            "the store has {}, expected {} bytes: pass entries of this table, and commit them before \
                             `zkv gc` deletes their files",
                            found.map_or("no such object".to_owned(), |bytes| format!("{bytes} bytes")),
                            entry.bytes
                        ),
                    }),
                }
            }
        };
        let checks = async {
            let mut checked = stream::iter(entries.iter().map(check)).buffer_unordered(REQUESTS_MAX);
            while let Some(result) = checked.next().await {
                result?;
            }
            Ok(())
        };
        self.runtime.block_on(until_canceled(cancel, checks))
    }

    /// Uploads a shard without rows that has the kind of keys and the columns of another shard.
    fn write_empty(&self, slots: SlotRange, like: &Entry, cancel: &Cancel) -> Result<Entry, PublishError> {
        let malformed =
            |problem: String| PublishError::Document { object: format!("the entry of {}", like.object), problem };
        let mut options = Options { cancel: cancel.clone(), ..Options::default() };
        let key_type: KeyType =
            like.key_kind.parse().map_err(|error| malformed(format!("the type of keys: {error}")))?;
        options.keys = key_type.into();
        if !like.schema.is_empty() {
            let types = like.schema.iter().map(|column| column.parse().map_err(|error| malformed(format!("{error}"))));
            let types = types.collect::<Result<_, PublishError>>()?;
            options.typed = Some(TypedColumns { types, ..TypedColumns::default() });
            options.key = Some(like.key_name.clone()).filter(|name| !name.is_empty()).map(Column::Name);
        }
        let rows = Input::rows("rows", |_| Ok(()));
        self.write_shard(vec![rows], slots, &options)
    }
}
