//! Looks keys up in a mapped file, and returns verified copies of values.
//!
//! In: a path, then keys. Out: copies of values. Another process can change a mapped file at any time, so a lookup
//! checks after the copy that the file is unchanged, and fails otherwise.
//!
//! Reasons and evidence: `docs/decisions/borrowed-memory.md`.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::ops::{ControlFlow, Deref};
use std::path::Path;
use std::sync::Arc;

use super::memory::{Memory, OpenOptions, Step};
use super::neighbors::LentRange;
use super::rows::Span;
use super::{
    Epoch, Lookup, LookupError, Mistrust, Rows, Side, Store, StoreError, WatchedFile, open_file, survive_bus_errors,
};
use crate::format::key::{Key, KeyKind};
use crate::format::record::Record;
use crate::format::{OwnedKey, RangeRow, Row};
use crate::progress::WithProgress;
use crate::typed::Schema;

/// A batch of lookups ends once its values have this total length. After each batch, the file is checked for changes,
/// and the values are passed to the caller.
const BATCH_LEN_BYTES: usize = 64 << 10;
/// The maximum number of keys in a batch of lookups.
const BATCH_KEYS: usize = 256;
/// The maximum number of attempts to look a batch up, if pages are copied or the file's names or permissions change
/// during each attempt.
const ATTEMPTS_MAX: usize = 16;

/// The result of a check after bytes were copied from a mapped file: whether a process may have written to the file
/// before the copy was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No process has written to the file.
    Unchanged,
    /// The check has no result: the caller must examine the file.
    Unknown,
    /// The server did not confirm its lease before the deadline, so a process may have opened the file for writing
    /// meanwhile. The caller must examine the file, and can trust it only if every write changes its modification time.
    Expired,
    /// A process may have written to the file.
    Changed,
}

/// Detects changes of a store's file at lower cost than [`Store::is_unchanged_since`].
pub(crate) trait Witness: Send + Sync {
    /// Returns whether a process has changed the store's bytes since the store was opened. If the result is not
    /// certain, the store examines the file: see [`Standing`].
    fn standing(&self, store: &Store) -> Standing;
}

/// A table in a mapped file, which other processes may change. Lookups are safe, and need no copy of the table.
///
/// A `MappedStore` has the lookups of [`Lookup`](super::Lookup), as [`Store`] does, but returns copies of values. Each
/// lookup checks the file after the copy. If the file was changed in place or truncated since it was opened, this
/// lookup and all later lookups return [`LookupError::Damaged`], until [`MappedStore::look_again`] succeeds. The check
/// makes a system call (`fstat`) for each lookup or batch of lookups, so prefer
/// [`Lookup::get_many`](super::Lookup::get_many). While the file is leased, the check only reads memory: see
/// [`take_leases`](super::take_leases) and [`WatchedFile::lease`].
///
/// Without a lease, the check compares the file's length, modification time, and change time (ctime). If the file was
/// modified recently, opening it waits until every further write will change the modification time: up to 50 ms, or up
/// to 2.05 s if the file system may store times with a resolution of seconds. If only the change time has changed, for
/// example because the file was renamed or deleted, blocks are verified again on first access, and for 50 ms, lookups
/// copy the pages that they read. The check does not detect a writer that writes through a mapping
/// that existed before this one, or through any mapping of a file on tmpfs. Use [`Store::open`] if you do not trust
/// everybody who can write to the file.
///
/// # Example
/// ```
/// # #[cfg(feature = "bake")] {
/// # use zero_kv::bake::{self, Options};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("storage.db");
/// # bake::bake_csv("7,seven\n9,nine\n".as_bytes(), &path, &Options::default())?;
/// use zero_kv::{Lookup, LookupError, MappedStore};
///
/// let table = MappedStore::open(&path)?;
/// assert_eq!(table.get(7)?.as_deref(), Some(&b"seven"[..]));
/// assert_eq!(table.get_many(&[9, 8])?, [Some(b"nine".to_vec()), None]);
///
/// // Somebody truncates the file.
/// std::fs::File::options().write(true).open(&path)?.set_len(0)?;
/// assert_eq!(table.get(7), Err(LookupError::Damaged));
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MappedStore {
    store: Store,
    witness: Option<Arc<dyn Witness>>,
}

impl MappedStore {
    /// Maps a baked file. Each block is verified when a lookup first reads it, as [`Store::open`] does it.
    ///
    /// This function also calls [`survive_bus_errors`]. From then on, a lookup that cannot read a page of any mapped
    /// table in this process returns an error, and the process continues.
    ///
    /// # Errors
    /// The errors of [`Store::open`], and [`StoreError::Io`] if the system rejects the handler for SIGBUS.
    pub fn open(path: impl AsRef<Path>) -> Result<MappedStore, StoreError> {
        MappedStore::open_with(path, &OpenOptions::default())
    }

    /// Maps a baked file with options.
    ///
    /// # Errors
    /// The errors of [`MappedStore::open`], [`StoreError::Memory`] if the system cannot do what the options request,
    /// such as to lock memory, and [`StoreError::Canceled`] if `options.pace` cancels the work.
    pub fn open_with<'a>(
        path: impl AsRef<Path>,
        options: impl Into<WithProgress<'a, OpenOptions, Step>>,
    ) -> Result<MappedStore, StoreError> {
        let path = path.as_ref();
        let file = open_file(path)?;
        survive_bus_errors().map_err(StoreError::io(path))?;
        let store = options.into().run(|options, done| Store::from_file(&file, path, Memory::Map, options, done))?;
        Ok(store.into())
    }

    /// Wraps a store. `witness` detects changes of the store's file.
    pub(crate) fn with_witness(store: Store, witness: Arc<dyn Witness>) -> MappedStore {
        MappedStore { store, witness: Some(witness) }
    }

    /// Returns the table as a [`Store`], which lends values, if the table is in memory that nobody can change: a
    /// private copy or a sealed memory file. Returns `None` for a mapping of a file that other processes can change.
    #[inline]
    pub fn as_private(&self) -> Option<&Store> {
        self.store.is_private().then_some(&self.store)
    }

    /// Returns the table as a [`Store`], which lends values from the mapping.
    ///
    /// # Safety
    /// As with [`Store::map`], no process may change the file while bytes are borrowed from the result.
    #[inline]
    pub unsafe fn as_store(&self) -> &Store {
        &self.store
    }

    /// Returns the store, for code in this crate that copies and verifies bytes itself.
    #[inline]
    pub(crate) fn unverified(&self) -> &Store {
        &self.store
    }

    /// Borrows the schema that [`Lookup::schema`] returns.
    #[inline]
    pub fn schema_ref(&self) -> Option<&Arc<Schema>> {
        self.store.schema_ref()
    }

    /// Returns the file's length.
    pub fn file_len_bytes(&self) -> u64 {
        self.store.file_len_bytes()
    }

    /// Returns the file's digest: see [`Store::digest`].
    pub fn digest(&self) -> u128 {
        self.store.digest()
    }

    /// Returns the mapped file, whose changes this process detects. Returns `None` if nobody can change the table: see
    /// [`MappedStore::as_private`].
    #[inline]
    pub fn watched_file(&self) -> Option<&WatchedFile> {
        self.store.watched_file()
    }

    /// Returns whether the file is unchanged, or was checked after its last change: see [`Store::is_trusted`].
    pub fn is_trusted(&self) -> bool {
        !self.has_lost_trust() && self.store.is_trusted()
    }

    /// Returns whether nobody has written to the file. If its names or permissions have just changed, waits until every
    /// further change is detected: up to 50 ms, or up to 2.05 s if the file system may store times with a resolution of
    /// seconds. Returns `false` if they change too often to tell.
    pub(crate) fn has_unchanged_file(&self) -> bool {
        /// The first check can find a change of names or permissions, and so can the second one.
        const ATTEMPTS: usize = 3;
        let is_unchanged = || {
            let epoch = if self.has_lost_trust() { None } else { self.store.begin_batch_of_whole_file() };
            epoch.is_some_and(|epoch| self.is_unchanged_since(epoch))
        };
        (0..ATTEMPTS).any(|_| is_unchanged())
    }

    /// Verifies the index of a file that has changed. If the index is intact, trusts the file again: see
    /// [`Store::look_again`].
    ///
    /// # Errors
    /// [`Mistrust`], which gives the reason. Lookups then still return [`LookupError::Damaged`].
    pub fn look_again(&self) -> Result<(), Mistrust> {
        self.store.look_again()
    }

    #[inline(always)]
    pub(super) fn with_table<T>(&self, read: impl FnOnce(&MappedStore) -> T) -> T {
        read(self)
    }

    /// Returns a pointer to the table, for an iterator: see [`Lookup`](super::Lookup).
    pub(super) fn handle(&self) -> &MappedStore {
        self
    }

    /// Implements [`Lookup::get_with`](super::Lookup::get_with).
    #[inline]
    pub(crate) fn visit_value<T>(
        &self,
        key: Key<'_>,
        visit: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Result<T, LookupError> {
        if self.store.is_private() {
            return self.store.value_of(key).map(visit);
        }
        let mut scratch = Scratch::take();
        let is_found = self.copied(|store| {
            scratch.clear();
            let value = store.value_of(key)?;
            scratch.bytes.extend_from_slice(value.unwrap_or_default());
            Ok(value.is_some())
        })?;
        let output = visit(is_found.then_some(&scratch.bytes));
        scratch.put_back();
        Ok(output)
    }

    /// Implements [`Lookup::get_many_with`](super::Lookup::get_many_with).
    pub(crate) fn visit_values<'k, K>(
        &self,
        keys: &[K],
        mut visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), LookupError>
    where
        K: Into<Key<'k>> + Copy,
    {
        if self.store.is_private() {
            return self.store.each_value(keys, visit);
        }
        self.copy_in_batches(
            keys,
            |store, batch, scratch| store.get_while(batch, |_, value| scratch.push(value)),
            |done, scratch| {
                let mut start = 0;
                for (at, end) in scratch.ends.iter().enumerate() {
                    visit(done + at, end.map(|end| &scratch.bytes[start..end]));
                    start = end.unwrap_or(start);
                }
                scratch.ends.len()
            },
        )
    }

    /// Implements [`Lookup::floor_many_with`](super::Lookup) and [`Lookup::ceiling_many_with`](super::Lookup).
    pub(crate) fn visit_neighbors<'k, K>(
        &self,
        keys: &[K],
        side: Side,
        mut visit: impl for<'v> FnMut(usize, Option<(Key<'v>, &'v [u8])>),
    ) -> Result<(), LookupError>
    where
        K: Into<Key<'k>> + Copy,
    {
        if self.store.is_private() {
            return self.store.neighbor_many(keys, side, visit);
        }
        let kind = self.store.key_kind();
        self.copy_in_batches(
            keys,
            |store, batch, scratch| {
                store.neighbor_while(batch, side, |_, record| {
                    scratch.push_key(record.map(|record| record.key()));
                    scratch.push(record.map(|record| record.value()))
                })
            },
            |done, scratch| {
                let mut start = 0;
                for (at, ends) in scratch.ends.chunks_exact(2).enumerate() {
                    let row = ends[0].zip(ends[1]).and_then(|(key_end, value_end)| {
                        let key = copied_key(kind, &scratch.bytes[start..key_end])?;
                        start = value_end;
                        Some((key, &scratch.bytes[key_end..value_end]))
                    });
                    visit(done + at, row);
                }
                scratch.ends.len() / 2
            },
        )
    }

    /// Implements [`Lookup::cover_many_with`](super::Lookup::cover_many_with).
    pub(crate) fn visit_ranges<'k, K>(
        &self,
        keys: &[K],
        mut visit: impl for<'v> FnMut(usize, Option<LentRange<'v>>),
    ) -> Result<(), LookupError>
    where
        K: Into<Key<'k>> + Copy,
    {
        if self.store.is_private() {
            return self.store.range_of_many(keys, visit);
        }
        self.store.check_ranges()?;
        let kind = self.store.key_kind();
        self.copy_in_batches(
            keys,
            |store, batch, scratch| {
                store.range_of_while(batch, |_, row| {
                    scratch.push_key(row.map(|(start, ..)| start));
                    scratch.push_key(row.map(|(_, end, _)| end));
                    scratch.push(row.map(|(.., value)| value))
                })
            },
            |done, scratch| {
                let mut start = 0;
                for (at, ends) in scratch.ends.chunks_exact(3).enumerate() {
                    let row = ends[0].zip(ends[1]).zip(ends[2]).and_then(|((first_end, last_end), value_end)| {
                        let first = copied_key(kind, &scratch.bytes[start..first_end])?;
                        let last = copied_key(kind, &scratch.bytes[first_end..last_end])?;
                        start = value_end;
                        Some((first, last, &scratch.bytes[last_end..value_end]))
                    });
                    visit(done + at, row);
                }
                scratch.ends.len() / 3
            },
        )
    }

    /// Looks up keys, which must be of the table's kind, in batches. `copy` copies the results of the first keys of a
    /// batch, and `visit` passes them to the caller after the check of the file. `visit` gets the number of keys before
    /// the batch, and returns the number of keys that were looked up.
    fn copy_in_batches<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        copy: impl Fn(&Store, &[K], &mut Scratch) -> Result<(), LookupError>,
        mut visit: impl FnMut(usize, &Scratch) -> usize,
    ) -> Result<(), LookupError> {
        self.store.check_key_kinds(keys)?;
        let (mut scratch, mut done) = (Scratch::take(), 0);
        while done < keys.len() {
            let batch = &keys[done..keys.len().min(done + BATCH_KEYS)];
            // One check of the file per batch instead of one per key: the check can be a system call.
            self.copied(|store| {
                scratch.clear();
                copy(store, batch, &mut scratch)
            })?;
            done += visit(done, &scratch);
        }
        scratch.put_back();
        Ok(())
    }

    /// Calls `read`, which copies bytes of the table. Returns the result of `read` if nobody changed the file
    /// meanwhile. Otherwise, returns [`LookupError::Damaged`], unless the file is trusted again after a change of its
    /// names or permissions; then, calls `read` again.
    #[inline(always)]
    pub(crate) fn copied<'s, T>(
        &'s self,
        mut read: impl FnMut(&'s Store) -> Result<T, LookupError>,
    ) -> Result<T, LookupError> {
        let epoch = self.begin_batch();
        let copied = read(&self.store);
        // The check follows the copy: a write after the check cannot change the copy, and a write before it is
        // detected.
        if copied.is_ok() && self.is_unchanged_since(epoch) {
            return copied;
        }
        self.copied_again(epoch, copied, &mut read)
    }

    /// Repeats a lookup whose result `copied` was rejected, if another result is possible.
    #[cold]
    #[inline(never)]
    fn copied_again<'s, T>(
        &'s self,
        mut epoch: Epoch,
        mut copied: Result<T, LookupError>,
        read: &mut impl FnMut(&'s Store) -> Result<T, LookupError>,
    ) -> Result<T, LookupError> {
        let mut fixed = None;
        for attempt in 1..ATTEMPTS_MAX {
            // An attempt that could copy no pages may have failed because it needed another copy.
            if fixed.take().is_none() && !self.is_worth_repeating(copied.as_ref().err(), epoch) {
                break;
            }
            // The first attempt copies the pages that it needs. The second one reads only these copies.
            (epoch, fixed) = match attempt % 2 {
                1 if !self.has_lost_trust() => self.store.begin_batch_again(),
                _ => (self.begin_batch(), None),
            };
            copied = read(&self.store);
            if copied.is_ok() && self.is_unchanged_since(epoch) {
                return copied;
            }
        }
        copied.and(Err(LookupError::Damaged))
    }

    /// Returns whether a lookup that failed with `error`, or whose result was rejected, should be repeated: whether a
    /// page was copied since the lookup began, or the file is trusted in a later epoch.
    fn is_worth_repeating(&self, error: Option<&LookupError>, epoch: Epoch) -> bool {
        if error.is_some_and(|error| *error != LookupError::Damaged) {
            return false;
        }
        let now = self.begin_batch();
        now != epoch && !now.is_distrust()
    }

    /// Begins a batch of lookups: see [`Store::begin_batch`].
    #[inline(always)]
    fn begin_batch(&self) -> Epoch {
        let epoch = self.store.epoch();
        if epoch.is_distrust() { self.recheck() } else { epoch }
    }

    /// Trusts the file again if only its names or permissions have changed. Returns the current epoch.
    #[cold]
    fn recheck(&self) -> Epoch {
        if self.has_lost_trust() { self.store.epoch() } else { self.store.begin_batch() }
    }

    /// Returns whether the witness shows that a process may have changed the file. The file's times then prove nothing.
    fn has_lost_trust(&self) -> bool {
        let is_changed = |witness: &Arc<dyn Witness>| witness.standing(&self.store) == Standing::Changed;
        !self.store.is_private() && self.witness.as_ref().is_some_and(is_changed)
    }

    /// Returns whether nobody changed the file since an epoch began.
    #[inline]
    pub(crate) fn is_unchanged_since(&self, epoch: Epoch) -> bool {
        if self.store.is_private() {
            return true;
        }
        match self.witness.as_ref().map_or(Standing::Unknown, |witness| witness.standing(&self.store)) {
            Standing::Unchanged => true,
            Standing::Unknown => self.store.is_unchanged_since(epoch),
            // If writes through a mapping do not change the modification time, the lookup fails, but the epoch does not
            // end, because the server may confirm the lease later.
            Standing::Expired => {
                !self.watched_file().is_some_and(WatchedFile::hides_mapped_writes)
                    && self.store.is_unchanged_since(epoch)
            }
            Standing::Changed => {
                self.store.distrust(epoch);
                false
            }
        }
    }
}

/// Wraps a store without a witness: the store itself examines its file for changes.
impl From<Store> for MappedStore {
    fn from(store: Store) -> MappedStore {
        MappedStore { store, witness: None }
    }
}

impl fmt::Debug for MappedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedStore").field("store", &self.store).finish_non_exhaustive()
    }
}

pub(crate) fn owned((key, value): (Key<'_>, &[u8])) -> Row {
    (key.into(), value.to_vec())
}

pub(crate) fn owned_range((start, end, value): LentRange<'_>) -> RangeRow {
    (start.into(), end.into(), value.to_vec())
}

/// A buffer for copies of values that are not verified yet. Each thread keeps one buffer, so that most lookups allocate
/// nothing.
#[derive(Default)]
struct Scratch {
    bytes: Vec<u8>,
    /// For each key, the offset in `bytes` at which the key's value ends, or `None` if the table does not have the key.
    ends: Vec<Option<usize>>,
}

thread_local! {
    static SCRATCH: Cell<Scratch> = Cell::default();
}

impl Scratch {
    /// Empties and returns this thread's buffer. Returns a new buffer if another call on this thread already uses the
    /// thread's buffer.
    fn take() -> Scratch {
        let mut scratch = SCRATCH.take();
        scratch.clear();
        scratch
    }

    /// Keeps the buffer for the next call, unless a long value made it large.
    fn put_back(self) {
        if self.bytes.capacity() <= 2 * BATCH_LEN_BYTES {
            SCRATCH.set(self);
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Appends a value. Returns `Break` once the values of the batch fill [`BATCH_LEN_BYTES`].
    fn push(&mut self, value: Option<&[u8]>) -> ControlFlow<()> {
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.ends.push(value.map(|_| self.bytes.len()));
        if self.bytes.len() < BATCH_LEN_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Appends a key of a row. The row's value must follow, because a batch can only end after a value.
    fn push_key(&mut self, key: Option<Key<'_>>) {
        let number;
        let bytes = match key {
            Some(Key::U64(key)) => {
                number = key.to_le_bytes();
                Some(&number[..])
            }
            Some(Key::Bytes(key)) => Some(key),
            None => None,
        };
        let _ = self.push(bytes);
    }
}

/// Returns the key that [`Scratch::push_key`] appended.
fn copied_key(kind: KeyKind, bytes: &[u8]) -> Option<Key<'_>> {
    match kind {
        KeyKind::U64 => Some(Key::U64(u64::from_le_bytes(bytes.try_into().ok()?))),
        KeyKind::Bytes => Some(Key::Bytes(bytes)),
    }
}

/// The number of rows of the first page: a group of rows that are copied and verified together. Each page has up to
/// twice as many rows as the preceding page.
const PAGE_ROWS_MIN: usize = 8;
const PAGE_ROWS_MAX: usize = 1024;
/// A page ends once its values have this total length.
const ROWS_LEN_BYTES: usize = 64 << 10;

/// `FRONT` and `BACK` are the two ends of an iteration, as indexes into [`MappedRows::copied`].
const FRONT: usize = 0;
const BACK: usize = 1;

/// Returns the record of the first or the last remaining row, and its offset.
type NextRecord = for<'s> fn(&mut Rows<'s>) -> Option<(Record<'s>, u64)>;

/// A row, and the last key of its range in a table of ranges.
type RowWithEnd = (Row, Option<OwnedKey>);

/// A double-ended iterator over rows of a [`MappedStore`], in key order. `T` is a pointer to the table.
///
/// If the file is damaged or was changed, the iterator returns [`LookupError::Damaged`] and then ends.
pub struct MappedRows<T> {
    table: T,
    /// Rows that are not copied yet.
    left: Span,
    /// For each end, the copied rows that were not returned yet, the outermost row first.
    copied: [VecDeque<RowWithEnd>; 2],
    page_rows: usize,
    has_failed: bool,
}

impl<T: Deref<Target = MappedStore>> MappedRows<T> {
    pub(crate) fn new(table: T, left: Span) -> MappedRows<T> {
        MappedRows { table, left, copied: Default::default(), page_rows: PAGE_ROWS_MIN, has_failed: false }
    }

    /// Returns the number of remaining rows, without reading them.
    pub fn len(&self) -> usize {
        if self.has_failed { 0 } else { self.copied[FRONT].len() + self.left.len() + self.copied[BACK].len() }
    }

    /// Returns whether no rows remain.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the next row, and the last key of its range in a table of ranges.
    pub fn next_with_end(&mut self) -> Option<Result<RowWithEnd, LookupError>> {
        self.next_at(FRONT, |rows| rows.next_record())
    }

    /// Returns the next page: rows that are copied and verified together. Calls `next`, which finds one row, until the
    /// page is full or no rows remain, and then verifies the copies.
    fn page(&mut self, next: NextRecord) -> Result<VecDeque<RowWithEnd>, LookupError> {
        let (left, page_rows) = (self.left, self.page_rows);
        self.page_rows = (2 * page_rows).min(PAGE_ROWS_MAX);
        let page = self.table.copied(|store| {
            // A page that was rejected is copied again, from the same rows.
            let mut rows = Rows::of(store, left);
            let (mut page, mut len_bytes) = (VecDeque::new(), 0);
            while page.len() < page_rows && len_bytes < ROWS_LEN_BYTES {
                let record = next(&mut rows).map(|(record, _)| record);
                let Some(record) = rows.item(record).transpose()? else { break };
                len_bytes += record.value().len();
                page.push_back((owned((record.key(), record.value())), record.end().map(OwnedKey::from)));
            }
            Ok((page, rows.span()))
        });
        self.has_failed = page.is_err();
        let (page, left) = page?;
        self.left = left;
        Ok(page)
    }

    /// Returns the next row from the front or the back (`end`) of the iteration. If no copied row is left for this end,
    /// copies several rows that `next` finds, and verifies the copied rows together.
    fn next_at(&mut self, end: usize, next: NextRecord) -> Option<Result<RowWithEnd, LookupError>> {
        if self.has_failed {
            return None;
        }
        if self.copied[end].is_empty() && !self.left.is_empty() {
            match self.page(next) {
                Ok(page) => self.copied[end] = page,
                Err(error) => return Some(Err(error)),
            }
        }
        self.copied[end].pop_front().or_else(|| self.copied[1 - end].pop_back()).map(Ok)
    }

    /// Skips `count` rows at an end. Calls `skip` for the rows that are not copied yet.
    fn skip_at(&mut self, end: usize, count: usize, skip: fn(&mut Rows<'_>, usize)) {
        let copied = count.min(self.copied[end].len());
        self.copied[end].drain(..copied);
        let skipped = (count - copied).min(self.left.len());
        let mut rows = Rows::of(self.table.unverified(), self.left);
        skip(&mut rows, skipped);
        self.left = rows.span();
        (0..count - copied - skipped).for_each(|_| drop(self.copied[1 - end].pop_back()));
    }
}

impl<T: Deref<Target = MappedStore>> Iterator for MappedRows<T> {
    type Item = Result<Row, LookupError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_with_end().map(|row| row.map(|(row, _)| row))
    }

    /// Skips `count` rows and returns the next one. Reads at most the rows between two fences to find that row.
    fn nth(&mut self, count: usize) -> Option<Self::Item> {
        self.skip_at(FRONT, count, |rows, count| rows.skip_first(count));
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.len()))
    }
}

impl<T: Deref<Target = MappedStore>> DoubleEndedIterator for MappedRows<T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_at(BACK, |rows| rows.previous_record()).map(|row| row.map(|(row, _)| row))
    }

    /// Skips `count` rows from the end and returns the row before them. Reads at most the rows between two fences to
    /// find that row.
    fn nth_back(&mut self, count: usize) -> Option<Self::Item> {
        self.skip_at(BACK, count, |rows, count| rows.skip_last(count));
        self.next_back()
    }
}

impl<T: Deref<Target = MappedStore>> fmt::Debug for MappedRows<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedRows").field("left", &self.len()).finish_non_exhaustive()
    }
}
