//! The pages that a server sends as responses to floors.
//!
//! In: a row. Out: the page with only this row, and the header of the response. This module looks nothing up.

use std::path::Path;

use zero_kv::format::record::record_len_bytes;
use zero_kv::protocol::native::{PAGE_HEADER_LEN_BYTES, PageHeader, ResponseHeader};
use zero_kv::store::Unchecked;
use zero_kv::{Key, StoreError};
use zerocopy::IntoBytes;

/// The encoding of the pages of one file. The pages of different files can have different padding.
#[derive(Clone, Copy)]
pub(crate) struct FloorPages {
    record_align_bytes: usize,
}

impl FloorPages {
    /// Reads the alignment of the file's records.
    ///
    /// # Errors
    /// Fails if the file cannot be opened or its header is damaged.
    pub(crate) fn of_file(path: &Path) -> Result<Self, StoreError> {
        let record_align_bytes = Unchecked::open(path)?.layout().dimensions.record_align_bytes;
        Ok(FloorPages { record_align_bytes })
    }

    /// Returns the header of the response with the page of a row.
    pub(crate) fn response_header(self, key: Key<'_>, value_len_bytes: usize) -> ResponseHeader {
        let row_len_bytes = record_len_bytes(key, value_len_bytes, self.record_align_bytes);
        ResponseHeader::of_page(PAGE_HEADER_LEN_BYTES + row_len_bytes)
    }

    /// Appends the page of a row to `page`, which must be empty.
    pub(crate) fn write(self, key: Key<'_>, value: &[u8], page: &mut Vec<u8>) {
        let header = PageHeader {
            row_count: 1.into(),
            key_kind: key.kind() as u8,
            align_bits: self.record_align_bytes.trailing_zeros() as u8,
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
        page.resize(self.response_header(key, value.len()).value_len_bytes(), 0);
    }
}
