//! Encodes replies in the protocol version of a connection. For clients that do not decode replies, finds where a reply
//! ends.
//!
//! In: replies, or bytes that a server sent. Out: bytes, appended to a buffer, or the length of the first reply. For
//! RESP2 clients, the types that RESP2 does not have are encoded as in Redis.

use thiserror::Error;

use super::integer;

/// Protocol version of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// RESP2, the initial version of every connection.
    #[default]
    Resp2,
    /// RESP3, which a client selects with `HELLO 3`.
    Resp3,
}

/// A buffer that replies are appended to.
pub trait Sink {
    /// Appends bytes.
    fn push_bytes(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    #[inline]
    fn push_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Appends replies to a buffer.
#[derive(Debug)]
pub struct Reply<'a, S = Vec<u8>> {
    out: &'a mut S,
    version: Version,
}

impl<'a, S: Sink> Reply<'a, S> {
    /// The maximum length of the header of an array or a map.
    pub const HEADER_LEN_MAX_BYTES: usize = "*18446744073709551615\r\n".len();

    /// Creates an encoder that appends replies to `out`, in the given protocol version.
    #[inline]
    pub fn new(out: &'a mut S, version: Version) -> Self {
        Reply { out, version }
    }

    /// Sets the protocol version of the replies that are appended next.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Returns the buffer, so that the caller can append other bytes.
    #[inline]
    pub fn sink(&mut self) -> &mut S {
        self.out
    }

    /// Returns the protocol version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Appends `+OK`.
    pub fn ok(&mut self) {
        self.simple("OK");
    }

    /// Appends a simple string: a short text on one line. Line ends become spaces.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Appends an error. `text` consists of a word in capitals such as `ERR`, a space, and a message. Line ends become
    /// spaces.
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        self.line(b'-', text.as_ref());
    }

    /// Appends a number.
    #[inline]
    pub fn integer(&mut self, number: i64) {
        self.out.push_bytes(b":");
        self.out.push_bytes(itoa::Buffer::new().format(number).as_bytes());
        self.out.push_bytes(b"\r\n");
    }

    /// Appends a value, as a bulk string.
    #[inline]
    pub fn bulk(&mut self, value: &[u8]) {
        self.bulk_header(value.len());
        self.out.push_bytes(value);
        self.bulk_end();
    }

    /// Appends the header of a value that the caller sends from another buffer. The caller must call
    /// [`Reply::bulk_end`] after the value.
    #[inline]
    pub fn bulk_header(&mut self, value_len_bytes: usize) {
        self.header(b'$', value_len_bytes);
    }

    /// Appends the bytes that end a value.
    #[inline]
    pub fn bulk_end(&mut self) {
        self.out.push_bytes(b"\r\n");
    }

    /// Appends null in place of a value.
    #[inline]
    pub fn null(&mut self) {
        self.by_version(b"$-1\r\n", b"_\r\n");
    }

    /// Appends null in place of an array.
    pub fn null_array(&mut self) {
        self.by_version(b"*-1\r\n", b"_\r\n");
    }

    /// Appends the header of an array. The caller must append the array's `len` elements.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len);
    }

    /// Appends the header of a push message, such as a Pub/Sub message. The caller must append the message's `len`
    /// elements.
    pub fn push(&mut self, len: usize) {
        self.header(if self.version == Version::Resp2 { b'*' } else { b'>' }, len);
    }

    /// Appends the header of a map. The caller must append a key and a value for each of the `pairs` pairs.
    pub fn map(&mut self, pairs: usize) {
        match self.version {
            Version::Resp2 => self.header(b'*', 2 * pairs),
            Version::Resp3 => self.header(b'%', pairs),
        }
    }

    /// Appends the header of a set. The caller must append the set's `len` elements.
    pub fn set(&mut self, len: usize) {
        self.header(if self.version == Version::Resp2 { b'*' } else { b'~' }, len);
    }

    /// Appends a text for people to read. The text may have several lines.
    pub fn verbatim(&mut self, text: &str) {
        match self.version {
            Version::Resp2 => self.bulk(text.as_bytes()),
            Version::Resp3 => {
                self.header(b'=', b"txt:".len() + text.len());
                self.out.push_bytes(b"txt:");
                self.out.push_bytes(text.as_bytes());
                self.bulk_end();
            }
        }
    }

    #[inline]
    fn header(&mut self, kind: u8, number: usize) {
        self.out.push_bytes(&[kind]);
        self.out.push_bytes(itoa::Buffer::new().format(number).as_bytes());
        self.out.push_bytes(b"\r\n");
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push_bytes(&[kind]);
        for (at, part) in text.split(|byte| matches!(byte, b'\r' | b'\n')).enumerate() {
            self.out.push_bytes(if at == 0 { b"" } else { b" " });
            self.out.push_bytes(part);
        }
        self.out.push_bytes(b"\r\n");
    }

    fn by_version(&mut self, resp2: &[u8], resp3: &[u8]) {
        self.out.push_bytes(if self.version == Version::Resp2 { resp2 } else { resp3 });
    }
}

/// The reason why bytes are not a reply.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("byte '{}' at offset {at_bytes} does not start a valid line of a reply", kind.escape_ascii())]
pub struct NotReply {
    /// First byte of the invalid line.
    pub kind: u8,
    /// Offset of the invalid line in the input.
    pub at_bytes: usize,
}

/// Returns the length of the reply at the start of `input`, or `None` if the reply is incomplete. The length includes
/// the RESP3 attributes that precede the reply.
///
/// # Errors
/// [`NotReply`] if a line has an unknown type or an invalid length.
pub fn reply_len_bytes(input: &[u8]) -> Result<Option<usize>, NotReply> {
    let mut at = 0;
    let mut replies_left = 1_u64;
    while replies_left > 0 {
        let Some(&kind) = input.get(at) else { return Ok(None) };
        let wrong = NotReply { kind, at_bytes: at };
        if !b"+-:,#_(*~>%|$=!".contains(&kind) {
            return Err(wrong);
        }
        let Some(line_len) = input[at..].iter().position(|&byte| byte == b'\n') else { return Ok(None) };
        let line = input[at + 1..at + line_len].strip_suffix(b"\r").ok_or(wrong)?;
        at += line_len + 1;
        let followers = match kind {
            b'*' | b'~' | b'>' => length(line).ok_or(wrong)?.unwrap_or(0),
            b'%' => length(line).ok_or(wrong)?.unwrap_or(0).checked_mul(2).ok_or(wrong)?,
            b'|' => length(line).ok_or(wrong)?.and_then(|len| len.checked_mul(2)?.checked_add(1)).ok_or(wrong)?,
            b'$' | b'=' | b'!' => {
                if let Some(len) = length(line).ok_or(wrong)? {
                    let len = usize::try_from(len).map_err(|_| wrong)?;
                    at = at.checked_add(len).and_then(|at| at.checked_add(2)).ok_or(wrong)?;
                    match input.get(at - 2..at) {
                        None => return Ok(None),
                        Some(b"\r\n") => {}
                        Some(_) => return Err(wrong),
                    }
                }
                0
            }
            _ => 0,
        };
        replies_left = (replies_left - 1).checked_add(followers).ok_or(wrong)?;
    }
    Ok(Some(at))
}

/// Parses the length in a header. Returns `None` if the length is invalid, and `Some(None)` for -1, which is RESP2's
/// null.
fn length(line: &[u8]) -> Option<Option<u64>> {
    match integer(line)? {
        -1 => Some(None),
        len => u64::try_from(len).ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::super::reply_len_bytes;
    use super::*;

    /// Returns the output of `write` in RESP2 and in RESP3. Checks that each output consists of `count` complete
    /// replies.
    fn written(count: usize, write: impl Fn(&mut Reply)) -> [String; 2] {
        [Version::Resp2, Version::Resp3].map(|version| {
            let mut out = b"before".to_vec();
            write(&mut Reply::new(&mut out, version));
            let written = out.strip_prefix(b"before").unwrap();
            let mut rest = written;
            for _ in 0..count {
                rest = &rest[reply_len_bytes(rest).unwrap().unwrap()..];
            }
            assert_eq!(rest, b"");
            written.escape_ascii().to_string().replace(r"\r\n", "|")
        })
    }

    #[test]
    fn most_replies_are_equal_in_both_versions() {
        for (write, text) in [
            (&(|reply: &mut Reply| reply.ok()) as &dyn Fn(&mut Reply), "+OK|"),
            (&|reply| reply.simple("a\r\nb"), "+a  b|"),
            (&|reply| reply.error("ERR a\rb\nc"), "-ERR a b c|"),
            (&|reply| reply.integer(i64::MIN), ":-9223372036854775808|"),
            (&|reply| reply.integer(0), ":0|"),
            (&|reply| reply.bulk(b""), "$0||"),
            (&|reply| reply.bulk(b"a\r\n"), r"$3|a||"),
            (&|reply| reply.array(0), "*0|"),
        ] {
            assert_eq!(written(1, write), [text, text]);
        }
    }

    #[test]
    fn types_that_resp2_lacks_are_encoded_as_in_redis() {
        for (write, resp2, resp3) in [
            (&(|reply: &mut Reply| reply.null()) as &dyn Fn(&mut Reply), "$-1|", "_|"),
            (&|reply| reply.null_array(), "*-1|", "_|"),
            (&|reply| reply.map(0), "*0|", "%0|"),
            (&|reply| reply.set(0), "*0|", "~0|"),
            (&|reply| reply.verbatim("a\r\nb"), "$4|a|b|", "=8|txt:a|b|"),
        ] {
            assert_eq!(written(1, write), [resp2, resp3]);
        }
    }

    #[test]
    fn aggregates_contain_the_following_replies() {
        let [resp2, resp3] = written(1, |reply| {
            reply.array(2);
            reply.map(1);
            reply.simple("a");
            reply.set(2);
            reply.integer(1);
            reply.array(1);
            reply.null();
            reply.bulk(b"b");
        });
        assert_eq!((&resp2[..], &resp3[..]), ("*2|*2|+a|*2|:1|*1|$-1|$1|b|", "*2|%1|+a|~2|:1|*1|_|$1|b|"));
    }

    #[test]
    fn a_value_from_another_buffer_has_the_framing_of_a_copied_value() {
        let in_place = written(1, |reply| reply.bulk(&[b'x'; 1000]));
        let framed = written(1, |reply| {
            reply.bulk_header(1000);
            reply.sink().extend([b'x'; 1000]);
            reply.bulk_end();
        });
        assert_eq!(framed, in_place);
    }
}

#[cfg(test)]
mod reply_len_tests {
    use super::*;

    const REPLIES: &[&str] = &[
        "+OK\r\n",
        "-ERR no\r\n",
        ":-12\r\n",
        ",1.5\r\n",
        "#t\r\n",
        "_\r\n",
        "(123456789012345678901234567890\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "$0\r\n\r\n",
        "$4\r\na\r\nb\r\n",
        "=5\r\ntxt:a\r\n",
        "!3\r\nERR\r\n",
        "*0\r\n",
        "*2\r\n*1\r\n:1\r\n$1\r\nx\r\n",
        "%2\r\n+a\r\n~2\r\n:1\r\n:2\r\n+b\r\n_\r\n",
        "|1\r\n+a\r\n:1\r\n*1\r\n:2\r\n",
        ">2\r\n+a\r\n+b\r\n",
    ];

    #[test]
    fn the_end_of_a_reply_is_found() {
        for reply in REPLIES {
            for end in 0..reply.len() {
                assert_eq!(reply_len_bytes(&reply.as_bytes()[..end]), Ok(None), "{reply:?} to {end}");
            }
            for suffix in ["", "x", "+OK\r\n"] {
                assert_eq!(reply_len_bytes(format!("{reply}{suffix}").as_bytes()), Ok(Some(reply.len())), "{reply:?}");
            }
        }
    }

    #[test]
    fn an_invalid_line_is_rejected_with_its_offset() {
        for (input, kind, at_bytes) in [
            ("x\r\n", b'x', 0),
            ("\0", 0, 0),
            ("+OK\n", b'+', 0),
            ("$x\r\n", b'$', 0),
            ("$-2\r\n", b'$', 0),
            ("$?\r\n", b'$', 0),
            ("$1\r\nabc", b'$', 0),
            ("|-1\r\n", b'|', 0),
            ("%9223372036854775807\r\n%9223372036854775807\r\n", b'%', 22),
            ("*2\r\n:1\r\n?\r\n", b'?', 8),
        ] {
            assert_eq!(reply_len_bytes(input.as_bytes()), Err(NotReply { kind, at_bytes }), "{input:?}");
        }
    }

    #[test]
    fn any_length_and_any_depth_are_accepted() {
        for kind in ["$", "*", "%4611686018427387903\r\n:1\r\n*"] {
            assert_eq!(reply_len_bytes(format!("{kind}9223372036854775807\r\n").as_bytes()), Ok(None));
        }
        let mut deep = b"*1\r\n".repeat(100_000);
        assert_eq!(reply_len_bytes(&deep), Ok(None));
        deep.extend(b":1\r\n");
        assert_eq!(reply_len_bytes(&deep), Ok(Some(deep.len())));
    }
}
