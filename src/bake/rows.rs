//! All rows of a table in memory: gathered in any order, then settled into key
//! order with no key twice.

use super::error::{RowFault, named};
use super::keys::canonical_decimal;
use super::{BakeError, Duplicates, Options};
use crate::format::FormatError;
use crate::format::key::{Key, KeyKind};
use crate::format::record::{ALIGN_BYTES, Record, record_align_bytes, record_len_bytes};
use crate::protocol::native::ResponseHeader;
use zerocopy::IntoBytes;

/// What stands for a row's key, and where its record begins in the arena.
/// Records are in the order of the input, so rows with the same key sort in that
/// order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RowRef {
    /// See [`Key::head`]; 0 for keys of bytes until all rows are there.
    head: u64,
    record_at: usize,
}

/// Rows, each with its record as it will stand in the file.
pub(super) struct Rows {
    kind: KeyKind,
    arena: Vec<u8>,
    refs: Vec<RowRef>,
    /// How many bytes all keys begin with.
    common_len_bytes: usize,
    lines: Lines,
}

/// On which line each row begins. Most rows begin on the line after the row
/// before, so only the others are noted.
#[derive(Default)]
struct Lines {
    rows: u64,
    /// A row, counted from 0, and its line; those after it follow line by line.
    runs: Vec<(u64, u64)>,
}

impl Rows {
    pub(super) fn new(kind: KeyKind) -> Self {
        Rows { kind, arena: Vec::new(), refs: Vec::new(), common_len_bytes: 0, lines: Lines::default() }
    }

    pub(super) fn kind(&self) -> KeyKind {
        self.kind
    }

    pub(super) fn len(&self) -> usize {
        self.refs.len()
    }

    /// How many bytes all keys begin with.
    pub(super) fn common_len_bytes(&self) -> usize {
        self.common_len_bytes
    }

    /// Adds a row, whose key must be of the table's kind.
    pub(super) fn push(&mut self, key: Key<'_>, value: &[u8], line: u64) -> Result<(), RowFault> {
        self.push_record(key, value)?;
        self.lines.push(line);
        Ok(())
    }

    fn push_record(&mut self, key: Key<'_>, value: &[u8]) -> Result<(), RowFault> {
        let too_long = || RowFault::Value(FormatError::ValueTooLong { len_bytes: value.len() as u64 });
        let header = ResponseHeader::of_value(value.len()).ok_or_else(too_long)?;
        let record_at = self.arena.len();
        let record_len_bytes = record_len_bytes(key, value.len(), ALIGN_BYTES);
        self.arena.try_reserve(record_len_bytes).map_err(|_| RowFault::OutOfMemory)?;
        self.refs.try_reserve(1).map_err(|_| RowFault::OutOfMemory)?;
        key.write_to(&mut self.arena);
        self.arena.extend_from_slice(header.as_bytes());
        self.arena.extend_from_slice(value);
        self.arena.resize(record_at + record_len_bytes, 0);
        self.refs.push(RowRef { head: key.as_u64().unwrap_or_default(), record_at });
        Ok(())
    }

    /// The same rows with numbers for keys, if all keys of bytes are numbers as
    /// they are usually written.
    pub(super) fn into_numbers(self) -> Result<Rows, RowFault> {
        let number = |row: &RowRef| self.key(*row).as_bytes().and_then(canonical_decimal);
        if !self.refs.iter().all(|row| number(row).is_some()) {
            return Ok(self);
        }
        let mut rows = Rows::new(KeyKind::U64);
        for row in &self.refs {
            let key = Key::U64(number(row).unwrap_or_default());
            rows.push_record(key, self.record_at(row.record_at).value())?;
        }
        rows.lines = self.lines;
        Ok(rows)
    }

    /// Sorts the rows, and keeps one of those with the same key or refuses them.
    /// Gives the number of rows dropped.
    pub(super) fn settle(&mut self, options: &Options) -> Result<u64, BakeError> {
        match self.kind {
            KeyKind::U64 => self.refs.sort_unstable(),
            KeyKind::Bytes => self.sort_bytes(),
        }
        let rows_before = self.refs.len();
        let mut refs = std::mem::take(&mut self.refs);
        match options.duplicates {
            Duplicates::Error => self.refuse_duplicates(&refs, options)?,
            Duplicates::First => refs.dedup_by(|later, kept| self.same_key(*later, *kept)),
            Duplicates::Last => refs.dedup_by(|later, kept| {
                let same = self.same_key(*later, *kept);
                if same {
                    kept.record_at = later.record_at;
                }
                same
            }),
        }
        self.refs = refs;
        Ok((rows_before - self.refs.len()) as u64)
    }

    /// By the 8 bytes behind those that all keys begin with, and where these are
    /// the same by the keys in the arena.
    fn sort_bytes(&mut self) {
        let mut refs = std::mem::take(&mut self.refs);
        if let Some((first, rest)) = refs.split_first() {
            let first = self.key(*first);
            let common = rest.iter().map(|row| first.common_len_bytes(&self.key(*row)));
            self.common_len_bytes = common.min().unwrap_or(first.as_bytes().map_or(0, <[u8]>::len));
        }
        for row in &mut refs {
            row.head = self.key(*row).head(self.common_len_bytes);
        }
        refs.sort_unstable_by(|a, b| {
            let by_head = a.head.cmp(&b.head);
            by_head.then_with(|| self.key(*a).cmp(&self.key(*b))).then(a.record_at.cmp(&b.record_at))
        });
        self.refs = refs;
    }

    fn key(&self, row: RowRef) -> Key<'_> {
        self.record_at(row.record_at).key()
    }

    fn same_key(&self, a: RowRef, b: RowRef) -> bool {
        a.head == b.head && (self.kind == KeyKind::U64 || self.key(a) == self.key(b))
    }

    /// What the records must be aligned to so that a file can hold them; `None`
    /// if it cannot.
    pub(super) fn record_align_bytes(&self) -> Option<usize> {
        let all_len_bytes = self.arena.len() as u64;
        record_align_bytes(|align_bytes| match align_bytes {
            // Not less than what they take up, and enough to know for all but the largest tables.
            ALIGN_BYTES if all_len_bytes <= (ALIGN_BYTES as u64) << 32 => all_len_bytes,
            _ => self.iter().map(|record| record.len_bytes(align_bytes) as u64).sum(),
        })
    }

    /// The records in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        self.refs.iter().map(|row| self.record_at(row.record_at))
    }

    fn record_at(&self, at: usize) -> Record<'_> {
        Record::at(self.kind, &self.arena, at as u64).expect("a record that push wrote")
    }

    /// Names the duplicate that comes first in the input.
    fn refuse_duplicates(&self, refs: &[RowRef], options: &Options) -> Result<(), BakeError> {
        let duplicates = refs.windows(2).filter(|pair| self.same_key(pair[0], pair[1]));
        let Some(pair) = duplicates.min_by_key(|pair| pair[1].record_at) else { return Ok(()) };
        let (first_line, line) = (self.line_of(pair[0]), self.line_of(pair[1]));
        Err(BakeError::row(options, line, RowFault::Duplicate { key: named(self.key(pair[0])), first_line }))
    }

    /// The line of a row. Counts the records before it.
    fn line_of(&self, row: RowRef) -> u64 {
        let (mut at, mut rows) = (0, 0);
        while at < row.record_at {
            at += self.record_at(at).len_bytes(ALIGN_BYTES);
            rows += 1;
        }
        self.lines.of_row(rows)
    }
}

impl Lines {
    fn push(&mut self, line: u64) {
        let follows =
            self.runs.last().is_some_and(|(first_row, first_line)| first_line + (self.rows - first_row) == line);
        if !follows {
            self.runs.push((self.rows, line));
        }
        self.rows += 1;
    }

    fn of_row(&self, row: u64) -> u64 {
        let run = self.runs.partition_point(|(first_row, _)| *first_row <= row) - 1;
        let (first_row, first_line) = self.runs[run];
        first_line + (row - first_row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(input: &[(u64, &str, u64)]) -> Rows {
        let mut rows = Rows::new(KeyKind::U64);
        for (key, value, line) in input {
            rows.push(Key::U64(*key), value.as_bytes(), *line).unwrap();
        }
        rows
    }

    fn settled(duplicates: Duplicates) -> (u64, Vec<(u64, u8)>) {
        let mut rows = rows(&[(5, "a", 1), (3, "b", 2), (5, "c", 3), (5, "d", 4), (3, "e", 5), (4, "f", 6)]);
        let dropped = rows.settle(&Options { duplicates, ..Options::default() }).unwrap();
        (dropped, rows.iter().map(|record| (record.key().as_u64().unwrap(), record.value()[0])).collect())
    }

    #[test]
    fn the_first_or_the_last_of_a_key_is_kept() {
        assert_eq!(settled(Duplicates::First), (3, vec![(3, b'b'), (4, b'f'), (5, b'a')]));
        assert_eq!(settled(Duplicates::Last), (3, vec![(3, b'e'), (4, b'f'), (5, b'd')]));
    }

    #[test]
    fn a_duplicate_is_named_with_both_lines() {
        let mut rows = rows(&[(9, "a", 2), (5, "b", 3), (7, "c", 7), (5, "d", 8), (9, "e", 12)]);
        let error = rows.settle(&Options::default()).unwrap_err();
        assert!(error.to_string().starts_with("input:8: key 5 is already on line 3: "), "{error}");
    }
}
