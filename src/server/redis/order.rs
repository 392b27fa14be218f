//! The commands ZKV.FLOOR, ZKV.CEILING, ZKV.RANGE, and ZKV.COUNT, which Redis does not have.
//!
//! In: keys, spans (ranges of keys), and pages, in the syntax of [`crate::protocol::resp::range`]. Out: rows. To
//! compute a page, a command reads a bounded part of the file.

use std::ops::{Bound, Range};

use super::keys::{damaged, key, key_text};
use super::stored::push_value;
use super::{Out, Replied};
use crate::Lookup;
use crate::format::key::{Key, KeyKind};
use crate::format::record::value_offset_bytes;
use crate::protocol::native::PAGE_LEN_MAX_BYTES;
use crate::protocol::resp::Args;
use crate::protocol::resp::range::{Edge, RangeArgs, RangeError, Span};
use crate::store::{Neighbor, PageLimits, Prefetched, RangeEnd, RangeLookup, Rows, Side, Store, prefix_end};

/// The cost, in steps, of finding a position in the key order.
pub(super) const SEARCH_STEPS: usize = 8;

/// A row, and the offset of its value in the records section.
type Row<'s> = (Key<'s>, &'s [u8], u64);

/// Takes the first remaining row, or the last remaining row if `backward` is true.
fn take<'s>(rows: &mut Rows<'s>, backward: bool) -> Option<Row<'s>> {
    let (start, _) = rows.ends();
    let (key, value) = if backward { rows.next_back() } else { rows.next() }?.ok()?;
    let record = if backward { rows.ends().1 } else { start };
    Some((key, value, record.offset_bytes + value_offset_bytes(key) as u64))
}

fn push_row(out: &mut Out<'_>, (key, value, offset_bytes): Row<'_>) {
    out.bulk(key_text(key, &mut itoa::Buffer::new()));
    push_value(out, value, offset_bytes);
}

/// Replies with the row at a key. If the table has no such row, replies with the nearest row below the key if `below`
/// is true, and above the key otherwise.
pub(super) fn neighbor(store: &Store, below: bool, mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
    let key = key(store.key_kind(), args.next().unwrap_or_default())?;
    out.sink().steps().add(SEARCH_STEPS);
    let side = if below { Side::After } else { Side::Before };
    push_neighbor(out, store.neighbor(key, side).map_err(|_| damaged())?);
    Ok(())
}

/// Replies with a row, or with null if there is no row.
pub(super) fn push_neighbor(out: &mut Out<'_>, neighbor: Neighbor<'_>) {
    let Some((record, offset_bytes)) = neighbor else { return out.null_array() };
    let key = record.key();
    out.array(2);
    push_row(out, (key, record.value(), offset_bytes + value_offset_bytes(key) as u64));
}

/// A ZKV.RANGE or a ZKV.COUNT.
pub(super) struct RangeCommand<'a> {
    span: Span<'a>,
    /// The page of a ZKV.RANGE. `None` for a ZKV.COUNT.
    page: Option<Page<'a>>,
    /// If the span is a prefix, the smallest byte string that is greater than all keys with this prefix.
    prefix_end: Option<Vec<u8>>,
}

/// The page that a ZKV.RANGE requests.
#[derive(Clone, Copy)]
struct Page<'a> {
    is_reverse: bool,
    limit: usize,
    from: Option<Edge<'a>>,
}

impl<'a> RangeCommand<'a> {
    /// Parses the arguments after ZKV.RANGE.
    pub(super) fn range(args: Args<'a>) -> Result<RangeCommand<'a>, RangeError> {
        let RangeArgs { span, reverse: is_reverse, limit, from } = RangeArgs::parse(args)?;
        Ok(RangeCommand { page: Some(Page { is_reverse, limit, from }), ..RangeCommand::of_span(span) })
    }

    /// Parses the arguments after ZKV.COUNT.
    pub(super) fn count(args: Args<'a>) -> Result<RangeCommand<'a>, RangeError> {
        Span::parse(args).map(RangeCommand::of_span)
    }

    fn of_span(span: Span<'a>) -> RangeCommand<'a> {
        let prefix_end = if let Span::Prefix(prefix) = span { prefix_end(prefix) } else { None };
        RangeCommand { span, page: None, prefix_end }
    }

    /// Returns the steps of looking up the range.
    pub(super) fn search_steps(&self) -> usize {
        if self.page.is_some() { 3 * SEARCH_STEPS } else { 2 * SEARCH_STEPS }
    }

    pub(super) fn is_count(&self) -> bool {
        self.page.is_none()
    }

    /// Returns the range of keys. If the page has a cursor, the range omits the rows that precede the cursor in the
    /// requested direction.
    pub(super) fn lookup(&self, kind: KeyKind) -> Result<RangeLookup<Key<'_>>, String> {
        let (mut start, mut end) = match self.span {
            Span::Between { min, max } => (position(kind, min, RangeEnd::start)?, position(kind, max, RangeEnd::end)?),
            Span::Prefix(_) if kind == KeyKind::U64 => {
                return Err(format!("ERR keys of this table are {kind}, which have no prefixes: pass min and max"));
            }
            Span::Prefix(prefix) => {
                let end = self.prefix_end.as_deref().map(|end| RangeEnd::Beside(Key::Bytes(end), Side::Before));
                (RangeEnd::Beside(Key::Bytes(prefix), Side::Before), end.unwrap_or(RangeEnd::AfterAll))
            }
        };
        let prefetched = match self.page {
            None => Prefetched::Nothing,
            Some(Page { is_reverse: false, from, .. }) => {
                start =
                    from.map_or(Ok(start), |from| Ok::<_, String>(start.max(position(kind, from, RangeEnd::start)?)))?;
                Prefetched::First
            }
            Some(Page { is_reverse: true, from, .. }) => {
                end = from.map_or(Ok(end), |from| Ok::<_, String>(end.min(position(kind, from, RangeEnd::end)?)))?;
                Prefetched::Last
            }
        };
        Ok(RangeLookup { start, end, prefetched })
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

impl Page<'_> {
    fn reply(&self, store: &Store, mut rows: Rows<'_>, out: &mut Out<'_>) -> Replied {
        let extent = rows.page(self.is_reverse, self.limit, PAGE_LEN_MAX_BYTES).ok_or_else(damaged)?;
        if !store.are_intact(extent.offset_bytes.start as usize..extent.offset_bytes.end as usize) {
            return Err(damaged());
        }
        out.array(2);
        match last_of(&rows, self.is_reverse, extent.row_count).filter(|_| extent.more) {
            Some(last) => {
                let mut cursor = b"(".to_vec();
                cursor.extend_from_slice(key_text(last, &mut itoa::Buffer::new()));
                out.bulk(&cursor);
            }
            None => out.null(),
        }
        out.sink().steps().add(2 * extent.row_count);
        out.array(2 * extent.row_count);
        for _ in 0..extent.row_count {
            match take(&mut rows, self.is_reverse) {
                Some(row) => push_row(out, row),
                // The array's header has announced a key and a value, so two errors replace them.
                None => (0..2).for_each(|_| out.error(damaged())),
            }
        }
        Ok(())
    }
}

pub(super) fn range_or_count(
    store: &Store,
    command: Result<RangeCommand<'_>, RangeError>,
    out: &mut Out<'_>,
) -> Replied {
    let command = command.map_err(|error| error.to_string())?;
    out.sink().steps().add(command.search_steps());
    let RangeLookup { start, end, .. } = command.lookup(store.key_kind())?;
    let rows = store.row_numbers_between(start, end).map_err(|_| damaged())?;
    command.reply(store, rows, out)
}

/// Returns the key of the last row of a page.
fn last_of<'s>(rows: &Rows<'s>, backward: bool, row_count: usize) -> Option<Key<'s>> {
    let (mut rows, last) = (rows.clone(), row_count.checked_sub(1)?);
    let (key, _) = if backward { rows.nth_back(last) } else { rows.nth(last) }?.ok()?;
    Some(key)
}

fn position<'k>(
    kind: KeyKind,
    edge: Edge<'k>,
    beside: impl FnOnce(Bound<Key<'k>>) -> RangeEnd<Key<'k>>,
) -> Result<RangeEnd<Key<'k>>, String> {
    Ok(match edge {
        Edge::Least => RangeEnd::BeforeAll,
        Edge::Greatest => RangeEnd::AfterAll,
        Edge::Included(text) => beside(Bound::Included(key(kind, text)?)),
        Edge::Excluded(text) => beside(Bound::Excluded(key(kind, text)?)),
    })
}
