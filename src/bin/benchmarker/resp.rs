//! The part of the Redis protocol (RESP 2) that the benchmarker uses.
//!
//! In: an op and a key, or the head of a reply. Out: an encoded request, or the parsed head. The reply to `GET` is a
//! bulk string, the reply to `EXISTS` is an integer, and the reply to `ZKV.FLOOR` is an array of a key and a value.

use std::io::Write;

use zero_kv::protocol::native::{KEY_LEN_MAX_BYTES, ResponseHeader, Status, VALUE_LEN_MAX_BYTES};
use zero_kv::{Key, KeyKind};

use crate::mix::Op;

/// The head of a response: all bytes up to the length of the value.
pub(crate) struct ResponseHead {
    /// The status and the length of the value, as a native header.
    pub(crate) header: ResponseHeader,
    /// The bytes of the head that count as the start of the value. Only Redis's replies to floors and with hashes have
    /// such bytes.
    pub(crate) value_start: Vec<u8>,
    /// Length of the terminator after the value. The native protocol has no terminator.
    pub(crate) tail_len_bytes: usize,
    /// If a Redis reply is an error or cannot be a reply to the request, the first line of this reply.
    pub(crate) unexpected: Option<String>,
}

const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n";
const EXISTS: &[u8] = b"*2\r\n$6\r\nEXISTS\r\n";
const FLOOR: &[u8] = b"*2\r\n$9\r\nZKV.FLOOR\r\n";
const HGETALL: &[u8] = b"*2\r\n$7\r\nHGETALL\r\n";
/// The end of the bytes before the key of a HMGET.
const HMGET_END: &[u8] = b"HMGET\r\n";
/// The first byte of a reply with a hash. The value is the rest of the reply, without the last line end.
const HASH_START: &[u8] = b"*";
const NO_FIELDS_LINE: &[u8] = b"*0\r\n";
const ROW_LINE: &[u8] = b"*2\r\n";
const NO_ROW_LINE: &[u8] = b"*-1\r\n";
pub(crate) const LINE_END: &[u8; 2] = b"\r\n";

fn command(op: Op) -> &'static [u8] {
    match op {
        Op::Get => GET,
        Op::Exists => EXISTS,
        Op::Floor => FLOOR,
        Op::Hgetall => HGETALL,
        Op::GetColumns | Op::Hmget => unreachable!("these requests are not written from a command and a key"),
    }
}

/// Appends a request to `bytes`. A key that is a number is written as decimal text.
pub(crate) fn write_request(op: Op, key: Key<'_>, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(command(op));
    write_key(key, bytes);
}

pub(crate) fn write_key(key: Key<'_>, bytes: &mut Vec<u8>) {
    match key {
        Key::U64(number) => write!(bytes, "${}\r\n{number}\r\n", key_len_bytes(key)),
        Key::Bytes(key) => {
            write!(bytes, "${}\r\n", key.len()).and_then(|()| bytes.write_all(&[key, LINE_END].concat()))
        }
    }
    .expect("a vector takes all bytes");
}

/// Returns the length of a key. The text of a number has one byte per decimal digit.
pub(crate) fn key_len_bytes(key: Key<'_>) -> usize {
    match key {
        Key::U64(key) => digits(key as usize),
        Key::Bytes(key) => key.len(),
    }
}

/// Returns the length of a bulk string of `len_bytes` bytes, with the line of its length and its terminator.
pub(crate) fn bulk_len_bytes(len_bytes: usize) -> usize {
    1 + digits(len_bytes) + LINE_END.len() + len_bytes + LINE_END.len()
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Appends a request with this op. Its key is copied from `other`, another encoded request, which must be a `HMGET` if
/// the op is `HMGET`.
#[inline]
pub(crate) fn write_like(op: Op, other: &[u8], bytes: &mut Vec<u8>) {
    if op == Op::Hmget {
        bytes.extend_from_slice(other);
        return;
    }
    bytes.extend_from_slice(command(op));
    bytes.extend_from_slice(&other[command(self::op(other)).len()..]);
}

/// Returns the op of a request that [`write_request`] wrote.
#[inline]
pub(crate) fn op(request: &[u8]) -> Op {
    match request {
        _ if request.starts_with(GET) => Op::Get,
        _ if request.starts_with(FLOOR) => Op::Floor,
        _ if request.starts_with(HGETALL) => Op::Hgetall,
        _ if request.starts_with(EXISTS) => Op::Exists,
        _ => Op::Hmget,
    }
}

/// Returns the key of a request that [`write_request`] wrote, for a table with this kind of keys.
pub(crate) fn key(keys: KeyKind, request: &[u8]) -> Key<'_> {
    let argument = match op(request) {
        Op::Hmget => {
            let at = request.windows(HMGET_END.len()).position(|bytes| bytes == HMGET_END);
            &request[at.expect("the command of a HMGET") + HMGET_END.len()..]
        }
        op => &request[command(op).len()..],
    };
    let line_len_bytes = line_len_bytes(argument).expect("the key's length is a line");
    let (line, key) = argument.split_at(line_len_bytes);
    let key = &key[..bulk_line(line).expect("the key is a bulk string")];
    match keys {
        KeyKind::U64 => Key::U64(key.iter().fold(0, |key, digit| key * 10 + u64::from(digit - b'0'))),
        KeyKind::Bytes => Key::Bytes(key),
    }
}

/// The first line of an expected reply. The line has at most 8 bytes, so the line is compared as one number.
#[derive(Clone, Copy)]
pub(crate) struct ReplyPrefix {
    pub(crate) len_bytes: usize,
    /// The bytes of the line, padded with zeros.
    word: [u8; 8],
}

impl ReplyPrefix {
    /// Returns the first line of the Redis reply that corresponds to this native header, or `None` if the line exceeds
    /// 8 bytes.
    #[inline]
    pub(crate) fn expected(op: Op, header: ResponseHeader) -> Option<ReplyPrefix> {
        let text = |text: &[u8]| {
            let mut word = [0; 8];
            word[..text.len()].copy_from_slice(text);
            Some(ReplyPrefix { len_bytes: text.len(), word })
        };
        match (op, header.status_code() == Status::Ok as u32) {
            (Op::Get, true) => ReplyPrefix::for_value(header.value_len_bytes()),
            (Op::Get, false) => text(b"$-1\r\n"),
            (Op::Exists, true) => text(b":1\r\n"),
            (Op::Exists, false) => text(b":0\r\n"),
            (Op::Floor, true) => text(ROW_LINE),
            (Op::Floor, false) => text(NO_ROW_LINE),
            (Op::Hgetall, false) => text(NO_FIELDS_LINE),
            (Op::Hgetall | Op::Hmget, _) => text(HASH_START),
            (Op::GetColumns, _) => None,
        }
    }

    #[inline]
    fn for_value(value_len_bytes: usize) -> Option<ReplyPrefix> {
        let digits = digits(value_len_bytes);
        let mut word = [0; 8];
        word[0] = b'$';
        word.get_mut(digits + 1..digits + 3)?.copy_from_slice(LINE_END);
        let mut left = value_len_bytes;
        for digit in word[1..=digits].iter_mut().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
        }
        Some(ReplyPrefix { len_bytes: digits + 3, word })
    }

    /// Returns whether `bytes` begin with this line. Always returns false for fewer than 8 bytes.
    #[inline]
    pub(crate) fn matches(&self, bytes: &[u8]) -> bool {
        let Some(first) = bytes.first_chunk() else { return false };
        let differences = u64::from_le_bytes(*first) ^ u64::from_le_bytes(self.word);
        differences << (64 - 8 * self.len_bytes) == 0
    }
}

/// Maximum length of a reply's first line. An error reply may quote the request, so the line may be long.
const LINE_LEN_MAX_BYTES: usize = 4096;

/// Returns the length of the first line, or `None` if the line is incomplete. If the line exceeds the maximum length,
/// returns the maximum; [`read_head`] then rejects the truncated line.
#[inline]
fn line_len_bytes(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().take(LINE_LEN_MAX_BYTES).position(|byte| *byte == b'\n');
    end.map(|end| end + 1).or_else(|| (bytes.len() >= LINE_LEN_MAX_BYTES).then_some(LINE_LEN_MAX_BYTES))
}

/// Returns the length of the head of a reply, or `None` if the head is incomplete: the first line, or, in the reply to
/// a `ZKV.FLOOR`, all bytes before the value. If the head is invalid, returns a length with which [`read_head`] rejects
/// it.
#[inline]
pub(crate) fn head_len_bytes(op: Op, bytes: &[u8]) -> Option<usize> {
    let first_len_bytes = line_len_bytes(bytes)?;
    if op != Op::Floor || &bytes[..first_len_bytes] != ROW_LINE {
        return Some(first_len_bytes);
    }
    let key = &bytes[first_len_bytes..];
    let key_line_len_bytes = line_len_bytes(key)?;
    let Some(key_len_bytes) = bulk_line(&key[..key_line_len_bytes]).filter(|len_bytes| *len_bytes <= KEY_LEN_MAX_BYTES)
    else {
        return Some(first_len_bytes);
    };
    let value_line_at = first_len_bytes + key_line_len_bytes + key_len_bytes + LINE_END.len();
    Some(value_line_at + line_len_bytes(bytes.get(value_line_at..)?)?)
}

/// Returns the length of the bulk string that this line begins.
fn bulk_line(line: &[u8]) -> Option<usize> {
    let digits = line.strip_prefix(b"$")?.strip_suffix(LINE_END)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Parses the head of the reply to a `ZKV.FLOOR` that found a row. Returns `None` if the head is invalid.
fn read_row_head(head: &[u8]) -> Option<ResponseHead> {
    let value_start = head.strip_prefix(ROW_LINE)?;
    let key_line_len_bytes = line_len_bytes(value_start)?;
    let key_end = key_line_len_bytes + bulk_line(&value_start[..key_line_len_bytes])?;
    let value_line = value_start.get(key_end..)?.strip_prefix(LINE_END)?;
    let len_bytes = bulk_line(value_line).filter(|len_bytes| *len_bytes <= VALUE_LEN_MAX_BYTES)?;
    let header = ResponseHeader::of_page(value_start.len() + len_bytes);
    Some(ResponseHead { header, value_start: value_start.to_vec(), tail_len_bytes: LINE_END.len(), unexpected: None })
}

/// Parses the first line of a reply with a hash. The length of such a reply is not in this line, so the reply is read
/// with the expected length.
fn read_hash_head(expected: ResponseHeader, line: &[u8]) -> Option<ResponseHead> {
    let value_start = line.strip_prefix(HASH_START).filter(|_| line != NO_FIELDS_LINE)?;
    let is_long_enough = expected.value_len_bytes() >= value_start.len();
    let head = ResponseHead {
        header: expected,
        value_start: value_start.to_vec(),
        tail_len_bytes: LINE_END.len(),
        unexpected: None,
    };
    is_long_enough.then_some(head)
}

/// Parses the head of the reply to `op`.
pub(crate) fn read_head(op: Op, expected: ResponseHeader, line: &[u8]) -> Result<ResponseHead, String> {
    let is_hash = matches!(op, Op::Hgetall | Op::Hmget);
    if is_hash && let Some(head) = read_hash_head(expected, line) {
        return Ok(head);
    }
    if op == Op::Floor
        && let Some(head) = read_row_head(line)
    {
        return Ok(head);
    }
    let invalid = || format!("\"{}\" where a reply was expected", line[..line.len().min(100)].escape_ascii());
    let (kind, text) = line.strip_suffix(LINE_END).and_then(<[u8]>::split_first).ok_or_else(invalid)?;
    let bare = |status| {
        let header = ResponseHeader::bare(status);
        ResponseHead { header, value_start: Vec::new(), tail_len_bytes: 0, unexpected: None }
    };
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    let mut head = match (kind, number) {
        (b'$', Some(-1)) => bare(Status::NotFound),
        (b'*', Some(-1)) if op == Op::Floor => bare(Status::NotFound),
        (b'*', Some(0)) if is_hash => bare(Status::NotFound),
        (b'$', Some(len_bytes)) => {
            let len_bytes = usize::try_from(len_bytes).map_err(|_| invalid())?;
            let header = ResponseHeader::of_value(len_bytes).ok_or_else(|| {
                format!("the reply states a value of {len_bytes} bytes, but the maximum is {VALUE_LEN_MAX_BYTES}")
            })?;
            ResponseHead { header, value_start: Vec::new(), tail_len_bytes: LINE_END.len(), unexpected: None }
        }
        (b':', Some(0)) => bare(Status::NotFound),
        (b':', Some(1)) => bare(Status::Ok),
        (b':', Some(_)) | (b'+' | b'-', _) => bare(Status::Error),
        _ => return Err(invalid()),
    };
    let expected_kind = match op {
        Op::Get => b'$',
        Op::Exists => b':',
        Op::Floor | Op::GetColumns | Op::Hgetall | Op::Hmget => b'*',
    };
    if *kind != expected_kind || head.header.status_code() == Status::Error as u32 {
        head.unexpected = Some(line[..line.len() - LINE_END.len()].escape_ascii().to_string());
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_valid_redis_commands_and_can_be_parsed() {
        for (key, op, expected) in [
            (Key::U64(0), Op::Get, "*2\r\n$3\r\nGET\r\n$1\r\n0\r\n"),
            (Key::U64(10), Op::Get, "*2\r\n$3\r\nGET\r\n$2\r\n10\r\n"),
            (Key::U64(u64::MAX), Op::Exists, "*2\r\n$6\r\nEXISTS\r\n$20\r\n18446744073709551615\r\n"),
            (Key::Bytes(b"k\r\n"), Op::Get, "*2\r\n$3\r\nGET\r\n$3\r\nk\r\n\r\n"),
            (Key::Bytes(b"10"), Op::Exists, "*2\r\n$6\r\nEXISTS\r\n$2\r\n10\r\n"),
            (Key::U64(10), Op::Floor, "*2\r\n$9\r\nZKV.FLOOR\r\n$2\r\n10\r\n"),
            (Key::U64(10), Op::Hgetall, "*2\r\n$7\r\nHGETALL\r\n$2\r\n10\r\n"),
        ] {
            let (mut get, mut request, mut like) = (Vec::new(), Vec::new(), Vec::new());
            write_request(Op::Get, key, &mut get);
            write_request(op, key, &mut request);
            write_like(op, &get, &mut like);
            assert_eq!(request.escape_ascii().to_string(), expected.as_bytes().escape_ascii().to_string());
            assert_eq!(like, request);
            assert!(super::op(&request) == op && super::key(key.kind(), &request) == key);
        }
    }

    #[test]
    fn reply_prefixes_match_exactly_the_expected_replies() {
        let found = |len_bytes| ResponseHeader::of_value(len_bytes).unwrap();
        let not_found = ResponseHeader::bare(Status::NotFound);
        for (op, header, line) in [
            (Op::Get, found(0), "$0\r\n"),
            (Op::Get, found(9), "$9\r\n"),
            (Op::Get, found(10), "$10\r\n"),
            (Op::Get, found(99_999), "$99999\r\n"),
            (Op::Get, not_found, "$-1\r\n"),
            (Op::Exists, found(0), ":1\r\n"),
            (Op::Exists, not_found, ":0\r\n"),
            (Op::Floor, not_found, "*-1\r\n"),
        ] {
            let prefix = ReplyPrefix::expected(op, header).unwrap();
            assert_eq!(prefix.len_bytes, line.len());
            let bytes = [line.as_bytes(), b"12345678"].concat();
            assert!(prefix.matches(&bytes), "{line:?}");
            for at in 0..bytes.len().min(8) {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                assert_eq!(prefix.matches(&changed), at >= line.len(), "{line:?}, byte {at}");
            }
            let head = read_head(op, header, line.as_bytes()).unwrap();
            assert!(head.header == header && head.unexpected.is_none(), "{line:?}");
        }
        assert!(ReplyPrefix::expected(Op::Get, found(100_000)).is_none());
    }

    #[test]
    fn the_head_of_a_floor_ends_before_the_value() {
        let head = b"*2\r\n$4\r\nk\r\ny\r\n$3\r\n";
        let bytes = [head, &b"one\r\n*2\r\n"[..]].concat();
        for end in 0..head.len() {
            assert_eq!(head_len_bytes(Op::Floor, &bytes[..end]), None, "{end}");
        }
        assert_eq!(head_len_bytes(Op::Floor, &bytes), Some(head.len()));
        let expected = ResponseHeader::bare(Status::NotFound);
        let found = read_head(Op::Floor, expected, head).unwrap();
        assert_eq!(found.value_start, &head[ROW_LINE.len()..]);
        assert_eq!(found.header.value_len_bytes(), found.value_start.len() + 3);
        assert!(ReplyPrefix::expected(Op::Floor, found.header).unwrap().matches(&bytes));
        for invalid in [&b"*2\r\n:1\r\n"[..], b"*2\r\n$70000\r\n", b"*3\r\n$1\r\nk\r\n", b"*2\r\n$1\r\nkey\r\n$1\r\n"] {
            let head = &invalid[..head_len_bytes(Op::Floor, invalid).unwrap()];
            assert!(read_head(Op::Floor, expected, head).is_err(), "{}", invalid.escape_ascii());
        }
    }

    #[test]
    fn a_reply_with_a_hash_is_read_with_the_expected_length() {
        let expected = ResponseHeader::of_value(30).unwrap();
        let head = read_head(Op::Hgetall, expected, b"*2\r\n").unwrap();
        assert!(head.header == expected && head.value_start == b"2\r\n" && head.unexpected.is_none());
        assert!(ReplyPrefix::expected(Op::Hmget, expected).unwrap().matches(b"*12\r\n$1\r\n"));
        let not_found = ResponseHeader::bare(Status::NotFound);
        assert!(read_head(Op::Hgetall, expected, b"*0\r\n").unwrap().header == not_found);
        assert!(ReplyPrefix::expected(Op::Hgetall, not_found).unwrap().matches(b"*0\r\n*2\r\n"));
        assert!(read_head(Op::Hgetall, not_found, b"*2\r\n").is_err());
        let refused = read_head(Op::Hgetall, expected, b"-WRONGTYPE no hash\r\n").unwrap();
        assert_eq!(refused.unexpected.unwrap(), "-WRONGTYPE no hash");
        let request = b"*4\r\n$5\r\nHMGET\r\n$2\r\n10\r\n$1\r\na\r\n$1\r\nb\r\n";
        assert!(op(request) == Op::Hmget && key(KeyKind::U64, request) == Key::U64(10));
    }

    #[test]
    fn unexpected_replies_are_returned_and_invalid_replies_rejected() {
        let expected = ResponseHeader::bare(Status::NotFound);
        for line in ["-ERR no\r\n", "+OK\r\n", ":7\r\n", ":1\r\n"] {
            assert_eq!(read_head(Op::Get, expected, line.as_bytes()).unwrap().unexpected.unwrap(), line.trim_end());
        }
        assert_eq!(read_head(Op::Exists, expected, b"$3\r\n").unwrap().unexpected.unwrap(), "$3");
        for line in ["\r\n", "$\r\n", "$-2\r\n", "$1\n", "$4294967296\r\n", "*1\r\n", "_\r\n", "\0\0\0\n"] {
            assert!(read_head(Op::Get, expected, line.as_bytes()).is_err(), "{line:?}");
        }
        assert_eq!(line_len_bytes(&[b'x'; 10_000]), Some(LINE_LEN_MAX_BYTES));
        assert_eq!((line_len_bytes(b"$1\r"), line_len_bytes(b"$1\r\nv")), (None, Some(4)));
    }
}
