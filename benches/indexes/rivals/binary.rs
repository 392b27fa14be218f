//! Binary search over the sorted keys, which is the baseline.

use super::Search;
use crate::indexes::table::Table;

pub(crate) struct Binary;

impl Search for Binary {
    fn new(_table: &Table) -> Self {
        Binary
    }

    fn len_bytes(&self, table: &Table) -> usize {
        size_of_val(&*table.keys)
    }

    #[inline(always)]
    fn row(&self, table: &Table, key: u64) -> usize {
        table.keys.partition_point(|other| *other < key)
    }

    #[inline(always)]
    fn rows(&self, table: &Table, keys: &[u64], rows: &mut [usize]) {
        for (key, row) in keys.iter().zip(rows) {
            *row = self.row(table, *key);
            table.prefetch_place(*row);
        }
    }
}
