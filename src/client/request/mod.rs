//! Requests with typed responses.
//!
//! In: keys and ranges, then the response to each request. Out: encoded requests, then checked values, rows, and
//! numbers. The clients of this crate are built on these types. These types do no I/O, so a client for another event
//! loop can use them together with a [`ResponseReader`](crate::protocol::reader::ResponseReader).

mod columns;
mod keys;
mod ranges;
mod server;

use super::error::ClientError;
pub use super::error::RequestError;
use crate::format::KeyBounds;
use crate::format::key::{KEY_LEN_MAX_BYTES, Key};
use crate::protocol::native::Op;
use crate::protocol::reader::Response;
use crate::protocol::response::{PageError, Violation};

pub use crate::format::{RangeRow, Row};
pub use columns::{GetSchema, Select};
pub(super) use keys::KeyRequest;
pub use keys::{Ceiling, Cover, Exists, Floor, Get, GetColumns, SelectedRow};
pub(super) use ranges::Bounds;
use ranges::key_at;
pub use ranges::{Count, FirstRow, GetPage, KeyRange, LastRow, OwnedKey, RowPage, prefix_range};
pub use server::{Authenticate, GetGeneration, GetInfo, GetKeyType, GetTopology, Info, Ping, Reload, Rollback, Track};

/// Maximum number of bytes of a key that an error message shows.
const KEY_SHOWN_MAX_BYTES: usize = 64;
const OTHER_KIND: &str = "the table's keys may be of the other kind (numbers instead of bytes, or bytes instead of \
                          numbers), or the value may be damaged: see the log of kv_store, and bake a \
                          damaged file again";

const NO_RANGES: &str = "the rows of the table may be single keys instead of ranges, the table's keys may be of the \
                         other kind, or the row may be damaged: bake a table of ranges, see the log of kv_store, and \
                         bake a damaged file again";

/// A request that can encode itself and decode its response.
///
/// # Example
/// Encode a request, then decode the bytes of its response, without a socket:
/// ```
/// use zero_kv::client::request::{Get, TypedRequest};
/// use zero_kv::protocol::reader::ResponseReader;
///
/// let get = Get::new(7)?;
/// let mut requests = Vec::new();
/// get.encode(&mut requests);
/// assert_eq!(requests, b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07");
///
/// let mut reader = ResponseReader::new(1 << 20);
/// let arrived = b"\0\0\0\0\0\0\0\x05seven";
/// reader.spare()[..arrived.len()].copy_from_slice(arrived);
/// reader.received(arrived.len());
/// let response = reader.next(get.op())?.expect("a whole response");
/// assert_eq!(get.decode(response).unwrap(), Some(b"seven".to_vec()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait TypedRequest {
    /// The decoded response.
    type Output;

    /// Returns the operation.
    fn op(&self) -> Op;

    /// Appends the encoded request.
    fn encode(&self, requests: &mut Vec<u8>);

    /// Decodes and checks the response.
    ///
    /// # Errors
    /// [`RequestError`].
    fn decode(&self, response: Response<'_>) -> Result<Self::Output, RequestError>;
}

impl RequestError {
    fn page(error: PageError) -> Self {
        RequestError::Violation(Violation::Page(error))
    }

    /// Returns the error of a response other than [`Response::Found`]. For [`Response::Error`], the error contains
    /// `hint`, which states the likely cause and what to do.
    #[cold]
    fn of(response: Response<'_>, request: String, hint: &'static str) -> Self {
        match response {
            Response::Unauthenticated => RequestError::Unauthenticated { request },
            Response::NotPermitted => RequestError::NotPermitted { request },
            Response::Moved => RequestError::Moved { request },
            Response::KeyTypeChanged => RequestError::KeyTypeChanged,
            Response::Found(_) | Response::NotFound | Response::Error | Response::SchemaChanged => {
                RequestError::Rejected { request, hint }
            }
        }
    }

    #[cold]
    fn key(key: Key<'_>, response: Response<'_>) -> Self {
        RequestError::of(response, format!("key {}", quoted(key)), OTHER_KIND)
    }

    #[cold]
    fn range(bounds: &Bounds<'_>, response: Response<'_>) -> Self {
        RequestError::of(response, range_name(bounds), OTHER_KIND)
    }
}

/// Decodes a response whose value is one number of 8 bytes.
fn decode_number(op: Op, value: &[u8]) -> Result<u64, RequestError> {
    let violation = Violation::ResponseLen { op, len_bytes: value.len(), min_bytes: 8, max_bytes: 8 };
    value.try_into().map(u64::from_be_bytes).map_err(|_| RequestError::Violation(violation))
}

/// Returns the ends of a range after checking their lengths and kinds.
pub(in crate::client) fn check_bounds<'k>(range: &impl KeyBounds<'k>) -> Result<Bounds<'k>, ClientError> {
    let (start, end) = range.bounds();
    for key in [start, end].into_iter().filter_map(key_at) {
        check_len(key, 0)?;
    }
    match (key_at(start), key_at(end)) {
        (Some(start), Some(end)) if start.kind() != end.kind() => {
            Err(ClientError::MixedKeys { start: start.kind(), end: end.kind() })
        }
        _ => Ok(Bounds { start, end }),
    }
}

/// Checks the length of a byte key: at least `min_bytes`, and at most [`KEY_LEN_MAX_BYTES`]. Accepts every numeric key.
#[inline]
pub(super) fn check_len(key: Key<'_>, min_bytes: usize) -> Result<(), ClientError> {
    match key.as_bytes().map(<[u8]>::len) {
        Some(len_bytes) if !(min_bytes..=KEY_LEN_MAX_BYTES).contains(&len_bytes) => {
            Err(ClientError::KeyLen { len_bytes })
        }
        _ => Ok(()),
    }
}

/// Returns a key as text for an error message: escaped, on one line, and shortened.
fn quoted(key: Key<'_>) -> String {
    match key {
        Key::U64(key) => key.to_string(),
        Key::Bytes(key) if key.len() <= KEY_SHOWN_MAX_BYTES => format!("\"{}\"", key.escape_ascii()),
        Key::Bytes(key) => format!("\"{}...\"", key[..KEY_SHOWN_MAX_BYTES].escape_ascii()),
    }
}

/// Returns a description of a range for an error message, such as `the range from 1 to 9`.
fn range_name(bounds: &Bounds<'_>) -> String {
    let from = key_at(bounds.start).map_or(String::new(), |start| format!(" from {}", quoted(start)));
    let to = key_at(bounds.end).map_or(String::new(), |end| format!(" to {}", quoted(end)));
    match (&*from, &*to) {
        ("", "") => "the range of all keys".to_owned(),
        _ => format!("the range{from}{to}"),
    }
}
