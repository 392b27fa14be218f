//! What a pipeline's answers say, read as they arrive.
//!
//! In: bytes in pieces of any size, and the header that each answer must have. Out:
//! counts, and the first answer that was wrong. Nothing is allocated for an answer, and a value is not gathered: its
//! pieces are compared with the file where they lie.

use zero_kv::protocol::native::{RESPONSE_HEADER_LEN_BYTES, Status, VALUE_LEN_MAX_BYTES};
use zerocopy::IntoBytes;

use crate::keys::{Pipeline, Table};
use crate::mix::Op;
use crate::resp::{Beginning, LINE_END};
use crate::wire::{Head, Protocol};

/// What the answers so far of one pipeline were.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) answers: usize,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) bytes: u64,
    /// Answers whose status, length or value was not what the file has.
    pub(crate) wrong: u64,
}

/// Reads the answers of one pipeline after the other.
pub(crate) struct Answers {
    protocol: Protocol,
    verify: bool,
    pub(crate) counts: Counts,
    /// The first wrong answer of all.
    pub(crate) first_wrong: Option<String>,
    /// A head that has come in part.
    head: Vec<u8>,
    /// How much has come of what follows the head: a value, and what ends it.
    body_at_bytes: usize,
    value_len_bytes: usize,
    body_len_bytes: usize,
    answer_is_wrong: bool,
    /// The file's value of the answer that is being read, if there is one.
    wanted: Option<Vec<u8>>,
}

impl Answers {
    pub(crate) fn new(protocol: Protocol, verify: bool) -> Self {
        Answers {
            protocol,
            verify,
            counts: Counts::default(),
            first_wrong: None,
            head: Vec::new(),
            body_at_bytes: 0,
            value_len_bytes: 0,
            body_len_bytes: 0,
            answer_is_wrong: false,
            wanted: None,
        }
    }

    /// Begins the answers of the next pipeline, after the last one's were all read.
    pub(crate) fn begin(&mut self) {
        self.counts = Counts::default();
    }

    /// Reads the bytes that came next.
    ///
    /// # Errors
    /// If what comes after cannot be told any more: a length no answer has, or
    /// more answers than requests.
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
            if self.counts.answers == pipeline.requests.len() {
                return Err(format!("{} bytes came after the last answer", bytes.len()));
            }
            let Some(head) = self.take_head(&mut bytes, pipeline)? else { return Ok(()) };
            self.read_head(&head, pipeline)?;
        }
        Ok(())
    }

    /// Reads the answers that lie whole in `bytes` and are as expected, and
    /// returns what comes after them, for the careful loop to read. That loop
    /// alone would do; this one asks as little as possible of a machine that the
    /// server needs too: where an answer ends follows from the header that is
    /// expected, so that no header waits for the one before.
    fn read_expected<'b>(&mut self, mut bytes: &'b [u8], pipeline: &Pipeline) -> &'b [u8] {
        let (mut answers, mut hits) = (0, 0);
        for expected in pipeline.expected.get(self.counts.answers..).unwrap_or_default() {
            let len_bytes = RESPONSE_HEADER_LEN_BYTES + expected.value_len_bytes();
            let Some((answer, rest)) = bytes.split_at_checked(len_bytes) else { break };
            if !answer.starts_with(expected.as_bytes()) {
                break;
            }
            bytes = rest;
            answers += 1;
            hits += u64::from(expected.status_code() == Status::Ok as u32);
        }
        self.count_expected(answers, hits);
        bytes
    }

    /// The same for Redis's protocol.
    fn read_expected_resp<'b>(&mut self, mut bytes: &'b [u8], pipeline: &Pipeline) -> &'b [u8] {
        let (mut answers, mut hits) = (0, 0);
        for request in self.counts.answers..pipeline.requests.len() {
            let (op, expected) = (pipeline.requests.op(request), pipeline.expected[request]);
            let Some(beginning) = Beginning::of(op, expected) else { break };
            if !beginning.begins(bytes) {
                break;
            }
            let is_found = expected.status_code() == Status::Ok as u32;
            let mut len_bytes = beginning.len_bytes;
            if op == Op::Get && is_found {
                len_bytes += expected.value_len_bytes() + LINE_END.len();
            }
            let Some((answer, rest)) = bytes.split_at_checked(len_bytes) else { break };
            if !answer.ends_with(LINE_END) {
                break;
            }
            bytes = rest;
            answers += 1;
            hits += u64::from(is_found);
        }
        self.count_expected(answers, hits);
        bytes
    }

    fn count_expected(&mut self, answers: usize, hits: u64) {
        self.counts.answers += answers;
        self.counts.hits += hits;
        self.counts.misses += answers as u64 - hits;
    }

    /// The next answer's head, unless only a part of it has come.
    #[inline]
    fn take_head(&mut self, bytes: &mut &[u8], pipeline: &Pipeline) -> Result<Option<Head>, String> {
        let op = pipeline.requests.op(self.counts.answers);
        if self.head.is_empty()
            && let Some(len_bytes) = self.protocol.head_len_bytes(bytes)
        {
            let (head, rest) = bytes.split_at(len_bytes);
            *bytes = rest;
            return self.protocol.read_head(op, head).map(Some);
        }
        while let Some((byte, rest)) = bytes.split_first() {
            self.head.push(*byte);
            *bytes = rest;
            if self.protocol.head_len_bytes(&self.head).is_some() {
                let head = self.protocol.read_head(op, &self.head);
                self.head.clear();
                return head.map(Some);
            }
        }
        Ok(None)
    }

    #[inline]
    fn read_head(&mut self, head: &Head, pipeline: &Pipeline) -> Result<(), String> {
        let (status, len_bytes) = (head.header.status_code(), head.header.value_len_bytes());
        let request = self.counts.answers;
        let key = || pipeline.requests.key(request);
        if len_bytes > VALUE_LEN_MAX_BYTES {
            return Err(format!(
                "key {}: a value of {len_bytes} bytes was announced, {VALUE_LEN_MAX_BYTES} is the most there can be",
                key(),
            ));
        }
        self.counts.hits += u64::from(status == Status::Ok as u32);
        self.counts.misses += u64::from(status == Status::NotFound as u32);
        let expected = pipeline.expected[request];
        let (expected_status, expected_bytes) = (expected.status_code(), expected.value_len_bytes());
        if let Some(said) = &head.unexpected {
            self.wrong(|| format!("key {}: expected {}, got {said}", key(), status_name(expected_status)));
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
            self.end_answer();
        }
        Ok(())
    }

    /// Reads what there is of a value and what ends it, and returns what comes after.
    #[inline]
    fn read_body<'b>(&mut self, bytes: &'b [u8], pipeline: &Pipeline, table: &Table) -> Result<&'b [u8], String> {
        let value_left_bytes = self.value_len_bytes.saturating_sub(self.body_at_bytes);
        let (piece, rest) = bytes.split_at(bytes.len().min(value_left_bytes));
        if !piece.is_empty() {
            self.read_value(piece, pipeline, table);
        }
        let (tail, rest) = rest.split_at(rest.len().min(self.body_len_bytes - self.body_at_bytes));
        if !tail.is_empty() {
            // Only Redis's protocol has one.
            let tail_at_bytes = self.body_at_bytes - self.value_len_bytes;
            if !LINE_END[tail_at_bytes..].starts_with(tail) {
                let (key, len_bytes) = (pipeline.requests.key(self.counts.answers), self.value_len_bytes);
                return Err(format!("key {key}: no line end came after a value of {len_bytes} bytes"));
            }
            self.body_at_bytes += tail.len();
        }
        if self.body_at_bytes == self.body_len_bytes {
            self.end_answer();
        }
        Ok(rest)
    }

    #[inline]
    fn read_value(&mut self, piece: &[u8], pipeline: &Pipeline, table: &Table) {
        let end_bytes = self.body_at_bytes + piece.len();
        if self.verify && !self.answer_is_wrong {
            let key = pipeline.requests.key(self.counts.answers);
            if self.body_at_bytes == 0 {
                // Copied once, and not for each piece that arrives.
                let mut copy = self.wanted.take().unwrap_or_default();
                copy.clear();
                let found =
                    table.store.get_with(key, |value| value.map(|value| copy.extend_from_slice(value)).is_some());
                self.wanted = found.unwrap_or(false).then_some(copy);
            }
            if self.wanted.as_ref().and_then(|value| value.get(self.body_at_bytes..end_bytes)) != Some(piece) {
                let at_bytes = self.body_at_bytes;
                self.wrong(|| format!("key {key}: the value differs from the file's in bytes {at_bytes}..{end_bytes}"));
            }
        }
        self.body_at_bytes = end_bytes;
    }

    #[inline]
    fn end_answer(&mut self) {
        self.counts.answers += 1;
        self.answer_is_wrong = false;
    }

    #[cold]
    fn wrong(&mut self, reason: impl FnOnce() -> String) {
        self.counts.wrong += 1;
        self.answer_is_wrong = true;
        self.first_wrong.get_or_insert_with(reason);
    }
}

fn status_name(code: u32) -> String {
    match Status::from_code(code) {
        Some(status) => format!("{status:?}"),
        None => format!("status {code}, which there is none of"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Distribution;
    use zero_kv::bake::{self, Keys, Options};
    use zero_kv::protocol::native::ResponseHeader;
    use zero_kv::{Key, KeyKind, MappedStore};

    /// Gets of two values, an empty one and a missing one, and whether two keys are there,
    /// with the answers to them.
    struct Exchange {
        _folder: tempfile::TempDir,
        protocol: Protocol,
        table: Table,
        pipeline: Pipeline,
        bytes: Vec<u8>,
        /// Whether each byte is one of a value.
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
                KeyKind::Bytes => Keys::Bytes,
            };
            bake::bake_csv("1,one\n2,second\n3,\n".as_bytes(), &path, &options, &mut |_| ()).unwrap();
            let table =
                Table::new(MappedStore::open(&path).unwrap(), protocol, Distribution::Uniform, 0.0, 0.0, 1).unwrap();
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

        fn all() -> [Exchange; 4] {
            let of = |protocol| [KeyKind::U64, KeyKind::Bytes].map(|keys| Exchange::new(protocol, keys));
            let ([numbers, bytes], [resp_numbers, resp_bytes]) = (of(Protocol::Native), of(Protocol::Resp));
            [numbers, bytes, resp_numbers, resp_bytes]
        }

        /// Whether answers with this byte changed are noticed.
        fn notices_change_at(&self, at: usize, verify: bool) -> bool {
            let mut bytes = self.bytes.clone();
            bytes[at] ^= 1;
            let mut answers = Answers::new(self.protocol, verify);
            let read = answers.read(&bytes, &self.pipeline, &self.table);
            let all_read = answers.counts.answers == self.pipeline.requests.len();
            read.is_err() || !all_read || answers.counts.wrong > 0
        }
    }

    #[test]
    fn answers_are_the_same_in_whatever_pieces_they_come() {
        for Exchange { protocol, table, pipeline, bytes, .. } in &Exchange::all() {
            for verify in [false, true] {
                let mut answers = Answers::new(*protocol, verify);
                for first in 0..=bytes.len() {
                    for second in first..=bytes.len() {
                        answers.begin();
                        for piece in [&bytes[..first], &bytes[first..second], &bytes[second..]] {
                            answers.read(piece, pipeline, table).unwrap();
                        }
                        let Counts { answers: read, hits, misses, bytes: read_bytes, wrong } = answers.counts;
                        assert_eq!((read, hits, misses, wrong), (6, 4, 2, 0), "{first} {second}");
                        assert_eq!(read_bytes, bytes.len() as u64);
                    }
                }
                assert_eq!(answers.first_wrong, None);
            }
        }
    }

    #[test]
    fn any_changed_byte_beside_a_value_is_noticed_always() {
        for exchange in Exchange::all() {
            for at in (0..exchange.bytes.len()).filter(|at| !exchange.is_value[*at]) {
                assert!(exchange.notices_change_at(at, false), "{}, byte {at}", exchange.protocol.name());
            }
        }
    }

    #[test]
    fn any_changed_byte_is_noticed_when_values_are_verified() {
        for exchange in Exchange::all() {
            for at in 0..exchange.bytes.len() {
                assert!(exchange.notices_change_at(at, true), "{}, byte {at}", exchange.protocol.name());
            }
        }
    }
}
