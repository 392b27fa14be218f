//! Canned responses: made-up responses that a server sends without lookups.
//!
//! In: the mean length of responses. Out: the bytes of many consecutive responses, and the header of each response.
//! Server and clients compute the same pattern of 16 responses, and the server repeats the pattern on every connection.
//! The lengths of these responses differ by at most one byte, so the mean length is exact to a sixteenth of a byte. The
//! pattern also gives a client the expected length of each response.

use zero_kv::protocol::native::{RESPONSE_HEADER_LEN_BYTES, ResponseHeader, VALUE_LEN_MAX_BYTES};
use zerocopy::IntoBytes;

/// Number of canned responses in the pattern, which the server repeats on every connection. The lengths of these
/// responses differ by at most one byte.
const PATTERN_RESPONSES: usize = 16;
/// If the mean length of responses is at least this many bytes, the pattern has only one response: its length is the
/// mean length rounded to whole bytes, and the rounding error is negligible.
const LONG_RESPONSE_LEN_BYTES: f64 = 65536.0;
/// Minimum length of the buffer that contains copies of the pattern of responses. One `send` can send many responses
/// from this buffer.
const BYTES_LEN_MIN: usize = 256 << 10;

const _: () = assert!(PATTERN_RESPONSES.is_power_of_two());

pub(crate) struct Canned {
    headers: Vec<ResponseHeader>,
    /// The offset of each response in the pattern of responses, followed by the pattern's length.
    starts: Vec<usize>,
}

impl Canned {
    pub(crate) fn with_mean_len(response_len_bytes: f64) -> Self {
        let responses = if response_len_bytes < LONG_RESPONSE_LEN_BYTES { PATTERN_RESPONSES } else { 1 };
        let end_of = |response: usize| (response_len_bytes * response as f64).round() as usize;
        let (mut headers, mut starts) = (Vec::new(), vec![0]);
        for response in 0..responses {
            let len_bytes = end_of(response + 1) - end_of(response);
            let value_len_bytes = len_bytes.saturating_sub(RESPONSE_HEADER_LEN_BYTES).min(VALUE_LEN_MAX_BYTES);
            headers.push(ResponseHeader::of_value(value_len_bytes).expect("no more than the longest value"));
            starts.push(starts[response] + RESPONSE_HEADER_LEN_BYTES + value_len_bytes);
        }
        Canned { headers, starts }
    }

    /// Returns the header of the response with this number. The responses of a connection are numbered from 0.
    #[inline]
    pub(crate) fn header(&self, number: usize) -> ResponseHeader {
        // The number of headers is a power of two, so a mask replaces a slower division.
        self.headers[number & (self.headers.len() - 1)]
    }

    /// Returns copies of the pattern of responses, at least 256 KiB in total.
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

    /// Returns the total length of `responses` consecutive responses of a connection, beginning with response `number`.
    #[inline]
    pub(crate) fn len_bytes(&self, number: usize, responses: usize) -> usize {
        let end = number % self.headers.len() + responses;
        let whole_bytes = end / self.headers.len() * self.pattern_len_bytes();
        whole_bytes + self.starts[end % self.headers.len()] - self.starts[number % self.headers.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_have_the_requested_mean_length() {
        for mean_len_bytes in [8.0, 8.4, 33.9, 34.0, 1000.06, 70_000.3] {
            let canned = Canned::with_mean_len(mean_len_bytes);
            let found = canned.len_bytes(0, 1600) as f64 / 1600.0;
            assert!((found - mean_len_bytes).abs() <= (1.0 / 32.0f64).max(mean_len_bytes * 1e-5), "{mean_len_bytes}");
        }
    }

    #[test]
    fn the_bytes_contain_consecutive_responses() {
        let canned = Canned::with_mean_len(12.3);
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
