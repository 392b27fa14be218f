//! Requests for columns of a typed table: Select and GetColumns.
//!
//! In: the columns that a connection has selected, and keys. Out: projected rows. A row is projected only if its
//! connection has selected the columns for the schema of the table that answers.

use std::ops::{ControlFlow, Range};

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, IntoBytes};

use super::ordered::{push_bare, push_error};
use super::{Batch, Missing, counted};
use crate::Lookup;
use crate::format::key::Key;
use crate::format::lookup_key::LookupKey;
use crate::protocol::native::{Op, RESPONSE_HEADER_LEN_BYTES, Request, ResponseHeader, SelectHeader, Status};
use crate::server::responses::Responses;
use crate::server::stats::Tally;
use crate::server::turns::RUN_REQUESTS_MAX;
use crate::store::{Found, Store};
use crate::typed::{COLUMN_COUNT_MAX, Projection, Schema, TypedRow};

const SELECT_STEPS: usize = 8;
/// The number of columns of a projected row that are copied in one step.
const STEP_COPIES: usize = 8;
/// The maximum length of a row whose columns are copied at once into the free room of the responses.
const SHORT_ROW_MAX_BYTES: usize = 4096;
/// The number of bytes that a selection takes for each column, without the column's name.
const COLUMN_LEN_BYTES: usize = 256;

/// The columns that a connection has selected.
#[derive(Default)]
pub(super) struct Selection {
    projection: Option<Box<Projection>>,
    held_bytes: usize,
}

impl Selection {
    fn new(projection: Projection) -> Selection {
        let columns = projection.schema().columns().iter();
        let held_bytes = columns.map(|column| COLUMN_LEN_BYTES + column.name.len()).sum();
        Selection { projection: Some(Box::new(projection)), held_bytes }
    }

    /// Returns the approximate number of bytes that the selection takes.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Returns the schema of a table, and the projection of its rows.
    ///
    /// # Errors
    /// The status of the response to a GetColumns: [`Status::Error`] if no columns are selected,
    /// [`Status::SchemaChanged`] if columns of another schema are selected.
    fn projection<'a>(&'a self, store: &'a Store) -> Result<(&'a Schema, &'a Projection), Status> {
        let projection = self.projection.as_deref().ok_or(Status::Error)?;
        match store.schema_ref() {
            Some(schema) if schema.id() == projection.source_id() => Ok((schema, projection)),
            _ => Err(Status::SchemaChanged),
        }
    }
}

/// Answers a Select request with this body. If the request fails, the connection has no selected columns.
pub(super) fn select(store: &Store, selection: &mut Selection, body: &[u8], responses: &mut Responses) -> Status {
    *selection = Selection::default();
    let status = match parse_selection(store, body) {
        Ok(projection) => {
            responses.steps().add(SELECT_STEPS * projection.positions().len());
            *selection = Selection::new(projection);
            Status::Ok
        }
        Err(status) => status,
    };
    push_bare(status, responses)
}

fn parse_selection(store: &Store, body: &[u8]) -> Result<Projection, Status> {
    let schema = store.schema_ref().ok_or(Status::Error)?;
    let (header, positions) = SelectHeader::ref_from_prefix(body).map_err(|_| Status::Error)?;
    if header.schema_id != schema.id() {
        return Err(Status::SchemaChanged);
    }
    let positions = <[U16]>::ref_from_bytes(positions).map_err(|_| Status::Error)?;
    let columns: Vec<usize> = positions.iter().take(COLUMN_COUNT_MAX + 1).map(|at| at.get().into()).collect();
    if columns.iter().any(|column| *column >= schema.columns().len()) {
        return Err(Status::Error);
    }
    Projection::of_positions(schema, columns).map_err(|_| Status::Error)
}

impl<M: Missing> Batch<'_, M> {
    /// Appends the responses to 16-byte GetColumns requests. Stops at the first request with another op, or when there
    /// is no room for a response. Returns the number of answered requests.
    pub(super) fn answer_columns(&mut self, requests: &[Request]) -> usize {
        let is_columns = |request: &&Request| request.op_code() == Op::GetColumns as u32;
        let count = requests.iter().take(RUN_REQUESTS_MAX).take_while(is_columns).count();
        self.push_columns(&requests[..count], Request::key)
    }

    /// Appends the responses to GetColumns requests. Returns the number of answered requests.
    pub(super) fn push_columns<'k, T, K: LookupKey + Into<Key<'k>>>(
        &mut self,
        requests: &[T],
        key_of: impl Fn(&T) -> K,
    ) -> usize {
        let Batch { store, missing, selection, responses, tally } = self;
        let (store, missing) = (*store, *missing);
        let (schema, projection) = match selection.projection(store) {
            Ok(_) if store.key_kind() != K::KIND => {
                return push_refusals(Status::Error, requests.len(), responses, tally);
            }
            Ok(found) => found,
            Err(status) => return push_refusals(status, requests.len(), responses, tally),
        };
        let ready_count = responses.ready_count(store, requests.len(), |i| store.point_lookup(key_of(&requests[i])));
        let (mut answered_count, mut data) = (0, Vec::new());
        store.find_each(&requests[..ready_count], &key_of, |request: &T, found: Found<'_>| {
            if responses.is_full() {
                return ControlFlow::Break(());
            }
            let status = match (found.value(), found) {
                (Some((value, value_offset_bytes)), _) => {
                    let row = TypedRow::new(schema, value).ok();
                    let pushed =
                        row.and_then(|row| push_row(projection, &row, value_offset_bytes, &mut data, responses));
                    pushed.unwrap_or_else(|| push_bare(Status::Error, responses))
                }
                (None, Found::Missing) => push_bare(missing.status(key_of(request).into()), responses),
                (None, _) => match push_error(responses) {
                    Some(status) => status,
                    None => return ControlFlow::Break(()),
                },
            };
            tally.count(Some(Op::GetColumns), counted(status));
            answered_count += 1;
            responses.steps().continue_after(answered_count)
        });
        responses.steps().add(answered_count);
        answered_count
    }
}

/// Appends responses without values to `count` GetColumns requests, which fail with this status. Returns the number of
/// answered requests.
#[cold]
fn push_refusals(status: Status, count: usize, responses: &mut Responses, tally: &mut Tally) -> usize {
    let mut answered_count = 0;
    while answered_count < count && !responses.is_full() {
        push_bare(status, responses);
        tally.count(Some(Op::GetColumns), Status::Error);
        answered_count += 1;
    }
    responses.steps().add(answered_count);
    answered_count
}

/// Appends a response with the selected columns of a row. `offset_bytes` is the offset of the row's value in the
/// records section. Returns `None`, and appends nothing, if the row is malformed.
#[inline(always)]
fn push_row(
    projection: &Projection,
    row: &TypedRow<'_>,
    offset_bytes: u64,
    data: &mut Vec<Range<usize>>,
    responses: &mut Responses,
) -> Option<Status> {
    const HEADER_LEN_BYTES: usize = RESPONSE_HEADER_LEN_BYTES;
    let (value, fixed_len_bytes) = (row.as_bytes(), projection.head_len_bytes());
    responses.steps().add(projection.copy_count() / STEP_COPIES);
    let room = responses.room();
    if value.len() > SHORT_ROW_MAX_BYTES || room.len() < HEADER_LEN_BYTES + fixed_len_bytes + value.len() {
        return push_long_row(projection, row, offset_bytes, data, responses);
    }
    let (header, room) = room.split_first_chunk_mut::<HEADER_LEN_BYTES>()?;
    let (fixed, mut room) = room.split_at_mut(fixed_len_bytes);
    let len_bytes = projection.project_parts(row, fixed, data).ok()?;
    *header = zerocopy::transmute!(ResponseHeader::of_value(len_bytes)?);
    for range in data {
        let (to, rest) = room.split_at_mut(range.len());
        to.copy_from_slice(&value[range.clone()]);
        room = rest;
    }
    responses.advance(HEADER_LEN_BYTES + len_bytes);
    responses.steps().add_bytes(len_bytes);
    Some(Status::Ok)
}

/// Appends a response like [`push_row`], for a row of any length. Borrows long values from the file.
#[cold]
fn push_long_row(
    projection: &Projection,
    row: &TypedRow<'_>,
    offset_bytes: u64,
    data: &mut Vec<Range<usize>>,
    responses: &mut Responses,
) -> Option<Status> {
    let mut fixed = vec![0; projection.head_len_bytes()];
    let len_bytes = projection.project_parts(row, &mut fixed, data).ok()?;
    let header = ResponseHeader::of_value(len_bytes)?;
    let copied_before_bytes = responses.copied().len();
    responses.push(header.as_bytes());
    responses.push(&fixed);
    for range in data {
        responses.push_stored(&row.as_bytes()[range.clone()], offset_bytes + range.start as u64);
    }
    let copied_bytes = responses.copied().len() - copied_before_bytes;
    responses.steps().add_bytes(copied_bytes);
    Some(Status::Ok)
}
