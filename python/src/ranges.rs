//! The ranges that contain many keys, in tables of ranges.
//!
//! In: keys, and a table or what a server sent. Out: the first key, the last key, and the value of the range of each
//! key, in buffers from which `arrays` makes arrays, or as a list.

use pyo3::prelude::*;
use pyo3::types::PyList;
use zero_kv::client::RangeRow;
use zero_kv::{Key, KeyKind, KeyType, Lookup, MappedStore};

use crate::key_batch::KeyBatch;
use crate::many::{CopiedValues, in_chunks, list_of};
use crate::neighbors::{RowKeys, RowSchemas};
use crate::typed_key::range_tuple;

/// The range that contains each of some keys, and their schemas, which servers sent.
pub(crate) type Ranges = (Vec<Option<RangeRow>>, RowSchemas);

/// The ranges of some keys. All columns have one element per requested key.
pub(crate) struct FoundRanges {
    pub(crate) firsts: RowKeys,
    pub(crate) lasts: RowKeys,
    pub(crate) values: CopiedValues,
    pub(crate) schemas: RowSchemas,
}

impl FoundRanges {
    fn with_capacity(kind: KeyKind, count: usize, schemas: RowSchemas) -> FoundRanges {
        let keys = || RowKeys::with_capacity(kind, count);
        FoundRanges { firsts: keys(), lasts: keys(), values: CopiedValues::with_capacity(count), schemas }
    }

    /// Looks up keys in one version of a table. Other Python threads run during the lookup.
    pub(crate) fn find(py: Python<'_>, table: &MappedStore, keys: &KeyBatch<'_>) -> PyResult<FoundRanges> {
        let mut ranges = FoundRanges::with_capacity(keys.kind(), keys.len(), RowSchemas::Common(table.schema()));
        match keys {
            // Without keys there is no key kind to check.
            KeyBatch::Numbers(numbers) => ranges.find_each(py, table, numbers)?,
            _ => ranges.find_each(py, table, &keys.slices()?)?,
        }
        Ok(ranges)
    }

    fn find_each<'k, K>(&mut self, py: Python<'_>, table: &MappedStore, keys: &[K]) -> PyResult<()>
    where
        K: Into<Key<'k>> + Copy + Sync,
    {
        in_chunks(py, keys, |keys| table.cover_many_with(keys, |_, range| self.push(range)))
    }

    /// Copies the ranges that servers sent for keys of this kind.
    pub(crate) fn received(kind: KeyKind, (found, schemas): Ranges) -> FoundRanges {
        let mut ranges = FoundRanges::with_capacity(kind, found.len(), schemas);
        for range in &found {
            ranges.push(range.as_ref().map(|(first, last, value)| (first.as_key(), last.as_key(), &value[..])));
        }
        ranges
    }

    fn push(&mut self, range: Option<(Key<'_>, Key<'_>, &[u8])>) {
        self.firsts.push(range.map(|(first, ..)| first));
        self.lasts.push(range.map(|(_, last, _)| last));
        self.values.push(range.map(|(.., value)| value));
    }

    /// Returns a list of tuples, with `None` where no range was found.
    pub(crate) fn into_list(self, py: Python<'_>, key_type: KeyType) -> PyResult<Bound<'_, PyList>> {
        let ends = self.firsts.keys().into_iter().zip(self.lasts.keys());
        let ranges = ends.zip(self.values.slices()).map(|((first, last), value)| Some((first?, last?, value?)));
        list_of(py, ranges.enumerate().collect(), |(position, range): (usize, Option<_>)| {
            let tuple = |range| range_tuple(py, key_type, self.schemas.of_row(position), range).map(Bound::into_any);
            range.map(tuple).transpose()
        })
    }
}
