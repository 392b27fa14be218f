//! Batches of keys from arguments or standard input.
//!
//! In: the table's kind of keys, and either arguments or a stream with a terminator after each key. Out: batches of
//! keys, in order. A batch from a stream contains the keys that one read returned, so a program can write one key and
//! receive the key's row before it writes the next key.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use anyhow::anyhow;
use zero_kv::format::key::KEY_LEN_MAX_BYTES;
use zero_kv::{Key, KeyKind};

use crate::keys::{parse_key, unescape};

/// Initial length of the buffer that a stream is read into. The buffer grows for a longer line.
const PIECE_LEN_BYTES: usize = 256 << 10;
/// Maximum length of a line: the longest key, with each byte escaped by four characters, such as `\x00`.
const LINE_LEN_MAX_BYTES: usize = 4 * KEY_LEN_MAX_BYTES;

/// The syntax of keys in arguments and streams.
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
    kind: KeyKind,
    mut visit: impl FnMut(&[Key<'_>]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if are_from_stdin(args) {
        // Reads bypass io::stdin, which has a short buffer.
        let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(stdin_error)?;
        return for_each_batch_of_stream(File::from(stdin), syntax, kind, visit);
    }
    let texts = args.iter().map(|arg| decode(arg.as_bytes(), syntax));
    let texts = texts.collect::<anyhow::Result<Vec<_>>>()?;
    let keys = texts.iter().map(|text| parse_key(kind, text, 1));
    visit(&keys.collect::<anyhow::Result<Vec<_>>>()?)
}

fn for_each_batch_of_stream(
    mut input: impl Read,
    syntax: KeySyntax,
    kind: KeyKind,
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
            keys_before += visit_lines(&buffer[..complete_bytes], syntax, kind, keys_before, &mut visit)?;
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
    kind: KeyKind,
    keys_before: usize,
    visit: &mut impl FnMut(&[Key<'_>]) -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    let terminator = syntax.terminator();
    let lines = lines.strip_suffix(&[terminator]).unwrap_or(lines).split(|byte| *byte == terminator);
    let texts = lines.map(|text| decode(text, syntax)).enumerate();
    let texts = texts.map(|(at, text)| text.map_err(|error| syntax.error_in_stream(keys_before + at, &error)));
    let texts = texts.collect::<anyhow::Result<Vec<_>>>()?;
    let keys = texts.iter().map(|text| parse_key(kind, text, 1)).enumerate();
    let keys = keys.map(|(at, key)| key.map_err(|error| syntax.error_in_stream(keys_before + at, &error)));
    let keys = keys.collect::<anyhow::Result<Vec<_>>>()?;
    visit(&keys)?;
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
        for_each_batch_of_stream(SlowReader(input, step), syntax, KeyKind::Bytes, |keys| {
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
}
