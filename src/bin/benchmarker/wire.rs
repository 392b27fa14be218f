//! Encoding of requests, and parsing of response heads, in both protocols.
//!
//! In: an op and a key, or the first bytes of a response. Out: encoded requests, and parsed heads. Other modules use a
//! protocol only through this module. This module neither sends requests nor checks responses.

use std::ops::Range;

use clap::ValueEnum;
use zero_kv::protocol::native::{self, LONG_HEADER_LEN_BYTES, RESPONSE_HEADER_LEN_BYTES, Request, ResponseHeader};
use zero_kv::{Key, KeyKind};
use zerocopy::{FromBytes, IntoBytes};

use crate::mix::Op;
use crate::resp::{self, ResponseHead};

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Protocol {
    /// The native protocol, described in docs/PROTOCOL.md
    Native,
    /// The Redis protocol, RESP 2; keys that are numbers are sent as decimal text
    Resp,
}

impl Protocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::Native => "native",
            Protocol::Resp => "resp",
        }
    }

    pub(crate) fn empty_requests(self, keys: KeyKind) -> Requests {
        match (self, keys) {
            (Protocol::Native, KeyKind::U64) => Requests::Native(Vec::new()),
            (Protocol::Native, KeyKind::Bytes) => Requests::Framed(Framing::Long, Frames::default()),
            (Protocol::Resp, keys) => Requests::Framed(Framing::Resp(keys), Frames::default()),
        }
    }

    /// Returns the length of the head of a response to `op` at the beginning of `bytes`, or `None` if the head is
    /// incomplete.
    #[inline]
    pub(crate) fn head_len_bytes(self, op: Op, bytes: &[u8]) -> Option<usize> {
        match self {
            Protocol::Native => (bytes.len() >= RESPONSE_HEADER_LEN_BYTES).then_some(RESPONSE_HEADER_LEN_BYTES),
            Protocol::Resp => resp::head_len_bytes(op, bytes),
        }
    }

    /// Parses the complete head of a response to `op`. Only the reply with a hash depends on the expected header. Fails
    /// if the end of the response cannot be determined.
    #[inline]
    pub(crate) fn read_head(self, op: Op, expected: ResponseHeader, head: &[u8]) -> Result<ResponseHead, String> {
        match self {
            Protocol::Native => {
                let header = ResponseHeader::read_from_bytes(head).expect("a native head is a header");
                Ok(ResponseHead { header, value_start: Vec::new(), tail_len_bytes: 0, unexpected: None })
            }
            Protocol::Resp => resp::read_head(op, expected, head),
        }
    }
}

/// The encoded requests of one pipeline, or of all rows of a table.
pub(crate) enum Requests {
    /// Requests of equal length, for keys that are numbers.
    Native(Vec<Request>),
    /// Requests of any length.
    Framed(Framing, Frames),
}

impl Requests {
    pub(crate) fn len(&self) -> usize {
        match self {
            Requests::Native(requests) => requests.len(),
            Requests::Framed(_, frames) => frames.len(),
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Requests::Native(requests) => requests.as_bytes(),
            Requests::Framed(_, frames) => frames.as_bytes(),
        }
    }

    pub(crate) fn clear(&mut self) {
        match self {
            Requests::Native(requests) => requests.clear(),
            Requests::Framed(_, frames) => frames.clear(),
        }
    }

    /// Adds a request. The key must be of the kind that the list was created for.
    pub(crate) fn push(&mut self, op: Op, key: Key<'_>) {
        match self {
            Requests::Native(requests) => {
                requests.push(Request::new(op.native(), key.as_u64().expect("a table has keys of one kind")));
            }
            Requests::Framed(framing, frames) => frames.push_with(|bytes| framing.write(op, key, bytes)),
        }
    }

    /// Adds a request that `write` appends. The requests must be of different lengths.
    pub(crate) fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        match self {
            Requests::Native(_) => unreachable!("requests of equal length are not written as bytes"),
            Requests::Framed(_, frames) => frames.push_with(write),
        }
    }

    /// Adds a request with this op and the same key as `gets[get]`.
    #[inline]
    pub(crate) fn push_like(&mut self, op: Op, gets: &Requests, get: usize) {
        match (self, gets) {
            (Requests::Native(requests), Requests::Native(gets)) => {
                requests.push(Request::new(op.native(), gets[get].key()));
            }
            (Requests::Framed(framing, frames), Requests::Framed(_, gets)) => {
                frames.push_with(|bytes| framing.write_like(op, gets.get(get), bytes));
            }
            _ => unreachable!("{ONE_KIND}"),
        }
    }

    pub(crate) fn extend_from(&mut self, other: &Requests, range: Range<usize>) {
        match (self, other) {
            (Requests::Native(requests), Requests::Native(other)) => requests.extend_from_slice(&other[range]),
            (Requests::Framed(_, frames), Requests::Framed(_, other)) => frames.extend_from(other, range),
            _ => unreachable!("{ONE_KIND}"),
        }
    }

    #[inline]
    pub(crate) fn op(&self, request: usize) -> Op {
        match self {
            Requests::Native(requests) => Op::from_native(native::Op::from_code(requests[request].op_code())),
            Requests::Framed(framing, frames) => framing.op(frames.get(request)),
        }
    }

    #[inline]
    pub(crate) fn key(&self, request: usize) -> Key<'_> {
        match self {
            Requests::Native(requests) => Key::U64(requests[request].key()),
            Requests::Framed(framing, frames) => framing.key(frames.get(request)),
        }
    }
}

const ONE_KIND: &str = "requests for one table are of one kind";

/// An encoding in which requests have different lengths.
#[derive(Clone, Copy)]
pub(crate) enum Framing {
    /// Long native requests, for keys that are bytes.
    Long,
    /// The Redis protocol, for keys of this kind.
    Resp(KeyKind),
}

impl Framing {
    fn write(self, op: Op, key: Key<'_>, bytes: &mut Vec<u8>) {
        match self {
            Framing::Long => {
                let key = key.as_bytes().expect("a table has keys of one kind");
                native::push_long(op.native(), &[key], bytes);
            }
            Framing::Resp(_) => resp::write_request(op, key, bytes),
        }
    }

    #[inline]
    fn write_like(self, op: Op, get: &[u8], bytes: &mut Vec<u8>) {
        match self {
            Framing::Long => {
                bytes.extend_from_slice(&op.native().long_code().to_be_bytes());
                bytes.extend_from_slice(&get[size_of::<u32>()..]);
            }
            Framing::Resp(_) => resp::write_like(op, get, bytes),
        }
    }

    #[inline]
    fn op(self, frame: &[u8]) -> Op {
        match self {
            Framing::Long => Op::from_native(native::Op::from_long_code(long_word(frame, 0))),
            Framing::Resp(_) => resp::op(frame),
        }
    }

    #[inline]
    fn key(self, frame: &[u8]) -> Key<'_> {
        match self {
            Framing::Long => Key::Bytes(&frame[LONG_HEADER_LEN_BYTES..][..long_word(frame, 4) as usize]),
            Framing::Resp(keys) => resp::key(keys, frame),
        }
    }
}

/// Reads one of the two 32-bit numbers in the header of a long request: the op, or the length of the key.
#[inline]
fn long_word(frame: &[u8], at_bytes: usize) -> u32 {
    u32::from_be_bytes(*frame[at_bytes..].first_chunk().expect("a long request has a header"))
}

#[derive(Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    /// For each frame (an encoded request), the offset in `bytes` where the frame ends.
    ends: Vec<usize>,
}

impl Frames {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    #[inline]
    pub(crate) fn get(&self, frame: usize) -> &[u8] {
        &self.bytes[self.start(frame)..self.ends[frame]]
    }

    /// Adds a frame (an encoded request), which consists of the bytes that `write` appends.
    #[inline]
    pub(crate) fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Appends the frames (encoded requests) of `other` with these indexes. The bytes of all these frames are copied in
    /// one operation.
    pub(crate) fn extend_from(&mut self, other: &Frames, frames: Range<usize>) {
        let (from, to) = (other.start(frames.start), other.start(frames.end));
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes[from..to]);
        self.ends.extend(other.ends[frames].iter().map(|end| begin + (end - from)));
    }

    #[inline]
    fn start(&self, frame: usize) -> usize {
        frame.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_can_be_parsed_and_copied_with_another_op() {
        let keys = [Key::U64(0), Key::U64(u64::MAX), Key::Bytes(b"a"), Key::Bytes(b"\r\n$1\r\n"), Key::Bytes(&[0; 24])];
        for protocol in [Protocol::Native, Protocol::Resp] {
            for key in keys {
                let (mut gets, mut requests) =
                    (protocol.empty_requests(key.kind()), protocol.empty_requests(key.kind()));
                gets.push(Op::Get, key);
                requests.extend_from(&gets, 0..1);
                requests.push(Op::Exists, key);
                requests.push_like(Op::Exists, &gets, 0);
                requests.push_like(Op::Get, &gets, 0);
                let read: Vec<(Op, Key<'_>)> = (0..4).map(|at| (requests.op(at), requests.key(at))).collect();
                assert_eq!(read, [Op::Get, Op::Exists, Op::Exists, Op::Get].map(|op| (op, key)), "{}", protocol.name());
                let bytes = requests.as_bytes();
                let (get, exists) = bytes.split_at(gets.as_bytes().len());
                assert_eq!((get, exists.len() % 2), (gets.as_bytes(), get.len() % 2));
                assert!(exists.ends_with(get), "{}", protocol.name());
            }
        }
    }

    #[test]
    fn a_long_request_has_the_documented_layout() {
        let mut requests = Protocol::Native.empty_requests(KeyKind::Bytes);
        requests.push(Op::Exists, Key::Bytes(b"ten bytes!"));
        requests.push(Op::Get, Key::Bytes(b"eight of"));
        let expected = b"\0\x01\0\x01\0\0\0\x0aten bytes!\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\x08eight of";
        assert_eq!(requests.as_bytes().escape_ascii().to_string(), expected.escape_ascii().to_string());
    }

    #[test]
    fn copied_frames_keep_their_bytes_and_bounds() {
        let mut all = Frames::default();
        for text in ["one", "", "three", "4"] {
            all.push_with(|bytes| bytes.extend_from_slice(text.as_bytes()));
        }
        let mut some = Frames::default();
        some.extend_from(&all, 2..4);
        some.extend_from(&all, 0..0);
        some.extend_from(&all, 0..3);
        assert_eq!(some.len(), 5);
        let found: Vec<&[u8]> = (0..5).map(|frame| some.get(frame)).collect();
        assert_eq!(found, [&b"three"[..], b"4", b"one", b"", b"three"]);
        assert_eq!(some.as_bytes(), b"three4onethree");
    }
}
