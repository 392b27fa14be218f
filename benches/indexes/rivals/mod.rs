//! Indexes over sorted keys, for comparison with the file's index.

mod binary;
mod directory;
mod tree;

use std::rc::Rc;

use crate::indexes::memory::is_wide;
use crate::indexes::table::Table;

pub(crate) use binary::Binary;
pub(crate) use directory::Directory;
pub(crate) use tree::Tree;

/// Number of keys that are looked up together, so that their memory accesses overlap. The file's index also has 64
/// lookups in flight.
const STAGE_KEYS: usize = 64;

/// An index with its records.
pub(crate) trait Lookup {
    fn get(&self, key: u64) -> Option<&[u8]>;

    /// Looks up a batch of keys. Calls `visit` with the index of each key in the batch and the key's value, in order.
    fn get_many(&self, keys: &[u64], visit: impl FnMut(usize, Option<&[u8]>));

    /// Looks up the floors of a batch of keys. Calls `visit` as [`Lookup::get_many`] does.
    fn floor_many(&self, keys: &[u64], visit: impl FnMut(usize, Option<&[u8]>));

    /// Returns the total length of the records and the index.
    fn len_bytes(&self) -> usize;
}

/// An index over sorted keys.
pub(crate) trait Search {
    fn new(table: &Table) -> Self;

    /// Returns the length of the index, excluding the records and the list of their places.
    fn len_bytes(&self, table: &Table) -> usize;

    /// Returns the row of a key, or any number if the key is absent.
    fn row(&self, table: &Table, key: u64) -> usize;

    /// Finds the rows of at most [`STAGE_KEYS`] keys, and prefetches the places of their records. For an absent key,
    /// finds the row of the next greater key. If no key is greater, the result can be any number.
    fn rows(&self, table: &Table, keys: &[u64], rows: &mut [usize]);
}

/// An index over sorted keys, together with the table of the keys and values.
pub(crate) struct Searched<S> {
    table: Rc<Table>,
    search: S,
    is_wide: bool,
}

impl<S: Search> Searched<S> {
    pub(crate) fn new(table: &Rc<Table>) -> Self {
        Searched { table: Rc::clone(table), search: S::new(table), is_wide: is_wide() }
    }

    #[inline(always)]
    fn get_plainly(&self, key: u64) -> Option<&[u8]> {
        let row = self.search.row(&self.table, key);
        self.table.value(key, self.table.offset_bytes(row))
    }

    #[inline(always)]
    fn get_many_plainly(&self, keys: &[u64], mut visit: impl FnMut(usize, Option<&[u8]>)) {
        let mut rows = [0; STAGE_KEYS];
        for (stage, keys) in keys.chunks(STAGE_KEYS).enumerate() {
            let rows = &mut rows[..keys.len()];
            self.search.rows(&self.table, keys, rows);
            let offsets_bytes = rows;
            for offset_bytes in offsets_bytes.iter_mut() {
                *offset_bytes = self.table.offset_bytes(*offset_bytes);
                self.table.prefetch_record(*offset_bytes);
            }
            for (i, (key, offset_bytes)) in keys.iter().zip(offsets_bytes).enumerate() {
                visit(stage * STAGE_KEYS + i, self.table.value(*key, *offset_bytes));
            }
        }
    }

    /// Looks up floors. The floor of a key precedes the row of the next greater number.
    #[inline(always)]
    fn floor_many_plainly(&self, keys: &[u64], mut visit: impl FnMut(usize, Option<&[u8]>)) {
        let (mut bounds, mut rows) = ([0; STAGE_KEYS], [0; STAGE_KEYS]);
        for (stage, keys) in keys.chunks(STAGE_KEYS).enumerate() {
            for (bound, key) in bounds.iter_mut().zip(keys) {
                *bound = key.saturating_add(1);
            }
            let rows = &mut rows[..keys.len()];
            self.search.rows(&self.table, &bounds[..keys.len()], rows);
            let offsets_bytes = rows;
            for (bound, offset_bytes) in bounds.iter().zip(offsets_bytes.iter_mut()) {
                let end = if Some(bound) > self.table.keys.last() { self.table.keys.len() } else { *offset_bytes };
                *offset_bytes = self.table.offset_bytes(end.wrapping_sub(1));
                self.table.prefetch_record(*offset_bytes);
            }
            for (i, (key, offset_bytes)) in keys.iter().zip(offsets_bytes).enumerate() {
                visit(stage * STAGE_KEYS + i, self.table.value_up_to(*key, *offset_bytes));
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt")]
    fn get_wide(&self, key: u64) -> Option<&[u8]> {
        self.get_plainly(key)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt")]
    fn get_many_wide<'s>(&'s self, keys: &[u64], visit: impl FnMut(usize, Option<&[u8]>)) {
        self.get_many_plainly(keys, visit);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt")]
    fn floor_many_wide<'s>(&'s self, keys: &[u64], visit: impl FnMut(usize, Option<&[u8]>)) {
        self.floor_many_plainly(keys, visit);
    }
}

impl<S: Search> Lookup for Searched<S> {
    fn get(&self, key: u64) -> Option<&[u8]> {
        #[cfg(target_arch = "x86_64")]
        if self.is_wide {
            // SAFETY: `is_wide` states that the processor has the features that the function is compiled for.
            return unsafe { self.get_wide(key) };
        }
        self.get_plainly(key)
    }

    fn get_many(&self, keys: &[u64], visit: impl FnMut(usize, Option<&[u8]>)) {
        #[cfg(target_arch = "x86_64")]
        if self.is_wide {
            // SAFETY: `is_wide` states that the processor has the features that the function is compiled for.
            return unsafe { self.get_many_wide(keys, visit) };
        }
        self.get_many_plainly(keys, visit);
    }

    fn floor_many(&self, keys: &[u64], visit: impl FnMut(usize, Option<&[u8]>)) {
        #[cfg(target_arch = "x86_64")]
        if self.is_wide {
            // SAFETY: `is_wide` states that the processor has the features that the function is compiled for.
            return unsafe { self.floor_many_wide(keys, visit) };
        }
        self.floor_many_plainly(keys, visit);
    }

    fn len_bytes(&self) -> usize {
        self.table.len_bytes() + self.search.len_bytes(&self.table)
    }
}
