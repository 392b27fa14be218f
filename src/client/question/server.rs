//! Questions about the server itself.

use zerocopy::IntoBytes;

use super::{Question, Unanswered, number, refused};
use crate::client::info::Info;
use crate::protocol::native::{Op, Request};
use crate::protocol::reader::Answer;

const OLDER_SERVER: &str = "it may be a kv_store of an older version";
const NOT_ALLOWED: &str = "only root and the server's own user may ask, on its Unix socket";

/// What the server says of itself.
#[derive(Clone, Copy, Debug)]
pub struct AboutServer;

impl Question for AboutServer {
    type Answer = Info;

    fn op(&self) -> Op {
        Op::Info
    }

    fn push(&self, request: &mut Vec<u8>) {
        push_bare(Op::Info, request);
    }

    fn read(&self, answer: Answer<'_>) -> Result<Info, Unanswered> {
        match answer {
            Answer::Found(text) => Ok(Info::new(text)),
            _ => Err(refused("the request for information", OLDER_SERVER)),
        }
    }
}

/// Whether the server answers.
#[derive(Clone, Copy, Debug)]
pub struct Ping;

impl Question for Ping {
    type Answer = ();

    fn op(&self) -> Op {
        Op::Ping
    }

    fn push(&self, request: &mut Vec<u8>) {
        push_bare(Op::Ping, request);
    }

    fn read(&self, answer: Answer<'_>) -> Result<(), Unanswered> {
        match answer {
            Answer::Found(_) => Ok(()),
            _ => Err(refused("a ping", OLDER_SERVER)),
        }
    }
}

/// Has the server look at its file. The answer is the number of the attempt.
#[derive(Clone, Copy, Debug)]
pub struct Reload;

/// Has the server go back to the generation before. The answer is the number of the
/// attempt.
#[derive(Clone, Copy, Debug)]
pub struct Rollback;

impl Question for Reload {
    type Answer = u64;

    fn op(&self) -> Op {
        Op::Reload
    }

    fn push(&self, request: &mut Vec<u8>) {
        push_bare(Op::Reload, request);
    }

    fn read(&self, answer: Answer<'_>) -> Result<u64, Unanswered> {
        attempt(Op::Reload, answer, "the request for a reload")
    }
}

impl Question for Rollback {
    type Answer = u64;

    fn op(&self) -> Op {
        Op::Rollback
    }

    fn push(&self, request: &mut Vec<u8>) {
        push_bare(Op::Rollback, request);
    }

    fn read(&self, answer: Answer<'_>) -> Result<u64, Unanswered> {
        attempt(Op::Rollback, answer, "the request for a rollback")
    }
}

fn attempt(op: Op, answer: Answer<'_>, asked: &str) -> Result<u64, Unanswered> {
    match answer {
        Answer::Found(attempt) => number(op, attempt),
        _ => Err(refused(asked, NOT_ALLOWED)),
    }
}

fn push_bare(op: Op, request: &mut Vec<u8>) {
    request.extend_from_slice(Request::new(op, 0).as_bytes());
}
