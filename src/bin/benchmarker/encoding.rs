//! The encoding of expected responses, and of requests for columns.
//!
//! In: a row, and for columns, the schema of the file. Out: the bytes of requests and of the response with only this
//! row. This module looks nothing up.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use zero_kv::client::request::{Select, TypedRequest};
use zero_kv::format::form::{KeyForm, RecordForm};
use zero_kv::format::record::record_len_bytes;
use zero_kv::protocol::native::{PAGE_HEADER_LEN_BYTES, PageHeader, ResponseHeader, Status};
use zero_kv::store::Unchecked;
use zero_kv::typed::{Projection, Schema, TypedRow, Value, write_text};
use zero_kv::{Key, Lookup, MappedStore, StoreError};
use zerocopy::IntoBytes;

use crate::mix::Op;
use crate::resp::{self, LINE_END};
use crate::wire::{Protocol, Requests};

/// The encoding of a row in the responses to the requests that a table encodes.
pub(crate) enum Encoding {
    /// The value of the key, for `get` requests.
    Value,
    /// The key and the value of the floor, for `floor` requests.
    Floor(FloorEncoding),
    /// Columns of the row, for requests for columns.
    Columns(ColumnEncoding),
}

impl Encoding {
    pub(crate) fn op(&self) -> Op {
        match self {
            Encoding::Value => Op::Get,
            Encoding::Floor(_) => Op::Floor,
            Encoding::Columns(encoding) => encoding.op,
        }
    }

    pub(crate) fn response_header(&self, key: Key<'_>, value: &[u8]) -> anyhow::Result<ResponseHeader> {
        Ok(match self {
            Encoding::Value => ResponseHeader::of_value(value.len()).expect("a file has no value that is too long"),
            Encoding::Floor(encoding) => encoding.response_header(key, value.len()),
            Encoding::Columns(encoding) => encoding.response_header(value)?,
        })
    }

    pub(crate) fn push_request(&self, key: Key<'_>, requests: &mut Requests) {
        match self {
            Encoding::Columns(encoding) if encoding.op == Op::Hmget => {
                requests.push_with(|request| encoding.write_hmget(key, request));
            }
            encoding => requests.push(encoding.op(), key),
        }
    }
}

/// The encoding of a row in the response to a floor.
#[derive(Clone, Copy)]
pub(crate) enum FloorEncoding {
    /// A page of the native protocol. The pages of different files can have different padding.
    Page { form: RecordForm, record_align_bytes: usize },
    /// The key and the value in a reply of the Redis protocol, without the line that begins the array.
    Bulks,
}

impl FloorEncoding {
    /// Reads the alignment of the file's records, if the encoding depends on it.
    pub(crate) fn new(protocol: Protocol, path: &Path) -> Result<Self, StoreError> {
        Ok(match protocol {
            Protocol::Native => {
                let dimensions = Unchecked::open(path)?.layout().dimensions;
                let (form, record_align_bytes) = (dimensions.record_form(), dimensions.record_align_bytes);
                FloorEncoding::Page { form, record_align_bytes }
            }
            Protocol::Resp => FloorEncoding::Bulks,
        })
    }

    /// Returns the header of the response with a row, as a native header.
    pub(crate) fn response_header(self, key: Key<'_>, value_len_bytes: usize) -> ResponseHeader {
        ResponseHeader::of_page(match self {
            FloorEncoding::Page { form, record_align_bytes } => {
                PAGE_HEADER_LEN_BYTES + record_len_bytes(form, key.into(), value_len_bytes, record_align_bytes)
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
            FloorEncoding::Page { form, record_align_bytes } => {
                write_page(form, record_align_bytes, key, value, response);
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
fn write_page(form: RecordForm, record_align_bytes: usize, key: Key<'_>, value: &[u8], page: &mut Vec<u8>) {
    let header = PageHeader {
        row_count: 1.into(),
        record_form: form.code(),
        align_bits: record_align_bytes.trailing_zeros() as u8,
        more: 0.into(),
    };
    page.extend_from_slice(header.as_bytes());
    match (form.keys, key) {
        (_, Key::U64(key)) => page.extend_from_slice(&key.to_le_bytes()),
        (KeyForm::Fixed, Key::Bytes(key)) => page.extend_from_slice(key),
        (_, Key::Bytes(key)) => {
            page.extend_from_slice(&(key.len() as u16).to_le_bytes());
            page.extend_from_slice(key);
        }
    }
    page.resize(PAGE_HEADER_LEN_BYTES + form.answer_at_bytes(key.into()), 0);
    let value_header = ResponseHeader::of_value(value.len()).expect("an opened file has no value that is too long");
    page.extend_from_slice(value_header.as_bytes());
    page.extend_from_slice(value);
}

/// The columns that requests ask for, and the form of the responses.
pub(crate) struct ColumnEncoding {
    pub(crate) op: Op,
    schema: Arc<Schema>,
    projection: Projection,
}

impl ColumnEncoding {
    /// Creates the encoding of the responses to an op for columns.
    pub(crate) fn new(op: Op, store: &MappedStore, columns: &[String]) -> anyhow::Result<ColumnEncoding> {
        let Some(schema) = store.schema() else {
            bail!("the table has no schema, but the requests are for columns: pass --db with a typed table");
        };
        let projection = match op {
            Op::Hgetall => Projection::of_all(&schema),
            _ => Projection::new(&schema, columns).context("--columns")?,
        };
        Ok(ColumnEncoding { op, schema, projection })
    }

    /// Returns the request that each connection sends first, if the op needs one.
    pub(crate) fn first_request(&self) -> Option<Vec<u8>> {
        let mut request = Vec::new();
        (self.op == Op::GetColumns).then(|| Select::new(&self.projection).encode(&mut request))?;
        Some(request)
    }

    fn write_hmget(&self, key: Key<'_>, request: &mut Vec<u8>) {
        let columns = self.projection.schema().columns();
        write!(request, "*{}\r\n$5\r\nHMGET\r\n", 2 + columns.len()).expect("a vector takes all bytes");
        resp::write_key(key, request);
        columns.iter().for_each(|column| resp::write_key(Key::Bytes(column.name.as_bytes()), request));
    }

    /// Returns the header of the response with the columns of a row, as a native header.
    pub(crate) fn response_header(&self, value: &[u8]) -> anyhow::Result<ResponseHeader> {
        let mut response = Vec::new();
        self.write(value, &mut response)?;
        let header = ResponseHeader::of_value(response.len()).context("a row that is too long")?;
        let has_no_fields = self.op == Op::Hgetall && response == b"0";
        Ok(if has_no_fields { ResponseHeader::bare(Status::NotFound) } else { header })
    }

    /// Appends the response with the columns of a row to `response`, which must be empty: the projected row, or a Redis
    /// reply without its first byte and its last line end.
    pub(crate) fn write(&self, value: &[u8], response: &mut Vec<u8>) -> anyhow::Result<()> {
        let row = TypedRow::new(&self.schema, value)?;
        if self.op == Op::GetColumns {
            return Ok(self.projection.project(&row, response)?);
        }
        let (mut elements, mut text, mut element_count) = (Vec::new(), Vec::new(), 0);
        for (column, position) in self.projection.schema().columns().iter().zip(self.projection.positions()) {
            let value = row.value(*position)?;
            if self.op == Op::Hgetall {
                // A hash has no null fields.
                if value == Value::Null {
                    continue;
                }
                resp::write_key(Key::Bytes(column.name.as_bytes()), &mut elements);
                element_count += 1;
            }
            element_count += 1;
            if value == Value::Null {
                elements.extend_from_slice(b"$-1\r\n");
                continue;
            }
            text.clear();
            write_text(&value, &mut text);
            resp::write_key(Key::Bytes(&text), &mut elements);
        }
        write!(response, "{element_count}\r\n")?;
        response.extend_from_slice(&elements);
        response.truncate(response.len() - LINE_END.len());
        Ok(())
    }
}
