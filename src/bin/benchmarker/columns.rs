//! Requests for the columns of typed tables, and the encoding of their responses.
//!
//! In: the schema of the file, and names of columns. Out: the bytes of requests and of expected responses.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, bail};
use zero_kv::Lookup;
use zero_kv::client::request::{Select, TypedRequest};
use zero_kv::protocol::native::{ResponseHeader, Status};
use zero_kv::typed::{Projection, Schema, TypedRow, Value, write_text};
use zero_kv::{Key, MappedStore};

use crate::mix::Op;
use crate::resp::{self, LINE_END};

/// The columns that requests ask for, and the form of the responses.
pub(crate) struct ColumnEncoding {
    pub(crate) op: Op,
    schema: Arc<Schema>,
    projection: Projection,
}

impl ColumnEncoding {
    /// Creates the encoding of the responses to an op for columns.
    ///
    /// # Errors
    /// Fails if the table has no schema, or does not have a column.
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

    /// Appends an encoded HMGET request.
    pub(crate) fn write_hmget(&self, key: Key<'_>, request: &mut Vec<u8>) {
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
