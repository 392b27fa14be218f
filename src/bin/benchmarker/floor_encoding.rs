//! The encoding of the responses to floors.
//!
//! In: a row. Out: the bytes of the response with only this row. This module looks nothing up.

use std::io::Write;
use std::path::Path;

use zero_kv::format::record::record_len_bytes;
use zero_kv::protocol::native::{PAGE_HEADER_LEN_BYTES, PageHeader, ResponseHeader};
use zero_kv::store::Unchecked;
use zero_kv::{Key, StoreError};
use zerocopy::IntoBytes;

use crate::resp;
use crate::wire::Protocol;

/// The encoding of a row in the response to a floor.
#[derive(Clone, Copy)]
pub(crate) enum FloorEncoding {
    /// A page of the native protocol. The pages of different files can have different padding.
    Page { record_align_bytes: usize },
    /// The key and the value in a reply of the Redis protocol, without the line that begins the array.
    Bulks,
}

impl FloorEncoding {
    /// Reads the alignment of the file's records, if the encoding depends on it.
    ///
    /// # Errors
    /// Fails if the file cannot be opened or its header is damaged.
    pub(crate) fn new(protocol: Protocol, path: &Path) -> Result<Self, StoreError> {
        Ok(match protocol {
            Protocol::Native => {
                let record_align_bytes = Unchecked::open(path)?.layout().dimensions.record_align_bytes;
                FloorEncoding::Page { record_align_bytes }
            }
            Protocol::Resp => FloorEncoding::Bulks,
        })
    }

    /// Returns the header of the response with a row, as a native header.
    pub(crate) fn response_header(self, key: Key<'_>, value_len_bytes: usize) -> ResponseHeader {
        ResponseHeader::of_page(match self {
            FloorEncoding::Page { record_align_bytes } => {
                PAGE_HEADER_LEN_BYTES + record_len_bytes(key, value_len_bytes, record_align_bytes)
            }
            FloorEncoding::Bulks => {
                let key_len_bytes = resp::key_len_bytes(key);
                resp::bulk_len_bytes(key_len_bytes) + resp::bulk_len_bytes(value_len_bytes) - resp::LINE_END.len()
            }
        })
    }

    /// Appends the encoded row to `response`, which must be empty.
    pub(crate) fn write(self, key: Key<'_>, value: &[u8], response: &mut Vec<u8>) {
        match self {
            FloorEncoding::Page { record_align_bytes } => {
                write_page(record_align_bytes, key, value, response);
                response.resize(self.response_header(key, value.len()).value_len_bytes(), 0);
            }
            FloorEncoding::Bulks => {
                resp::write_key(key, response);
                write!(response, "${}\r\n", value.len()).expect("a vector takes all bytes");
                response.extend_from_slice(value);
            }
        }
    }
}

/// Appends the page with a row, without the padding after the value.
fn write_page(record_align_bytes: usize, key: Key<'_>, value: &[u8], page: &mut Vec<u8>) {
    let header = PageHeader {
        row_count: 1.into(),
        key_kind: key.kind() as u8,
        align_bits: record_align_bytes.trailing_zeros() as u8,
        more: 0.into(),
    };
    page.extend_from_slice(header.as_bytes());
    match key {
        Key::U64(key) => page.extend_from_slice(&key.to_le_bytes()),
        Key::Bytes(key) => {
            page.extend_from_slice(&(key.len() as u16).to_le_bytes());
            page.extend_from_slice(key);
        }
    }
    page.resize(PAGE_HEADER_LEN_BYTES + key.prefix_len_bytes(), 0);
    let value_header = ResponseHeader::of_value(value.len()).expect("an opened file has no value that is too long");
    page.extend_from_slice(value_header.as_bytes());
    page.extend_from_slice(value);
}
