//! Commands that read a whole value: BITCOUNT, BITPOS, and DUMP.
//!
//! In: a value of any length. Out: a number, or the serialized value. The value is read in pieces, between which other
//! connections get their turn.

use std::ops::Range;

use super::lookup::{LONE_LOOKUP_STEPS, Lookup};
use super::strings::{NOT_AN_INTEGER, SYNTAX, next};
use super::text::damaged;
use super::work::{Outcome, Step, ValueTask, WholeValue, Work};
use super::{Counted, Out, serialized};
use crate::protocol::resp::{Args, Command, integer};

/// The number of bytes that are read between two checks of the pass's steps.
const PIECE_LEN_BYTES: usize = 64 << 10;
/// The cost, in steps, of reading [`STEP_LEN_BYTES`](crate::server::steps::STEP_LEN_BYTES) bytes and computing their
/// checksum.
const CHECKSUM_STEPS: usize = 3;

/// Reads the arguments `[start end [BYTE | BIT]]`. BITPOS also accepts a start without an end, so its `is_end_required`
/// is false. Returns the range of bits that the arguments select in a value of `len_bytes` bytes, and whether the end
/// is given.
fn bits_of(mut args: Args<'_>, len_bytes: usize, is_end_required: bool) -> Result<(Range<u64>, bool), String> {
    let (start, end, unit) = (args.next(), args.next(), args.next());
    if args.next().is_some() || is_end_required && start.is_some() && end.is_none() {
        return Err(SYNTAX.to_owned());
    }
    let number = |text: Option<&[u8]>| text.map(|text| integer(text).ok_or(NOT_AN_INTEGER)).transpose();
    let first = number(start)?;
    // BITCOUNT reports an invalid end before an invalid unit, and BITPOS after it.
    let mut last = if is_end_required { number(end)? } else { None };
    if let (Some(first @ ..0), Some(last @ ..0)) = (first, last)
        && first > last
    {
        return Ok((0..0, true));
    }
    let unit_bits = match unit {
        Some(unit) if unit.eq_ignore_ascii_case(b"BIT") => 1,
        Some(unit) if !unit.eq_ignore_ascii_case(b"BYTE") => return Err(SYNTAX.to_owned()),
        _ => 8,
    };
    if !is_end_required {
        last = number(end)?;
    }
    let len = len_bytes as i64 * 8 / unit_bits;
    let at = |index: i64| if index < 0 { index.saturating_add(len).max(0) } else { index };
    let (first, last) = (at(first.unwrap_or(0)), at(last.unwrap_or(len - 1)).min(len - 1));
    let bits = if first > last { 0..0 } else { (first * unit_bits) as u64..((last + 1) * unit_bits) as u64 };
    Ok((bits, end.is_some()))
}

pub(super) fn bit_count(
    lookup: Lookup<'_>,
    mut args: Args<'_>,
    counted: &mut Counted,
    out: &mut Out<'_>,
) -> Result<Outcome, String> {
    let Some((value, _)) = lookup.find_string(next(&mut args), counted)? else {
        out.integer(0);
        return Ok(Outcome::Done);
    };
    let (bits, _) = bits_of(args, value.len(), true)?;
    Ok(begin((bits.start / 8) as usize, ValueTask::Count { bits, ones: 0 }))
}

pub(super) fn bit_position(
    lookup: Lookup<'_>,
    mut args: Args<'_>,
    counted: &mut Counted,
    out: &mut Out<'_>,
) -> Result<Outcome, String> {
    let (text, wanted) = (next(&mut args), integer(next(&mut args)).ok_or(NOT_AN_INTEGER)?);
    if !matches!(wanted, 0 | 1) {
        return Err("ERR The bit argument must be 1 or 0.".to_owned());
    }
    let Some((value, _)) = lookup.find_string(text, counted)? else {
        // A missing value counts as an infinite number of zeros.
        out.integer(-wanted);
        return Ok(Outcome::Done);
    };
    let (bits, is_end_given) = bits_of(args, value.len(), false)?;
    if bits.is_empty() {
        out.integer(-1);
        return Ok(Outcome::Done);
    }
    Ok(begin((bits.start / 8) as usize, ValueTask::Find { bits, wanted: wanted == 1, is_end_given }))
}

pub(super) fn dump(
    lookup: Lookup<'_>,
    mut args: Args<'_>,
    counted: &mut Counted,
    out: &mut Out<'_>,
) -> Result<Outcome, String> {
    let Some((value, _)) = lookup.find_string(next(&mut args), counted)? else {
        out.null();
        return Ok(Outcome::Done);
    };
    if let Some(serialized) = serialized::short_integer(value) {
        out.bulk(&serialized);
        return Ok(Outcome::Done);
    }
    Ok(begin(0, ValueTask::Dump { checksum: serialized::checksum(0, &serialized::header(value.len())) }))
}

fn begin(read_bytes: usize, task: ValueTask) -> Outcome {
    Outcome::Work(Work::WholeValue(WholeValue { read_bytes, task }))
}

impl WholeValue {
    /// Reads more of the value. Replies once the result is known.
    ///
    /// # Errors
    /// The text of the error reply, if the record is damaged.
    pub(super) fn more(
        &mut self,
        lookup: Lookup<'_>,
        command: &Command<'_>,
        out: &mut Out<'_>,
    ) -> Result<Step, String> {
        out.sink().steps().add(LONE_LOOKUP_STEPS);
        let text = command.args().nth(1).unwrap_or_default();
        let (value, offset_bytes) = lookup.find(text)?.ok_or_else(damaged)?;
        let end_bytes = match &self.task {
            ValueTask::Count { bits, .. } | ValueTask::Find { bits, .. } => bits.end.div_ceil(8) as usize,
            ValueTask::Dump { .. } => value.len(),
        };
        while self.read_bytes < end_bytes {
            if out.sink().steps().is_pass_over() {
                return Ok(Step::Yield);
            }
            let piece = self.read_bytes..end_bytes.min(self.read_bytes + PIECE_LEN_BYTES);
            out.sink().steps().add_bytes(piece.len());
            if let Some(found) = self.read(value, piece.clone(), out) {
                out.integer(found);
                return Ok(Step::Done);
            }
            self.read_bytes = piece.end;
        }
        match &self.task {
            ValueTask::Count { ones, .. } => out.integer(*ones as i64),
            ValueTask::Find { wanted: false, is_end_given: false, .. } => out.integer(8 * value.len() as i64),
            ValueTask::Find { .. } => out.integer(-1),
            ValueTask::Dump { checksum } => {
                let (header, footer) = (serialized::header(value.len()), serialized::footer(*checksum));
                out.bulk_header(header.len() + value.len() + footer.len());
                out.sink().push(&header);
                out.sink().push_stored(value, offset_bytes);
                out.sink().push(&footer);
                out.bulk_end();
            }
        }
        Ok(Step::Done)
    }

    /// Reads a piece of the value. Returns the position of the wanted bit, if the piece contains it.
    fn read(&mut self, value: &[u8], piece: Range<usize>, out: &mut Out<'_>) -> Option<i64> {
        let bytes = &value[piece.clone()];
        match &mut self.task {
            ValueTask::Count { bits, ones } => {
                let all: u64 = bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
                let edges = edges(bits).into_iter().filter(|(at, _)| piece.contains(at));
                *ones += all - edges.map(|(at, mask)| u64::from((value[at] & !mask).count_ones())).sum::<u64>();
                None
            }
            ValueTask::Find { bits, wanted, .. } => {
                let other = if *wanted { 0x00 } else { 0xFF };
                let edges = edges(bits);
                let mut at = piece.start;
                loop {
                    at += value[at..piece.end].iter().position(|&byte| byte != other)?;
                    let masks = edges.iter().filter(|(edge, _)| *edge == at);
                    let found = masks.fold(value[at] ^ other, |found, (_, mask)| found & mask);
                    if found != 0 {
                        return Some(8 * at as i64 + i64::from(found.leading_zeros()));
                    }
                    at += 1;
                }
            }
            ValueTask::Dump { checksum } => {
                out.sink().steps().add_bytes((CHECKSUM_STEPS - 1) * bytes.len());
                *checksum = serialized::checksum(*checksum, bytes);
                None
            }
        }
    }
}

/// Returns the positions of the first and the last byte that a range of bits touches, each with a mask. The mask of the
/// first byte selects the bits from the start of the range on, and the mask of the last byte selects the bits before
/// the end of the range.
fn edges(bits: &Range<u64>) -> [(usize, u8); 2] {
    let last = bits.end.saturating_sub(1);
    [((bits.start / 8) as usize, 0xFF >> (bits.start % 8)), ((last / 8) as usize, 0xFF << (7 - last % 8))]
}
