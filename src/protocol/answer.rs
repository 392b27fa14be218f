//! What a native response header says of the answer, and which headers are none.
//!
//! In: a header that a peer sent, and the op it answers. Out: what follows it,
//! or why it cannot be believed. Nothing of the value itself.

use thiserror::Error;

use super::native::{Op, ResponseHeader, Status, VALUE_LEN_MAX_BYTES};

/// What a checked header announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// The key is in the table, and so many bytes of value follow: at most
    /// [`VALUE_LEN_MAX_BYTES`], none after [`Op::Exists`].
    Found {
        /// Length of the value.
        value_len_bytes: usize,
    },
    /// The key is not in the table; nothing follows.
    NotFound,
    /// The request could not be answered; nothing follows.
    Error,
}

/// Why bytes are not an answer.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The status code is not one of [`Status`]'s.
    #[error("status code {code}, where 0 (ok), 1 (not found) or 2 (error) was expected")]
    Status {
        /// The code.
        code: u32,
    },
    /// The value is longer than any may be.
    #[error("a value of {len_bytes} bytes announced, where {VALUE_LEN_MAX_BYTES} are the most")]
    ValueLen {
        /// The length announced.
        len_bytes: usize,
    },
    /// A value is announced where none belongs.
    #[error("a value of {len_bytes} bytes announced with status {status:?} in answer to {op:?}, where none belongs")]
    UnwantedValue {
        /// What was asked.
        op: Op,
        /// The status.
        status: Status,
        /// The length announced.
        len_bytes: usize,
    },
    /// More bytes than one answer came for one request.
    #[error("{len_bytes} bytes came after the answer, where nothing more was asked for")]
    Unasked {
        /// How many of them were seen.
        len_bytes: usize,
    },
}

impl Announced {
    /// Checks the header of an answer to `op`.
    ///
    /// # Errors
    /// [`Violation`], whereupon nothing that the peer sends after it can be told
    /// apart.
    pub fn check(op: Op, header: &ResponseHeader) -> Result<Announced, Violation> {
        let code = header.status_code();
        let status = Status::from_code(code).ok_or(Violation::Status { code })?;
        let len_bytes = header.value_len_bytes();
        match (status, op, len_bytes) {
            (Status::Ok, Op::Get, 0..=VALUE_LEN_MAX_BYTES) | (Status::Ok, Op::Exists, 0) => {
                Ok(Announced::Found { value_len_bytes: len_bytes })
            }
            (Status::Ok, Op::Get, _) => Err(Violation::ValueLen { len_bytes }),
            (Status::NotFound, _, 0) => Ok(Announced::NotFound),
            (Status::Error, _, 0) => Ok(Announced::Error),
            _ => Err(Violation::UnwantedValue { op, status, len_bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    /// The answer to `op` that begins with these two numbers.
    fn check(op: Op, status_code: u32, len_bytes: u32) -> Result<Announced, Violation> {
        let mut header = ResponseHeader::bare(Status::Ok);
        header.as_mut_bytes()[..4].copy_from_slice(&status_code.to_be_bytes());
        header.as_mut_bytes()[4..].copy_from_slice(&len_bytes.to_be_bytes());
        Announced::check(op, &header)
    }

    #[test]
    fn what_a_server_may_say_is_understood() {
        let max = VALUE_LEN_MAX_BYTES as u32;
        for len_bytes in [0, 1, max] {
            let found = Announced::Found { value_len_bytes: len_bytes as usize };
            assert_eq!(check(Op::Get, 0, len_bytes), Ok(found));
        }
        assert_eq!(check(Op::Exists, 0, 0), Ok(Announced::Found { value_len_bytes: 0 }));
        for op in [Op::Get, Op::Exists] {
            assert_eq!(check(op, 1, 0), Ok(Announced::NotFound));
            assert_eq!(check(op, 2, 0), Ok(Announced::Error));
        }
    }

    #[test]
    fn everything_else_is_a_violation() {
        let max = VALUE_LEN_MAX_BYTES as u32;
        for len_bytes in [max + 1, u32::MAX] {
            assert_eq!(check(Op::Get, 0, len_bytes), Err(Violation::ValueLen { len_bytes: len_bytes as usize }));
        }
        for (op, status) in [
            (Op::Exists, Status::Ok),
            (Op::Get, Status::NotFound),
            (Op::Exists, Status::NotFound),
            (Op::Get, Status::Error),
            (Op::Exists, Status::Error),
        ] {
            for len_bytes in [1, u32::MAX] {
                let unwanted = Violation::UnwantedValue { op, status, len_bytes: len_bytes as usize };
                assert_eq!(check(op, status as u32, len_bytes), Err(unwanted));
            }
        }
        for code in [3, 256, u32::MAX] {
            assert_eq!(check(Op::Get, code, 0), Err(Violation::Status { code }));
        }
    }
}
