//! Answers, told apart in the bytes of a connection.
//!
//! In: bytes as they arrive, cut anywhere, and the op of each question in turn.
//! Out: whole answers, borrowed from the buffer, or why the bytes are none. It
//! knows no socket, so any event loop can feed it.

use zerocopy::FromBytes;

use super::answer::{Announced, Violation};
use super::native::{Op, PAGE_MAX_BYTES, RESPONSE_HEADER_LEN_BYTES, ResponseHeader, VALUE_LEN_MAX_BYTES};

/// The buffer has this length at first: some thousand short answers.
const BUFFER_LEN_BYTES: usize = 64 << 10;
/// One that has grown longer for a long answer is given back behind it.
const BUFFER_KEPT_MAX_BYTES: usize = 1 << 20;
/// What a page of one row can have beyond the row's value.
const PAGE_OVERHEAD_BYTES: usize = PAGE_MAX_BYTES - VALUE_LEN_MAX_BYTES;

/// What a server says to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// There is an answer, and this is its value: the empty one to
    /// [`Op::Exists`], a page to [`Op::Floor`], [`Op::Ceiling`] and [`Op::Range`], a
    /// text to [`Op::Info`], a number to the others.
    Found(&'a [u8]),
    /// There is no such row.
    NotFound,
    /// The question could not be answered.
    Error,
}

/// An answer of which a part has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which part of it is not whole.
    pub part: AnswerPart,
    /// Bytes of this part that arrived.
    pub arrived_bytes: usize,
    /// Bytes that this part has.
    pub expected_bytes: usize,
}

/// A part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerPart {
    /// The header, which comes first.
    Header,
    /// The value that the header announced.
    Value,
}

impl std::fmt::Display for AnswerPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            AnswerPart::Header => "header",
            AnswerPart::Value => "value",
        })
    }
}

/// The bytes that have arrived on a connection and are not read yet.
///
/// It takes memory for bytes that arrive, at most four times as much, and never for
/// what a header announces.
///
/// # Example
/// ```
/// use zero_kv::protocol::native::Op;
/// use zero_kv::protocol::reader::{Answer, AnswerReader};
///
/// let mut reader = AnswerReader::new(1 << 20);
/// for bytes in [&b"\0\0\0\0\0\0"[..], b"\0\x05sev", b"en"] {
///     assert_eq!(reader.next(Op::Get)?, None);
///     reader.room()[..bytes.len()].copy_from_slice(bytes);
///     reader.received(bytes.len());
/// }
/// assert_eq!(reader.next(Op::Get)?, Some(Answer::Found(b"seven")));
/// # Ok::<(), zero_kv::protocol::answer::Violation>(())
/// ```
#[derive(Debug)]
pub struct AnswerReader {
    /// What is between `start` and `end` has arrived and is not read.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// How long the answer at `start` is, as far as that is known.
    answer_len_bytes: usize,
    value_len_max_bytes: usize,
}

impl AnswerReader {
    /// One for a new connection, that refuses values longer than this, and those
    /// longer than [`VALUE_LEN_MAX_BYTES`] in any case.
    pub fn new(value_len_max_bytes: usize) -> Self {
        AnswerReader {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            answer_len_bytes: 0,
            value_len_max_bytes: value_len_max_bytes.min(VALUE_LEN_MAX_BYTES),
        }
    }

    /// Where to receive to. It is not empty where [`AnswerReader::next`] has said that
    /// more bytes are needed; without asking that in between, it can be filled.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.tidy();
        }
        if self.buffer.is_empty() {
            self.buffer.resize(BUFFER_LEN_BYTES, 0);
        }
        if self.buffer.len() - self.end < self.buffer.len() / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            // Never beyond the end of the answer that needs it: the last doubling would be for nothing.
            let len_bytes = (2 * self.buffer.len()).min(self.answer_len_bytes);
            if self.end > self.buffer.len() / 2 && len_bytes > self.buffer.len() {
                self.buffer.reserve_exact(len_bytes - self.buffer.len());
                self.buffer.resize(len_bytes, 0);
            }
        }
        &mut self.buffer[self.end..]
    }

    /// So many bytes were put at the beginning of [`AnswerReader::room`].
    ///
    /// # Panics
    /// If there was no room for so many.
    pub fn received(&mut self, len_bytes: usize) {
        assert!(len_bytes <= self.buffer.len() - self.end, "more bytes than there was room for");
        self.end += len_bytes;
    }

    /// The next answer, which is one to `op`; `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`Violation`], whereupon nothing that the peer sends after it can be told
    /// apart: the connection is of no more use.
    #[inline]
    pub fn next(&mut self, op: Op) -> Result<Option<Answer<'_>>, Violation> {
        let bytes = &self.buffer[self.start..self.end];
        let Ok((header, rest)) = ResponseHeader::ref_from_prefix(bytes) else {
            self.answer_len_bytes = RESPONSE_HEADER_LEN_BYTES;
            return Ok(None);
        };
        let answer = match Announced::check(op, header)? {
            Announced::NotFound => Answer::NotFound,
            Announced::Error => Answer::Error,
            Announced::Found { value_len_bytes } => {
                self.check_len(op, value_len_bytes)?;
                let Some(value) = rest.get(..value_len_bytes) else {
                    self.answer_len_bytes = RESPONSE_HEADER_LEN_BYTES + value_len_bytes;
                    return Ok(None);
                };
                self.start += value_len_bytes;
                Answer::Found(value)
            }
        };
        self.start += RESPONSE_HEADER_LEN_BYTES;
        Ok(Some(answer))
    }

    /// Says that no more answers are expected, and gives back what a long one took.
    ///
    /// # Errors
    /// [`Violation::Unasked`] if there are bytes that were not read.
    pub fn finish(&mut self) -> Result<(), Violation> {
        match self.end - self.start {
            0 => self.tidy(),
            len_bytes => return Err(Violation::Unasked { len_bytes }),
        }
        Ok(())
    }

    /// What is there of the answer that [`AnswerReader::next`] said needs more bytes.
    pub fn part(&self) -> Part {
        let arrived_bytes = self.end - self.start;
        match arrived_bytes.checked_sub(RESPONSE_HEADER_LEN_BYTES) {
            None => Part { part: AnswerPart::Header, arrived_bytes, expected_bytes: RESPONSE_HEADER_LEN_BYTES },
            Some(arrived_bytes) => Part {
                part: AnswerPart::Value,
                arrived_bytes,
                expected_bytes: self.answer_len_bytes.saturating_sub(RESPONSE_HEADER_LEN_BYTES),
            },
        }
    }

    /// Nothing is unread: begins at the front again.
    fn tidy(&mut self) {
        (self.start, self.end) = (0, 0);
        if self.buffer.len() > BUFFER_KEPT_MAX_BYTES {
            self.buffer = Vec::new();
        }
    }

    #[inline]
    fn check_len(&self, op: Op, len_bytes: usize) -> Result<(), Violation> {
        let most_bytes = match op {
            Op::Get => self.value_len_max_bytes,
            _ => self.value_len_max_bytes + PAGE_OVERHEAD_BYTES,
        };
        match len_bytes <= most_bytes {
            true => Ok(()),
            false => Err(Violation::ValueLen { len_bytes, most_bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(status_code: u32, len_bytes: u32) -> [u8; 8] {
        let mut header = [0; 8];
        header[..4].copy_from_slice(&status_code.to_be_bytes());
        header[4..].copy_from_slice(&len_bytes.to_be_bytes());
        header
    }

    fn receive(reader: &mut AnswerReader, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = reader.room();
            let len_bytes = bytes.len().min(room.len());
            room[..len_bytes].copy_from_slice(&bytes[..len_bytes]);
            reader.received(len_bytes);
            bytes = &bytes[len_bytes..];
        }
    }

    /// Answers of every length around the buffer's, and what they are.
    fn answers() -> (Vec<u8>, Vec<Option<Vec<u8>>>) {
        let lens = [0, 1, 26, 4096, BUFFER_LEN_BYTES - 9, BUFFER_LEN_BYTES - 8, BUFFER_LEN_BYTES + 1, 3 << 20, 5, 0];
        let (mut bytes, mut answers) = (Vec::new(), Vec::new());
        for (number, len_bytes) in lens.into_iter().enumerate() {
            let value: Vec<u8> = (0..len_bytes).map(|at: usize| (at + number) as u8).collect();
            bytes.extend_from_slice(&announced(0, len_bytes as u32));
            bytes.extend_from_slice(&value);
            bytes.extend_from_slice(&announced(1, 0));
            answers.extend([Some(value), None]);
        }
        (bytes, answers)
    }

    #[test]
    fn answers_are_the_same_however_their_bytes_are_cut() {
        let (bytes, answers) = answers();
        for cut_bytes in [1, 7, 8, 9, 1000, 65_536, 1 << 20, usize::MAX] {
            let mut reader = AnswerReader::new(VALUE_LEN_MAX_BYTES);
            let (mut expected, mut rest) = (answers.iter(), &bytes[..]);
            while !rest.is_empty() {
                let room = reader.room();
                let len_bytes = cut_bytes.min(rest.len()).min(room.len());
                room[..len_bytes].copy_from_slice(&rest[..len_bytes]);
                reader.received(len_bytes);
                rest = &rest[len_bytes..];
                while let Some(answer) = reader.next(Op::Get).unwrap() {
                    let value = match answer {
                        Answer::Found(value) => Some(value),
                        _ => None,
                    };
                    assert!(value == expected.next().unwrap().as_deref(), "cut by {cut_bytes}");
                }
            }
            assert_eq!(expected.count(), 0);
            assert_eq!(reader.finish(), Ok(()));
            assert!(reader.buffer.len() <= BUFFER_KEPT_MAX_BYTES, "a long answer's memory is given back");
        }
    }

    #[test]
    fn memory_is_taken_for_bytes_that_arrive_and_not_for_those_announced() {
        let mut reader = AnswerReader::new(VALUE_LEN_MAX_BYTES);
        receive(&mut reader, &announced(0, VALUE_LEN_MAX_BYTES as u32));
        let mut arrived_bytes = 8;
        while arrived_bytes < 4 << 20 {
            assert_eq!(reader.next(Op::Get), Ok(None));
            assert!(!reader.room().is_empty());
            assert!(reader.buffer.capacity() <= (4 * arrived_bytes).max(BUFFER_LEN_BYTES));
            receive(&mut reader, &[7; 5000]);
            arrived_bytes += 5000;
        }
        let part =
            Part { part: AnswerPart::Value, arrived_bytes: arrived_bytes - 8, expected_bytes: VALUE_LEN_MAX_BYTES };
        assert_eq!(reader.next(Op::Get), Ok(None));
        assert_eq!(reader.part(), part);
    }

    #[test]
    fn a_value_longer_than_it_may_be_is_refused_by_its_header() {
        let refused = |most_bytes, op, len_bytes: usize| {
            let mut reader = AnswerReader::new(most_bytes);
            receive(&mut reader, &announced(0, len_bytes as u32));
            reader.next(op).map(|answer| answer.is_none())
        };
        assert_eq!(refused(100, Op::Get, 100), Ok(true));
        assert_eq!(refused(100, Op::Get, 101), Err(Violation::ValueLen { len_bytes: 101, most_bytes: 100 }));
        // A page has room for keys, and for many short rows.
        assert_eq!(refused(0, Op::Range, 65_544), Ok(true));
        assert_eq!(refused(100, Op::Floor, 100 + PAGE_OVERHEAD_BYTES), Ok(true));
        let most_bytes = 100 + PAGE_OVERHEAD_BYTES;
        let too_long = Violation::ValueLen { len_bytes: most_bytes + 1, most_bytes };
        assert_eq!(refused(100, Op::Floor, most_bytes + 1), Err(too_long));
        assert_eq!(refused(usize::MAX, Op::Get, VALUE_LEN_MAX_BYTES), Ok(true));
        assert!(refused(usize::MAX, Op::Get, VALUE_LEN_MAX_BYTES + 1).is_err());
    }

    #[test]
    fn bytes_behind_the_last_answer_are_a_violation() {
        let mut reader = AnswerReader::new(100);
        receive(&mut reader, &[&announced(1, 0)[..], b"abc"].concat());
        assert_eq!(reader.next(Op::Exists), Ok(Some(Answer::NotFound)));
        assert_eq!(reader.finish(), Err(Violation::Unasked { len_bytes: 3 }));
    }
}
