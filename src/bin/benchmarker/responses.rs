//! Reads and checks the responses to a pipeline while they arrive.
//!
//! In: received bytes in pieces of any size, and the expected header of each response. Out: counts, and a description
//! of the first wrong response. No response is assembled in memory: each piece of a value is compared with the file
//! when it arrives.

use zero_kv::protocol::native::{RESPONSE_HEADER_LEN_BYTES, Status, VALUE_LEN_MAX_BYTES};
use zerocopy::IntoBytes;

use crate::keys::{Pipeline, Table};
use crate::mix::Op;
use crate::resp::{LINE_END, ReplyPrefix, ResponseHead};
use crate::wire::Protocol;

#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) responses: usize,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) bytes: u64,
    /// Number of responses with an unexpected status, length, or value.
    pub(crate) wrong: u64,
}

/// Reads and checks the responses to consecutive pipelines.
pub(crate) struct ResponseReader {
    protocol: Protocol,
    verify: bool,
    pub(crate) counts: Counts,
    /// A description of the first wrong response in any pipeline.
    pub(crate) first_wrong: Option<String>,
    /// The received bytes of an incomplete response head. A head consists of the bytes before the value.
    head: Vec<u8>,
    /// Number of bytes of the current body that have been read. A body consists of a value and its terminator.
    body_at_bytes: usize,
    value_len_bytes: usize,
    body_len_bytes: usize,
    response_is_wrong: bool,
    /// The expected value of the response to the current request, from the file. `None` if the file has no such value.
    expected_value: Option<Vec<u8>>,
}

impl ResponseReader {
    pub(crate) fn new(protocol: Protocol, verify: bool) -> Self {
        ResponseReader {
            protocol,
            verify,
            counts: Counts::default(),
            first_wrong: None,
            head: Vec::new(),
            body_at_bytes: 0,
            value_len_bytes: 0,
            body_len_bytes: 0,
            response_is_wrong: false,
            expected_value: None,
        }
    }

    /// Prepares for the next pipeline, after all responses to the previous one were read.
    pub(crate) fn begin(&mut self) {
        self.counts = Counts::default();
    }

    /// Reads and checks the next received bytes. Fails if the end of a response cannot be determined.
    pub(crate) fn read(&mut self, mut bytes: &[u8], pipeline: &Pipeline, table: &Table) -> Result<(), String> {
        self.counts.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.body_at_bytes < self.body_len_bytes {
                bytes = self.read_body(bytes, pipeline, table)?;
                continue;
            }
            if !self.verify && self.head.is_empty() {
                bytes = match self.protocol {
                    Protocol::Native => self.read_expected(bytes, pipeline),
                    Protocol::Resp => self.read_expected_resp(bytes, pipeline),
                };
                if bytes.is_empty() {
                    break;
                }
            }
            if self.counts.responses == pipeline.requests.len() {
                return Err(format!("{} bytes follow the last response", bytes.len()));
            }
            let Some(head) = self.take_head(&mut bytes, pipeline)? else { return Ok(()) };
            self.read_head(&head, pipeline)?;
            if !head.value_start.is_empty() {
                self.read_value(&head.value_start, pipeline, table);
            }
        }
        Ok(())
    }

    /// Counts the responses before the first unexpected or incomplete one, and returns the bytes from that response
    /// on. This fast path uses little processor time, which leaves more to the server. It uses the expected header to
    /// compute where the next response begins, so the processor can continue before the received header is loaded.
    fn read_expected<'b>(&mut self, mut bytes: &'b [u8], pipeline: &Pipeline) -> &'b [u8] {
        let (mut responses, mut hits) = (0, 0);
        for expected in pipeline.expected.get(self.counts.responses..).unwrap_or_default() {
            let len_bytes = RESPONSE_HEADER_LEN_BYTES + expected.value_len_bytes();
            let Some((response, rest)) = bytes.split_at_checked(len_bytes) else { break };
            if !response.starts_with(expected.as_bytes()) {
                break;
            }
            bytes = rest;
            responses += 1;
            hits += u64::from(expected.status_code() == Status::Ok as u32);
        }
        self.count_expected(responses, hits);
        bytes
    }

    /// Does the same as [`Self::read_expected`] for the Redis protocol.
    fn read_expected_resp<'b>(&mut self, mut bytes: &'b [u8], pipeline: &Pipeline) -> &'b [u8] {
        let (mut responses, mut hits) = (0, 0);
        for request in self.counts.responses..pipeline.requests.len() {
            let (op, expected) = (pipeline.requests.op(request), pipeline.expected[request]);
            let Some(prefix) = ReplyPrefix::expected(op, expected) else { break };
            if !prefix.matches(bytes) {
                break;
            }
            let is_found = expected.status_code() == Status::Ok as u32;
            let mut len_bytes = prefix.len_bytes;
            if op != Op::Exists && is_found {
                len_bytes += expected.value_len_bytes() + LINE_END.len();
            }
            let Some((response, rest)) = bytes.split_at_checked(len_bytes) else { break };
            if !response.ends_with(LINE_END) {
                break;
            }
            bytes = rest;
            responses += 1;
            hits += u64::from(is_found);
        }
        self.count_expected(responses, hits);
        bytes
    }

    fn count_expected(&mut self, responses: usize, hits: u64) {
        self.counts.responses += responses;
        self.counts.hits += hits;
        self.counts.misses += responses as u64 - hits;
    }

    /// Removes the head of the next response from `bytes`, and parses it. If the head is incomplete, stores its bytes
    /// for the next call, and returns `None`.
    #[inline]
    fn take_head(&mut self, bytes: &mut &[u8], pipeline: &Pipeline) -> Result<Option<ResponseHead>, String> {
        let op = pipeline.requests.op(self.counts.responses);
        let expected = pipeline.expected[self.counts.responses];
        if self.head.is_empty()
            && let Some(len_bytes) = self.protocol.head_len_bytes(op, bytes)
        {
            let (head, rest) = bytes.split_at(len_bytes);
            *bytes = rest;
            return self.protocol.read_head(op, expected, head).map(Some);
        }
        while let Some((byte, rest)) = bytes.split_first() {
            self.head.push(*byte);
            *bytes = rest;
            if self.protocol.head_len_bytes(op, &self.head).is_some() {
                let head = self.protocol.read_head(op, expected, &self.head);
                self.head.clear();
                return head.map(Some);
            }
        }
        Ok(None)
    }

    #[inline]
    fn read_head(&mut self, head: &ResponseHead, pipeline: &Pipeline) -> Result<(), String> {
        let (status, len_bytes) = (head.header.status_code(), head.header.value_len_bytes());
        let request = self.counts.responses;
        let key = || pipeline.requests.key(request);
        if len_bytes > VALUE_LEN_MAX_BYTES {
            return Err(format!(
                "key {}: the header states a value of {len_bytes} bytes, but the maximum is {VALUE_LEN_MAX_BYTES}",
                key(),
            ));
        }
        self.counts.hits += u64::from(status == Status::Ok as u32);
        self.counts.misses += u64::from(status == Status::NotFound as u32);
        let expected = pipeline.expected[request];
        let (expected_status, expected_bytes) = (expected.status_code(), expected.value_len_bytes());
        if let Some(reply) = &head.unexpected {
            self.wrong(|| format!("key {}: expected {}, got {reply}", key(), status_name(expected_status)));
        } else if status != expected_status {
            let (expected, got) = (status_name(expected_status), status_name(status));
            self.wrong(|| format!("key {}: expected {expected}, got {got}", key()));
        } else if len_bytes != expected_bytes {
            let expected = if expected_bytes == 0 { "no value".to_owned() } else { format!("{expected_bytes} bytes") };
            self.wrong(|| format!("key {}: expected {expected}, got {len_bytes} bytes", key()));
        }
        self.body_at_bytes = 0;
        self.value_len_bytes = len_bytes;
        self.body_len_bytes = len_bytes + head.tail_len_bytes;
        if self.body_len_bytes == 0 {
            self.end_response();
        }
        Ok(())
    }

    /// Reads the bytes of the current value and its terminator, as far as `bytes` contains them. Returns the remaining
    /// bytes.
    #[inline]
    fn read_body<'b>(&mut self, bytes: &'b [u8], pipeline: &Pipeline, table: &Table) -> Result<&'b [u8], String> {
        let value_left_bytes = self.value_len_bytes.saturating_sub(self.body_at_bytes);
        let (piece, rest) = bytes.split_at(bytes.len().min(value_left_bytes));
        if !piece.is_empty() {
            self.read_value(piece, pipeline, table);
        }
        let (tail, rest) = rest.split_at(rest.len().min(self.body_len_bytes - self.body_at_bytes));
        if !tail.is_empty() {
            // Only the Redis protocol has a terminator.
            let tail_at_bytes = self.body_at_bytes - self.value_len_bytes;
            if !LINE_END[tail_at_bytes..].starts_with(tail) {
                let (key, len_bytes) = (pipeline.requests.key(self.counts.responses), self.value_len_bytes);
                return Err(format!("key {key}: the value of {len_bytes} bytes is not followed by a line end"));
            }
            self.body_at_bytes += tail.len();
        }
        if self.body_at_bytes == self.body_len_bytes {
            self.end_response();
        }
        Ok(rest)
    }

    #[inline]
    fn read_value(&mut self, piece: &[u8], pipeline: &Pipeline, table: &Table) {
        let end_bytes = self.body_at_bytes + piece.len();
        if self.verify && !self.response_is_wrong {
            let key = pipeline.requests.key(self.counts.responses);
            if self.body_at_bytes == 0 {
                // The value is looked up only for the first piece.
                let mut copy = self.expected_value.take().unwrap_or_default();
                copy.clear();
                let found = table.look_up_expected(key, &mut copy);
                self.expected_value = found.unwrap_or(false).then_some(copy);
            }
            if self.expected_value.as_ref().and_then(|value| value.get(self.body_at_bytes..end_bytes)) != Some(piece) {
                let at_bytes = self.body_at_bytes;
                self.wrong(|| format!("key {key}: the value differs from the file's in bytes {at_bytes}..{end_bytes}"));
            }
        }
        self.body_at_bytes = end_bytes;
    }

    #[inline]
    fn end_response(&mut self) {
        self.counts.responses += 1;
        self.response_is_wrong = false;
    }

    #[cold]
    fn wrong(&mut self, reason: impl FnOnce() -> String) {
        self.counts.wrong += 1;
        self.response_is_wrong = true;
        self.first_wrong.get_or_insert_with(reason);
    }
}

fn status_name(code: u32) -> String {
    match Status::from_code(code) {
        Some(status) => format!("{status:?}"),
        None => format!("unknown status {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::Encoding;
    use crate::keys::Distribution;
    use zero_kv::bake::{self, Keys, Options};
    use zero_kv::protocol::native::ResponseHeader;
    use zero_kv::{Key, KeyKind, MappedStore};

    /// A pipeline of four `get` and two `exists` requests, and the bytes of the responses. Two of the `get` requests
    /// find values that are not empty, one finds an empty value, and one is for an absent key.
    struct Exchange {
        _folder: tempfile::TempDir,
        protocol: Protocol,
        table: Table,
        pipeline: Pipeline,
        bytes: Vec<u8>,
        /// For each byte of `bytes`, true if the byte belongs to a value.
        is_value: Vec<bool>,
    }

    impl Exchange {
        fn new(protocol: Protocol, keys: KeyKind) -> Exchange {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("storage.db");
            let mut options = Options::default();
            options.replace = zero_kv::replace::ReplaceRules::any();
            options.keys = match keys {
                KeyKind::U64 => Keys::U64,
                KeyKind::Bytes => Keys::BYTES,
            };
            bake::bake_csv("1,one\n2,second\n3,\n".as_bytes(), &path, &options).unwrap();
            let table = Table::new(
                MappedStore::open(&path).unwrap(),
                protocol,
                Distribution::Uniform,
                0.0,
                0.0,
                1,
                Encoding::Value,
            )
            .unwrap();
            let mut pipeline = Pipeline::new(protocol, keys);
            let found = |len_bytes| ResponseHeader::of_value(len_bytes).unwrap();
            let not_found = ResponseHeader::bare(Status::NotFound);
            for (op, key, expected) in [
                (Op::Get, 1, found(3)),
                (Op::Get, 2, found(6)),
                (Op::Get, 3, found(0)),
                (Op::Get, 4, not_found),
                (Op::Exists, 1, found(0)),
                (Op::Exists, 4, not_found),
            ] {
                let text = key.to_string();
                pipeline.requests.push(op, if keys == KeyKind::U64 { key.into() } else { Key::from(&text) });
                pipeline.expected.push(expected);
            }
            let bytes = match protocol {
                Protocol::Native => [
                    &b"\0\0\0\0\0\0\0\x03one\0\0\0\0\0\0\0\x06second\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0"[..],
                    b"\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0",
                ]
                .concat(),
                Protocol::Resp => b"$3\r\none\r\n$6\r\nsecond\r\n$0\r\n\r\n$-1\r\n:1\r\n:0\r\n".to_vec(),
            };
            let mut is_value = vec![false; bytes.len()];
            for value in [&b"one"[..], b"second"] {
                let at = bytes.windows(value.len()).position(|window| window == value).unwrap();
                is_value[at..at + value.len()].fill(true);
            }
            Exchange { _folder: folder, protocol, table, pipeline, bytes, is_value }
        }

        /// Returns one exchange for each combination of a protocol and a kind of keys.
        fn all() -> [Exchange; 4] {
            let with_each_kind = |protocol| [KeyKind::U64, KeyKind::Bytes].map(|keys| Exchange::new(protocol, keys));
            let ([numbers, bytes], [resp_numbers, resp_bytes]) =
                (with_each_kind(Protocol::Native), with_each_kind(Protocol::Resp));
            [numbers, bytes, resp_numbers, resp_bytes]
        }

        /// Returns whether the reader reports a wrong response or an error if the byte at this offset is changed.
        fn detects_change_at(&self, at: usize, verify: bool) -> bool {
            let mut bytes = self.bytes.clone();
            bytes[at] ^= 1;
            let mut reader = ResponseReader::new(self.protocol, verify);
            let read = reader.read(&bytes, &self.pipeline, &self.table);
            let all_read = reader.counts.responses == self.pipeline.requests.len();
            read.is_err() || !all_read || reader.counts.wrong > 0
        }
    }

    #[test]
    fn counts_do_not_depend_on_how_responses_are_split() {
        for Exchange { protocol, table, pipeline, bytes, .. } in &Exchange::all() {
            for verify in [false, true] {
                let mut reader = ResponseReader::new(*protocol, verify);
                for first in 0..=bytes.len() {
                    for second in first..=bytes.len() {
                        reader.begin();
                        for piece in [&bytes[..first], &bytes[first..second], &bytes[second..]] {
                            reader.read(piece, pipeline, table).unwrap();
                        }
                        let Counts { responses, hits, misses, bytes: read_bytes, wrong } = reader.counts;
                        assert_eq!((responses, hits, misses, wrong), (6, 4, 2, 0), "{first} {second}");
                        assert_eq!(read_bytes, bytes.len() as u64);
                    }
                }
                assert_eq!(reader.first_wrong, None);
            }
        }
    }

    #[test]
    fn a_changed_byte_outside_of_values_is_always_detected() {
        for exchange in Exchange::all() {
            for at in (0..exchange.bytes.len()).filter(|at| !exchange.is_value[*at]) {
                assert!(exchange.detects_change_at(at, false), "{}, byte {at}", exchange.protocol.name());
            }
        }
    }

    #[test]
    fn with_verification_every_changed_byte_is_detected() {
        for exchange in Exchange::all() {
            for at in 0..exchange.bytes.len() {
                assert!(exchange.detects_change_at(at, true), "{}, byte {at}", exchange.protocol.name());
            }
        }
    }
}
