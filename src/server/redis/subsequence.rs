//! The command LCS: the longest common subsequence of two strings.
//!
//! In: two keys. Out: the subsequence, its length, or the positions of its parts. If there are several longest
//! subsequences, the reply has the one that Redis would choose. The limit on the memory for the computation also limits
//! its duration.

use std::ops::Range;

use super::lookup::Lookup;
use super::strings::{NOT_AN_INTEGER, SYNTAX, next};
use super::{Counted, Out};
use crate::protocol::resp::{Args, BULK_LEN_MAX_BYTES, integer};

/// The number of cells of [`Lengths`] that are computed in one step.
const STEP_CELLS: usize = 32;

const TOO_LONG: &str = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";

#[derive(Default)]
struct Options {
    length: bool,
    parts: bool,
    part_len_min: i64,
    part_lengths: bool,
}

impl Options {
    fn parse(mut args: Args<'_>) -> Result<Self, String> {
        let mut options = Options::default();
        while let Some(option) = args.next() {
            let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
            if is(b"IDX") {
                options.parts = true;
            } else if is(b"LEN") {
                options.length = true;
            } else if is(b"WITHMATCHLEN") {
                options.part_lengths = true;
            } else if is(b"MINMATCHLEN") {
                options.part_len_min = integer(args.next().ok_or(SYNTAX)?).ok_or(NOT_AN_INTEGER)?;
            } else {
                return Err(SYNTAX.to_owned());
            }
        }
        if options.parts && options.length {
            return Err("ERR If you want both the length and indexes, please just use IDX.".to_owned());
        }
        Ok(options)
    }
}

/// For each pair of a prefix of one string and a prefix of the other, the length of their longest common subsequence.
struct Lengths {
    columns: usize,
    cells: Vec<u32>,
}

impl Lengths {
    /// Computes the lengths. Returns `None` if they would take too much memory.
    fn compute(a: &[u8], b: &[u8]) -> Option<Self> {
        let columns = b.len() + 1;
        let count = columns.checked_mul(a.len() + 1)?;
        if count > BULK_LEN_MAX_BYTES / size_of::<u32>() {
            return None;
        }
        let mut cells = vec![0; count];
        for (row, x) in a.iter().enumerate() {
            let (above, below) = cells[row * columns..(row + 2) * columns].split_at_mut(columns);
            for (column, y) in b.iter().enumerate() {
                below[column + 1] = if x == y { above[column] + 1 } else { above[column + 1].max(below[column]) };
            }
        }
        Some(Lengths { columns, cells })
    }

    fn at(&self, a_len: usize, b_len: usize) -> u32 {
        self.cells[a_len * self.columns + b_len]
    }

    /// Returns the parts of both strings that form the subsequence, the last part first.
    fn parts(&self, a: &[u8], b: &[u8]) -> Vec<(Range<usize>, Range<usize>)> {
        let mut parts: Vec<(Range<usize>, Range<usize>)> = Vec::new();
        let (mut i, mut j, mut is_adjacent) = (a.len(), b.len(), false);
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                (i, j) = (i - 1, j - 1);
                match parts.last_mut() {
                    Some((in_a, in_b)) if is_adjacent => (in_a.start, in_b.start) = (i, j),
                    _ => parts.push((i..i + 1, j..j + 1)),
                }
                is_adjacent = true;
            } else {
                (i, j) = if self.at(i - 1, j) > self.at(i, j - 1) { (i - 1, j) } else { (i, j - 1) };
                is_adjacent = false;
            }
        }
        parts
    }
}

pub(super) fn lcs(
    lookup: Lookup<'_>,
    mut args: Args<'_>,
    counted: &mut Counted,
    out: &mut Out<'_>,
) -> Result<(), String> {
    let a = lookup.find_counted(next(&mut args), counted)?;
    let b = lookup.find_counted(next(&mut args), counted)?;
    if lookup.store.schema().is_some() && (a.is_some() || b.is_some()) {
        return Err("ERR The specified keys must contain string values".to_owned());
    }
    let ((a, _), (b, _)) = (a.unwrap_or_default(), b.unwrap_or_default());
    let options = Options::parse(args)?;
    let lengths = Lengths::compute(a, b).ok_or(TOO_LONG)?;
    out.sink().steps().add(lengths.cells.len() / STEP_CELLS);
    let len = lengths.at(a.len(), b.len());
    if options.length {
        out.integer(len.into());
        return Ok(());
    }
    let mut parts = lengths.parts(a, b);
    if !options.parts {
        let subsequence: Vec<u8> = parts.iter().rev().flat_map(|(in_a, _)| &a[in_a.clone()]).copied().collect();
        out.bulk(&subsequence);
        return Ok(());
    }
    parts.retain(|(in_a, _)| in_a.len() as i64 >= options.part_len_min);
    out.map(2);
    out.bulk(b"matches");
    out.array(parts.len());
    for (in_a, in_b) in parts {
        out.array(if options.part_lengths { 3 } else { 2 });
        for part in [&in_a, &in_b] {
            out.array(2);
            out.integer(part.start as i64);
            out.integer(part.end as i64 - 1);
        }
        if options.part_lengths {
            out.integer(in_a.len() as i64);
        }
    }
    out.bulk(b"len");
    out.integer(len.into());
    Ok(())
}
