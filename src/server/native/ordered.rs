//! Requests that depend on the order of keys: Floor, Ceiling, Cover, Range, and Count. The caller has checked that there is
//! room for a response.

use std::ops::{Bound, Range};

use zerocopy::{FromBytes, IntoBytes};

use crate::format::key::{Key, KeyKind};
use crate::format::record::{ALIGN_BYTES, Record, record_len_bytes};
use crate::protocol::native::{
    Op, PAGE_HEADER_LEN_BYTES, PAGE_LEN_MAX_BYTES, PAGE_MAX_BYTES, PageHeader, RESPONSE_HEADER_LEN_BYTES, RangeHeader,
    ResponseHeader, Status, range_flags,
};
use crate::server::responses::Responses;
use crate::store::{
    LookupError, Neighbor, PageLimits, PageRange, Prefetched, RangeEnd, RangeLookup, Side, Store, ValuesPage,
    is_verification_interrupted,
};

pub(super) fn push_bare(status: Status, responses: &mut Responses) -> Status {
    responses.push(ResponseHeader::bare(status).as_bytes());
    status
}

/// Appends an Error response. If verification was interrupted, appends nothing and returns `None`; the next pass then
/// repeats the request.
pub(super) fn push_error(responses: &mut Responses) -> Option<Status> {
    (!is_verification_interrupted()).then(|| push_bare(Status::Error, responses))
}

/// Appends the response to a Floor, a Ceiling, or a Cover: a row, which the caller has looked up.
pub(super) fn push_neighbor(
    store: &Store,
    neighbor: Result<Neighbor<'_>, LookupError>,
    responses: &mut Responses,
) -> Option<Status> {
    let page = match neighbor {
        Ok(None) => return Some(push_bare(Status::NotFound, responses)),
        Ok(Some((record, offset_bytes))) if store.is_compact() => {
            let len_bytes = record_len_bytes(store.record_form(), record.row_key(), record.value().len(), ALIGN_BYTES);
            push_page_header(store, 1, len_bytes, false, responses);
            push_row(&record, offset_bytes, responses);
            return Some(Status::Ok);
        }
        Ok(Some((record, start_bytes))) => {
            let end_bytes = start_bytes + record.len_bytes(store.record_align_bytes()) as u64;
            PageRange { offset_bytes: start_bytes..end_bytes, row_count: 1, more: false }
        }
        Err(_) => return push_error(responses),
    };
    // The lookup has verified the record. The padding after it is in the same block.
    match rows_of_page(store, &page) {
        Some(rows) => Some(push_rows(store, &page, rows, responses)),
        None => push_error(responses),
    }
}

/// Returns the side of a key on which the row of a Floor, a Ceiling, or a Cover is.
pub(super) fn side(op: Op) -> Side {
    if op == Op::Ceiling { Side::Before } else { Side::After }
}

#[derive(Clone, Copy)]
pub(super) struct RangeRequest<'b> {
    pub(super) lookup: RangeLookup<Key<'b>>,
    /// The request is a Count.
    is_count: bool,
    /// The client's limit on the number of rows. 0 if there is no limit.
    limit_rows: u32,
}

impl<'b> RangeRequest<'b> {
    /// The limits of the page of a request that reads no rows.
    pub(super) const NO_ROWS: PageLimits = PageLimits { rows_max: 0, len_max_bytes: 0 };

    pub(super) fn limits(&self) -> PageLimits {
        let rows_max = if self.limit_rows == 0 { usize::MAX } else { self.limit_rows as usize };
        PageLimits { rows_max, len_max_bytes: PAGE_LEN_MAX_BYTES }
    }

    /// Parses the body of a Range or a Count. Returns `None` if the body is malformed, or if the keys are not of the
    /// kind `kind`.
    pub(super) fn parse(kind: KeyKind, op: Op, body: &'b [u8]) -> Option<RangeRequest<'b>> {
        let (header, keys) = RangeHeader::ref_from_prefix(body).ok()?;
        let flags = header.flags.get();
        let (start, keys) = keys.split_at_checked(header.start_len_bytes.get() as usize)?;
        let (end, rest) = keys.split_at_checked(header.end_len_bytes.get() as usize)?;
        let bound = |key, given, excluded| match (flags & given != 0, flags & excluded != 0) {
            (true, true) => key_of(kind, flags, key).map(Bound::Excluded),
            (true, false) => key_of(kind, flags, key).map(Bound::Included),
            (false, false) if key.is_empty() => Some(Bound::Unbounded),
            (false, _) => None,
        };
        let start = bound(start, range_flags::START, range_flags::START_EXCLUDED)?;
        let end = bound(end, range_flags::END, range_flags::END_EXCLUDED)?;
        if !rest.is_empty() || flags & !range_flags::ALL != 0 {
            return None;
        }
        let prefetched = match flags & range_flags::BACKWARD != 0 {
            _ if op == Op::Count => Prefetched::Nothing,
            false => Prefetched::First,
            true => Prefetched::Last,
        };
        let lookup = RangeLookup { start: RangeEnd::start(start), end: RangeEnd::end(end), prefetched };
        Some(RangeRequest { lookup, is_count: op == Op::Count, limit_rows: header.limit_rows.get() })
    }

    /// Appends the response, a page of rows or a number of rows, after the rows of the range were looked up.
    pub(super) fn push(
        &self,
        store: &Store,
        rows: Result<Range<usize>, LookupError>,
        responses: &mut Responses,
    ) -> Option<Status> {
        let Ok(rows) = rows else { return push_error(responses) };
        if self.is_count {
            responses.push(ResponseHeader::of_page(size_of::<u64>()).as_bytes());
            responses.push(&(rows.len() as u64).to_be_bytes());
            return Some(Status::Ok);
        }
        let PageLimits { rows_max, len_max_bytes } = self.limits();
        let is_backward = self.lookup.prefetched == Prefetched::Last;
        if store.is_compact() {
            let rows = store.rows_with_numbers(rows).ok();
            return match rows.and_then(|rows| rows.page_of_values(is_backward, rows_max, len_max_bytes)) {
                Some(page) => push_page_of_values(store, &page, responses),
                None => push_error(responses),
            };
        }
        let page = store.rows_with_numbers(rows).ok().and_then(|rows| rows.page(is_backward, rows_max, len_max_bytes));
        match page {
            Some(page) => push_page(store, &page, responses),
            None => push_error(responses),
        }
    }
}

/// Parses the key at one end of a range. Returns `None` if the key is not of the kind `kind`.
fn key_of(kind: KeyKind, flags: u32, key: &[u8]) -> Option<Key<'_>> {
    match (kind, flags & range_flags::NUMBERS != 0) {
        (KeyKind::U64, true) => Some(Key::U64(u64::from_be_bytes(key.try_into().ok()?))),
        (KeyKind::Bytes, false) => Some(Key::Bytes(key)),
        _ => None,
    }
}

/// Appends a page of rows. [`Responses::push_stored`] determines whether the rows are copied or borrowed from the file.
fn push_page(store: &Store, page: &PageRange, responses: &mut Responses) -> Option<Status> {
    let range = page.offset_bytes.start as usize..page.offset_bytes.end as usize;
    let rows = rows_of_page(store, page);
    if rows.is_some() && store.may_be_cold() {
        store.begin_read(range.clone());
    }
    match rows.filter(|_| store.are_intact(range)) {
        Some(rows) => Some(push_rows(store, page, rows, responses)),
        None => push_error(responses),
    }
}

/// Appends a page of rows of a table with the compact layout, which does not store the records that clients receive.
fn push_page_of_values(store: &Store, page: &ValuesPage, responses: &mut Responses) -> Option<Status> {
    let before = responses.end();
    push_page_header(store, page.rows.len(), page.len_bytes, page.more, responses);
    for row in page.rows.clone() {
        let Some((record, offset_bytes)) = store.record_with_number(row) else {
            responses.truncate(&before);
            return push_error(responses);
        };
        push_row(&record, offset_bytes, responses);
    }
    Some(Status::Ok)
}

/// Appends the headers of a page of rows of a table with the compact layout. `len_bytes` is the length of the records.
fn push_page_header(store: &Store, row_count: usize, len_bytes: usize, more: bool, responses: &mut Responses) {
    let header = PageHeader {
        row_count: (row_count as u32).into(),
        record_form: store.record_form().code(),
        align_bits: ALIGN_BYTES.trailing_zeros() as u8,
        more: u16::from(more).into(),
    };
    responses.push(ResponseHeader::of_page(PAGE_HEADER_LEN_BYTES + len_bytes).as_bytes());
    responses.push(header.as_bytes());
}

/// Appends a row of a table with the compact layout as a record. The value is at an offset of the records section.
fn push_row(record: &Record<'_>, offset_bytes: u64, responses: &mut Responses) {
    let (value, row_key) = (record.value(), record.row_key());
    for key in [Some(row_key.key), row_key.end].into_iter().flatten() {
        responses.push(&key.as_u64().unwrap_or_default().to_le_bytes());
    }
    // A value of the table has a length that a response can carry.
    responses.push(&(value.len() as u64).to_be_bytes());
    responses.push_stored(value, offset_bytes);
    let zeros = [0; ALIGN_BYTES];
    responses.push(&zeros[..value.len().next_multiple_of(ALIGN_BYTES) - value.len()]);
}

/// Returns the records of a page. Returns `None` only for a file that was changed since it was opened.
#[inline(always)]
fn rows_of_page<'s>(store: &'s Store, page: &PageRange) -> Option<&'s [u8]> {
    let rows = store.records().get(page.offset_bytes.start as usize..page.offset_bytes.end as usize);
    rows.filter(|rows| rows.len() <= PAGE_MAX_BYTES - PAGE_HEADER_LEN_BYTES)
}

/// Appends a page with these records, which are verified.
#[inline(always)]
fn push_rows(store: &Store, page: &PageRange, rows: &[u8], responses: &mut Responses) -> Status {
    let page_header = PageHeader {
        row_count: (page.row_count as u32).into(),
        record_form: store.record_form().code(),
        align_bits: store.record_align_bytes().trailing_zeros() as u8,
        more: u16::from(page.more).into(),
    };
    let response_header = ResponseHeader::of_page(PAGE_HEADER_LEN_BYTES + rows.len());
    let headers: [[u8; RESPONSE_HEADER_LEN_BYTES]; 2] =
        [zerocopy::transmute!(response_header), zerocopy::transmute!(page_header)];
    let header: [u8; 2 * RESPONSE_HEADER_LEN_BYTES] = zerocopy::transmute!(headers);
    responses.push_headed(&header, rows, page.offset_bytes.start);
    Status::Ok
}
