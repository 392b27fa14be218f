//! Converts inline commands. An inline command is a line of words, which a person can type.
//!
//! In: a line. Out: the command in RESP's array form. Quoting follows Redis.

/// Converts a line to a command in RESP's array form. Returns `None` if a quote is not closed, or if a closing quote is
/// not followed by a space or the end of the line. Returns an empty vector for a line without words.
pub(super) fn to_command(line: &[u8]) -> Option<Vec<u8>> {
    let mut words = Words { rest: line };
    let mut arg_count = 0_usize;
    let mut args = Vec::new();
    let mut word = Vec::new();
    while words.next_into(&mut word)? {
        arg_count += 1;
        args.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        args.extend_from_slice(&word);
        args.extend_from_slice(b"\r\n");
    }
    if arg_count == 0 {
        return Some(Vec::new());
    }
    let mut command = format!("*{arg_count}\r\n").into_bytes();
    command.append(&mut args);
    Some(command)
}

struct Words<'a> {
    rest: &'a [u8],
}

impl Words<'_> {
    /// Reads the next word into `word`. Returns `false` if no word is left, and `None` if the quotes of the word are
    /// invalid.
    fn next_into(&mut self, word: &mut Vec<u8>) -> Option<bool> {
        word.clear();
        while let [space, rest @ ..] = self.rest
            && is_space(*space)
        {
            self.rest = rest;
        }
        if self.rest.is_empty() {
            return Some(false);
        }
        loop {
            match self.rest {
                [] => return Some(true),
                [b' ' | b'\n' | b'\r' | b'\t', rest @ ..] => {
                    self.rest = rest;
                    return Some(true);
                }
                // A closing quote ends the word.
                [b'"', rest @ ..] => {
                    self.rest = double_quoted(rest, word)?;
                    return Some(true);
                }
                [b'\'', rest @ ..] => {
                    self.rest = single_quoted(rest, word)?;
                    return Some(true);
                }
                [byte, rest @ ..] => {
                    word.push(*byte);
                    self.rest = rest;
                }
            }
        }
    }
}

/// Appends the text before the closing `"` to `word`, with escapes decoded. Returns the bytes after the closing quote,
/// or `None` if that quote is missing or is inside a word.
fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let byte;
        (byte, rest) = match rest {
            [b'"', rest @ ..] => return followed_by_space(rest),
            [b'\\', b'x', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex(*high) << 4 | hex(*low), rest)
            }
            [b'\\', escaped, rest @ ..] => (unescaped(*escaped), rest),
            [byte, rest @ ..] => (*byte, rest),
            [] => return None,
        };
        word.push(byte);
    }
}

/// Appends the text before the closing `'` to `word`, with escaped quotes decoded. Returns the bytes after the closing
/// quote, or `None` if that quote is missing or is inside a word.
fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let byte;
        (byte, rest) = match rest {
            [b'\'', rest @ ..] => return followed_by_space(rest),
            [b'\\', b'\'', rest @ ..] => (b'\'', rest),
            [byte, rest @ ..] => (*byte, rest),
            [] => return None,
        };
        word.push(byte);
    }
}

fn followed_by_space(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(|&byte| is_space(byte)).then_some(rest)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        byte => byte,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Command;
    use super::*;

    fn words(line: &str) -> Option<Vec<Vec<u8>>> {
        let command = to_command(line.as_bytes())?;
        let words: Vec<Vec<u8>> = Command::new(&command).args().map(<[u8]>::to_vec).collect();
        assert_eq!(words.len(), Command::new(&command).arg_count());
        Some(words)
    }

    #[test]
    fn words_are_separated_by_spaces() {
        for line in
            ["get key", "  get\t key  ", "get\r\x0b\x0ckey", "\"get\" 'key'", "g\"et\"\tk'ey'", "\"get\"\x0bkey"]
        {
            assert_eq!(words(line).unwrap(), [b"get", b"key"], "{line:?}");
        }
        for line in ["", " ", "\t \r\x0b\x0c"] {
            assert_eq!(to_command(line.as_bytes()).unwrap(), b"", "{line:?}");
        }
        // As in Redis, the bytes 0x0B and 0x0C separate words only before the start of a word.
        assert_eq!(words("a\x0bb\x0cc").unwrap(), [b"a\x0bb\x0cc"]);
    }

    #[test]
    fn quotes_are_parsed_as_in_redis() {
        for (line, word) in [
            (r#""\x41\x7a\xfF""#, &b"Az\xff"[..]),
            (r#""\n\r\t\b\a\\\"\q""#, b"\n\r\t\x08\x07\\\"q"),
            (r#""\x4""#, b"x4"),
            (r#""\xg0""#, b"xg0"),
            (r#""""#, b""),
            ("''", b""),
            (r"'\n\'\a'", b"\\n'\\a"),
            (r"a\nb", b"a\\nb"),
            ("'a b'", b"a b"),
            ("foo\"bar\"", b"foobar"),
            ("\0", b"\0"),
        ] {
            assert_eq!(words(line).unwrap(), [word], "{line}");
        }
    }

    #[test]
    fn quotes_left_open_or_closed_within_a_word_are_rejected() {
        for line in
            ["\"", "'", "get \"key", "get 'key", "\"a\"b", "'a'b", "\"a\"\"b\"", r#""\""#, r"'\'", r#""\x"#, "\"\\"]
        {
            assert_eq!(words(line), None, "{line}");
        }
    }
}
