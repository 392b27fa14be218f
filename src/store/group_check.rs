//! Checks the groups of a table with the compact layout.
//!
//! In: a table whose sections match their checksums. Out: the first row that no baker would have written. The groups
//! must follow each other without gaps, and so must the values that they describe. Their keys must ascend, their ranges
//! must not overlap, and each group must have the bytes that a baker writes for its rows.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::little_endian::U32;

use super::check_plan::{Plan, WINDOW_LEN_BYTES, check_cells, on_threads, ranges, release};
use super::search::Found;
use super::{Store, typed};
use crate::Lookup;
use crate::format::FormatError;
use crate::format::form::{RowKey, order_fault};
use crate::format::group::{GROUP_ALIGN_BYTES, GROUP_ROWS, Group, GroupRow, group_count, write_group};
use crate::format::record::{Record, VALUE_LEN_MAX_BYTES};

/// Checks all groups and their values, and looks keys up.
pub(super) fn rows(store: &Store, plan: &Plan, progress: &mut dyn FnMut(u64)) -> Result<(), FormatError> {
    let done = AtomicU64::new(0);
    let check = |range: Range<usize>, report: &mut dyn FnMut()| {
        let mut walk = GroupWalk::begin(store, range.start)?;
        let (mut released, mut reported_row) = (walk.at, range.start * GROUP_ROWS);
        for number in range.clone() {
            let group = walk.check(number)?;
            check_values(store, number, &group)?;
            let first_row = number * GROUP_ROWS;
            if first_row.is_multiple_of(plan.lookup_rows.next_multiple_of(GROUP_ROWS)) {
                look_up(store, first_row, &group)?;
            }
            if walk.at.position - released.position + (walk.at.offset_bytes - released.offset_bytes) as u64
                >= WINDOW_LEN_BYTES as u64
            {
                if !plan.pace.goes_on() {
                    return Ok(());
                }
                let layout = &store.layout;
                let from_bytes = (released.position as usize).saturating_sub(WINDOW_LEN_BYTES);
                release(store, plan, &layout.records, from_bytes..walk.at.position as usize);
                release(store, plan, &layout.fences, released.offset_bytes..walk.at.offset_bytes);
                let row = first_row + group.row_count();
                done.fetch_add((row - reported_row) as u64, Ordering::Relaxed);
                report();
                (released, reported_row) = (walk.at, row);
            }
        }
        walk.end(range.end)?;
        done.fetch_add((store.len().min(range.end * GROUP_ROWS) - reported_row) as u64, Ordering::Relaxed);
        report();
        Ok(())
    };
    let ranges = ranges(group_count(store.len() as u64), 1, plan.threads);
    on_threads(ranges, check, &mut || progress(done.load(Ordering::Relaxed))).into_iter().collect()
}

/// Checks all groups without reading values.
pub(super) fn groups(store: &Store, plan: &Plan) -> Result<(), FormatError> {
    const PACED_GROUPS: usize = 4096;
    let mut walk = GroupWalk::begin(store, 0)?;
    let count = group_count(store.len() as u64);
    for number in 0..count {
        if number.is_multiple_of(PACED_GROUPS) && !plan.pace.goes_on() {
            return Ok(());
        }
        walk.check(number)?;
    }
    walk.end(count)
}

/// Where a group begins.
#[derive(Clone, Copy)]
struct GroupStart {
    /// The offset of the group in its section.
    offset_bytes: usize,
    /// The position of the group's first value.
    position: u64,
}

/// A walk over consecutive groups.
struct GroupWalk<'s> {
    store: &'s Store,
    groups: &'s [u8],
    places: &'s [U32],
    /// Where the next group must begin.
    at: GroupStart,
    /// The last row that was checked.
    last: Option<RowKey<'static>>,
    /// The bytes that a baker writes for a group.
    expected: Vec<u8>,
}

impl<'s> GroupWalk<'s> {
    /// Begins a walk with a group. The walk before it checks where this group begins.
    fn begin(store: &'s Store, number: usize) -> Result<GroupWalk<'s>, FormatError> {
        let (groups, places) = (store.section(&store.layout.fences), typed(store.section(&store.layout.places)));
        let start = GroupStart { offset_bytes: 0, position: 0 };
        let mut walk = GroupWalk { store, groups, places, at: start, last: None, expected: Vec::new() };
        if number > 0 {
            walk.at.offset_bytes = walk.place(number).ok_or_else(|| wrong_group(number))?;
            walk.at.position = walk.group(number)?.position();
        }
        Ok(walk)
    }

    fn place(&self, number: usize) -> Option<usize> {
        Some(self.places.get(number)?.get() as usize * GROUP_ALIGN_BYTES)
    }

    /// Returns the group at the current position.
    fn group(&self, number: usize) -> Result<Group<'s>, FormatError> {
        let row_count = self.store.len().saturating_sub(number * GROUP_ROWS).min(GROUP_ROWS);
        let has_ranges = self.store.layout.dimensions.has_ranges;
        Group::at(self.groups, self.at.offset_bytes, row_count, has_ranges).ok_or_else(|| wrong_group(number))
    }

    /// Checks a group, and moves to the next one.
    fn check(&mut self, number: usize) -> Result<Group<'s>, FormatError> {
        if self.place(number) != Some(self.at.offset_bytes) {
            return Err(wrong_group(number));
        }
        let group = self.group(number)?;
        let mut rows = [GroupRow { key: 0, end: None, value_len_bytes: 0 }; GROUP_ROWS];
        let mut next = self.at.position;
        for (i, row) in rows[..group.row_count()].iter_mut().enumerate() {
            let value = group.value(i).filter(|value| value.start == next);
            let len_bytes = value.map(|value| value.end - value.start);
            let Some(value_len_bytes) = len_bytes.filter(|len_bytes| *len_bytes <= VALUE_LEN_MAX_BYTES as u64) else {
                return Err(fault(number, i, "the value is not where the preceding value ends"));
            };
            next += value_len_bytes;
            let row_key = group.row_key(i);
            if let Some(order) = order_fault(self.last, row_key) {
                return Err(fault(number, i, order.what()));
            }
            self.last = Some(row_key);
            *row = GroupRow { key: group.key(i), end: row_key.end.and_then(|end| end.as_u64()), value_len_bytes };
        }
        self.expected.clear();
        write_group(&rows[..group.row_count()], self.at.position, &mut self.expected);
        let end = self.at.offset_bytes + self.expected.len();
        if self.groups.get(self.at.offset_bytes..end) != Some(&self.expected) {
            return Err(wrong_group(number));
        }
        self.at = GroupStart { offset_bytes: end, position: next };
        Ok(group)
    }

    /// Checks that the groups and values that were checked end where the next ones begin, or at the ends of their
    /// sections. `number` is the number of the next group.
    fn end(&self, number: usize) -> Result<(), FormatError> {
        let row = self.store.len().min(number * GROUP_ROWS) as u64;
        if number >= self.places.len() {
            let is_end =
                self.at.offset_bytes == self.groups.len() && self.at.position == self.store.layout.records.len_bytes;
            let what = "there are groups or values beyond the last row";
            return if is_end { Ok(()) } else { Err(FormatError::Row { row, what }) };
        }
        let group = self.group(number)?;
        let is_next = self.place(number) == Some(self.at.offset_bytes) && group.position() == self.at.position;
        let is_in_order = order_fault(self.last, group.row_key(0)).is_none();
        if is_next && is_in_order { Ok(()) } else { Err(wrong_group(number)) }
    }
}

/// Checks that the values of a group are inside the records section, and rows of the schema of a typed table.
fn check_values(store: &Store, number: usize, group: &Group<'_>) -> Result<(), FormatError> {
    for i in 0..group.row_count() {
        let value = group.value(i).and_then(|value| store.records().get(value.start as usize..value.end as usize));
        let Some(value) = value else { return Err(fault(number, i, "the value is not inside the records")) };
        if let Some(schema) = &store.schema {
            check_cells(schema, number * GROUP_ROWS + i, &Record::of_value(group.row_key(i), value))?;
        }
    }
    Ok(())
}

/// Looks up the keys of a group.
fn look_up(store: &Store, first_row: usize, group: &Group<'_>) -> Result<(), FormatError> {
    let mut keys = [0; GROUP_ROWS];
    keys[..group.row_count()].iter_mut().enumerate().for_each(|(i, key)| *key = group.key(i));
    let mut missing = None;
    let mut rows = 0..group.row_count();
    let visit = |_: &u64, found: Found<'_>| {
        let Some(row) = rows.next() else { return ControlFlow::Break(()) };
        let start = group.value(row).map(|value| value.start);
        if matches!(found, Found::Value(_, found_at) if Some(found_at) == start) {
            return ControlFlow::Continue(());
        }
        missing = Some(row);
        ControlFlow::Break(())
    };
    store.find_each(&keys[..group.row_count()], |key| *key, visit);
    match missing {
        Some(row) => Err(FormatError::Row { row: (first_row + row) as u64, what: "the index does not find it" }),
        None => Ok(()),
    }
}

fn wrong_group(number: usize) -> FormatError {
    fault(number, 0, "the group does not match its rows")
}

fn fault(number: usize, row: usize, what: &'static str) -> FormatError {
    FormatError::Row { row: (number * GROUP_ROWS + row) as u64, what }
}
