//! The protocols that a server can be asked in.
//!
//! In: an op and a key, or the bytes that an answer begins with. Out: requests as they are
//! sent, and what such a beginning says. The load knows no protocol but through this, and
//! this knows nothing of when requests are sent or of what is right.

use clap::ValueEnum;
use zero_kv::protocol::native::{RESPONSE_HEADER_LEN_BYTES, Request, ResponseHeader};
use zerocopy::{FromBytes, IntoBytes};

use crate::frames::Frames;
use crate::mix::Op;
use crate::resp;

/// How the server is spoken to.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Protocol {
    /// Frames of 16 bytes, see docs/PROTOCOL.md
    Native,
    /// Redis's, version 2; keys are decimal text
    Resp,
}

impl Protocol {
    /// The name that the command line gives it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::Native => "native",
            Protocol::Resp => "resp",
        }
    }

    /// A pipeline without requests.
    pub(crate) fn no_requests(self) -> Requests {
        match self {
            Protocol::Native => Requests::Native(Vec::new()),
            Protocol::Resp => Requests::Resp(Frames::default()),
        }
    }

    /// How long the head is that `bytes` begin with; `None` if not all of it is there.
    #[inline]
    pub(crate) fn head_len_bytes(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Protocol::Native => (bytes.len() >= RESPONSE_HEADER_LEN_BYTES).then_some(RESPONSE_HEADER_LEN_BYTES),
            Protocol::Resp => resp::line_len_bytes(bytes),
        }
    }

    /// Reads a whole head of an answer to `op`.
    ///
    /// # Errors
    /// Why nothing after it can be told apart.
    #[inline]
    pub(crate) fn read_head(self, op: Op, head: &[u8]) -> Result<Head, String> {
        match self {
            Protocol::Native => {
                let header = ResponseHeader::read_from_bytes(head).expect("a native head is a header");
                Ok(Head { header, tail_len_bytes: 0, unexpected: None })
            }
            Protocol::Resp => resp::read_head(op, head),
        }
    }
}

/// What an answer begins with.
pub(crate) struct Head {
    /// The status, and how long a value follows: what a native server says in these words.
    pub(crate) header: ResponseHeader,
    /// What follows the value and is always the same.
    pub(crate) tail_len_bytes: usize,
    /// What the server said, if it is no answer to the request.
    pub(crate) unexpected: Option<String>,
}

/// Requests of one pipeline, as they are sent.
pub(crate) enum Requests {
    Native(Vec<Request>),
    Resp(Frames),
}

impl Requests {
    pub(crate) fn len(&self) -> usize {
        match self {
            Requests::Native(requests) => requests.len(),
            Requests::Resp(frames) => frames.len(),
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Requests::Native(requests) => requests.as_bytes(),
            Requests::Resp(frames) => frames.as_bytes(),
        }
    }

    pub(crate) fn clear(&mut self) {
        match self {
            Requests::Native(requests) => requests.clear(),
            Requests::Resp(frames) => frames.clear(),
        }
    }

    pub(crate) fn push(&mut self, op: Op, key: u64) {
        match self {
            Requests::Native(requests) => requests.push(Request::new(op.native(), key)),
            Requests::Resp(frames) => frames.push_with(|bytes| resp::write_request(op, key, bytes)),
        }
    }

    #[inline]
    pub(crate) fn op(&self, request: usize) -> Op {
        match self {
            Requests::Native(requests) => Op::of_native(requests[request].op_code()),
            Requests::Resp(frames) => resp::op(frames.get(request)),
        }
    }

    #[inline]
    pub(crate) fn key(&self, request: usize) -> u64 {
        match self {
            Requests::Native(requests) => requests[request].key(),
            Requests::Resp(frames) => resp::key(frames.get(request)),
        }
    }
}
