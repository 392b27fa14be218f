//! A two-level directory. The range of keys is divided into intervals of equal width (shares). The directory stores the
//! first row of each share, and binary search finds the row in the share.

use super::{STAGE_KEYS, Search};
use crate::indexes::memory::prefetch;
use crate::indexes::table::Table;

/// Approximate number of rows per share. Because widths are powers of two, the average is from half to twice this
/// number.
const SHARE_ROWS: usize = 4;

pub(crate) struct Directory {
    min_key: u64,
    shift_bits: u32,
    /// The first row of each share, followed by the number of rows.
    starts: Vec<u32>,
}

impl Directory {
    #[inline(always)]
    fn share(&self, key: u64) -> usize {
        let share = key.saturating_sub(self.min_key) >> self.shift_bits;
        (share as usize).min(self.starts.len() - 2)
    }

    #[inline(always)]
    fn row_in(&self, table: &Table, share: usize, key: u64) -> usize {
        let start = self.starts[share] as usize;
        start + table.keys[start..self.starts[share + 1] as usize].partition_point(|other| *other < key)
    }
}

impl Search for Directory {
    fn new(table: &Table) -> Self {
        let (min_key, max_key) = (table.keys[0], table.keys[table.keys.len() - 1]);
        let share_bits = (table.keys.len() / SHARE_ROWS).next_power_of_two().ilog2();
        let shift_bits = (u64::BITS - (max_key - min_key).leading_zeros()).saturating_sub(share_bits);
        let share_count = ((max_key - min_key) >> shift_bits) as usize + 1;
        let mut starts = vec![0; share_count + 1];
        for key in &table.keys {
            starts[((key - min_key) >> shift_bits) as usize + 1] += 1;
        }
        for share in 0..share_count {
            starts[share + 1] += starts[share];
        }
        Directory { min_key, shift_bits, starts }
    }

    fn len_bytes(&self, table: &Table) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*table.keys)
    }

    #[inline(always)]
    fn row(&self, table: &Table, key: u64) -> usize {
        self.row_in(table, self.share(key), key)
    }

    #[inline(always)]
    fn rows(&self, table: &Table, keys: &[u64], rows: &mut [usize]) {
        let mut shares = [0; STAGE_KEYS];
        let shares = &mut shares[..keys.len()];
        for (key, share) in keys.iter().zip(&mut *shares) {
            *share = self.share(*key);
            prefetch(&self.starts[*share]);
        }
        for share in &*shares {
            let (start, end) = (self.starts[*share] as usize, self.starts[*share + 1] as usize);
            let middle = start + (end - start) / 2;
            if let Some(key) = table.keys.get(middle) {
                prefetch(key);
            }
            table.prefetch_place(middle);
        }
        for ((key, share), row) in keys.iter().zip(shares).zip(rows) {
            *row = self.row_in(table, *share, *key);
            table.prefetch_place(*row);
        }
    }
}
