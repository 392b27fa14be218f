//! Sorts rows in memory, and drops rows with duplicate keys.

use rayon::ThreadPool;
use rayon::iter::ParallelIterator;
use rayon::slice::{ParallelSlice, ParallelSliceMut};

use super::parsed_piece::ParsedPiece;
use super::{Duplicate, HeldRow, Tally};
use crate::bake::keys::canonical_decimal;
use crate::bake::options::Duplicates;
use crate::format::key::{Key, KeyKind};

/// The maximum length of a list of rows with byte keys that is always sorted by comparing whole keys. A longer list is
/// sorted by heads (see [`Key::head`]), unless heads cannot distinguish its keys.
const TIES_SMALL: usize = 32;
/// The number of rows in a chunk. Threads compute the common prefix of the keys chunk by chunk.
const CHUNK_ROWS: usize = 1 << 14;

/// A row to sort: the head of its key, and the row's position. Positions ascend in the order of the input, so sorting
/// keeps rows with the same key in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RowRef {
    /// The head of the key: see [`Key::head`]. If keys are bytes, sorting replaces the head several times, each time by
    /// the 8 bytes that follow the prefix shared by the keys being sorted.
    head: u64,
    piece: u32,
    position: u32,
}

/// The memory that sorting takes per row, in addition to the row itself.
pub(in crate::bake) const REF_LEN_BYTES: usize = size_of::<RowRef>();

/// A sorted run: rows in memory, in key order.
pub(in crate::bake) struct SortedRun {
    /// The kind of the keys. If the kind is `U64`, `pieces` may hold keys as decimal text.
    kind: KeyKind,
    pieces: Vec<ParsedPiece>,
    refs: Vec<RowRef>,
}

impl SortedRun {
    /// Sorts the rows of several pieces of the input. If `kind` is `U64`, keys that are held as decimal text are sorted
    /// as numbers.
    pub(in crate::bake) fn sorted(pieces: Vec<ParsedPiece>, kind: KeyKind, pool: &ThreadPool) -> SortedRun {
        let mut refs = Vec::with_capacity(pieces.iter().map(ParsedPiece::len).sum());
        let mut run = SortedRun { kind, pieces, refs: Vec::new() };
        for (number, piece) in run.pieces.iter().enumerate() {
            let head = |position| match kind {
                KeyKind::U64 => run.number(piece.key_at(position)),
                KeyKind::Bytes => 0,
            };
            let rows = piece.positions().iter();
            refs.extend(rows.map(|position| RowRef {
                head: head(*position),
                piece: number as u32,
                position: *position,
            }));
        }
        pool.install(|| match kind {
            KeyKind::U64 if refs.is_sorted() => {}
            // Positions ascend in the order of the input, so an unstable sort keeps rows with equal keys in this order.
            KeyKind::U64 => refs.par_sort_unstable(),
            KeyKind::Bytes => run.sort_bytes(&mut refs),
        });
        run.refs = refs;
        run
    }

    /// Sorts rows with byte keys by the 8 bytes after the prefix that all keys share. Rows whose 8 bytes are equal are
    /// then sorted in the same way, by the 8 bytes after their own shared prefix. The ranges of rows that are still to
    /// be sorted are in a list, because recursion could overflow the stack: if each key is a prefix of the next key,
    /// the depth would grow with the length of the longest key.
    fn sort_bytes(&self, refs: &mut [RowRef]) {
        let mut left = vec![(0..refs.len(), 0)];
        while let Some((range, known)) = left.pop() {
            let (start, refs) = (range.start, &mut refs[range]);
            let common_len_bytes = self.common_prefix_len_bytes(refs, known);
            // If the shared prefix has not grown, one key ends where the prefix ends. Heads cannot distinguish this key
            // from keys that continue with zeros, so whole keys are compared.
            if refs.len() <= TIES_SMALL || (known > 0 && common_len_bytes == known) {
                refs.sort_unstable_by(|a, b| self.held_key(*a).cmp(&self.held_key(*b)).then(a.cmp(b)));
                continue;
            }
            // Sorting by 8 bytes at a time takes a third of the time of comparing whole keys if they share long
            // prefixes, as URLs do.
            for row in &mut *refs {
                row.head = self.held_key(*row).head(common_len_bytes);
            }
            refs.par_sort_unstable();
            let mut end = start;
            for ties in refs.chunk_by(|a, b| a.head == b.head) {
                end += ties.len();
                if ties.len() > 1 {
                    left.push((end - ties.len()..end, common_len_bytes));
                }
            }
        }
    }

    /// Returns the length of the prefix that the keys of all rows share. The first `least` bytes of the keys are known
    /// to be equal.
    fn common_prefix_len_bytes(&self, refs: &[RowRef], least: usize) -> usize {
        let Some((first, rest)) = refs.split_first() else { return least };
        let first = self.held_key(*first).as_bytes().unwrap_or_default();
        let common_with = |common: usize, row: &RowRef| {
            let key = self.held_key(*row).as_bytes().unwrap_or_default();
            match key.get(least..common).is_some_and(|same| same == &first[least..common]) {
                true => common,
                false => least + first[least..common].iter().zip(&key[least..]).take_while(|(a, b)| a == b).count(),
            }
        };
        let common_in = |part: &[RowRef]| part.iter().fold(first.len(), common_with);
        rest.par_chunks(CHUNK_ROWS).map(common_in).min().unwrap_or(first.len())
    }

    /// Keeps one row per key. `duplicates` selects this row, and `tally` counts the dropped rows.
    pub(in crate::bake) fn drop_duplicates(&mut self, duplicates: Duplicates, tally: &mut Tally) {
        let mut refs = std::mem::take(&mut self.refs);
        let rows_before = refs.len();
        if duplicates == Duplicates::Error {
            // The error names the pair whose second row comes first in the input, so every pair is noted.
            for pair in refs.windows(2).filter(|pair| self.same_key(pair[0], pair[1])) {
                let (first, later) = (self.origin(pair[0]), self.origin(pair[1]));
                tally.note(|| Duplicate::new(self.key(pair[0]), first, later), later);
            }
        }
        refs.dedup_by(|later, kept| {
            let same = self.same_key(*later, *kept);
            if same && duplicates == Duplicates::Last {
                (kept.piece, kept.position) = (later.piece, later.position);
            }
            same
        });
        tally.duplicates_dropped += (rows_before - refs.len()) as u64;
        self.refs = refs;
    }

    /// Returns whether two rows that are adjacent in key order have the same key. Rows with the same key have equal
    /// heads, so the keys are compared only if the heads are equal.
    fn same_key(&self, a: RowRef, b: RowRef) -> bool {
        a.head == b.head && (self.kind == KeyKind::U64 || self.held_key(a) == self.held_key(b))
    }

    fn held_key(&self, row: RowRef) -> Key<'_> {
        self.pieces[row.piece as usize].key_at(row.position)
    }

    fn key(&self, row: RowRef) -> Key<'_> {
        match self.kind {
            KeyKind::U64 => Key::U64(row.head),
            KeyKind::Bytes => self.held_key(row),
        }
    }

    fn number(&self, key: Key<'_>) -> u64 {
        match key {
            Key::U64(number) => number,
            Key::Bytes(text) => canonical_decimal(text).expect("only decimals are sorted as numbers"),
        }
    }

    fn origin(&self, row: RowRef) -> u64 {
        let piece = &self.pieces[row.piece as usize];
        piece.origin() + u64::from(piece.at(row.position).line)
    }

    /// Returns the least and the greatest key.
    pub(in crate::bake) fn first_and_last_key(&self) -> Option<(Key<'_>, Key<'_>)> {
        Some((self.key(*self.refs.first()?), self.key(*self.refs.last()?)))
    }

    /// Returns the length of all encoded rows, including dropped rows.
    pub(in crate::bake) fn len_bytes(&self) -> usize {
        self.pieces.iter().map(ParsedPiece::len_bytes).sum()
    }

    pub(in crate::bake) fn drop_first(&mut self) {
        self.refs.remove(0);
    }

    pub(in crate::bake) fn drop_last(&mut self) {
        self.refs.pop();
    }

    pub(in crate::bake) fn len(&self) -> usize {
        self.refs.len()
    }

    /// Returns a lower bound on the origins of all rows. An origin identifies a row's input and line.
    pub(in crate::bake) fn first_origin(&self) -> u64 {
        self.pieces.first().map_or(0, ParsedPiece::origin)
    }

    /// Returns the head (see [`Key::head`]) of the key of the row at `index`, or `None` after the last row.
    #[inline]
    pub(in crate::bake) fn head(&self, index: usize, common_len_bytes: usize) -> Option<u64> {
        let row = self.refs.get(index)?;
        Some(match self.kind {
            KeyKind::U64 => row.head,
            KeyKind::Bytes => self.held_key(*row).head(common_len_bytes),
        })
    }

    /// Returns the first key, and the length of the prefix that all keys share. Returns `None` for numbers and for an
    /// empty run.
    pub(in crate::bake) fn common(&self) -> Option<(&[u8], usize)> {
        let (first, last) = self.first_and_last_key()?;
        Some((first.as_bytes()?, first.common_len_bytes(&last)))
    }

    /// Returns the row at a position in key order, and its origin (input and line). Prefetches a later row.
    #[inline]
    pub(in crate::bake) fn row(&self, index: usize) -> (HeldRow<'_>, u64) {
        const AHEAD_ROWS: usize = 12;
        if let Some(ahead) = self.refs.get(index + AHEAD_ROWS) {
            self.pieces[ahead.piece as usize].prefetch(ahead.position);
        }
        let row = self.refs[index];
        let piece = &self.pieces[row.piece as usize];
        let held = piece.at(row.position);
        let key = if self.kind == KeyKind::U64 { Key::U64(row.head) } else { held.key };
        (HeldRow { key, ..held }, piece.origin() + u64::from(held.line))
    }

    /// Ends the run, and returns the memory of its rows for reuse.
    pub(in crate::bake) fn into_pieces(self) -> Vec<ParsedPiece> {
        self.pieces
    }
}

#[cfg(test)]
mod tests {
    use rayon::ThreadPoolBuilder;

    use super::*;

    /// The sort must not recurse: a recursion with one call per 8 bytes of the longest key would overflow the small
    /// stack of this test.
    #[test]
    fn keys_that_are_prefixes_of_each_other_are_sorted_on_a_small_stack() {
        const LEN_MAX_BYTES: usize = 6000;
        let text = vec![b'a'; LEN_MAX_BYTES];
        let mut piece = ParsedPiece::new();
        piece.begin(KeyKind::Bytes, 0, 0, 0);
        for line in 0..LEN_MAX_BYTES {
            // Pushes each length once. Successive lengths differ by more than 1.
            let len_bytes = (line * 1009) % LEN_MAX_BYTES + 1;
            piece.push(Key::Bytes(&text[..len_bytes]), b"", line as u64, false).unwrap();
        }
        let pool = ThreadPoolBuilder::new().num_threads(1).stack_size(128 << 10).build().unwrap();
        let run = SortedRun::sorted(vec![piece], KeyKind::Bytes, &pool);
        let lens = (0..run.len()).map(|index| run.row(index).0.key.as_bytes().unwrap().len());
        assert!(lens.eq(1..=LEN_MAX_BYTES));
    }
}
