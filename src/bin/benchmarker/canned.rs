//! Answers that are known beforehand: what a server sends that looks nothing up.
//!
//! In: the mean length that answers are to have. Out: the bytes of many answers in a
//! row, and what each of them is. The server and the clients that check it know the
//! same pattern: on each connection, answer number n is that of n modulo the pattern's
//! length. So the byte counts are those of the real answers to a sixteenth of a byte,
//! and every answer's length is checked all the same.

use zero_kv::protocol::native::{RESPONSE_HEADER_LEN_BYTES, ResponseHeader, VALUE_LEN_MAX_BYTES};
use zerocopy::IntoBytes;

/// Answers in the pattern, of two lengths that are one byte apart.
const PATTERN_ANSWERS: usize = 16;
/// From here on a byte more or less is nothing, and the pattern is one answer long.
const LONG_ANSWER_LEN_BYTES: f64 = 65536.0;
/// The pattern is repeated until one send has enough.
const BYTES_LEN_MIN: usize = 256 << 10;

const _: () = assert!(PATTERN_ANSWERS.is_power_of_two());

pub(crate) struct Canned {
    headers: Vec<ResponseHeader>,
    /// Where each answer of the pattern begins, and where the pattern ends.
    starts: Vec<usize>,
}

impl Canned {
    pub(crate) fn of_mean_len(answer_len_bytes: f64) -> Self {
        let answers = if answer_len_bytes < LONG_ANSWER_LEN_BYTES { PATTERN_ANSWERS } else { 1 };
        let end_of = |answer: usize| (answer_len_bytes * answer as f64).round() as usize;
        let (mut headers, mut starts) = (Vec::new(), vec![0]);
        for answer in 0..answers {
            let len_bytes = end_of(answer + 1) - end_of(answer);
            let value_len_bytes = len_bytes.saturating_sub(RESPONSE_HEADER_LEN_BYTES).min(VALUE_LEN_MAX_BYTES);
            headers.push(ResponseHeader::of_value(value_len_bytes).expect("no more than the longest value"));
            starts.push(starts[answer] + RESPONSE_HEADER_LEN_BYTES + value_len_bytes);
        }
        Canned { headers, starts }
    }

    /// The header of a connection's answer with this number.
    #[inline]
    pub(crate) fn header(&self, number: usize) -> ResponseHeader {
        // A power of two, and a division would be felt.
        self.headers[number & (self.headers.len() - 1)]
    }

    /// The pattern, over and over.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut pattern = Vec::with_capacity(self.pattern_len_bytes());
        for (header, start) in self.headers.iter().zip(&self.starts) {
            pattern.extend_from_slice(header.as_bytes());
            pattern.resize(start + RESPONSE_HEADER_LEN_BYTES + header.value_len_bytes(), b'v');
        }
        pattern.repeat(BYTES_LEN_MIN.div_ceil(pattern.len()))
    }

    pub(crate) fn pattern_len_bytes(&self) -> usize {
        self.starts[self.headers.len()]
    }

    /// How long so many answers are, from the one with this number on.
    #[inline]
    pub(crate) fn len_bytes(&self, number: usize, answers: usize) -> usize {
        let end = number % self.headers.len() + answers;
        let whole_bytes = end / self.headers.len() * self.pattern_len_bytes();
        whole_bytes + self.starts[end % self.headers.len()] - self.starts[number % self.headers.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_mean_length_that_is_asked_for() {
        for mean_len_bytes in [8.0, 8.4, 33.9, 34.0, 1000.06, 70_000.3] {
            let canned = Canned::of_mean_len(mean_len_bytes);
            let found = canned.len_bytes(0, 1600) as f64 / 1600.0;
            assert!((found - mean_len_bytes).abs() <= (1.0 / 32.0f64).max(mean_len_bytes * 1e-5), "{mean_len_bytes}");
        }
    }

    #[test]
    fn the_bytes_are_the_answers_one_behind_the_other() {
        let canned = Canned::of_mean_len(12.3);
        let bytes = canned.bytes();
        let mut at = 0;
        for number in 0..100 {
            let header = canned.header(number);
            assert_eq!(&bytes[at..at + RESPONSE_HEADER_LEN_BYTES], header.as_bytes());
            let len_bytes = RESPONSE_HEADER_LEN_BYTES + header.value_len_bytes();
            assert_eq!(canned.len_bytes(number, 1), len_bytes);
            at += len_bytes;
            assert_eq!(canned.len_bytes(0, number + 1), at);
        }
        assert_eq!(bytes.len() % canned.pattern_len_bytes(), 0);
    }
}
