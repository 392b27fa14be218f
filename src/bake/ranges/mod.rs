//! Tables of ranges: each row belongs to all keys from its start to its end, and no key belongs to two rows.
//!
//! In: rows with a start and an end, or with a block of addresses. [`RangeParser`] parses them. While rows are sorted,
//! their keys are those of [`RangeKeys`]. Out: the rows of the table. [`RowsOfRanges`] makes them from the sorted rows,
//! of inputs and of tables: `flatten` decides which row wins where ranges overlap, and joins adjacent ranges with equal
//! values.

mod flatten;

use std::io::Write;
use std::net::{IpAddr, Ipv6Addr};

use super::budget::Context;
use super::error::{BakeError, RowFault, RowPlace};
use super::options::{Options, Overlaps, RangeEnds};
use super::range_keys::RangeKeys;
use super::sort::{Duplicate, HeldRow, Tally};
use crate::cidr::Block;
use crate::format::OwnedKey;
use crate::format::key::{KEY_LEN_MAX_BYTES, Key};
use flatten::{BaseCounts, Flattener, Overlap, Range};

/// Parses the ranges of rows.
pub(super) struct RangeParser {
    keys: RangeKeys,
    has_blocks: bool,
    /// The sorting key of the last range.
    encoded: Vec<u8>,
    /// The start and the end of the last range, and the text of one of them.
    start: Vec<u8>,
    end: Vec<u8>,
    text: Vec<u8>,
}

impl RangeParser {
    pub(super) fn new(options: &Options) -> Option<RangeParser> {
        let has_blocks = *options.ranges.as_ref()? == RangeEnds::Blocks;
        let (keys, [encoded, start, end, text]) = (RangeKeys::new(options)?, [const { Vec::new() }; 4]);
        Some(RangeParser { keys, has_blocks, encoded, start, end, text })
    }

    /// Returns the sorting key of the range of a row with this key, and this end if there is a column of ends.
    pub(super) fn parse(&mut self, key: &[u8], end: Option<&[u8]>, place: RowPlace) -> Result<Key<'_>, RowFault> {
        let RangeParser { keys, has_blocks, encoded, start, end: end_of_range, text } = self;
        let key_type = keys.key_type;
        let fault_of = |which| move |fault| RowFault::range_key(which, fault, place);
        let (start, end) = if *has_blocks {
            // A block contains no comma, so the last one is before the last part of the key.
            let block_at = if key_type.is_composite() { memchr::memrchr(b',', key).map_or(0, |at| at + 1) } else { 0 };
            let (leading, block) = key.split_at(block_at);
            let block = Block::parse(block).map_err(|fault| RowFault::block(fault, place))?;
            let first = written(leading, block.first(), text);
            let start = key_type.parse_into(first, start).map_err(fault_of("start"))?;
            let last = key_type.with_last_part(start, written(b"", block.last(), text), end_of_range);
            (start, last.map_err(fault_of("end"))?)
        } else {
            let start = key_type.parse_into(key, start).map_err(fault_of("start"))?;
            let last = key_type.with_last_part(start, end.unwrap_or_default(), end_of_range);
            (start, last.map_err(fault_of("end"))?)
        };
        if end < start {
            let [start, end] = [start, end].map(|key| key_type.display(key).to_string());
            return Err(RowFault::RangeReversed { start, end });
        }
        keys.encode(start, end, encoded);
        match encoded.len() {
            1..=KEY_LEN_MAX_BYTES => Ok(Key::Bytes(encoded)),
            len_bytes => Err(RowFault::KeyLen { len_bytes }),
        }
    }
}

/// Writes the leading parts of a key and an address into `text`, and returns it.
fn written<'t>(leading: &[u8], address: Ipv6Addr, text: &'t mut Vec<u8>) -> &'t [u8] {
    text.clear();
    text.extend_from_slice(leading);
    write!(text, "{}", IpAddr::V6(address).to_canonical()).expect("a vector takes any text");
    text
}

/// Makes the rows of the table from sorted rows.
pub(super) struct RowsOfRanges {
    keys: RangeKeys,
    flattener: Flattener,
    /// The leading parts of the ranges in the flattener.
    leading: Vec<u8>,
    /// Buffers for the start and the end of a row of the table.
    buffers: [Vec<u8>; 2],
    /// The overlap to report if overlaps are errors: of all that have been found, the one whose second row is the first
    /// in the input.
    overlap: Option<Duplicate>,
    overlaps: Overlaps,
    /// The maximum memory of ranges that contain one key.
    held_max_bytes: usize,
}

impl RowsOfRanges {
    pub(super) fn new(context: &Context<'_>) -> Option<RowsOfRanges> {
        let (keys, overlaps) = (RangeKeys::new(context.options)?, context.options.overlaps);
        let (leading, buffers, overlap) = (Vec::new(), [Vec::new(), Vec::new()], None);
        let (flattener, held_max_bytes) = (Flattener::new(overlaps), context.budget.nested_ranges_len_max_bytes());
        Some(RowsOfRanges { keys, flattener, leading, buffers, overlap, overlaps, held_max_bytes })
    }

    /// Adds a sorted row, and passes each row of the table that is complete to `take`.
    pub(super) fn push(
        &mut self,
        row: &HeldRow<'_>,
        origin: u64,
        take: &mut impl FnMut(&HeldRow<'_>, u64) -> Result<(), BakeError>,
    ) -> Result<(), BakeError> {
        let decoded = self.keys.decode(row.key.as_bytes().unwrap_or_default());
        if decoded.leading != self.leading {
            self.finish_leading(take)?;
            self.leading.clear();
            self.leading.extend_from_slice(decoded.leading);
        }
        let RowsOfRanges { keys, flattener, leading, buffers, overlap, overlaps, held_max_bytes } = self;
        let mut take = |range: &Range| take_range(keys, leading, range, buffers, take);
        let range = Range::new((decoded.start, decoded.end), origin, row.deleted);
        let found = flattener.push(range, row.value, &mut take)?;
        if *overlaps == Overlaps::Error
            && let Some(Overlap { earlier_origin, later_origin }) = found
            && overlap.as_ref().is_none_or(|noted| later_origin < noted.later_origin)
        {
            let key = OwnedKey::from(row.key);
            *overlap = Some(Duplicate { key, first_origin: earlier_origin, later_origin });
        }
        let (count, held_bytes) = flattener.held();
        if held_bytes > *held_max_bytes {
            let range = keys.display_key(&row.key.into());
            return Err(BakeError::NestedRanges { range, count, held_bytes, max_bytes: *held_max_bytes });
        }
        Ok(())
    }

    /// Passes the remaining rows of the table to `take`, and adds what was found to the tally.
    pub(super) fn finish(
        mut self,
        tally: &mut Tally,
        take: &mut impl FnMut(&HeldRow<'_>, u64) -> Result<(), BakeError>,
    ) -> Result<(), BakeError> {
        self.finish_leading(take)?;
        tally.overlap = self.overlap;
        let BaseCounts { replaced, removed, deletions, effective_deletions } = self.flattener.counts;
        tally.absent_removed += deletions - effective_deletions;
        tally.base_replaced += replaced;
        tally.base_removed += removed;
        Ok(())
    }

    fn finish_leading(
        &mut self,
        take: &mut impl FnMut(&HeldRow<'_>, u64) -> Result<(), BakeError>,
    ) -> Result<(), BakeError> {
        let RowsOfRanges { keys, flattener, leading, buffers, .. } = self;
        flattener.finish(&mut |range: &Range| take_range(keys, leading, range, buffers, take))
    }
}

fn take_range(
    keys: &RangeKeys,
    leading: &[u8],
    range: &Range,
    [start, end]: &mut [Vec<u8>; 2],
    take: &mut impl FnMut(&HeldRow<'_>, u64) -> Result<(), BakeError>,
) -> Result<(), BakeError> {
    let (key, end) = (keys.stored(leading, range.start, start), keys.stored(leading, range.end, end));
    let row = HeldRow { key, end: Some(end), value: &range.value, line: 0, deleted: false };
    take(&row, range.origin)
}
