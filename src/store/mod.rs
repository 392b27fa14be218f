//! Opens a baked file, verifies it, and looks keys up in it.
//!
//! In: a path, then keys. Out: values, which are borrowed from memory that holds the file ([`Store`]) or copied from a
//! mapping of the file ([`MappedStore`]). Uses no sockets and no async runtime.

mod blocks;
pub(crate) mod check;
pub(crate) mod check_plan;
pub(crate) mod clock;
mod cold;
#[cfg(feature = "server")]
mod cold_lookups;
mod epoch;
mod error;
mod fences;
mod file_system;
mod group_check;
mod groups;
mod guard;
mod index_blocks;
mod lease;
pub(crate) mod lookup;
mod machine;
mod map;
mod mapped;
mod memory;
mod neighbors;
mod open;
mod pace;
mod page_copies;
mod ranges;
mod rows;
mod sealed;
mod search;
mod settling;
#[cfg(test)]
mod simulation;
mod stamp;
mod trust;
pub(crate) mod typed;
mod verification;

use std::ops::ControlFlow;
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::format::fence::{Fence, TreeLevels};
use crate::format::form::RecordForm;
use crate::format::header::{Layout, Section};
use crate::format::key::{Key, KeyKind};
use crate::format::lookup_key::LookupKey;
use crate::format::lookup_key::by_form;
use crate::format::record::Record;
use crate::typed::Schema;
use blocks::Blocks;
#[cfg(feature = "server")]
use cold::RecentPages;
use fences::Fences;
#[cfg(feature = "bake")]
pub(crate) use machine::prefetch;
use map::Map;
use search::{Index, RecordWindows};

#[cfg(feature = "server")]
pub(crate) use cold_lookups::{ColdLookup, PageLimits};
pub use epoch::Epoch;
pub use error::{LookupError, StoreError};
pub(crate) use file_system::has_holes_that_take_memory;
pub use guard::survive_bus_errors;
#[cfg(feature = "server")]
pub(crate) use lease::writers_of;
pub use lease::{LeaseState, RENEW_LEASES_EVERY, Writers, WritersUnknown, renew_leases, take_leases};
pub use lookup::Lookup;
pub(crate) use lookup::impl_lookup_by_copies;
pub use mapped::{MappedRows, MappedStore};
pub(crate) use mapped::{Standing, Witness, owned, owned_range};
#[cfg(feature = "server")]
pub(crate) use memory::header_digest;
pub use memory::{Memory, OpenOptions, Step, StepKind, Verify};
#[cfg(feature = "server")]
pub(crate) use neighbors::Neighbor;
pub use neighbors::Side;
pub use open::Unchecked;
pub(crate) use open::{open_file, open_regular};
pub use pace::Pace;
pub(crate) use ranges::prefix_end;
#[cfg(feature = "server")]
pub(crate) use ranges::{Prefetched, RangeEnd, RangeLookup};
use rows::Position;
pub use rows::Rows;
#[cfg(feature = "server")]
pub(crate) use rows::{PageRange, ValuesPage};
pub(crate) use sealed::is_sealed;
#[cfg(feature = "server")]
pub(crate) use sealed::reopened;
#[cfg(feature = "server")]
pub(crate) use search::ShortAnswer;
pub(crate) use search::{Found, Visitor};
#[cfg(feature = "server")]
pub(crate) use settling::{SETTLE, unsettled_for};
pub use stamp::WatchedFile;
pub use trust::Mistrust;
pub use typed::{StructRows, TypedLookupError};
#[cfg(feature = "server")]
pub(crate) use verification::{VerificationLimit, is_verification_interrupted, verification_work_on_thread};

/// The maximum number of bytes to prefetch per record.
const PREFETCH_MAX_BYTES: usize = 256;

/// An immutable table in memory, from a baked file.
///
/// A `Store` is `Send` and `Sync`: any number of threads can look keys up in one `Store`. Values are borrowed from the
/// `Store`.
///
/// # Nobody may change the memory
/// A `Store` lends `&[u8]`, so its bytes must not change while they are borrowed:
///
/// | function | memory | who guarantees that nobody changes it |
/// |---|---|---|
/// | [`Store::open`] | a copy in this process; the file itself if it is sealed | the system |
/// | [`Store::open_sealed`] | a copy that can be transferred to other processes | the system |
/// | [`Store::map`] (`unsafe`) | the file itself, shared with all processes | the caller |
///
/// ```compile_fail,E0133
/// let lends_from_the_file = zero_kv::Store::map("storage.db"); // without `unsafe`
/// ```
///
/// [`MappedStore`] is the safe way to use a mapped file: it copies each value, and checks after the copy that the file
/// is unchanged. To replace a table, rename a new file over the old one, as `baker` does: a `Store` that has the old
/// file open is not affected.
///
/// # Example
/// ```
/// # #[cfg(feature = "bake")] {
/// use zero_kv::bake::{self, Options};
/// use zero_kv::{Lookup, Store};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("storage.db");
/// bake::bake_csv("7,seven\n9,nine\n".as_bytes(), &path, &Options::default())?;
///
/// let store = Store::open(&path)?;
/// assert_eq!(store.len(), 2);
/// assert_eq!(store.get(7)?, Some(&b"seven"[..]));
/// assert_eq!(store.get(8)?, None);
/// // This table's keys are numbers.
/// assert!(store.get("seven").is_err());
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Store {
    map: Map,
    layout: Layout,
    /// How records store keys and ends.
    form: RecordForm,
    blocks: Blocks,
    /// The number of bytes to prefetch per record: the mean record length, at most [`PREFETCH_MAX_BYTES`].
    typical_len_bytes: usize,
    /// The number of bytes to prefetch per group of the compact layout.
    typical_group_len_bytes: usize,
    /// Whether lookups may have to wait for the disk, because the file does not fit into memory.
    may_be_cold: bool,
    /// Whether every record counts as not in memory, so that tests read all records as if they were.
    assumes_cold: bool,
    /// The longest common prefix of all byte keys. Empty if the keys are numbers.
    common: Box<[u8]>,
    /// The levels of the fence tree.
    tree_levels: TreeLevels,
    /// Pages of the index that were recently in memory. Used only if lookups may have to wait for the disk.
    #[cfg(feature = "server")]
    recent_pages: RecentPages,
    /// The schema, if the table is typed.
    schema: Option<Arc<Schema>>,
}

impl Store {
    /// Implements [`Lookup::get`].
    #[inline]
    fn value_of(&self, key: Key<'_>) -> Result<Option<&[u8]>, LookupError> {
        value(self.find(key)?)
    }

    /// Looks up many keys, in stages whose memory accesses overlap. Calls `visit` with each key's position in `keys`
    /// and its value, in order. If any key is not of the table's kind, `visit` is never called.
    pub(crate) fn each_value<'s, 'k, K>(
        &'s self,
        keys: &[K],
        mut visit: impl FnMut(usize, Option<&'s [u8]>),
    ) -> Result<(), LookupError>
    where
        K: Into<Key<'k>> + Copy,
    {
        self.check_key_kinds(keys)?;
        self.get_while(keys, |i, value| {
            visit(i, value);
            ControlFlow::Continue(())
        })
    }

    /// Looks up many keys, which must be of the table's kind. Calls `visit` with each key's position in `keys` and its
    /// value, until `visit` returns `Break`.
    pub(super) fn get_while<'s, 'k, K>(
        &'s self,
        keys: &[K],
        visit: impl FnMut(usize, Option<&'s [u8]>) -> ControlFlow<()>,
    ) -> Result<(), LookupError>
    where
        K: Into<Key<'k>> + Copy,
    {
        match self.may_be_cold() {
            true => self.get_cold_while(keys, visit),
            false => self.get_batch_while(keys, visit),
        }
    }

    /// Implements [`Store::get_while`] for keys whose memory accesses overlap, and whose disk reads do not.
    fn get_batch_while<'s, 'k, K>(
        &'s self,
        keys: &[K],
        mut visit: impl FnMut(usize, Option<&'s [u8]>) -> ControlFlow<()>,
    ) -> Result<(), LookupError>
    where
        K: Into<Key<'k>> + Copy,
    {
        let mut outcome = Ok(());
        let mut positions = 0..;
        let found = |_: &K, found| match value(found) {
            Ok(value) => visit(positions.next().unwrap_or_default(), value),
            Err(error) => {
                outcome = Err(error);
                ControlFlow::Break(())
            }
        };
        match self.key_kind() {
            KeyKind::U64 => self.find_each(keys, number_of, found),
            KeyKind::Bytes => self.find_each(keys, bytes_of, found),
        };
        outcome
    }

    /// Borrows the schema that [`Lookup::schema`] returns.
    #[inline]
    pub fn schema_ref(&self) -> Option<&Arc<Schema>> {
        self.schema.as_ref()
    }

    /// Returns the schema of a typed table, or an error for another table.
    pub(crate) fn typed_schema(&self) -> Result<&Arc<Schema>, TypedLookupError> {
        self.schema.as_ref().ok_or(TypedLookupError::NotTyped)
    }

    /// Returns the length of the file.
    pub fn file_len_bytes(&self) -> u64 {
        self.layout.file_len_bytes()
    }

    /// Returns the XXH3-128 digest in the file's header. Files with different bytes have different digests, unless
    /// somebody constructed a collision: the digest detects accidents, not attacks.
    pub fn digest(&self) -> u128 {
        self.layout.digest()
    }

    /// Implements [`Lookup::row`].
    fn row_with_number(&self, row: usize) -> Result<Option<(Key<'_>, &[u8])>, LookupError> {
        if row >= self.len() {
            return Ok(None);
        }
        let record = self.position(row).and_then(|position| self.record_of_row(position));
        record.map(|record| Some((record.key(), record.value()))).ok_or(LookupError::Damaged)
    }

    /// Looks up the key of each item, and passes the items and results to `visitor`, in order. The keys must be of the
    /// table's kind. Returns the number of items before the first `Break`.
    #[inline(always)]
    pub(crate) fn find_each<'s, T, K: LookupKey>(
        &'s self,
        items: &[T],
        key_of: impl Fn(&T) -> K,
        visitor: impl Visitor<'s, T>,
    ) -> usize {
        debug_assert_eq!(K::KIND, self.key_kind());
        if self.is_compact() {
            return self.groups().find_each(items, |item| key_of(item).number(), visitor);
        }
        by_form!(
            self.form, K,
            plain: self.index().find_each(items, key_of, visitor),
            fixed: self.index().find_each(items, |item| key_of(item).fixed(), visitor),
            ranged(keys): self.index().find_each(items, |item| key_of(item).ranged(keys), visitor)
        )
    }

    #[inline(always)]
    pub(crate) fn find(&self, key: Key<'_>) -> Result<Found<'_>, LookupError> {
        Ok(match self.check_key_kind(key)? {
            Key::U64(key) => self.find_one(key),
            Key::Bytes(key) => self.find_one(key),
        })
    }

    #[inline(always)]
    fn find_one<K: LookupKey>(&self, key: K) -> Found<'_> {
        if self.is_compact() {
            return self.groups().find(key.number());
        }
        let index = self.index();
        by_form!(
            self.form, K,
            plain: index.find(key),
            fixed: index.find(key.fixed()),
            ranged(keys): index.find(key.ranged(keys))
        )
    }

    fn check_key_kinds<'k, K: Into<Key<'k>> + Copy>(&self, keys: &[K]) -> Result<(), LookupError> {
        keys.iter().try_for_each(|key| self.check_key_kind((*key).into()).map(drop))
    }

    #[inline(always)]
    fn check_key_kind<'k>(&self, key: Key<'k>) -> Result<Key<'k>, LookupError> {
        let (held, asked) = (self.key_kind(), key.kind());
        if held == asked { Ok(key) } else { Err(LookupError::KeyKind { held, asked }) }
    }

    /// Returns the record at an offset, or `None` if no intact record is there.
    #[inline]
    fn record_at(&self, offset_bytes: u64) -> Option<Record<'_>> {
        self.record_at_with_form(self.form, offset_bytes)
    }

    /// Returns the record at an offset, as [`Store::record_at`] does. `form` must equal `self.form`. If it is a constant,
    /// the compiler removes the branches on it.
    #[inline(always)]
    fn record_at_with_form(&self, form: RecordForm, offset_bytes: u64) -> Option<Record<'_>> {
        let record = Record::at(form, self.records(), offset_bytes)?;
        let start = offset_bytes as usize;
        self.are_intact(start..start + record.bytes().len()).then_some(record)
    }

    /// Returns the record of a row of a table with the compact layout, and the offset of its value in the records
    /// section. Returns `None` if the row is damaged.
    #[cfg(feature = "server")]
    pub(crate) fn record_with_number(&self, row: usize) -> Option<(Record<'_>, u64)> {
        self.groups().record(row)
    }

    /// Returns the record of the row after a position, or `None` if it is damaged.
    #[inline]
    fn record_of_row(&self, position: Position) -> Option<Record<'_>> {
        match self.is_compact() {
            true => self.groups().record(position.row).map(|(record, _)| record),
            false => self.record_at(position.offset_bytes),
        }
    }

    /// Returns the records section.
    #[inline]
    pub(crate) fn records(&self) -> &[u8] {
        self.section(&self.layout.records)
    }

    #[inline]
    fn index(&self) -> Index<'_> {
        let (dimensions, epoch) = (&self.layout.dimensions, self.blocks.epoch());
        Index {
            form: self.form,
            hash_seed: dimensions.hash_seed,
            parts: dimensions.parts(),
            pilots: self.section(&self.layout.pilots),
            places: typed(self.section(&self.layout.places)),
            records: self.records(),
            record_windows: RecordWindows::new(self.records()),
            record_align_bits: dimensions.record_align_bytes.trailing_zeros(),
            typical_len_bytes: self.typical_len_bytes,
            store: self,
            epoch,
            are_slots_verified: self.blocks.are_slots_verified(epoch),
            are_records_verified: self.blocks.are_records_verified(epoch),
        }
    }

    /// Returns the fences and the tree above them, which may be damaged.
    #[inline]
    fn fences(&self) -> Fences<'_> {
        Fences {
            fences: self.fence_entries(),
            nodes: typed(self.section(&self.layout.fence_tree)),
            levels: &self.tree_levels,
        }
    }

    /// Returns the tree above the groups of the compact layout, which may be damaged.
    #[inline]
    fn tree(&self) -> Fences<'_> {
        Fences { fences: &[], nodes: typed(self.section(&self.layout.fence_tree)), levels: &self.tree_levels }
    }

    /// Returns the fences, which may be damaged. The table must have the fast layout.
    #[inline]
    fn fence_entries(&self) -> &[Fence] {
        typed(self.section(&self.layout.fences))
    }

    /// Returns how records store keys and ends.
    #[cfg(feature = "server")]
    #[inline]
    pub(crate) fn record_form(&self) -> RecordForm {
        self.form
    }

    pub(crate) fn record_align_bytes(&self) -> usize {
        self.layout.dimensions.record_align_bytes
    }

    #[inline]
    fn section(&self, section: &Section) -> &[u8] {
        // The slice is in bounds, because `Layout::decode` checked every section against the mapping's length.
        let start = section.offset_bytes as usize;
        &self.map.bytes()[start..start + section.len_bytes as usize]
    }
}

#[inline(always)]
fn value(found: Found<'_>) -> Result<Option<&[u8]>, LookupError> {
    match found {
        Found::Damaged => Err(LookupError::Damaged),
        found => Ok(found.value().map(|(value, _)| value)),
    }
}

/// Returns a key that must be a number.
#[inline(always)]
fn number_of<'k, K: Into<Key<'k>> + Copy>(key: &K) -> u64 {
    (*key).into().as_u64().unwrap_or_default()
}

/// Returns a key that must be bytes.
#[inline(always)]
fn bytes_of<'k, K: Into<Key<'k>> + Copy>(key: &K) -> &'k [u8] {
    (*key).into().as_bytes().unwrap_or_default()
}

impl<'s> IntoIterator for &'s Store {
    type Item = Result<(Key<'s>, &'s [u8]), LookupError>;
    type IntoIter = Rows<'s>;

    fn into_iter(self) -> Rows<'s> {
        self.iter()
    }
}

#[inline]
fn typed<T: FromBytes + Immutable + KnownLayout + Unaligned>(section: &[u8]) -> &[T] {
    <[T]>::ref_from_bytes(section).expect("a section of the length that Layout::decode checked")
}
