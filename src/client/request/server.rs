//! Requests that concern the server instead of the table.

use zerocopy::IntoBytes;

use super::{RequestError, TypedRequest, decode_number};
use crate::client::info::Info;
use crate::protocol::native::{Op, Request};
use crate::protocol::reader::Response;

const OLDER_SERVER: &str = "it may be a kv_store of an older version";
const NOT_ALLOWED: &str = "only root and the server's own user may send it, on the server's Unix socket";

/// Requests facts about the server and its table.
#[derive(Clone, Copy, Debug)]
pub struct GetInfo;

/// Requests an empty response.
#[derive(Clone, Copy, Debug)]
pub struct Ping;

/// Requests a reload of the file. The output is the number of the attempt.
#[derive(Clone, Copy, Debug)]
pub struct Reload;

/// Requests a rollback to the previous generation. The output is the number of the attempt.
#[derive(Clone, Copy, Debug)]
pub struct Rollback;

impl TypedRequest for GetInfo {
    type Output = Info;

    fn op(&self) -> Op {
        Op::Info
    }

    fn encode(&self, requests: &mut Vec<u8>) {
        encode_without_key(Op::Info, requests);
    }

    fn decode(&self, response: Response<'_>) -> Result<Info, RequestError> {
        match response {
            Response::Found(text) => Ok(Info::new(text)),
            _ => Err(RequestError::command("the request for information", OLDER_SERVER)),
        }
    }
}

impl TypedRequest for Ping {
    type Output = ();

    fn op(&self) -> Op {
        Op::Ping
    }

    fn encode(&self, requests: &mut Vec<u8>) {
        encode_without_key(Op::Ping, requests);
    }

    fn decode(&self, response: Response<'_>) -> Result<(), RequestError> {
        match response {
            Response::Found(_) => Ok(()),
            _ => Err(RequestError::command("a ping", OLDER_SERVER)),
        }
    }
}

impl TypedRequest for Reload {
    type Output = u64;

    fn op(&self) -> Op {
        Op::Reload
    }

    fn encode(&self, requests: &mut Vec<u8>) {
        encode_without_key(Op::Reload, requests);
    }

    fn decode(&self, response: Response<'_>) -> Result<u64, RequestError> {
        decode_attempt(Op::Reload, response, "the request for a reload")
    }
}

impl TypedRequest for Rollback {
    type Output = u64;

    fn op(&self) -> Op {
        Op::Rollback
    }

    fn encode(&self, requests: &mut Vec<u8>) {
        encode_without_key(Op::Rollback, requests);
    }

    fn decode(&self, response: Response<'_>) -> Result<u64, RequestError> {
        decode_attempt(Op::Rollback, response, "the request for a rollback")
    }
}

fn decode_attempt(op: Op, response: Response<'_>, command: &str) -> Result<u64, RequestError> {
    match response {
        Response::Found(attempt) => decode_number(op, attempt),
        _ => Err(RequestError::command(command, NOT_ALLOWED)),
    }
}

fn encode_without_key(op: Op, requests: &mut Vec<u8>) {
    requests.extend_from_slice(Request::new(op, 0).as_bytes());
}
