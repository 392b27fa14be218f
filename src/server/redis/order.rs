//! The commands ZKV.FLOOR, ZKV.CEILING, ZKV.COVER, ZKV.RANGE, and ZKV.COUNT, which Redis does not have.
//!
//! In: keys, spans (ranges of keys), and pages, in the syntax of [`crate::protocol::resp::range`]. Out: rows. To
//! compute a page, a command reads a bounded part of the file.

use std::borrow::Cow;
use std::ops::{Bound, Range};

use super::keys::{KeyTexts, TextKey, damaged, key, key_steps, quoted, refusal};
use super::stored::push_value;
use super::{Out, Replied};
use crate::Lookup;
use crate::format::key::{Key, KeyKind};
use crate::format::key_type::KeyType;
use crate::format::record::Record;
use crate::protocol::native::PAGE_LEN_MAX_BYTES;
use crate::protocol::resp::Args;
use crate::protocol::resp::range::{Edge, RangeArgs, Span};
use crate::store::{Neighbor, PageLimits, Prefetched, RangeEnd, RangeLookup, Rows, Side, Store, prefix_end};

/// The cost, in steps, of finding a position in the key order.
pub(super) const SEARCH_STEPS: usize = 8;

/// A row, and the offset of its value in the records section.
type Row<'s> = (Key<'s>, &'s [u8], u64);

/// Takes the first remaining row, or the last remaining row if `backward` is true.
fn take<'s>(rows: &mut Rows<'s>, backward: bool) -> Option<Row<'s>> {
    let (record, offset_bytes) = if backward { rows.previous_record() } else { rows.next_record() }?;
    Some(row_of(&record, offset_bytes))
}

/// Returns the row of a record at an offset of the records section.
fn row_of<'s>(record: &Record<'s>, offset_bytes: u64) -> Row<'s> {
    (record.key(), record.value(), offset_bytes + record.value_at_bytes() as u64)
}

fn push_row(out: &mut Out<'_>, texts: &mut KeyTexts, (key, value, offset_bytes): Row<'_>) {
    out.bulk(texts.text(key));
    push_value(out, value, offset_bytes);
}

/// Replies with the row at a key. If the table has no such row, replies with the nearest row below the key if `below`
/// is true, and above the key otherwise.
pub(super) fn neighbor(store: &Store, below: bool, mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
    let key = key(store.key_type(), args.next().unwrap_or_default())?;
    out.sink().steps().add(SEARCH_STEPS);
    let side = if below { Side::After } else { Side::Before };
    let neighbor = store.neighbor(key.as_key(), side).map_err(|_| damaged())?;
    push_neighbor(out, &mut KeyTexts::new(store.key_type()), neighbor);
    Ok(())
}

/// Replies with a row, or with null if there is no row.
pub(super) fn push_neighbor(out: &mut Out<'_>, texts: &mut KeyTexts, neighbor: Neighbor<'_>) {
    let Some((record, offset_bytes)) = neighbor else { return out.null_array() };
    out.array(2);
    push_row(out, texts, row_of(&record, offset_bytes));
}

/// Replies with the first key, the last key, and the value of the range that contains a key, or with null if no range
/// contains it.
pub(super) fn cover(store: &Store, mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
    let key = key(store.key_type(), args.next().unwrap_or_default())?;
    out.sink().steps().add(SEARCH_STEPS);
    let floor = store.neighbor(key.as_key(), Side::After);
    let found = store.range_at_floor(floor, key.as_key()).map_err(refusal)?;
    push_range(out, &mut KeyTexts::new(store.key_type()), found);
    Ok(())
}

/// Replies with a row of a table of ranges, or with null if there is no row.
pub(super) fn push_range(out: &mut Out<'_>, texts: &mut KeyTexts, found: Neighbor<'_>) {
    let Some((record, offset_bytes)) = found else { return out.null_array() };
    let (first, value, value_offset_bytes) = row_of(&record, offset_bytes);
    out.array(3);
    out.bulk(texts.text(first));
    out.bulk(texts.text(record.end().unwrap_or(first)));
    push_value(out, value, value_offset_bytes);
}

/// A ZKV.RANGE or a ZKV.COUNT.
pub(super) struct RangeCommand<'a> {
    /// The start of the range of keys. If the page has a cursor, the range omits the rows that precede the cursor in the
    /// requested direction.
    start: RangeEnd<TextKey<'a>>,
    end: RangeEnd<TextKey<'a>>,
    /// The page of a ZKV.RANGE. `None` for a ZKV.COUNT.
    page: Option<Page>,
}

/// The page that a ZKV.RANGE requests.
#[derive(Clone, Copy)]
struct Page {
    is_reverse: bool,
    limit: usize,
}

impl<'a> RangeCommand<'a> {
    /// Parses the arguments after ZKV.RANGE.
    pub(super) fn range(key_type: KeyType, args: Args<'a>) -> Result<RangeCommand<'a>, String> {
        let args = RangeArgs::parse(args).map_err(|error| error.to_string())?;
        let RangeArgs { span, reverse: is_reverse, limit, from } = args;
        let (mut start, mut end) = ends(key_type, span)?;
        match from {
            None => {}
            Some(from) if is_reverse => end = end.min(position(key_type, from, RangeEnd::end)?),
            Some(from) => start = start.max(position(key_type, from, RangeEnd::start)?),
        }
        Ok(RangeCommand { start, end, page: Some(Page { is_reverse, limit }) })
    }

    /// Parses the arguments after ZKV.COUNT.
    pub(super) fn count(key_type: KeyType, args: Args<'a>) -> Result<RangeCommand<'a>, String> {
        let (start, end) = ends(key_type, Span::parse(args).map_err(|error| error.to_string())?)?;
        Ok(RangeCommand { start, end, page: None })
    }

    /// Returns the steps of looking up the range.
    pub(super) fn search_steps(&self) -> usize {
        if self.page.is_some() { 3 * SEARCH_STEPS } else { 2 * SEARCH_STEPS }
    }

    pub(super) fn is_count(&self) -> bool {
        self.page.is_none()
    }

    pub(super) fn lookup(&self) -> RangeLookup<Key<'_>> {
        let prefetched = match self.page {
            None => Prefetched::Nothing,
            Some(Page { is_reverse: false, .. }) => Prefetched::First,
            Some(Page { is_reverse: true, .. }) => Prefetched::Last,
        };
        RangeLookup { start: borrowed(&self.start), end: borrowed(&self.end), prefetched }
    }

    pub(super) fn limits(&self) -> PageLimits {
        PageLimits { rows_max: self.page.map_or(0, |page| page.limit), len_max_bytes: PAGE_LEN_MAX_BYTES }
    }

    pub(super) fn reply(&self, store: &Store, rows: Range<usize>, out: &mut Out<'_>) -> Replied {
        match &self.page {
            Some(page) => page.reply(store, store.rows_with_numbers(rows).map_err(|_| damaged())?, out)?,
            None => out.integer(rows.len() as i64),
        }
        Ok(())
    }
}

impl Page {
    fn reply(&self, store: &Store, mut rows: Rows<'_>, out: &mut Out<'_>) -> Replied {
        let extent = rows.page(self.is_reverse, self.limit, PAGE_LEN_MAX_BYTES).ok_or_else(damaged)?;
        if !store.are_intact(extent.offset_bytes.start as usize..extent.offset_bytes.end as usize) {
            return Err(damaged());
        }
        let mut texts = KeyTexts::new(store.key_type());
        out.array(2);
        match last_of(&rows, self.is_reverse, extent.row_count).filter(|_| extent.more) {
            Some(last) => {
                let mut cursor = b"(".to_vec();
                cursor.extend_from_slice(texts.text(last));
                out.bulk(&cursor);
            }
            None => out.null(),
        }
        out.sink().steps().add((1 + key_steps(store.key_type())) * extent.row_count);
        out.array(2 * extent.row_count);
        for _ in 0..extent.row_count {
            match take(&mut rows, self.is_reverse) {
                Some(row) => push_row(out, &mut texts, row),
                // The array's header has announced a key and a value, so two errors replace them.
                None => (0..2).for_each(|_| out.error(damaged())),
            }
        }
        Ok(())
    }
}

pub(super) fn range_or_count(store: &Store, command: Result<RangeCommand<'_>, String>, out: &mut Out<'_>) -> Replied {
    let command = command?;
    out.sink().steps().add(command.search_steps());
    let RangeLookup { start, end, .. } = command.lookup();
    let rows = store.row_numbers_between(start, end).map_err(|_| damaged())?;
    command.reply(store, rows, out)
}

/// Returns the key of the last row of a page.
fn last_of<'s>(rows: &Rows<'s>, backward: bool, row_count: usize) -> Option<Key<'s>> {
    let (mut rows, last) = (rows.clone(), row_count.checked_sub(1)?);
    let (key, _) = if backward { rows.nth_back(last) } else { rows.nth(last) }?.ok()?;
    Some(key)
}

/// Returns the start and the end of a span.
fn ends(key_type: KeyType, span: Span<'_>) -> Result<(RangeEnd<TextKey<'_>>, RangeEnd<TextKey<'_>>), String> {
    let prefix = match span {
        Span::Between { min, max } => {
            return Ok((position(key_type, min, RangeEnd::start)?, position(key_type, max, RangeEnd::end)?));
        }
        Span::Prefix(_) if key_type.kind() == KeyKind::U64 => {
            return Err(format!("ERR keys of the type {key_type} have no prefixes: pass min and max"));
        }
        Span::Prefix(prefix) if key_type.is_plain() => prefix.into(),
        Span::Prefix(text) => key_type
            .parse_prefix(text)
            .map(Cow::Owned)
            .map_err(|error| format!("ERR {} is not the beginning of a key of this table: {error}", quoted(text)))?,
    };
    let end = prefix_end(&prefix).map(|end| RangeEnd::Beside(TextKey::Bytes(end.into()), Side::Before));
    Ok((RangeEnd::Beside(TextKey::Bytes(prefix), Side::Before), end.unwrap_or(RangeEnd::AfterAll)))
}

fn position<'k>(
    key_type: KeyType,
    edge: Edge<'k>,
    beside: impl FnOnce(Bound<TextKey<'k>>) -> RangeEnd<TextKey<'k>>,
) -> Result<RangeEnd<TextKey<'k>>, String> {
    Ok(match edge {
        Edge::Least => RangeEnd::BeforeAll,
        Edge::Greatest => RangeEnd::AfterAll,
        Edge::Included(text) => beside(Bound::Included(key(key_type, text)?)),
        Edge::Excluded(text) => beside(Bound::Excluded(key(key_type, text)?)),
    })
}

fn borrowed<'k>(end: &'k RangeEnd<TextKey<'_>>) -> RangeEnd<Key<'k>> {
    match end {
        RangeEnd::BeforeAll => RangeEnd::BeforeAll,
        RangeEnd::Beside(key, side) => RangeEnd::Beside(key.as_key(), *side),
        RangeEnd::AfterAll => RangeEnd::AfterAll,
    }
}
