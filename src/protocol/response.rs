//! Checks native response headers.
//!
//! In: a header that a peer sent, and the op of the request. Out: the length of the value that follows, or a violation
//! of the protocol. This module does not check values.

use thiserror::Error;

use super::native::{
    INFO_LEN_MAX_BYTES, KEY_TYPE_LEN_MAX_BYTES, OPEN_LEN_BYTES, Op, PAGE_HEADER_LEN_BYTES, PAGE_LEN_MAX_BYTES,
    PAGE_MAX_BYTES, ResponseHeader, SCHEMA_LEN_MAX_BYTES, StateId, Status, TOPOLOGY_LEN_MAX_BYTES, VALUE_LEN_MAX_BYTES,
    ValueKind,
};

/// Length of the number in a response to [`Op::Count`], [`Op::Generation`], [`Op::Reload`], or [`Op::Rollback`].
const NUMBER_LEN_BYTES: usize = size_of::<u64>();

/// A response header that is valid for the op of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckedHeader {
    /// The request succeeded, and a value follows. [`Op::value_kind`] returns its kind.
    Found {
        /// Length of the value.
        value_len_bytes: usize,
    },
    /// The table does not have the row, or has no schema; or the server is not a node of a cluster. No value follows.
    NotFound,
    /// The server could not process the request. No value follows.
    Error,
    /// The connection must log in first, or its login has failed. No value follows.
    Unauthenticated,
    /// The connection's user may not send the request, or may not use the requested keys. No value follows.
    NotPermitted,
    /// The table's schema is not the schema of the selected columns. No value follows.
    SchemaChanged,
    /// The table does not have the row, and another node of the cluster serves its slot. No value follows.
    Moved,
    /// The table's keys are not of the type that the client has requested last. No value follows.
    KeyTypeChanged,
}

/// A violation of the native protocol by a peer.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The status code is unknown.
    #[error(
        "status code {code}, where 0 (ok), 1 (not found), 2 (error), 3 (unauthenticated), 4 (not permitted), \
         5 (schema changed), 6 (moved), or 7 (key type changed) was expected"
    )]
    Status {
        /// The code.
        code: u32,
    },
    /// The header announces a value longer than the maximum.
    #[error("a header announces a value of {len_bytes} bytes, where at most {max_bytes} are allowed")]
    ValueLen {
        /// The announced length.
        len_bytes: usize,
        /// The maximum length.
        max_bytes: usize,
    },
    /// The header announces a page, number, or text of an impossible length.
    #[error(
        "a header announces a response of {len_bytes} bytes to {op:?}, where {min_bytes} to {max_bytes} were expected"
    )]
    ResponseLen {
        /// The op of the request.
        op: Op,
        /// The announced length.
        len_bytes: usize,
        /// The minimum length.
        min_bytes: usize,
        /// The maximum length.
        max_bytes: usize,
    },
    /// A response to this op never has this status.
    #[error("status {status:?} in a response to {op:?}, which never has this status")]
    UnexpectedStatus {
        /// The op of the request.
        op: Op,
        /// The status.
        status: Status,
    },
    /// The header announces a value, but a response to this op with this status never has a value.
    #[error(
        "a header announces a value of {len_bytes} bytes, where a response to {op:?} with status {status:?} has no \
         value"
    )]
    UnexpectedValue {
        /// The op of the request.
        op: Op,
        /// The status.
        status: Status,
        /// The announced length.
        len_bytes: usize,
    },
    /// A notice has an invalid length.
    #[error("a header announces a notice of {len_bytes} bytes, where {} were expected", size_of::<StateId>())]
    NoticeLen {
        /// The announced length.
        len_bytes: usize,
    },
    /// Bytes arrived after the response to the last request.
    #[error("{len_bytes} bytes arrived after the last response, where none were expected")]
    UnexpectedBytes {
        /// The number of unexpected bytes that were read from the socket.
        len_bytes: usize,
    },
    /// A response arrived before its request was sent.
    #[error("a response arrived before its request was sent")]
    ResponseBeforeRequest,
    /// The value is not a valid page for the request.
    #[error("an invalid page of rows: {0}")]
    Page(#[source] PageError),
    /// The value is not a valid schema.
    #[error("an invalid schema of {len_bytes} bytes")]
    Schema {
        /// The length of the value.
        len_bytes: usize,
    },
    /// The value is not the name of a key type.
    #[error(
        "a key type of {len_bytes} bytes that this version does not know, where u64, ip, or bytes,date was expected"
    )]
    KeyType {
        /// The length of the value.
        len_bytes: usize,
    },
    /// Info does not have the slots of a node's file, or has them in a form that this version does not know.
    #[error(
        "the slots of the node's file are a text of {len_bytes} bytes in Info, where ranges such as 0-8191, or a digit \
         for every four slots was expected"
    )]
    FileSlots {
        /// The length of the text.
        len_bytes: usize,
    },
    /// The value is not a row of the selected columns.
    #[error("a row of {len_bytes} bytes, which is not a row of the selected columns")]
    Row {
        /// The length of the value.
        len_bytes: usize,
    },
}

/// The reason why a value is not a valid page for the request. Rows are counted from 0.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageError {
    /// The form of the records is unknown, or their keys are not of the kind in the request.
    #[error("the page's record form is {code}, which is unknown or has another kind of keys than the request")]
    RecordForm {
        /// The code of the form.
        code: u8,
    },
    /// The rows have an alignment that no table can have.
    #[error("rows are aligned to 2^{bits} bytes, where 2^3 to 2^12 were expected")]
    Align {
        /// The base-2 logarithm of the alignment in bytes.
        bits: u8,
    },
    /// The flag that announces more rows is neither 0 nor 1, or is 1 in a page without rows.
    #[error("the flag for more rows is {more}, where 0, or 1 after at least one row, was expected")]
    MoreFlag {
        /// The flag's value.
        more: u16,
    },
    /// The page has more rows than requested, or no row where one is required.
    #[error("the page has {rows} rows, where 1 to {rows_max} were expected")]
    RowCount {
        /// The page's number of rows.
        rows: u32,
        /// The maximum number of rows.
        rows_max: u32,
    },
    /// The page has several rows, and their total length exceeds [`PAGE_LEN_MAX_BYTES`].
    #[error("several rows take {len_bytes} bytes, where at most {PAGE_LEN_MAX_BYTES} are allowed")]
    Len {
        /// The length of the rows.
        len_bytes: usize,
    },
    /// A row is malformed, or extends beyond the end of the page.
    #[error("row {row} is truncated")]
    Truncated {
        /// The number of the row, counted from 0.
        row: u32,
    },
    /// A row's key has no bytes.
    #[error("row {row} has an empty key")]
    EmptyKey {
        /// The number of the row, counted from 0.
        row: u32,
    },
    /// A row's key is not greater than the preceding row's key.
    #[error("row {row} is out of key order")]
    KeyOrder {
        /// The number of the row, counted from 0.
        row: u32,
    },
    /// A row's range ends before it begins, or begins before the preceding range ends.
    #[error("the range of row {row} ends before it begins, or begins before the preceding range ends")]
    RangeOrder {
        /// The number of the row, counted from 0.
        row: u32,
    },
    /// A row's key is outside the requested range.
    #[error("row {row} is outside the requested range")]
    OutOfRange {
        /// The number of the row, counted from 0.
        row: u32,
    },
    /// Bytes follow the last row.
    #[error("{len_bytes} bytes follow the last row")]
    TrailingBytes {
        /// The number of bytes after the last row.
        len_bytes: usize,
    },
}

impl CheckedHeader {
    /// Checks the header of a response to `op`.
    ///
    /// # Errors
    /// [`Violation`]. After an error, the rest of the connection's bytes cannot be split into responses.
    pub fn new(op: Op, header: &ResponseHeader) -> Result<CheckedHeader, Violation> {
        let code = header.status_code();
        let status = Status::from_code(code).ok_or(Violation::Status { code })?;
        let len_bytes = header.value_len_bytes();
        let bounded = |min_bytes, max_bytes| match (min_bytes..=max_bytes).contains(&len_bytes) {
            true => Ok(CheckedHeader::Found { value_len_bytes: len_bytes }),
            false => Err(Violation::ResponseLen { op, len_bytes, min_bytes, max_bytes }),
        };
        match (status, op.value_kind()) {
            (Status::Ok, ValueKind::Value) if len_bytes > VALUE_LEN_MAX_BYTES => {
                Err(Violation::ValueLen { len_bytes, max_bytes: VALUE_LEN_MAX_BYTES })
            }
            (Status::Ok, ValueKind::Value) => Ok(CheckedHeader::Found { value_len_bytes: len_bytes }),
            (Status::Ok, ValueKind::Page) => bounded(PAGE_HEADER_LEN_BYTES, PAGE_MAX_BYTES),
            (Status::Ok, ValueKind::Number) => bounded(NUMBER_LEN_BYTES, NUMBER_LEN_BYTES),
            (Status::Ok, ValueKind::Text) => bounded(0, INFO_LEN_MAX_BYTES),
            (Status::Ok, ValueKind::Table) => bounded(OPEN_LEN_BYTES, OPEN_LEN_BYTES),
            (Status::Ok, ValueKind::Schema) => bounded(1, SCHEMA_LEN_MAX_BYTES),
            (Status::Ok, ValueKind::Topology) => bounded(1, TOPOLOGY_LEN_MAX_BYTES),
            (Status::Ok, ValueKind::KeyType) => bounded(1, KEY_TYPE_LEN_MAX_BYTES),
            (Status::Ok, ValueKind::State) => bounded(size_of::<StateId>(), size_of::<StateId>()),
            _ if len_bytes > 0 => Err(Violation::UnexpectedValue { op, status, len_bytes }),
            (Status::Ok, ValueKind::Empty) => Ok(CheckedHeader::Found { value_len_bytes: 0 }),
            (Status::Error, _) => Ok(CheckedHeader::Error),
            (Status::Unauthenticated, _) => Ok(CheckedHeader::Unauthenticated),
            (Status::NotPermitted, _) => Ok(CheckedHeader::NotPermitted),
            (Status::NotFound, _) if op.can_be_not_found() => Ok(CheckedHeader::NotFound),
            (Status::SchemaChanged, _) if op.can_be_schema_changed() => Ok(CheckedHeader::SchemaChanged),
            (Status::Moved, _) if op.can_be_moved() => Ok(CheckedHeader::Moved),
            (Status::KeyTypeChanged, _) if op.has_keys() => Ok(CheckedHeader::KeyTypeChanged),
            (Status::NotFound | Status::SchemaChanged | Status::Moved | Status::KeyTypeChanged | Status::Notice, _) => {
                Err(Violation::UnexpectedStatus { op, status })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    /// Checks a header with this status code and value length, in a response to `op`.
    fn check(op: Op, status_code: u32, len_bytes: u32) -> Result<CheckedHeader, Violation> {
        let mut header = ResponseHeader::bare(Status::Ok);
        header.as_mut_bytes()[..4].copy_from_slice(&status_code.to_be_bytes());
        header.as_mut_bytes()[4..].copy_from_slice(&len_bytes.to_be_bytes());
        CheckedHeader::new(op, &header)
    }

    #[test]
    fn valid_headers_are_accepted() {
        let max = VALUE_LEN_MAX_BYTES as u32;
        for len_bytes in [0, 1, max] {
            let found = CheckedHeader::Found { value_len_bytes: len_bytes as usize };
            assert_eq!(check(Op::Get, 0, len_bytes), Ok(found));
        }
        assert_eq!(check(Op::Exists, 0, 0), Ok(CheckedHeader::Found { value_len_bytes: 0 }));
        for op in [Op::Get, Op::Exists] {
            assert_eq!(check(op, 1, 0), Ok(CheckedHeader::NotFound));
            assert_eq!(check(op, 2, 0), Ok(CheckedHeader::Error));
        }
    }

    #[test]
    fn lengths_of_pages_numbers_and_texts_are_bounded() {
        let page_max = PAGE_MAX_BYTES as u32;
        for op in [Op::Floor, Op::Ceiling, Op::Range] {
            for len_bytes in [8, 9, page_max] {
                let found = CheckedHeader::Found { value_len_bytes: len_bytes as usize };
                assert_eq!(check(op, 0, len_bytes), Ok(found));
            }
            for len_bytes in [0, 7, page_max + 1, u32::MAX] {
                let len_bytes = len_bytes as usize;
                let violation = Violation::ResponseLen { op, len_bytes, min_bytes: 8, max_bytes: PAGE_MAX_BYTES };
                assert_eq!(check(op, 0, len_bytes as u32), Err(violation));
            }
        }
        for op in [Op::Count, Op::Reload, Op::Rollback] {
            assert_eq!(check(op, 0, 8), Ok(CheckedHeader::Found { value_len_bytes: 8 }));
            for len_bytes in [0, 7, 9] {
                let violation = Violation::ResponseLen { op, len_bytes, min_bytes: 8, max_bytes: 8 };
                assert_eq!(check(op, 0, len_bytes as u32), Err(violation));
            }
        }
        assert_eq!(check(Op::Info, 0, 65_536), Ok(CheckedHeader::Found { value_len_bytes: 65_536 }));
        let violation = Violation::ResponseLen { op: Op::Info, len_bytes: 65_537, min_bytes: 0, max_bytes: 65_536 };
        assert_eq!(check(Op::Info, 0, 65_537), Err(violation));
        for op in [Op::Floor, Op::Ceiling] {
            assert_eq!(check(op, 1, 0), Ok(CheckedHeader::NotFound));
        }
        for (len_bytes, is_valid) in [(0, false), (1, true), (79, true), (80, false)] {
            assert_eq!(check(Op::KeyType, 0, len_bytes).is_ok(), is_valid, "{len_bytes}");
        }
        for (len_bytes, is_valid) in [(0, false), (31, false), (32, true), (33, false)] {
            assert_eq!(check(Op::Open, 0, len_bytes).is_ok(), is_valid, "{len_bytes}");
        }
        assert_eq!(check(Op::Ping, 0, 0), Ok(CheckedHeader::Found { value_len_bytes: 0 }));
        assert_eq!(check(Op::Auth, 0, 0), Ok(CheckedHeader::Found { value_len_bytes: 0 }));
        for op in Op::ALL {
            assert_eq!(check(op, 3, 0), Ok(CheckedHeader::Unauthenticated));
            assert_eq!(check(op, 4, 0), Ok(CheckedHeader::NotPermitted));
        }
        for op in [Op::Range, Op::Count, Op::Info, Op::Reload, Op::Rollback, Op::Open, Op::Ping, Op::Auth, Op::Select] {
            let status = Status::NotFound;
            assert_eq!(check(op, 1, 0), Err(Violation::UnexpectedStatus { op, status }));
            assert_eq!(check(op, 2, 0), Ok(CheckedHeader::Error));
        }
    }

    #[test]
    fn only_requests_about_columns_can_find_another_schema() {
        for op in Op::ALL {
            let status = Status::SchemaChanged;
            let expected = match op {
                Op::Select | Op::GetColumns => Ok(CheckedHeader::SchemaChanged),
                _ => Err(Violation::UnexpectedStatus { op, status }),
            };
            assert_eq!(check(op, 5, 0), expected);
            assert_eq!(check(op, 5, 1), Err(Violation::UnexpectedValue { op, status, len_bytes: 1 }));
        }
        let max = SCHEMA_LEN_MAX_BYTES as u32;
        assert_eq!(check(Op::Schema, 0, max), Ok(CheckedHeader::Found { value_len_bytes: max as usize }));
        assert_eq!(check(Op::Schema, 1, 0), Ok(CheckedHeader::NotFound));
        assert!(check(Op::Schema, 0, max + 1).is_err() && check(Op::Schema, 0, 0).is_err());
    }

    #[test]
    fn only_requests_for_one_key_can_be_moved() {
        for op in Op::ALL {
            let status = Status::Moved;
            let expected = match op {
                Op::Get | Op::Exists | Op::GetColumns => Ok(CheckedHeader::Moved),
                _ => Err(Violation::UnexpectedStatus { op, status }),
            };
            assert_eq!(check(op, 6, 0), expected);
            assert_eq!(check(op, 6, 1), Err(Violation::UnexpectedValue { op, status, len_bytes: 1 }));
        }
        let max = TOPOLOGY_LEN_MAX_BYTES as u32;
        assert_eq!(check(Op::Topology, 0, max), Ok(CheckedHeader::Found { value_len_bytes: max as usize }));
        assert_eq!(check(Op::Topology, 1, 0), Ok(CheckedHeader::NotFound));
        assert!(check(Op::Topology, 0, max + 1).is_err() && check(Op::Topology, 0, 0).is_err());
    }

    #[test]
    fn only_requests_with_keys_can_find_keys_of_another_type() {
        for op in Op::ALL {
            let status = Status::KeyTypeChanged;
            let expected = match op {
                Op::Get | Op::Exists | Op::GetColumns | Op::Floor | Op::Ceiling | Op::Cover | Op::Range | Op::Count => {
                    Ok(CheckedHeader::KeyTypeChanged)
                }
                _ => Err(Violation::UnexpectedStatus { op, status }),
            };
            assert_eq!(check(op, 7, 0), expected);
            assert_eq!(check(op, 7, 1), Err(Violation::UnexpectedValue { op, status, len_bytes: 1 }));
        }
    }

    #[test]
    fn a_notice_is_no_response() {
        for op in Op::ALL {
            let status = Status::Notice;
            assert_eq!(check(op, 8, 0), Err(Violation::UnexpectedStatus { op, status }));
            assert_eq!(check(op, 8, 16), Err(Violation::UnexpectedValue { op, status, len_bytes: 16 }));
        }
        for (len_bytes, is_valid) in [(0, false), (15, false), (16, true), (17, false)] {
            assert_eq!(check(Op::Track, 0, len_bytes).is_ok(), is_valid, "{len_bytes}");
        }
    }

    #[test]
    fn invalid_statuses_and_lengths_are_violations() {
        let max = VALUE_LEN_MAX_BYTES as u32;
        let too_long =
            |len_bytes| Violation::ValueLen { len_bytes: len_bytes as usize, max_bytes: VALUE_LEN_MAX_BYTES };
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
                let unexpected = Violation::UnexpectedValue { op, status, len_bytes: len_bytes as usize };
                assert_eq!(check(op, status as u32, len_bytes), Err(unexpected));
            }
        }
        for code in [9, 256, u32::MAX] {
            assert_eq!(check(Op::Get, code, 0), Err(Violation::Status { code }));
        }
    }
}
