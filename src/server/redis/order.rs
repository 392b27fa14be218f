//! The commands ZKV.FLOOR, ZKV.CEILING, ZKV.RANGE, and ZKV.COUNT, which Redis does not have.
//!
//! In: keys, spans (ranges of keys), and pages, in the syntax of [`crate::protocol::resp::range`]. Out: rows. To
//! compute a page, a command reads a bounded part of the file.

use std::ops::Bound;

use super::Out;
use super::stored::push_value;
use super::text::{damaged, key, key_text};
use crate::format::key::{Key, KeyKind};
use crate::format::record::value_offset_bytes;
use crate::protocol::native::PAGE_LEN_MAX_BYTES;
use crate::protocol::resp::Args;
use crate::protocol::resp::range::{Edge, RangeArgs, Span};
use crate::store::{Neighbor, Rows, Side, Store, prefix_end};

/// The cost, in steps, of finding a position in the key order.
pub(super) const SEARCH_STEPS: usize = 8;

/// A row, and the offset of its value in the records section.
type Row<'s> = (Key<'s>, &'s [u8], u64);

/// Takes the first remaining row, or the last remaining row if `backward` is true.
fn take<'s>(rows: &mut Rows<'s>, backward: bool) -> Option<Row<'s>> {
    let (start, _) = rows.ends();
    let (key, value) = if backward { rows.next_back()? } else { rows.next()? };
    let record = if backward { rows.ends().1 } else { start };
    Some((key, value, record.offset_bytes + value_offset_bytes(key) as u64))
}

fn push_row(out: &mut Out<'_>, (key, value, offset_bytes): Row<'_>) {
    out.bulk(key_text(key, &mut itoa::Buffer::new()));
    push_value(out, value, offset_bytes);
}

/// Replies with the row at a key. If the table has no such row, replies with the nearest row below the key if `below`
/// is true, and above the key otherwise.
pub(super) fn neighbor(store: &Store, below: bool, mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
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

pub(super) fn count(store: &Store, args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    out.sink().steps().add(2 * SEARCH_STEPS);
    let span = Span::parse(args).map_err(|error| error.to_string())?;
    out.integer(rows_of(store, span, None, false)?.len() as i64);
    Ok(())
}

pub(super) fn range(store: &Store, args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    out.sink().steps().add(3 * SEARCH_STEPS);
    let page = RangeArgs::parse(args).map_err(|error| error.to_string())?;
    let mut rows = rows_of(store, page.span, page.from, page.reverse)?;
    let extent = rows.page(page.reverse, page.limit, PAGE_LEN_MAX_BYTES).ok_or_else(damaged)?;
    if !store.are_intact(extent.offset_bytes.start as usize..extent.offset_bytes.end as usize) {
        return Err(damaged());
    }
    out.array(2);
    match last_of(&rows, page.reverse, extent.row_count).filter(|_| extent.more) {
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
        match take(&mut rows, page.reverse) {
            Some(row) => push_row(out, row),
            // The array's header has announced a key and a value, so two errors replace them.
            None => (0..2).for_each(|_| out.error(damaged())),
        }
    }
    Ok(())
}

/// Returns the key of the last row of a page.
fn last_of<'s>(rows: &Rows<'s>, backward: bool, row_count: usize) -> Option<Key<'s>> {
    let (mut rows, last) = (rows.clone(), row_count.checked_sub(1)?);
    let (key, _) = if backward { rows.nth_back(last)? } else { rows.nth(last)? };
    Some(key)
}

/// Returns the rows of a span (a range of keys). If `from` is given, omits the rows that precede `from` in the
/// requested direction.
fn rows_of<'s>(store: &'s Store, span: Span<'_>, from: Option<Edge<'_>>, backward: bool) -> Result<Rows<'s>, String> {
    let kind = store.key_kind();
    let prefix_end_key;
    let (mut start, mut end) = match span {
        Span::Between { min, max } => (start_at(store, min)?, end_at(store, max)?),
        Span::Prefix(_) if kind == KeyKind::U64 => {
            return Err(format!("ERR keys of this table are {kind}, which have no prefixes: pass min and max"));
        }
        Span::Prefix(prefix) => {
            prefix_end_key = prefix_end(prefix);
            let end = prefix_end_key.as_deref().map_or(Bound::Unbounded, |end| Bound::Excluded(Key::Bytes(end)));
            (Bound::Included(Key::Bytes(prefix)), end)
        }
    };
    match from {
        Some(from) if backward => end = narrower(end, end_at(store, from)?, |a, b| a < b),
        Some(from) => start = narrower(start, start_at(store, from)?, |a, b| a > b),
        None => {}
    }
    store.between(start, end).map_err(|_| damaged())
}

/// Returns the lower bound of a range of keys that begins at this edge.
fn start_at<'k>(store: &'k Store, edge: Edge<'k>) -> Result<Bound<Key<'k>>, String> {
    Ok(match edge {
        Edge::Least => Bound::Unbounded,
        Edge::Greatest => {
            let last = store.last().map_err(|_| damaged())?;
            last.map_or(Bound::Unbounded, |(last, _)| Bound::Excluded(last))
        }
        Edge::Included(text) => Bound::Included(key(store.key_kind(), text)?),
        Edge::Excluded(text) => Bound::Excluded(key(store.key_kind(), text)?),
    })
}

/// Returns the upper bound of a range of keys that ends at this edge.
fn end_at<'k>(store: &'k Store, edge: Edge<'k>) -> Result<Bound<Key<'k>>, String> {
    match edge {
        Edge::Least => {
            let first = store.first().map_err(|_| damaged())?;
            Ok(first.map_or(Bound::Unbounded, |(first, _)| Bound::Excluded(first)))
        }
        Edge::Greatest => Ok(Bound::Unbounded),
        edge => start_at(store, edge),
    }
}

/// Returns the narrower of two bounds. `beyond(x, y)` returns whether a bound at `x` is narrower than a bound at `y`.
fn narrower<'k>(a: Bound<Key<'k>>, b: Bound<Key<'k>>, beyond: impl Fn(Key<'k>, Key<'k>) -> bool) -> Bound<Key<'k>> {
    match (a, b) {
        (Bound::Unbounded, other) | (other, Bound::Unbounded) => other,
        (Bound::Included(x) | Bound::Excluded(x), Bound::Included(y) | Bound::Excluded(y)) if x != y => {
            if beyond(x, y) { a } else { b }
        }
        (Bound::Excluded(_), _) => a,
        _ => b,
    }
}
