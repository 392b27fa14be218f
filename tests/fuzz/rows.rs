//! Derives small tables from bytes.
//!
//! Keys are held as bytes. Numbers are held as 8 big-endian bytes, which have the same order.

use std::collections::BTreeMap;
use std::path::Path;

use zero_kv::Lookup;
use zero_kv::bake::{Keys, Report};
use zero_kv::{Key, Store};

use super::source::Source;
use crate::helpers::rows::{bake_text, csv_row};

/// Keys and values.
pub(crate) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// The kind of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers(pub(crate) bool);

impl Numbers {
    pub(crate) fn keys(self) -> Keys {
        if self.0 { Keys::U64 } else { Keys::BYTES }
    }

    pub(crate) fn key(self, key: &[u8]) -> Key<'_> {
        match self.0 {
            true => Key::U64(u64::from_be_bytes(key.try_into().expect("8 bytes"))),
            false => Key::Bytes(key),
        }
    }

    /// Draws a key, usually one of few.
    pub(crate) fn draw_key(self, source: &mut Source<'_>) -> Vec<u8> {
        if self.0 {
            let number = match source.below(8) {
                0 => source.number(),
                1 => u64::MAX >> source.below(64),
                2 => source.below(1 << 16) as u64,
                _ => source.below(40) as u64,
            };
            return number.to_be_bytes().to_vec();
        }
        let few = |source: &mut Source<'_>| (0..1 + source.below(6)).map(|_| b"\0ab\xff"[source.below(4)]).collect();
        match source.below(8) {
            0 => [&[b'k'; 40][..], &[source.byte()]].concat(),
            1 => vec![b'k'; 1 + source.below(300)],
            2 => format!("user:{}", source.byte()).into_bytes(),
            _ => few(source),
        }
    }

    pub(crate) fn draw_rows(self, source: &mut Source<'_>, count: usize) -> Rows {
        (0..count).map(|_| (self.draw_key(source), draw_value(source))).collect()
    }

    /// Returns the rows as delimited text.
    pub(crate) fn csv<'r>(self, rows: impl IntoIterator<Item = (&'r Vec<u8>, &'r Vec<u8>)>) -> Vec<u8> {
        let row = |(key, value): (&Vec<u8>, &'r Vec<u8>)| match self.key(key) {
            Key::U64(number) => csv_row(&number, value),
            _ => csv_row(key, value),
        };
        rows.into_iter().flat_map(row).collect()
    }

    pub(crate) fn bake(self, rows: &Rows, path: &Path) -> Report {
        bake_text(path, self.keys(), self.csv(rows))
    }

    /// Returns the table's rows in its order.
    pub(crate) fn rows_of(self, store: &Store) -> Vec<(Vec<u8>, Vec<u8>)> {
        let bytes = |key: Key<'_>| match key {
            Key::U64(number) => number.to_be_bytes().to_vec(),
            key => key.as_bytes().expect("a key of either kind").to_vec(),
        };
        store.iter().map(Result::unwrap).map(|(key, value)| (bytes(key), value.to_vec())).collect()
    }
}

fn draw_value(source: &mut Source<'_>) -> Vec<u8> {
    let len = match source.below(32) {
        0 => source.below(40_000),
        1..8 => 0,
        _ => source.below(30),
    };
    vec![source.byte(); len]
}
