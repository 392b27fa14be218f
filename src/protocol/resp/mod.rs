//! The Redis protocol: RESP2, RESP3 and inline commands.
//!
//! In: bytes that a peer sent, or replies to encode. Out: commands, or bytes to send. This module does no I/O and has
//! no access to tables; [`crate::server`] executes commands. Error texts and replies are those of Redis 7.0.
//!
//! [`parse()`] splits bytes into commands, and `fast_paths` recognizes the most frequent ones. [`commands`] lists the
//! commands, [`range`] parses the arguments of the range commands, [`Glob`] matches patterns, and [`Reply`] encodes
//! replies. Clients find the end of a reply with [`reply_len_bytes`].

pub mod commands;
mod fast_paths;
mod glob;
mod inline;
mod parse;
pub mod range;
mod reply;

use std::fmt;

pub use fast_paths::{HashFields, HashRead, get, hash_read, neighbor, range_or_count};
pub use glob::{Glob, PART_LEN_MAX_BYTES};
pub use parse::{ParseProgress, Parsed, ProtocolError, parse};
pub use reply::{NotReply, Reply, Sink, Version, reply_len_bytes};

/// Maximum number of arguments of a command, including its name, as in Redis 6.2. In practice,
/// [`COMMAND_LEN_MAX_BYTES`] limits a command to fewer arguments.
pub const ARGS_MAX: usize = 1024 * 1024;
/// Maximum length of an argument.
pub const BULK_LEN_MAX_BYTES: usize = 1024 * 1024;
/// Maximum length of a line, not counting its line end, as in Redis. A line contains an inline command, the number of a
/// command's arguments, or the length of an argument.
pub const LINE_LEN_MAX_BYTES: usize = 64 * 1024;
/// Maximum length of a command with its framing. An incomplete command is always shorter, so a buffer of this length
/// has room for it.
pub const COMMAND_LEN_MAX_BYTES: usize = 4 * 1024 * 1024;

/// A complete command in RESP's array form. Its name is the first argument.
#[derive(Clone, Copy)]
pub struct Command<'a> {
    bytes: &'a [u8],
    arg_count: usize,
    first_arg_at: usize,
}

impl<'a> Command<'a> {
    /// Creates a command from `bytes`, its array form. [`parse()`] returns this form also for an inline
    /// command, and [`Command::bytes`] returns it. If the bytes are malformed, the arguments end before the first
    /// malformed argument.
    pub fn new(bytes: &'a [u8]) -> Self {
        let (arg_count, header_len) = count_line(bytes).unwrap_or((0, bytes.len()));
        Command { bytes, arg_count, first_arg_at: header_len }
    }

    /// Returns the number of arguments, including the name.
    #[inline]
    pub fn arg_count(&self) -> usize {
        self.arg_count
    }

    /// Returns the command in array form. The client may have sent it inline.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the name in its original case.
    #[inline]
    pub fn name(&self) -> &'a [u8] {
        self.args().next().unwrap_or_default()
    }

    /// Returns all arguments, the name first.
    #[inline]
    pub fn args(&self) -> Args<'a> {
        self.args_from(self.first_arg_at)
    }

    /// Returns the remaining arguments, starting at `offset_bytes`, which must be a result of [`Args::offset_bytes`].
    #[inline]
    pub fn args_from(&self, offset_bytes: usize) -> Args<'a> {
        Args { bytes: self.bytes, at: offset_bytes }
    }
}

impl fmt::Debug for Command<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.args().map(|arg| arg.escape_ascii().to_string())).finish()
    }
}

/// An iterator over the arguments of a command.
#[derive(Clone, Debug)]
pub struct Args<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Args<'_> {
    /// Returns the offset of the next argument within the command, for [`Command::args_from`].
    #[inline]
    pub fn offset_bytes(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Args<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let (arg_len, header_len) = count_line(rest)?;
        let arg = rest.get(header_len..)?.get(..arg_len)?;
        self.at += header_len + arg_len + b"\r\n".len();
        Some(arg)
    }
}

/// Returns the number in a line such as `$3\r\n`, and the length of the line.
#[inline]
fn count_line(line: &[u8]) -> Option<(usize, usize)> {
    let mut number = 0_usize;
    for (at, &byte) in line.iter().enumerate().skip(1) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Some((number, at + b"\r\n".len()));
        }
        number = number.wrapping_mul(10).wrapping_add(usize::from(digit));
    }
    None
}

/// Parses a decimal number as strictly as Redis does: the only sign is `-`, leading zeros and spaces are not allowed,
/// and the number must fit into an `i64`.
pub fn integer(digits: &[u8]) -> Option<i64> {
    let (negative, magnitude) = match digits {
        [b'-', magnitude @ ..] => (true, magnitude),
        magnitude => (false, magnitude),
    };
    match magnitude {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    // The loop computes a negative number, because the smallest number has no positive counterpart.
    let mut number = 0_i64;
    for &digit in magnitude {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if negative { Some(number) } else { number.checked_neg() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MGET: &[u8] = b"*4\r\n$4\r\nMGet\r\n$0\r\n\r\n$2\r\n\r\n\r\n$10\r\n0123456789\r\n";

    #[test]
    fn arguments_are_in_order() {
        let command = Command::new(MGET);
        assert_eq!((command.arg_count(), command.name()), (4, &b"MGet"[..]));
        assert!(command.args().eq([&b"MGet"[..], b"", b"\r\n", b"0123456789"]));
    }

    #[test]
    fn iteration_continues_at_an_offset() {
        let command = Command::new(MGET);
        let mut args = command.args();
        for taken in 0..=4 {
            assert!(command.args_from(args.offset_bytes()).eq(command.args().skip(taken)));
            args.next();
        }
    }

    #[test]
    fn malformed_bytes_cause_no_panic() {
        for bytes in
            [&b""[..], b"*", b"*1", b"*1\r\n", b"*9\r\n$99999999999999999999999\r\nx", b"$$$$", b"*1\r\n$5\r\nabc"]
        {
            let command = Command::new(bytes);
            assert_eq!((command.args().count(), command.name()), (0, &b""[..]), "{bytes:?}");
            assert_eq!(command.args_from(usize::MAX).next(), None);
        }
    }
}

#[cfg(test)]
mod number_tests {
    use super::*;

    #[test]
    fn numbers_of_up_to_64_bits_are_parsed() {
        for number in [0, 1, -1, 9, 10, 99, -99, i64::MAX, i64::MIN, i64::MAX - 1, i64::MIN + 1] {
            assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        }
    }

    #[test]
    fn text_that_redis_rejects_as_a_number_is_rejected() {
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            "-01",
            "00",
            " 1",
            "1 ",
            "1x",
            "x",
            "0x1",
            "1.0",
            "--1",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
        ] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }
}
