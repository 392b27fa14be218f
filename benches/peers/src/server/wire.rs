//! Encoding of requests, and the form of responses, in the three protocols.
//!
//! A request contains the key of a row. In Zero-KV's protocol, the key is a number, and a request has 16 bytes. In the
//! other protocols, the key is `key:` and 12 digits, as in redis-benchmark. All values of a table have equal lengths,
//! so all correct responses do, too.

use std::io::Write;

use crate::rows::Rows;

/// The protocol that a server is measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Zero-KV's native protocol. A request has 16 bytes, and a response has 8 bytes before the value.
    Native,
    /// The Redis protocol, RESP 2.
    Resp,
    /// memcached's meta commands.
    Meta,
}

impl Protocol {
    /// Appends the request for a row's value.
    pub(crate) fn get(self, rows: &Rows, row: u64, out: &mut Vec<u8>) {
        match self {
            Protocol::Native => {
                out.extend_from_slice(&[0; 8]);
                out.extend_from_slice(&rows.key(row).to_be_bytes());
            }
            Protocol::Resp => text(out, format_args!("*2\r\n$3\r\nGET\r\n$16\r\nkey:{row:012}\r\n")),
            Protocol::Meta => text(out, format_args!("mg key:{row:012} v\r\n")),
        }
    }

    /// Appends the request that stores a row. Not supported by the native protocol, because Zero-KV serves a file.
    pub(crate) fn set(self, row: u64, value: &[u8], out: &mut Vec<u8>) {
        let len_bytes = value.len();
        match self {
            Protocol::Native => unreachable!("Zero-KV serves a file"),
            Protocol::Resp => {
                text(out, format_args!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{row:012}\r\n${len_bytes}\r\n"));
            }
            Protocol::Meta => text(out, format_args!("ms key:{row:012} {len_bytes}\r\n")),
        }
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }

    /// Returns the expected response to a request that stores a row.
    pub(crate) fn stored(self) -> &'static [u8] {
        match self {
            Protocol::Native => b"",
            Protocol::Resp => b"+OK\r\n",
            Protocol::Meta => b"HD\r\n",
        }
    }

    /// Returns the bytes before and after the value in the response to a get.
    pub(crate) fn frame(self, value_len_bytes: usize) -> Frame {
        let (head, tail) = match self {
            Protocol::Native => ([0_u32.to_be_bytes(), (value_len_bytes as u32).to_be_bytes()].concat(), &b""[..]),
            Protocol::Resp => (format!("${value_len_bytes}\r\n").into_bytes(), &b"\r\n"[..]),
            Protocol::Meta => (format!("VA {value_len_bytes}\r\n").into_bytes(), &b"\r\n"[..]),
        };
        Frame { head, value_len_bytes, tail }
    }
}

fn text(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a vector takes all bytes");
}

/// The form of a correct response: the bytes before and after the value, and the length of the value.
pub(crate) struct Frame {
    head: Vec<u8>,
    value_len_bytes: usize,
    tail: &'static [u8],
}

impl Frame {
    pub(crate) fn len_bytes(&self) -> usize {
        self.head.len() + self.value_len_bytes + self.tail.len()
    }

    /// Returns the value in a response that has the correct status and length.
    #[inline]
    pub(crate) fn value<'a>(&self, response: &'a [u8]) -> Option<&'a [u8]> {
        response.strip_prefix(&*self.head)?.strip_suffix(self.tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_response_with_the_right_status_and_length_has_a_value() {
        let responses: [(Protocol, &[u8], &[u8]); 3] = [
            (Protocol::Native, b"\0\0\0\0\0\0\0\x05seven", b"\0\0\0\x01\0\0\0\x05seven"),
            (Protocol::Resp, b"$5\r\nseven\r\n", b"$-1\r\n$-1\r\n"),
            (Protocol::Meta, b"VA 5\r\nseven\r\n", b"EN\r\nEN\r\nEN\r\n"),
        ];
        for (protocol, right, wrong) in responses {
            let frame = protocol.frame(5);
            assert_eq!(frame.len_bytes(), right.len());
            assert_eq!(frame.value(right), Some(&b"seven"[..]));
            assert_eq!(frame.value(wrong), None);
        }
    }
}
