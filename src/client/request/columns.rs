//! Requests about the columns of typed tables.

use zerocopy::IntoBytes;
use zerocopy::big_endian::U16;

use super::{RequestError, TypedRequest};
use crate::protocol::native::{Op, Request, SCHEMA_LEN_MAX_BYTES, SelectHeader, push_long};
use crate::protocol::reader::Response;
use crate::protocol::response::Violation;
use crate::typed::{COLUMN_COUNT_MAX, NAME_LEN_MAX_BYTES, Projection, Schema};

const OLDER_SERVER: &str = "it may be a kv_store of an older version";

/// The length of a schema's header, and of the entry of each of its columns.
const SCHEMA_PART_LENS_BYTES: (usize, usize) = (8, 16);

const _: () = {
    let (header, entry) = SCHEMA_PART_LENS_BYTES;
    assert!(SCHEMA_LEN_MAX_BYTES == header + NAME_LEN_MAX_BYTES + COLUMN_COUNT_MAX * (entry + NAME_LEN_MAX_BYTES));
};

/// Requests the schema of the table. The decoded response is `None` if the table has no schema.
#[derive(Clone, Copy, Debug)]
pub struct GetSchema;

/// Selects the columns of a projection for later [`GetColumns`](super::GetColumns) requests on the same connection. The
/// decoded response is `false` if the table's schema is not the schema whose columns are projected. The connection then
/// has no selected columns.
#[derive(Clone, Copy, Debug)]
pub struct Select<'p>(&'p Projection);

impl<'p> Select<'p> {
    /// Creates a request for the columns of a projection.
    pub fn new(projection: &'p Projection) -> Select<'p> {
        Select(projection)
    }
}

impl TypedRequest for GetSchema {
    type Output = Option<Schema>;

    fn op(&self) -> Op {
        Op::Schema
    }

    fn encode(&self, requests: &mut Vec<u8>) {
        requests.extend_from_slice(Request::new(Op::Schema, 0).as_bytes());
    }

    fn decode(&self, response: Response<'_>) -> Result<Option<Schema>, RequestError> {
        match response {
            Response::NotFound => Ok(None),
            Response::Found(bytes) => {
                let violation = Violation::Schema { len_bytes: bytes.len() };
                Schema::decode(bytes).map(Some).map_err(|_| RequestError::Violation(violation))
            }
            refused => Err(RequestError::of(refused, "the request for the schema".to_owned(), OLDER_SERVER)),
        }
    }
}

impl TypedRequest for Select<'_> {
    type Output = bool;

    fn op(&self) -> Op {
        Op::Select
    }

    fn encode(&self, requests: &mut Vec<u8>) {
        let header = SelectHeader { schema_id: self.0.source_id().into() };
        // A schema has at most 4096 columns, so every position fits.
        let positions: Vec<U16> = self.0.positions().iter().map(|position| (*position as u16).into()).collect();
        push_long(Op::Select, &[header.as_bytes(), positions.as_bytes()], requests);
    }

    fn decode(&self, response: Response<'_>) -> Result<bool, RequestError> {
        match response {
            Response::Found(_) => Ok(true),
            // A server responds with an error if its table has no schema.
            Response::SchemaChanged | Response::Error => Ok(false),
            refused => Err(RequestError::of(refused, "the selection of columns".to_owned(), OLDER_SERVER)),
        }
    }
}
