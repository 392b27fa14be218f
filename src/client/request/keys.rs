//! Requests for one key.

use std::ops::Bound;

use zerocopy::IntoBytes;

use super::ranges::{Bounds, GetPage, OwnedKey, RowPage};
use super::{NO_RANGES, RangeRow, RequestError, Row, TypedRequest, check_len, quoted};
use crate::client::error::ClientError;
use crate::format::key::Key;
use crate::protocol::native::{Op, Request, push_long};
use crate::protocol::reader::Response;
use crate::protocol::response::PageError;

/// Requests the value of a key.
#[derive(Clone, Copy, Debug)]
pub struct Get<'k>(Key<'k>);

/// Requests whether the table has a key.
#[derive(Clone, Copy, Debug)]
pub struct Exists<'k>(Key<'k>);

/// Requests the row with the largest key less than or equal to a key.
#[derive(Clone, Copy, Debug)]
pub struct Floor<'k>(Key<'k>);

/// Requests the row with the smallest key greater than or equal to a key.
#[derive(Clone, Copy, Debug)]
pub struct Ceiling<'k>(Key<'k>);

/// Requests the row of the range that contains a key, in a table of ranges.
#[derive(Clone, Copy, Debug)]
pub struct Cover<'k>(Key<'k>);

/// Requests the columns of a key's row that the connection has selected with [`Select`](super::Select).
#[derive(Clone, Copy, Debug)]
pub struct GetColumns<'k>(Key<'k>);

/// The response to a [`GetColumns`] request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectedRow<B> {
    /// The selected columns of the row, as a row of the schema of these columns.
    Found(B),
    /// The table does not have the key.
    Missing,
    /// The table's schema is not the schema for which the connection has selected columns.
    SchemaChanged,
}

/// A request for one key. A batch has one request for each of its keys.
pub(in crate::client) trait KeyRequest<'k>: TypedRequest {
    const OP: Op;

    /// Creates a request for a key whose length is valid.
    fn from_checked(key: Key<'k>) -> Self;
}

/// Implements a request for one key. `$decode` takes the requested key and the response, and decodes the response.
macro_rules! impl_key_request {
    ($request:ident, $Output:ty, $decode:expr) => {
        impl<'k> $request<'k> {
            /// Creates a request for `key`.
            ///
            /// # Errors
            /// [`ClientError::KeyLen`].
            pub fn new(key: impl Into<Key<'k>>) -> Result<Self, ClientError> {
                let key = key.into();
                check_len(key, 1)?;
                Ok($request(key))
            }
        }

        impl<'k> KeyRequest<'k> for $request<'k> {
            const OP: Op = Op::$request;

            #[inline]
            fn from_checked(key: Key<'k>) -> Self {
                $request(key)
            }
        }

        impl TypedRequest for $request<'_> {
            type Output = $Output;

            fn op(&self) -> Op {
                Self::OP
            }

            #[inline]
            fn encode(&self, requests: &mut Vec<u8>) {
                encode_key(Self::OP, self.0, requests);
            }

            #[inline]
            fn decode(&self, response: Response<'_>) -> Result<$Output, RequestError> {
                $decode(self.0, response)
            }
        }
    };
}

impl_key_request!(Get, Option<Vec<u8>>, |key, response| Ok(found_at(key, response)?.map(<[u8]>::to_vec)));
impl_key_request!(Exists, bool, |key, response| Ok(found_at(key, response)?.is_some()));
impl_key_request!(GetColumns, SelectedRow<Vec<u8>>, |key, response| {
    Ok(match selected_at(key, response)? {
        SelectedRow::Found(row) => SelectedRow::Found(row.to_vec()),
        SelectedRow::Missing => SelectedRow::Missing,
        SelectedRow::SchemaChanged => SelectedRow::SchemaChanged,
    })
});
impl_key_request!(Floor, Option<Row>, |key, response| {
    decode_row(key, Bounds { start: Bound::Unbounded, end: Bound::Included(key) }, response)
});
impl_key_request!(Ceiling, Option<Row>, |key, response| {
    decode_row(key, Bounds { start: Bound::Included(key), end: Bound::Unbounded }, response)
});

impl_key_request!(Cover, Option<RangeRow>, |key, response| match response {
    Response::Error => Err(RequestError::of(Response::Error, format!("the range of key {}", quoted(key)), NO_RANGES)),
    response => decode_range(key, response),
});

impl<'k> Get<'k> {
    pub(in crate::client) fn key(&self) -> Key<'k> {
        self.0
    }
}

impl Get<'_> {
    /// Decodes the response like [`TypedRequest::decode`], but borrows the value instead of copying it.
    ///
    /// # Errors
    /// [`RequestError`].
    #[inline]
    pub fn decode_borrowed<'a>(&self, response: Response<'a>) -> Result<Option<&'a [u8]>, RequestError> {
        found_at(self.0, response)
    }
}

impl GetColumns<'_> {
    /// Decodes the response like [`TypedRequest::decode`], but borrows the row instead of copying it.
    ///
    /// # Errors
    /// [`RequestError`].
    #[inline]
    pub fn decode_borrowed<'a>(&self, response: Response<'a>) -> Result<SelectedRow<&'a [u8]>, RequestError> {
        selected_at(self.0, response)
    }
}

#[inline]
fn selected_at<'a>(key: Key<'_>, response: Response<'a>) -> Result<SelectedRow<&'a [u8]>, RequestError> {
    match response {
        Response::SchemaChanged => Ok(SelectedRow::SchemaChanged),
        response => Ok(found_at(key, response)?.map_or(SelectedRow::Missing, SelectedRow::Found)),
    }
}

#[inline]
fn encode_key(op: Op, key: Key<'_>, requests: &mut Vec<u8>) {
    match key {
        Key::U64(key) => requests.extend_from_slice(Request::new(op, key).as_bytes()),
        Key::Bytes(key) => push_long(op, &[key], requests),
    }
}

/// Returns the value of a response, or `None` if the table does not have the row.
#[inline]
fn found_at<'a>(key: Key<'_>, response: Response<'a>) -> Result<Option<&'a [u8]>, RequestError> {
    match response {
        Response::Found(value) => Ok(Some(value)),
        Response::NotFound => Ok(None),
        refused => Err(RequestError::key(key, refused)),
    }
}

/// Decodes a response whose value is a page of one row, or no row.
fn decode_row(key: Key<'_>, bounds: Bounds<'_>, response: Response<'_>) -> Result<Option<Row>, RequestError> {
    let page = decode_page(key, bounds, response)?;
    Ok(page.map(|page| {
        let (key, value) = page.row(0);
        (OwnedKey::from(key), value.to_vec())
    }))
}

/// Decodes a response whose value is a page of the range that contains a key, or no row.
fn decode_range(key: Key<'_>, response: Response<'_>) -> Result<Option<RangeRow>, RequestError> {
    let bounds = Bounds { start: Bound::Unbounded, end: Bound::Included(key) };
    let Some(page) = decode_page(key, bounds, response)? else { return Ok(None) };
    let ((start, value), end) = (page.row(0), page.end(0));
    match end.filter(|end| key <= *end) {
        Some(end) => Ok(Some((start.into(), end.into(), value.to_vec()))),
        None => Err(RequestError::page(PageError::OutOfRange { row: 0 })),
    }
}

/// Decodes a response whose value is a page of exactly one row.
fn decode_page(key: Key<'_>, bounds: Bounds<'_>, response: Response<'_>) -> Result<Option<RowPage>, RequestError> {
    let Some(page) = found_at(key, response)? else { return Ok(None) };
    let page =
        RowPage::decode(&GetPage { bounds, backward: false, limit_rows: 1 }, page).map_err(RequestError::page)?;
    // The request asks for one row, so the page must not announce more of the range.
    match page.rest() {
        _ if page.is_empty() => Err(RequestError::page(PageError::RowCount { rows: 0, rows_max: 1 })),
        Some(_) => Err(RequestError::page(PageError::MoreFlag { more: 1 })),
        None => Ok(Some(page)),
    }
}
