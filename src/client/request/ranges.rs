//! Requests for ranges of keys.

use std::ops::Bound;

use zerocopy::IntoBytes;

use super::{RequestError, Row, TypedRequest, check_bounds, check_len, decode_number};
use crate::client::error::ClientError;
use crate::client::key::{Bounds, KeyRange, OwnedKey, key_at};
use crate::client::row_page::{GetPage, RowPage};
use crate::format::KeyBounds;
use crate::format::key::{Key, KeyKind};
use crate::protocol::native::{Op, RangeHeader, push_long, range_flags};
use crate::protocol::reader::Response;
use crate::store::prefix_end;

impl<'k> GetPage<'k> {
    /// Requests the first rows of a range: at most `limit_rows`, or as many as fit into a page if `limit_rows` is 0.
    ///
    /// # Errors
    /// [`ClientError::KeyLen`] if a key is too long, and [`ClientError::MixedKeys`]. Unlike a key to look up, the key
    /// at an end of the range may be empty.
    pub fn first(range: impl KeyBounds<'k>, limit_rows: u32) -> Result<Self, ClientError> {
        Ok(GetPage { bounds: check_bounds(&range)?, backward: false, limit_rows })
    }

    /// Requests the last rows of a range: at most `limit_rows`, or as many as fit into a page if `limit_rows` is 0.
    ///
    /// # Errors
    /// The errors of [`GetPage::first`].
    pub fn last(range: impl KeyBounds<'k>, limit_rows: u32) -> Result<Self, ClientError> {
        Ok(GetPage { bounds: check_bounds(&range)?, backward: true, limit_rows })
    }

    /// Requests the first row of the table, or the last row if `backward` is true.
    fn one_of_all(backward: bool) -> GetPage<'static> {
        GetPage { bounds: Bounds::ALL, backward, limit_rows: 1 }
    }
}

impl TypedRequest for GetPage<'_> {
    type Output = RowPage;

    fn op(&self) -> Op {
        Op::Range
    }

    fn encode(&self, requests: &mut Vec<u8>) {
        encode_range(Op::Range, &self.bounds, self.backward, self.limit_rows, requests);
    }

    fn decode(&self, response: Response<'_>) -> Result<RowPage, RequestError> {
        match response {
            Response::Found(page) => RowPage::decode(self, page).map_err(RequestError::page),
            refused => Err(RequestError::range(&self.bounds, refused)),
        }
    }
}

/// Requests the row with the smallest key.
#[derive(Clone, Copy, Debug)]
pub struct FirstRow;

/// Requests the row with the largest key.
#[derive(Clone, Copy, Debug)]
pub struct LastRow;

macro_rules! impl_end_row {
    ($request:ident, backward: $backward:literal) => {
        impl TypedRequest for $request {
            type Output = Option<Row>;

            fn op(&self) -> Op {
                Op::Range
            }

            fn encode(&self, requests: &mut Vec<u8>) {
                GetPage::one_of_all($backward).encode(requests);
            }

            fn decode(&self, response: Response<'_>) -> Result<Option<Row>, RequestError> {
                let page = GetPage::one_of_all($backward).decode(response)?;
                Ok(page.iter().next().map(|(key, value)| (OwnedKey::from(key), value.to_vec())))
            }
        }
    };
}

impl_end_row!(FirstRow, backward: false);
impl_end_row!(LastRow, backward: true);

/// Requests the number of keys in a range.
#[derive(Clone, Copy, Debug)]
pub struct Count<'k>(Bounds<'k>);

impl<'k> Count<'k> {
    /// Creates a request for the number of keys in `range`.
    ///
    /// # Errors
    /// The errors of [`GetPage::first`].
    pub fn new(range: impl KeyBounds<'k>) -> Result<Self, ClientError> {
        Ok(Count(check_bounds(&range)?))
    }

    /// Requests the number of keys in the whole table. If the table's keys are not of `kind`, the server responds with
    /// an error.
    pub fn all_of(kind: KeyKind) -> Self {
        let smallest = match kind {
            KeyKind::U64 => Key::U64(0),
            KeyKind::Bytes => Key::Bytes(b""),
        };
        Count(Bounds { start: Bound::Included(smallest), end: Bound::Unbounded })
    }
}

impl TypedRequest for Count<'_> {
    type Output = u64;

    fn op(&self) -> Op {
        Op::Count
    }

    fn encode(&self, requests: &mut Vec<u8>) {
        encode_range(Op::Count, &self.0, false, 0, requests);
    }

    fn decode(&self, response: Response<'_>) -> Result<u64, RequestError> {
        match response {
            Response::Found(count) => decode_number(Op::Count, count),
            refused => Err(RequestError::range(&self.0, refused)),
        }
    }
}

/// Returns the range of the keys that start with `prefix`.
///
/// # Errors
/// [`ClientError::KeyLen`].
pub fn prefix_range(prefix: &[u8]) -> Result<KeyRange, ClientError> {
    let start = Key::Bytes(prefix);
    check_len(start, 0)?;
    let end = prefix_end(prefix).map_or(Bound::Unbounded, |end| Bound::Excluded(OwnedKey::Bytes(end)));
    Ok(KeyRange { start: Bound::Included(OwnedKey::from(start)), end })
}

fn encode_range(op: Op, bounds: &Bounds<'_>, backward: bool, limit_rows: u32, requests: &mut Vec<u8>) {
    use range_flags::{BACKWARD, END, END_EXCLUDED, NUMBERS, START, START_EXCLUDED};

    let end_flags = |bound, present, excluded| match bound {
        Bound::Unbounded => 0,
        Bound::Included(_) => present,
        Bound::Excluded(_) => present | excluded,
    };
    let mut flags = end_flags(bounds.start, START, START_EXCLUDED) | end_flags(bounds.end, END, END_EXCLUDED);
    if backward {
        flags |= BACKWARD;
    }
    if bounds.kinds().any(|kind| kind == KeyKind::U64) {
        flags |= NUMBERS;
    }
    let numbers = [bounds.start, bounds.end].map(|bound| match key_at(bound) {
        Some(Key::U64(key)) => key.to_be_bytes(),
        _ => [0; 8],
    });
    let key = |bound, number| match key_at(bound) {
        Some(Key::U64(_)) => number,
        Some(Key::Bytes(key)) => key,
        None => &[],
    };
    let (start, end) = (key(bounds.start, &numbers[0][..]), key(bounds.end, &numbers[1][..]));
    let header = RangeHeader {
        flags: flags.into(),
        limit_rows: limit_rows.into(),
        start_len_bytes: (start.len() as u32).into(),
        end_len_bytes: (end.len() as u32).into(),
    };
    push_long(op, &[header.as_bytes(), start, end], requests);
}
