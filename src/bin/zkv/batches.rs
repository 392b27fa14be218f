//! Batches of keys from arguments or standard input.
//!
//! In: the type of the table's keys, and either arguments or a stream with a terminator after each key. Out: batches of
//! stored keys, in order. A batch from a stream contains the keys that one read returned, so a program can write one key
//! and receive the key's row before it writes the next key.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::ops::Bound;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use anyhow::{anyhow, bail};
use zero_kv::client::request::prefix_range;
use zero_kv::client::{ClientError, KeyRange, OwnedKey};
use zero_kv::format::key::KEY_LEN_MAX_BYTES;
use zero_kv::format::key_type::KeyTextError;
use zero_kv::store::MappedRows;
use zero_kv::{Key, KeyType, Lookup, MappedStore};

use crate::args::RangeArgs;

/// Initial length of the buffer that a stream is read into. The buffer grows for a longer line.
const PIECE_LEN_BYTES: usize = 256 << 10;
/// Maximum length of a line: the longest key, with each byte escaped by four characters, such as `\x00`.
const LINE_LEN_MAX_BYTES: usize = 4 * KEY_LEN_MAX_BYTES;

#[derive(Clone, Copy, Default)]
pub(crate) struct KeySyntax {
    /// Whether keys contain escapes.
    pub(crate) escapes: bool,
    /// Whether NUL terminates the keys of a stream, instead of a line end.
    pub(crate) null: bool,
}

/// Returns whether the only argument is `-`, which means that the keys are read from standard input.
pub(crate) fn are_from_stdin(args: &[OsString]) -> bool {
    matches!(args, [arg] if arg == "-")
}

/// Calls `visit` with each batch of keys. All arguments form one batch, so an invalid argument is reported before any
/// key is looked up.
pub(crate) fn for_each_batch(
    args: &[OsString],
    syntax: KeySyntax,
    key_type: KeyType,
    mut visit: impl FnMut(&[Key<'_>]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if are_from_stdin(args) {
        // Reads bypass io::stdin, which has a short buffer.
        let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(stdin_error)?;
        return for_each_batch_of_stream(File::from(stdin), syntax, key_type, visit);
    }
    let texts = args.iter().map(|arg| decode(arg.as_bytes(), syntax));
    let texts = texts.collect::<anyhow::Result<Vec<_>>>()?;
    let keys = texts.iter().map(|text| parse_key(key_type, text, 1)).collect::<anyhow::Result<Vec<_>>>()?;
    visit(&keys.iter().map(ParsedKey::as_key).collect::<Vec<_>>())
}

fn for_each_batch_of_stream(
    mut input: impl Read,
    syntax: KeySyntax,
    key_type: KeyType,
    mut visit: impl FnMut(&[Key<'_>]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let terminator = syntax.terminator();
    let (mut buffer, mut len_bytes, mut keys_before) = (vec![0; PIECE_LEN_BYTES], 0, 0);
    loop {
        if len_bytes == buffer.len() {
            if len_bytes > LINE_LEN_MAX_BYTES {
                let error = anyhow!("a key of more than {KEY_LEN_MAX_BYTES} bytes, which is the maximum");
                return Err(syntax.error_in_stream(keys_before, &error));
            }
            buffer.resize(2 * len_bytes, 0);
        }
        let read_bytes = match input.read(&mut buffer[len_bytes..]) {
            Ok(read_bytes) => read_bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(stdin_error(error)),
        };
        let complete_bytes = match read_bytes {
            // At the end of the stream, the last key may lack a terminator.
            0 => len_bytes,
            _ => {
                let received = &buffer[len_bytes..len_bytes + read_bytes];
                let last_end = received.iter().rposition(|byte| *byte == terminator);
                let complete_bytes = last_end.map_or(0, |at| len_bytes + at + 1);
                len_bytes += read_bytes;
                complete_bytes
            }
        };
        if complete_bytes > 0 {
            keys_before += visit_lines(&buffer[..complete_bytes], syntax, key_type, keys_before, &mut visit)?;
            buffer.copy_within(complete_bytes..len_bytes, 0);
            len_bytes -= complete_bytes;
        }
        if read_bytes == 0 {
            return Ok(());
        }
    }
}

/// Parses complete lines, calls `visit` with their keys as one batch, and returns the number of keys.
fn visit_lines(
    lines: &[u8],
    syntax: KeySyntax,
    key_type: KeyType,
    keys_before: usize,
    visit: &mut impl FnMut(&[Key<'_>]) -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    let terminator = syntax.terminator();
    let lines = lines.strip_suffix(&[terminator]).unwrap_or(lines).split(|byte| *byte == terminator);
    let texts = lines.map(|text| decode(text, syntax)).enumerate();
    let texts = texts.map(|(at, text)| text.map_err(|error| syntax.error_in_stream(keys_before + at, &error)));
    let texts = texts.collect::<anyhow::Result<Vec<_>>>()?;
    let keys = texts.iter().map(|text| parse_key(key_type, text, 1)).enumerate();
    let keys = keys.map(|(at, key)| key.map_err(|error| syntax.error_in_stream(keys_before + at, &error)));
    let keys = keys.collect::<anyhow::Result<Vec<_>>>()?;
    visit(&keys.iter().map(ParsedKey::as_key).collect::<Vec<_>>())?;
    Ok(keys.len())
}

impl KeySyntax {
    fn terminator(self) -> u8 {
        if self.null { b'\0' } else { b'\n' }
    }

    fn error_in_stream(self, keys_before: usize, error: &anyhow::Error) -> anyhow::Error {
        let unit = if self.null { "key" } else { "line" };
        anyhow!("standard input, {unit} {}: {error}", keys_before + 1)
    }
}

fn decode(text: &[u8], syntax: KeySyntax) -> anyhow::Result<Cow<'_, [u8]>> {
    if syntax.escapes { unescape(text) } else { Ok(Cow::Borrowed(text)) }
}

fn stdin_error(error: io::Error) -> anyhow::Error {
    anyhow!("standard input: {error}")
}

impl RangeArgs {
    pub(crate) fn is_all(&self) -> bool {
        [&self.from, &self.after, &self.to, &self.before, &self.prefix].iter().all(|key| key.is_none())
    }

    /// Returns the range of stored keys. Clap has checked that each bound is given at most once.
    pub(crate) fn key_range(&self, key_type: KeyType) -> anyhow::Result<KeyRange> {
        if let Some(prefix) = &self.prefix {
            return Ok(prefix_range(&parse_prefix(key_type, prefix.as_bytes())?)?);
        }
        let start = match (&self.from, &self.after) {
            (Some(key), _) => start(key_type, key.as_bytes(), true)?,
            (_, Some(key)) => start(key_type, key.as_bytes(), false)?,
            (None, None) => Bound::Unbounded,
        };
        let end = match (&self.to, &self.before) {
            (Some(key), _) => end(key_type, key.as_bytes(), true)?,
            (_, Some(key)) => end(key_type, key.as_bytes(), false)?,
            (None, None) => Bound::Unbounded,
        };
        Ok(KeyRange::new(start, end))
    }

    pub(crate) fn rows<'s>(&self, store: &'s MappedStore) -> anyhow::Result<MappedRows<&'s MappedStore>> {
        let key_type = store.key_type();
        match &self.prefix {
            Some(prefix) => Ok(store.prefix(parse_prefix(key_type, prefix.as_bytes())?)?),
            None => Ok(store.range(self.key_range(key_type)?.bounds())?),
        }
    }
}

/// Returns the start of a range. A composite key may lack its last parts: it then stands for all keys with these parts.
fn start(key_type: KeyType, text: &[u8], is_included: bool) -> anyhow::Result<Bound<OwnedKey>> {
    let Some(range) = leading_parts(key_type, text)? else { return one_key(key_type, text, is_included) };
    Ok(match range.bounds() {
        (first, _) if is_included => first.map(OwnedKey::from),
        (_, Bound::Excluded(next)) => Bound::Included(next.into()),
        // No key is greater than all keys with the largest possible parts.
        _ => Bound::Excluded(OwnedKey::Bytes(vec![u8::MAX; KEY_LEN_MAX_BYTES])),
    })
}

/// Returns the end of a range, as [`start`] does.
fn end(key_type: KeyType, text: &[u8], is_included: bool) -> anyhow::Result<Bound<OwnedKey>> {
    let Some(range) = leading_parts(key_type, text)? else { return one_key(key_type, text, is_included) };
    Ok(match range.bounds() {
        (_, end) if is_included => end.map(OwnedKey::from),
        (Bound::Included(first), _) => Bound::Excluded(first.into()),
        (first, _) => first.map(OwnedKey::from),
    })
}

fn one_key(key_type: KeyType, text: &[u8], is_included: bool) -> anyhow::Result<Bound<OwnedKey>> {
    let key = OwnedKey::from(parse_key(key_type, text, 0)?.as_key());
    Ok(if is_included { Bound::Included(key) } else { Bound::Excluded(key) })
}

/// Returns the range of the keys with some leading parts, or `None` if the text has all parts of a key.
fn leading_parts(key_type: KeyType, text: &[u8]) -> anyhow::Result<Option<KeyRange>> {
    if !key_type.is_composite() || !matches!(key_type.parse(text), Err(KeyTextError::PartCount { .. })) {
        return Ok(None);
    }
    Ok(Some(prefix_range(&parse_prefix(key_type, text)?)?))
}

/// Returns the bytes with which the stored keys begin.
fn parse_prefix(key_type: KeyType, text: &[u8]) -> anyhow::Result<Vec<u8>> {
    let is_plain = key_type.is_plain();
    if is_plain {
        Ok(check_len(text, 0)?.to_vec())
    } else {
        key_type.parse_prefix(text).map_err(|error| wrong(key_type, &error))
    }
}

fn wrong(key_type: KeyType, error: &KeyTextError) -> anyhow::Error {
    anyhow!("the keys of this table are {key_type}: {error}")
}

/// Checks the length of a byte key. Because of this check, lookups in a file return the same error as lookups on a
/// server.
fn check_len(text: &[u8], min_bytes: usize) -> Result<&[u8], ClientError> {
    let len_bytes = text.len();
    match (min_bytes..=KEY_LEN_MAX_BYTES).contains(&len_bytes) {
        true => Ok(text),
        false => Err(ClientError::KeyLen { len_bytes }),
    }
}

/// A stored key.
enum ParsedKey<'t> {
    /// The text itself, or the number that it is.
    Plain(Key<'t>),
    Encoded(OwnedKey),
}

impl ParsedKey<'_> {
    fn as_key(&self) -> Key<'_> {
        match self {
            ParsedKey::Plain(key) => *key,
            ParsedKey::Encoded(key) => key.as_key(),
        }
    }
}

/// Parses a key of this type. `min_bytes` is the minimum length of a key of bytes: 0 for a bound of a range, otherwise 1.
/// Like `baker`, this function rejects a `+` before a number, which Rust's `parse` accepts.
fn parse_key(key_type: KeyType, text: &[u8], min_bytes: usize) -> anyhow::Result<ParsedKey<'_>> {
    match key_type {
        KeyType::BYTES => Ok(ParsedKey::Plain(Key::Bytes(check_len(text, min_bytes)?))),
        KeyType::U64 => {
            let digits = str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            digits.and_then(|digits| digits.parse().ok()).map(|key| ParsedKey::Plain(Key::U64(key))).ok_or_else(|| {
                anyhow!(
                    "the key is \"{}\", but the keys of this table are numbers: pass an unsigned 64-bit decimal (0 to \
                     18446744073709551615)",
                    text.escape_ascii()
                )
            })
        }
        _ => key_type.parse(text).map(ParsedKey::Encoded).map_err(|error| wrong(key_type, &error)),
    }
}

/// Decodes the escapes that `escape_ascii` writes, and `\0`.
fn unescape(text: &[u8]) -> anyhow::Result<Cow<'_, [u8]>> {
    if !text.contains(&b'\\') {
        return Ok(Cow::Borrowed(text));
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (byte, len_bytes) = match *rest {
            [b'n', ..] => (b'\n', 1),
            [b'r', ..] => (b'\r', 1),
            [b't', ..] => (b'\t', 1),
            [b'0', ..] => (b'\0', 1),
            [byte @ (b'\\' | b'"' | b'\''), ..] => (byte, 1),
            [b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default() as u8;
                (digit(high) << 4 | digit(low), 3)
            }
            _ => bail!(
                "\"{}\" has a backslash that does not begin an escape: use \\n, \\r, \\t, \\0, \\\\, \\\", \\' or \
                 \\xHH",
                String::from_utf8_lossy(text).escape_debug()
            ),
        };
        bytes.push(byte);
        rest = &rest[len_bytes..];
    }
    Ok(Cow::Owned(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader of a slice, and the maximum number of bytes that it returns per read.
    struct SlowReader<'a>(&'a [u8], usize);

    impl Read for SlowReader<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let len_bytes = self.1.min(self.0.len()).min(buffer.len());
            self.0.read(&mut buffer[..len_bytes])
        }
    }

    fn keys_of(input: &[u8], step: usize, syntax: KeySyntax) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        for_each_batch_of_stream(SlowReader(input, step), syntax, KeyType::BYTES, |keys| {
            assert!(!keys.is_empty());
            found.extend(keys.iter().map(|key| key.as_bytes().unwrap().to_vec()));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn the_keys_of_a_stream_do_not_depend_on_how_reads_split_it() {
        let long = [b"x".repeat(KEY_LEN_MAX_BYTES), b"y".to_vec()].join(&b'\n');
        for (input, expected) in [
            (&b""[..], vec![]),
            (b"a", vec![b"a".to_vec()]),
            (b"a\n", vec![b"a".to_vec()]),
            (b"a\r\n\xff b\nc", vec![b"a\r".to_vec(), b"\xff b".to_vec(), b"c".to_vec()]),
            (&long, vec![b"x".repeat(KEY_LEN_MAX_BYTES), b"y".to_vec()]),
        ] {
            for step in [1, 2, 3, 1 << 20] {
                assert_eq!(keys_of(input, step, KeySyntax::default()).unwrap(), expected, "{step} bytes at a time");
            }
        }
        let null = KeySyntax { null: true, ..KeySyntax::default() };
        assert_eq!(keys_of(b"a\nb\0c\0", 1, null).unwrap(), [&b"a\nb"[..], b"c"]);
        let escapes = KeySyntax { escapes: true, ..KeySyntax::default() };
        assert_eq!(keys_of(b"a\\nb\n\\x00\\\\\n", 4, escapes).unwrap(), [&b"a\nb"[..], b"\0\\"]);
    }

    #[test]
    fn an_error_names_the_line_of_an_invalid_key() {
        for (input, expected) in [
            (&b"a\n\nb\n"[..], "standard input, line 2: a key of 0 bytes"),
            (&b"x".repeat(1 << 20), "standard input, line 1: a key of more than 65535 bytes"),
            (&[&b"a\n"[..], &b"x".repeat(70_000)].concat(), "standard input, line 2: a key of 70000 bytes"),
        ] {
            for step in [1000, 1 << 20] {
                let error = keys_of(input, step, KeySyntax::default()).unwrap_err().to_string();
                assert!(error.starts_with(expected), "{error}");
            }
        }
        let escapes = KeySyntax { escapes: true, ..KeySyntax::default() };
        let error = keys_of(b"a\nb\\q\n", 100, escapes).unwrap_err().to_string();
        assert!(error.starts_with("standard input, line 2: "), "{error}");
    }

    #[test]
    fn unescape_reverses_escape_ascii_and_rejects_invalid_escapes() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(*unescape(all.escape_ascii().to_string().as_bytes()).unwrap(), all);
        assert_eq!(*unescape(b"a\\0\\xFfb").unwrap(), *b"a\0\xffb");
        for text in [&b"\\"[..], b"\\q", b"\\x", b"\\x0", b"\\x0g", b"a\\\\\\"] {
            assert!(unescape(text).is_err(), "{}", text.escape_ascii());
        }
    }
}
