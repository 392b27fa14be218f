//! Native frames: 16-byte requests, 8-byte response headers, big-endian.
//!
//! The types are views of the bytes themselves: a slice of requests is read
//! from a buffer without a copy, and a header is written as it stands.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of every request.
pub const REQUEST_LEN_BYTES: usize = size_of::<Request>();
/// Length of the header that precedes every answer's value.
pub const RESPONSE_HEADER_LEN_BYTES: usize = size_of::<ResponseHeader>();
/// The longest value an answer carries, 1 GiB. A client refuses a header that
/// announces more before it allocates anything.
pub const VALUE_LEN_MAX_BYTES: usize = 1 << 30;

const _: () = {
    assert!(REQUEST_LEN_BYTES == 16);
    assert!(RESPONSE_HEADER_LEN_BYTES == 8);
    assert!(std::mem::offset_of!(Request, key) == 8);
};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    /// The key's value.
    Get = 0,
    /// Whether the key is there; the answer never carries a value.
    Exists = 1,
}

impl Op {
    /// The op with this code, if there is one.
    #[inline]
    pub const fn from_code(code: u32) -> Option<Op> {
        match code {
            0 => Some(Op::Get),
            1 => Some(Op::Exists),
            _ => None,
        }
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
    /// The request could not be answered: the op is unknown, or the value is
    /// damaged.
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

    /// The key asked for.
    #[inline]
    pub fn key(&self) -> u64 {
        self.key.get()
    }
}

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
        for code in 0..8 {
            assert!(Op::from_code(code).is_none_or(|op| op as u32 == code));
            assert!(Status::from_code(code).is_none_or(|status| status as u32 == code));
        }
        assert_eq!((Op::from_code(2), Status::from_code(3)), (None, None));
    }
}
