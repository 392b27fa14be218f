//! Native frames: requests, 8-byte response headers, big-endian.
//!
//! Requests about one number take 16 bytes; the others are long, and say how
//! long. The types are views of the bytes themselves: a slice of requests is
//! read from a buffer without a copy, and a header is written as it stands.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a request that is not long, and what every length is a multiple of.
pub const REQUEST_LEN_BYTES: usize = size_of::<Request>();
/// What precedes the body of a long request: op and length.
pub const LONG_HEADER_LEN_BYTES: usize = 8;
/// The longest body of a long request: a range with two of the longest keys.
pub const LONG_BODY_MAX_BYTES: usize = size_of::<RangeHeader>() + 2 * KEY_LEN_MAX_BYTES;
/// The longest key of bytes.
pub const KEY_LEN_MAX_BYTES: usize = 65_535;
/// Length of the header that precedes every answer's value.
pub const RESPONSE_HEADER_LEN_BYTES: usize = size_of::<ResponseHeader>();
/// The longest value an answer carries, 1 GiB. A client refuses a header that
/// announces more before it allocates anything.
pub const VALUE_LEN_MAX_BYTES: usize = 1 << 30;

const _: () = {
    assert!(REQUEST_LEN_BYTES == 16);
    assert!(RESPONSE_HEADER_LEN_BYTES == 8);
    assert!(std::mem::offset_of!(Request, key) == 8);
    assert!(size_of::<RangeHeader>() == 16);
    assert!(size_of::<PageHeader>() == 8);
    assert!(OPEN_LEN_BYTES == 32);
    assert!(LONG_HEADER_LEN_BYTES < REQUEST_LEN_BYTES);
};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    /// The key's value.
    Get = 0,
    /// Whether the key is there; the answer never carries a value.
    Exists = 1,
    /// The row with the largest key that is not above this one.
    Floor = 2,
    /// The row with the smallest key that is not below this one.
    Ceiling = 3,
    /// A page of the rows of a range. Always long.
    Range = 4,
    /// How many rows a range has. Always long.
    Count = 5,
    /// What the server says of itself. Never long.
    Info = 6,
    /// Look at the file again. Never long.
    Reload = 7,
    /// Back to the generation before. Never long.
    Rollback = 8,
    /// The file itself, to look keys up without the server: its descriptor, and one
    /// of a page that tells when another is served. Never long; only over a Unix
    /// socket.
    Open = 9,
    /// Whether the server answers. Never long.
    Ping = 10,
}

/// Added to the code of an op whose request is long.
const LONG: u32 = 1 << 16;

impl Op {
    /// The op of a request that is not long, if there is one with this code.
    #[inline]
    pub const fn from_code(code: u32) -> Option<Op> {
        match code {
            0 => Some(Op::Get),
            1 => Some(Op::Exists),
            2 => Some(Op::Floor),
            3 => Some(Op::Ceiling),
            6 => Some(Op::Info),
            7 => Some(Op::Reload),
            8 => Some(Op::Rollback),
            9 => Some(Op::Open),
            10 => Some(Op::Ping),
            _ => None,
        }
    }

    /// The op of a long request, if there is one with this code.
    #[inline]
    pub const fn from_long_code(code: u32) -> Option<Op> {
        match code ^ LONG {
            4 => Some(Op::Range),
            5 => Some(Op::Count),
            code @ 0..=3 => Op::from_code(code),
            _ => None,
        }
    }

    /// The op's code in a long request.
    pub const fn long_code(self) -> u32 {
        self as u32 | LONG
    }

    /// Whether a request with this code is long, known or not: from 2¹⁶ to 2²⁴.
    #[inline(always)]
    pub const fn is_long(code: u32) -> bool {
        code >= LONG && code < 1 << 24
    }
}

/// How a request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// The key is in the table.
    Ok = 0,
    /// The key is not in the table.
    NotFound = 1,
    /// The request could not be answered: the op is unknown, the table's keys are
    /// of the other kind, or the value is damaged.
    Error = 2,
}

impl Status {
    /// The status with this code, if there is one.
    pub const fn from_code(code: u32) -> Option<Status> {
        match code {
            0 => Some(Status::Ok),
            1 => Some(Status::NotFound),
            2 => Some(Status::Error),
            _ => None,
        }
    }
}

/// One request frame.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Request {
    op: U32,
    padding: [u8; 4],
    key: U64,
}

impl Request {
    /// A request for `key`.
    pub fn new(op: Op, key: u64) -> Self {
        Request { op: U32::new(op as u32), padding: [0; 4], key: U64::new(key) }
    }

    /// The op's code, which need not be one of [`Op`]'s.
    #[inline]
    pub fn op_code(&self) -> u32 {
        self.op.get()
    }

    /// If it is the beginning of a long request: how long its body is.
    #[inline]
    pub fn body_len_bytes(&self) -> usize {
        u32::from_be_bytes(self.padding) as usize
    }

    /// The key asked for.
    #[inline]
    pub fn key(&self) -> u64 {
        self.key.get()
    }
}

/// How long a long request with a body of so many bytes is.
#[inline]
pub const fn long_len_bytes(body_len_bytes: usize) -> usize {
    (LONG_HEADER_LEN_BYTES + body_len_bytes).next_multiple_of(REQUEST_LEN_BYTES)
}

/// Appends a long request. Its body must not be longer than
/// [`LONG_BODY_MAX_BYTES`].
pub fn push_long(op: Op, body: &[&[u8]], request: &mut Vec<u8>) {
    let body_len_bytes = body.iter().map(|part| part.len()).sum();
    let end = request.len() + long_len_bytes(body_len_bytes);
    request.extend_from_slice(&op.long_code().to_be_bytes());
    request.extend_from_slice(&(body_len_bytes as u32).to_be_bytes());
    body.iter().for_each(|part| request.extend_from_slice(part));
    request.resize(end, 0);
}

/// The beginning of the body of a request for a range; the two keys follow it.
///
/// A key that is a number is 8 bytes, big-endian.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RangeHeader {
    /// See [`range_flags`].
    pub flags: U32,
    /// Rows wanted at most; 0: as many as a page holds.
    pub limit_rows: U32,
    /// Length of the key that the range starts at; 0 if there is none.
    pub start_len_bytes: U32,
    /// Length of the key that the range ends at; 0 if there is none.
    pub end_len_bytes: U32,
}

/// What the flags of a request for a range mean. All others are zero.
pub mod range_flags {
    /// The page is to hold the last rows of the range, not the first.
    pub const BACKWARD: u32 = 1;
    /// The range has a start.
    pub const START: u32 = 2;
    /// The row with the key that it starts at is not in it.
    pub const START_EXCLUDED: u32 = 4;
    /// The range has an end.
    pub const END: u32 = 8;
    /// The row with the key that it ends at is not in it.
    pub const END_EXCLUDED: u32 = 16;
    /// The keys are numbers.
    pub const NUMBERS: u32 = 32;
    /// All of them.
    pub const ALL: u32 = 63;
}

/// The beginning of the value in answer to Floor, Ceiling and Range; rows follow
/// it, ascending, as they stand in the file.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PageHeader {
    /// How many rows follow.
    pub row_count: U32,
    /// What their keys are: the number of a [`KeyKind`](crate::format::key::KeyKind).
    pub key_kind: u8,
    /// Each row is aligned to two to the power of this.
    pub align_bits: u8,
    /// 1 if the range has more rows, else 0.
    pub more: U16,
}

/// Records of one page take up so much, unless a single one is longer.
pub const PAGE_LEN_MAX_BYTES: usize = 64 << 10;
/// Length of a page's header.
pub const PAGE_HEADER_LEN_BYTES: usize = size_of::<PageHeader>();
/// The longest record: with the longest key and the longest value, aligned to a
/// page of memory.
const RECORD_MAX_BYTES: usize =
    ((size_of::<u16>() + KEY_LEN_MAX_BYTES).next_multiple_of(8) + RESPONSE_HEADER_LEN_BYTES + VALUE_LEN_MAX_BYTES)
        .next_multiple_of(4096);
/// The value in answer to Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OpenHeader {
    /// Of the table whose descriptor came with the answer.
    pub generation: U64,
    /// That it has, big-endian.
    pub digest: [u8; 16],
    /// 0 if the descriptor is that of the file, 1 if of sealed memory.
    pub memory: U32,
    /// Zero.
    pub reserved: [u8; 4],
}

/// Length of the value in answer to Open.
pub const OPEN_LEN_BYTES: usize = size_of::<OpenHeader>();
/// The longest text in answer to Info.
pub const INFO_LEN_MAX_BYTES: usize = 64 << 10;
/// The longest page: one row with the longest record.
pub const PAGE_MAX_BYTES: usize = PAGE_HEADER_LEN_BYTES + RECORD_MAX_BYTES;

/// The header before an answer's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ResponseHeader {
    status: U32,
    value_len_bytes: U32,
}

impl ResponseHeader {
    /// The header of an answer without a value.
    pub const fn bare(status: Status) -> Self {
        ResponseHeader { status: U32::from_bytes((status as u32).to_be_bytes()), value_len_bytes: U32::ZERO }
    }

    /// The header of a value, which is also what the file stores before it.
    ///
    /// `None` if the value is longer than [`VALUE_LEN_MAX_BYTES`].
    pub fn of_value(value_len_bytes: usize) -> Option<Self> {
        let len = u32::try_from(value_len_bytes).ok().filter(|_| value_len_bytes <= VALUE_LEN_MAX_BYTES)?;
        Some(ResponseHeader { status: U32::new(Status::Ok as u32), value_len_bytes: U32::new(len) })
    }

    /// The header of a page, a number or a text of so many bytes. A page may be
    /// longer than a value: at most [`PAGE_MAX_BYTES`].
    pub const fn of_page(len_bytes: usize) -> Self {
        let len_bytes = U32::from_bytes((len_bytes as u32).to_be_bytes());
        ResponseHeader { status: U32::ZERO, value_len_bytes: len_bytes }
    }

    /// The status code, which need not be one of [`Status`]'s.
    #[inline]
    pub fn status_code(&self) -> u32 {
        self.status.get()
    }

    /// How many bytes of value follow.
    #[inline]
    pub fn value_len_bytes(&self) -> usize {
        self.value_len_bytes.get() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_laid_out_as_the_document_draws_it() {
        let request = Request::new(Op::Exists, 0x0102_0304_0506_0708);
        assert_eq!(request.as_bytes(), [0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_header_is_laid_out_as_the_document_draws_it() {
        assert_eq!(ResponseHeader::of_value(0x0001_0203).unwrap().as_bytes(), [0, 0, 0, 0, 0, 1, 2, 3]);
        assert_eq!(ResponseHeader::bare(Status::NotFound).as_bytes(), [0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(ResponseHeader::of_value(VALUE_LEN_MAX_BYTES + 1), None);
    }

    #[test]
    fn codes_and_names_agree() {
        for code in 0..16 {
            assert!(Op::from_code(code).is_none_or(|op| op as u32 == code));
            assert!(Status::from_code(code).is_none_or(|status| status as u32 == code));
        }
        assert_eq!((Op::from_code(4), Op::from_code(LONG), Status::from_code(3)), (None, None, None));
        assert_eq!([6, 7, 8].map(Op::from_code), [Some(Op::Info), Some(Op::Reload), Some(Op::Rollback)]);
        assert_eq!([9, 10, 11].map(Op::from_code), [Some(Op::Open), Some(Op::Ping), None]);
        for op in [Op::Get, Op::Exists, Op::Floor, Op::Ceiling, Op::Range, Op::Count] {
            assert_eq!(Op::from_long_code(op.long_code()), Some(op));
            assert!(Op::is_long(op.long_code()) && !Op::is_long(op as u32));
        }
        assert_eq!([LONG | 6, LONG | 9, LONG | 10, 0].map(Op::from_long_code), [None; 4]);
        assert_eq!([LONG - 1, LONG, (1 << 24) - 1, 1 << 24].map(Op::is_long), [false, true, true, false]);
    }
}
