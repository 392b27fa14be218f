//! Keys as arguments or standard input give them, some at a time.
//!
//! In: arguments, or a stream of keys with an end behind each; and what the keys of a
//! table are. Out: batches of keys, in their order. A batch of a stream is what has come of it
//! when it is asked for, so whoever writes a key and waits gets its answer.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use anyhow::anyhow;
use zero_kv::format::key::KEY_LEN_MAX_BYTES;
use zero_kv::{Key, KeyKind};

use crate::keys::{read_key, unescape};

/// A stream is read in pieces of this length.
const PIECE_LEN_BYTES: usize = 256 << 10;
/// No key is longer, however it is escaped: four characters stand for a byte.
const LINE_LEN_MAX_BYTES: usize = 4 * KEY_LEN_MAX_BYTES;

/// How keys are written.
#[derive(Clone, Copy, Default)]
pub(crate) struct Spelling {
    /// Bytes may be escaped.
    pub(crate) escapes: bool,
    /// In a stream, a NUL ends a key, and not a line end.
    pub(crate) null: bool,
}

/// Whether keys come from standard input.
pub(crate) fn are_streamed(args: &[OsString]) -> bool {
    matches!(args, [arg] if arg == "-")
}

/// Gives all keys in batches. All arguments are read before a batch is given: one that is
/// no key is told before anything is asked.
pub(crate) fn each_batch(
    args: &[OsString],
    spelling: Spelling,
    kind: KeyKind,
    mut take: impl FnMut(&[Key<'_>]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if are_streamed(args) {
        // Not io::stdin, whose buffer is short.
        let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(unread)?;
        return each_of_stream(File::from(stdin), spelling, kind, take);
    }
    let texts = args.iter().map(|arg| text_of(arg.as_bytes(), spelling));
    let texts = texts.collect::<anyhow::Result<Vec<_>>>()?;
    let keys = texts.iter().map(|text| read_key(kind, text, 1));
    take(&keys.collect::<anyhow::Result<Vec<_>>>()?)
}

fn each_of_stream(
    mut input: impl Read,
    spelling: Spelling,
    kind: KeyKind,
    mut take: impl FnMut(&[Key<'_>]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let end = if spelling.null { b'\0' } else { b'\n' };
    let (mut buffer, mut len_bytes, mut number) = (vec![0; PIECE_LEN_BYTES], 0, 0);
    let in_stream = |at: usize, error: &anyhow::Error| {
        let unit = if spelling.null { "key" } else { "line" };
        anyhow!("standard input, {unit} {}: {error}", at + 1)
    };
    loop {
        if len_bytes == buffer.len() {
            if len_bytes > LINE_LEN_MAX_BYTES {
                let error = anyhow!("longer than {KEY_LEN_MAX_BYTES} bytes, as no key can be");
                return Err(in_stream(number, &error));
            }
            buffer.resize(2 * len_bytes, 0);
        }
        let read_bytes = match input.read(&mut buffer[len_bytes..]) {
            Ok(read_bytes) => read_bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(unread(error)),
        };
        let ends_at = match read_bytes {
            // The last key needs no end.
            0 => len_bytes,
            _ => {
                let came = &buffer[len_bytes..len_bytes + read_bytes];
                let last_end = came.iter().rposition(|byte| *byte == end);
                let ends_at = last_end.map_or(0, |at| len_bytes + at + 1);
                len_bytes += read_bytes;
                ends_at
            }
        };
        if ends_at > 0 {
            let texts = buffer[..ends_at].strip_suffix(&[end]).unwrap_or(&buffer[..ends_at]).split(|byte| *byte == end);
            let texts = texts.map(|text| text_of(text, spelling));
            let texts = texts.enumerate().map(|(at, text)| text.map_err(|error| in_stream(number + at, &error)));
            let texts = texts.collect::<anyhow::Result<Vec<_>>>()?;
            let keys = texts.iter().map(|text| read_key(kind, text, 1)).enumerate();
            let keys = keys.map(|(at, key)| key.map_err(|error| in_stream(number + at, &error)));
            let keys = keys.collect::<anyhow::Result<Vec<_>>>()?;
            take(&keys)?;
            number += keys.len();
            buffer.copy_within(ends_at..len_bytes, 0);
            len_bytes -= ends_at;
        }
        if read_bytes == 0 {
            return Ok(());
        }
    }
}

fn text_of(text: &[u8], spelling: Spelling) -> anyhow::Result<Cow<'_, [u8]>> {
    if spelling.escapes { unescape(text) } else { Ok(Cow::Borrowed(text)) }
}

fn unread(error: io::Error) -> anyhow::Error {
    anyhow!("standard input: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives so many bytes at a time.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let len_bytes = self.1.min(self.0.len()).min(buffer.len());
            self.0.read(&mut buffer[..len_bytes])
        }
    }

    fn keys_of(input: &[u8], step: usize, spelling: Spelling) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        each_of_stream(Drip(input, step), spelling, KeyKind::Bytes, |keys| {
            assert!(!keys.is_empty());
            found.extend(keys.iter().map(|key| key.as_bytes().unwrap().to_vec()));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn a_stream_has_the_same_keys_however_it_comes() {
        let long = [b"x".repeat(KEY_LEN_MAX_BYTES), b"y".to_vec()].join(&b'\n');
        for (input, expected) in [
            (&b""[..], vec![]),
            (b"a", vec![b"a".to_vec()]),
            (b"a\n", vec![b"a".to_vec()]),
            (b"a\r\n\xff b\nc", vec![b"a\r".to_vec(), b"\xff b".to_vec(), b"c".to_vec()]),
            (&long, vec![b"x".repeat(KEY_LEN_MAX_BYTES), b"y".to_vec()]),
        ] {
            for step in [1, 2, 3, 1 << 20] {
                assert_eq!(keys_of(input, step, Spelling::default()).unwrap(), expected, "{step} bytes at a time");
            }
        }
        let null = Spelling { null: true, ..Spelling::default() };
        assert_eq!(keys_of(b"a\nb\0c\0", 1, null).unwrap(), [&b"a\nb"[..], b"c"]);
        let escapes = Spelling { escapes: true, ..Spelling::default() };
        assert_eq!(keys_of(b"a\\nb\n\\x00\\\\\n", 4, escapes).unwrap(), [&b"a\nb"[..], b"\0\\"]);
    }

    #[test]
    fn what_is_no_key_is_told_with_its_number() {
        for (input, said) in [
            (&b"a\n\nb\n"[..], "standard input, line 2: a key of 0 bytes"),
            (&b"x".repeat(1 << 20), "standard input, line 1: longer than 65535 bytes"),
            (&[&b"a\n"[..], &b"x".repeat(70_000)].concat(), "standard input, line 2: a key of 70000 bytes"),
        ] {
            for step in [1000, 1 << 20] {
                let error = keys_of(input, step, Spelling::default()).unwrap_err().to_string();
                assert!(error.starts_with(said), "{error}");
            }
        }
        let escapes = Spelling { escapes: true, ..Spelling::default() };
        let error = keys_of(b"a\nb\\q\n", 100, escapes).unwrap_err().to_string();
        assert!(error.starts_with("standard input, line 2: "), "{error}");
    }
}
