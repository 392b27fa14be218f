//! What a pipeline's answers say, read as they arrive.
//!
//! In: bytes in pieces of any size, and the header that each answer must have. Out:
//! counts, and the first answer that was wrong. Nothing is allocated for an answer, and a value is not gathered: its
//! pieces are compared with the file where they lie.

use zero_kv::protocol::native::{RESPONSE_HEADER_LEN_BYTES, ResponseHeader, Status, VALUE_LEN_MAX_BYTES};
use zerocopy::{FromBytes, IntoBytes};

use crate::keys::{Pipeline, Table};

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
    verify: bool,
    pub(crate) counts: Counts,
    /// The first wrong answer of all.
    pub(crate) first_wrong: Option<String>,
    /// A header that has come in part.
    header: [u8; RESPONSE_HEADER_LEN_BYTES],
    header_len_bytes: usize,
    /// The value that has come in part.
    value_at_bytes: usize,
    value_len_bytes: usize,
    answer_is_wrong: bool,
}

impl Answers {
    pub(crate) fn new(verify: bool) -> Self {
        Answers {
            verify,
            counts: Counts::default(),
            first_wrong: None,
            header: [0; RESPONSE_HEADER_LEN_BYTES],
            header_len_bytes: 0,
            value_at_bytes: 0,
            value_len_bytes: 0,
            answer_is_wrong: false,
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
            if self.value_at_bytes < self.value_len_bytes {
                bytes = self.read_value(bytes, pipeline, table);
                continue;
            }
            if !self.verify && self.header_len_bytes == 0 {
                bytes = self.read_expected(bytes, pipeline);
                if bytes.is_empty() {
                    break;
                }
            }
            if self.counts.answers == pipeline.requests.len() {
                return Err(format!("{} bytes came after the last answer", bytes.len()));
            }
            let Some(header) = self.take_header(&mut bytes) else { return Ok(()) };
            self.read_header(header, pipeline)?;
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
        self.counts.answers += answers;
        self.counts.hits += hits;
        self.counts.misses += answers as u64 - hits;
        bytes
    }

    #[inline]
    fn take_header(&mut self, bytes: &mut &[u8]) -> Option<ResponseHeader> {
        if self.header_len_bytes == 0
            && let Ok((header, rest)) = ResponseHeader::read_from_prefix(bytes)
        {
            *bytes = rest;
            return Some(header);
        }
        let (piece, rest) = bytes.split_at(bytes.len().min(RESPONSE_HEADER_LEN_BYTES - self.header_len_bytes));
        self.header[self.header_len_bytes..][..piece.len()].copy_from_slice(piece);
        self.header_len_bytes += piece.len();
        *bytes = rest;
        if self.header_len_bytes < RESPONSE_HEADER_LEN_BYTES {
            return None;
        }
        self.header_len_bytes = 0;
        Some(zerocopy::transmute!(self.header))
    }

    #[inline]
    fn read_header(&mut self, header: ResponseHeader, pipeline: &Pipeline) -> Result<(), String> {
        let (status, len_bytes) = (header.status_code(), header.value_len_bytes());
        let key = pipeline.requests[self.counts.answers].key();
        if len_bytes > VALUE_LEN_MAX_BYTES {
            return Err(format!(
                "key {key}: a value of {len_bytes} bytes was announced, {VALUE_LEN_MAX_BYTES} is the most there can be",
            ));
        }
        self.counts.hits += u64::from(status == Status::Ok as u32);
        self.counts.misses += u64::from(status == Status::NotFound as u32);
        let expected = pipeline.expected[self.counts.answers];
        let (expected_status, expected_bytes) = (expected.status_code(), expected.value_len_bytes());
        if status != expected_status {
            let (expected, got) = (status_name(expected_status), status_name(status));
            self.wrong(|| format!("key {key}: expected {expected}, got {got}"));
        } else if len_bytes != expected_bytes {
            let expected = if expected_bytes == 0 { "no value".to_owned() } else { format!("{expected_bytes} bytes") };
            self.wrong(|| format!("key {key}: expected {expected}, got {len_bytes} bytes"));
        }
        self.value_at_bytes = 0;
        self.value_len_bytes = len_bytes;
        if len_bytes == 0 {
            self.end_answer();
        }
        Ok(())
    }

    /// Reads what there is of a value, and returns what comes after it.
    #[inline]
    fn read_value<'b>(&mut self, bytes: &'b [u8], pipeline: &Pipeline, table: &Table) -> &'b [u8] {
        let (piece, rest) = bytes.split_at(bytes.len().min(self.value_len_bytes - self.value_at_bytes));
        let end_bytes = self.value_at_bytes + piece.len();
        if self.verify && !self.answer_is_wrong {
            let key = pipeline.requests[self.counts.answers].key();
            // Looked up once for each piece: a borrow could not be kept across reads.
            let wanted =
                table.store.get(key).ok().flatten().and_then(|value| value.get(self.value_at_bytes..end_bytes));
            if wanted != Some(piece) {
                let at_bytes = self.value_at_bytes;
                self.wrong(|| format!("key {key}: the value differs from the file's in bytes {at_bytes}..{end_bytes}"));
            }
        }
        self.value_at_bytes = end_bytes;
        if self.value_at_bytes == self.value_len_bytes {
            self.end_answer();
        }
        rest
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
    use zero_kv::Store;
    use zero_kv::bake::{self, Options};
    use zero_kv::protocol::native::{Op, Request};

    /// Two values, one empty one and a miss, with the answers to them.
    fn exchange(folder: &tempfile::TempDir) -> (Table, Pipeline, Vec<u8>) {
        let path = folder.path().join("storage.db");
        bake::bake_csv("1,one\n2,second\n3,\n".as_bytes(), &path, &Options::default(), &mut |_| ()).unwrap();
        let table = Table::new(Store::open(&path).unwrap(), Distribution::Uniform, 0.0, 0.0, 1).unwrap();
        let found = |len_bytes| ResponseHeader::of_value(len_bytes).unwrap();
        let pipeline = Pipeline {
            requests: [1, 2, 3, 4].map(|key| Request::new(Op::Get, key)).to_vec(),
            expected: vec![found(3), found(6), found(0), ResponseHeader::bare(Status::NotFound)],
        };
        let answers = b"\0\0\0\0\0\0\0\x03one\0\0\0\0\0\0\0\x06second\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0";
        (table, pipeline, answers.to_vec())
    }

    #[test]
    fn answers_are_the_same_in_whatever_pieces_they_come() {
        let folder = tempfile::tempdir().unwrap();
        let (table, pipeline, bytes) = exchange(&folder);
        for verify in [false, true] {
            let mut answers = Answers::new(verify);
            for first in 0..=bytes.len() {
                for second in first..=bytes.len() {
                    answers.begin();
                    for piece in [&bytes[..first], &bytes[first..second], &bytes[second..]] {
                        answers.read(piece, &pipeline, &table).unwrap();
                    }
                    let Counts { answers: read, hits, misses, bytes: read_bytes, wrong } = answers.counts;
                    assert_eq!((read, hits, misses, wrong), (4, 3, 1, 0), "{first} {second}");
                    assert_eq!(read_bytes, bytes.len() as u64);
                }
            }
            assert_eq!(answers.first_wrong, None);
        }
    }

    #[test]
    fn any_changed_byte_of_a_header_is_noticed_always() {
        let folder = tempfile::tempdir().unwrap();
        let (table, pipeline, bytes) = exchange(&folder);
        for at in (0..8).chain(11..19).chain(25..41) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            let mut answers = Answers::new(false);
            let read = answers.read(&bytes, &pipeline, &table);
            let all_read = answers.counts.answers == pipeline.requests.len();
            assert!(read.is_err() || !all_read || answers.counts.wrong > 0, "byte {at}");
        }
    }

    #[test]
    fn any_changed_byte_is_noticed_when_values_are_verified() {
        let folder = tempfile::tempdir().unwrap();
        let (table, pipeline, bytes) = exchange(&folder);
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            let mut answers = Answers::new(true);
            let read = answers.read(&bytes, &pipeline, &table);
            let all_read = answers.counts.answers == pipeline.requests.len();
            assert!(read.is_err() || !all_read || answers.counts.wrong > 0, "byte {at}");
        }
    }
}
