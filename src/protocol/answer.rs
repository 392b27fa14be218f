//! What a native response header says of the answer, and which headers are none.
//!
//! In: a header that a peer sent, and the op it answers. Out: what follows it,
//! or why it cannot be believed. Nothing of the value itself.

use thiserror::Error;

use super::native::{
    INFO_LEN_MAX_BYTES, OPEN_LEN_BYTES, Op, PAGE_HEADER_LEN_BYTES, PAGE_LEN_MAX_BYTES, PAGE_MAX_BYTES,
};
use super::native::{ResponseHeader, Status, VALUE_LEN_MAX_BYTES};

/// The value in answer to [`Op::Count`], [`Op::Reload`] and [`Op::Rollback`] is a number of 8 bytes.
const NUMBER_LEN_BYTES: usize = size_of::<u64>();

/// What a checked header announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// There is an answer, and so many bytes of value follow: none after
    /// [`Op::Exists`], a page after [`Op::Floor`], [`Op::Ceiling`] and
    /// [`Op::Range`], a text after [`Op::Info`], a number after the others.
    Found {
        /// Length of the value.
        value_len_bytes: usize,
    },
    /// There is no such row; nothing follows.
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
    #[error("a value of {len_bytes} bytes announced, where {most_bytes} are the most")]
    ValueLen {
        /// The length announced.
        len_bytes: usize,
        /// The longest.
        most_bytes: usize,
    },
    /// The length of a page, a number or a text is none that these have.
    #[error("{len_bytes} bytes announced in answer to {op:?}, where {least_bytes} to {most_bytes} were expected")]
    AnswerLen {
        /// What was asked.
        op: Op,
        /// The length announced.
        len_bytes: usize,
        /// The shortest.
        least_bytes: usize,
        /// The longest.
        most_bytes: usize,
    },
    /// The status is one that the answer to this op never has.
    #[error("status {status:?} in answer to {op:?}, which never has it")]
    UnwantedStatus {
        /// What was asked.
        op: Op,
        /// The status.
        status: Status,
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
    /// An answer came to a request that was not sent yet.
    #[error("an answer before its request was sent")]
    Early,
    /// The value is not the page that was asked for.
    #[error("a page of rows that was not asked for: {0}")]
    Page(PageFault),
}

/// Why bytes are not the page that was asked for. Rows are counted from 0.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageFault {
    /// The keys are of no kind, or of another than the one asked for.
    #[error("keys of kind {code}, where those asked for were of another")]
    KeyKind {
        /// The number of the kind.
        code: u8,
    },
    /// The alignment is none that records have.
    #[error("rows aligned to 2 to the power of {bits}, where 3 to 12 are possible")]
    Align {
        /// The power.
        bits: u8,
    },
    /// It is not said whether there are more rows, or said so where there are none.
    #[error("{more} where 0 or 1 says whether more rows can follow")]
    More {
        /// What stands there.
        more: u16,
    },
    /// There are more rows than were asked for, or none where there must be one.
    #[error("{rows} rows, where at most {rows_max} were asked for, and none is another answer")]
    RowCount {
        /// Rows announced.
        rows: u32,
        /// Rows asked for.
        rows_max: u32,
    },
    /// Several rows take up more than a page holds.
    #[error("{len_bytes} bytes of several rows, where {PAGE_LEN_MAX_BYTES} are the most")]
    Len {
        /// The length of the rows.
        len_bytes: usize,
    },
    /// A row is no record, or reaches beyond the end.
    #[error("row {row} is not whole")]
    CutShort {
        /// The row.
        row: u32,
    },
    /// A row's key has no bytes.
    #[error("row {row} has an empty key")]
    EmptyKey {
        /// The row.
        row: u32,
    },
    /// A row's key is not above that of the row before.
    #[error("row {row} is not in key order")]
    Order {
        /// The row.
        row: u32,
    },
    /// A row is not in the range that was asked for.
    #[error("row {row} is outside the range")]
    OutOfRange {
        /// The row.
        row: u32,
    },
    /// Something follows the last row.
    #[error("{len_bytes} bytes after the last row")]
    Rest {
        /// How much.
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
        let bounded = |least_bytes, most_bytes| match (least_bytes..=most_bytes).contains(&len_bytes) {
            true => Ok(Announced::Found { value_len_bytes: len_bytes }),
            false => Err(Violation::AnswerLen { op, len_bytes, least_bytes, most_bytes }),
        };
        match (status, op, len_bytes) {
            (Status::Ok, Op::Get, 0..=VALUE_LEN_MAX_BYTES) | (Status::Ok, Op::Exists | Op::Ping, 0) => {
                Ok(Announced::Found { value_len_bytes: len_bytes })
            }
            (Status::Ok, Op::Get, _) => Err(Violation::ValueLen { len_bytes, most_bytes: VALUE_LEN_MAX_BYTES }),
            (Status::Ok, Op::Floor | Op::Ceiling | Op::Range, _) => bounded(PAGE_HEADER_LEN_BYTES, PAGE_MAX_BYTES),
            (Status::Ok, Op::Count | Op::Reload | Op::Rollback, _) => bounded(NUMBER_LEN_BYTES, NUMBER_LEN_BYTES),
            (Status::Ok, Op::Info, _) => bounded(0, INFO_LEN_MAX_BYTES),
            (Status::Ok, Op::Open, _) => bounded(OPEN_LEN_BYTES, OPEN_LEN_BYTES),
            (Status::NotFound, Op::Get | Op::Exists | Op::Floor | Op::Ceiling, 0) => Ok(Announced::NotFound),
            (Status::NotFound, _, 0) => Err(Violation::UnwantedStatus { op, status }),
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
    fn pages_and_numbers_are_as_long_as_they_can_be() {
        let page_max = PAGE_MAX_BYTES as u32;
        for op in [Op::Floor, Op::Ceiling, Op::Range] {
            for len_bytes in [8, 9, page_max] {
                let found = Announced::Found { value_len_bytes: len_bytes as usize };
                assert_eq!(check(op, 0, len_bytes), Ok(found));
            }
            for len_bytes in [0, 7, page_max + 1, u32::MAX] {
                let len_bytes = len_bytes as usize;
                let refused = Violation::AnswerLen { op, len_bytes, least_bytes: 8, most_bytes: PAGE_MAX_BYTES };
                assert_eq!(check(op, 0, len_bytes as u32), Err(refused));
            }
        }
        for op in [Op::Count, Op::Reload, Op::Rollback] {
            assert_eq!(check(op, 0, 8), Ok(Announced::Found { value_len_bytes: 8 }));
            for len_bytes in [0, 7, 9] {
                let refused = Violation::AnswerLen { op, len_bytes, least_bytes: 8, most_bytes: 8 };
                assert_eq!(check(op, 0, len_bytes as u32), Err(refused));
            }
        }
        assert_eq!(check(Op::Info, 0, 65_536), Ok(Announced::Found { value_len_bytes: 65_536 }));
        let refused = Violation::AnswerLen { op: Op::Info, len_bytes: 65_537, least_bytes: 0, most_bytes: 65_536 };
        assert_eq!(check(Op::Info, 0, 65_537), Err(refused));
        for op in [Op::Floor, Op::Ceiling] {
            assert_eq!(check(op, 1, 0), Ok(Announced::NotFound));
        }
        for (len_bytes, is_right) in [(0, false), (31, false), (32, true), (33, false)] {
            assert_eq!(check(Op::Open, 0, len_bytes).is_ok(), is_right, "{len_bytes}");
        }
        assert_eq!(check(Op::Ping, 0, 0), Ok(Announced::Found { value_len_bytes: 0 }));
        for op in [Op::Range, Op::Count, Op::Info, Op::Reload, Op::Rollback, Op::Open, Op::Ping] {
            let status = Status::NotFound;
            assert_eq!(check(op, 1, 0), Err(Violation::UnwantedStatus { op, status }));
            assert_eq!(check(op, 2, 0), Ok(Announced::Error));
        }
    }

    #[test]
    fn everything_else_is_a_violation() {
        let max = VALUE_LEN_MAX_BYTES as u32;
        let too_long =
            |len_bytes| Violation::ValueLen { len_bytes: len_bytes as usize, most_bytes: VALUE_LEN_MAX_BYTES };
        for len_bytes in [max + 1, u32::MAX] {
            assert_eq!(check(Op::Get, 0, len_bytes), Err(too_long(len_bytes)));
        }
        for (op, status) in [
            (Op::Exists, Status::Ok),
            (Op::Ping, Status::Ok),
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
