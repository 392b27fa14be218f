//! Finds the end of a reply, for clients that do not decode replies.
//!
//! In: bytes that a server sent. Out: the length of the first reply. Replies may be nested to any depth. The search
//! allocates no memory: instead of keeping a stack, it counts the replies that are still incomplete.

use thiserror::Error;

use super::integer;

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
