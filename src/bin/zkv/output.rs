//! How rows, keys and errors are written.
//!
//! In: rows, or a part of one. Out: text, to wherever it goes. It knows neither
//! where rows come from nor why they are written.

use std::fmt;
use std::io::{self, Write};

use anyhow::anyhow;
use csv::{QuoteStyle, WriterBuilder};
use serde::Serialize;
use zero_kv::{Key, StoreError};

/// What some readers take away from the beginning of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Text is written in pieces of this length.
const BUFFER_LEN_BYTES: usize = 256 << 10;
/// Of a key that is named among other things, so much is shown.
const KEY_SHOWN_MAX_BYTES: usize = 64;

/// A writer of rows that `baker` reads, of which this is the first key.
pub(crate) fn csv_writer<W: Write>(output: W, delimiter: u8, first_key: Key<'_>) -> csv::Writer<W> {
    // Who reads the text takes these bytes for a mark at its beginning, unless a quote precedes them.
    let is_mark = first_key.as_bytes().is_some_and(|key| key.starts_with(BYTE_ORDER_MARK));
    let quote_style = if is_mark { QuoteStyle::Always } else { QuoteStyle::Necessary };
    let mut builder = WriterBuilder::new();
    builder.delimiter(delimiter).quote_style(quote_style).buffer_capacity(BUFFER_LEN_BYTES).from_writer(output)
}

pub(crate) fn write_record<W: Write>(output: &mut csv::Writer<W>, key: Key<'_>, value: &[u8]) -> io::Result<()> {
    let mut digits = itoa::Buffer::new();
    let key = match key {
        Key::U64(key) => digits.format(key).as_bytes(),
        Key::Bytes(key) => key,
    };
    output.write_record([key, value]).map_err(csv_error)
}

pub(crate) fn csv_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        fault => io::Error::other(format!("{fault:?}")),
    }
}

/// A buffer as long as that of [`csv_writer`].
pub(crate) fn buffered<W: Write>(output: W) -> io::BufWriter<W> {
    io::BufWriter::with_capacity(BUFFER_LEN_BYTES, output)
}

/// Writes one line of JSON.
pub(crate) fn write_json(output: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *output, line)?;
    output.write_all(b"\n")
}

/// A key in JSON: a number, or text.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum JsonKey<'a> {
    U64(u64),
    Text(&'a str),
}

impl<'a> JsonKey<'a> {
    /// `remedy` is what to do about a key that is no text.
    pub(crate) fn of(key: Key<'a>, remedy: &str) -> anyhow::Result<Self> {
        match key {
            Key::U64(key) => Ok(JsonKey::U64(key)),
            Key::Bytes(bytes) => match str::from_utf8(bytes) {
                Ok(text) => Ok(JsonKey::Text(text)),
                Err(_) => Err(anyhow!("the key {} is not UTF-8, as JSON must be: {remedy}", Shown(key))),
            },
        }
    }
}

/// A value in JSON, if it is text.
pub(crate) fn json_value<'a>(key: Key<'_>, value: &'a [u8], remedy: &str) -> anyhow::Result<&'a str> {
    str::from_utf8(value)
        .map_err(|_| anyhow!("the value of key {} is not UTF-8, as JSON must be: {remedy}", Shown(key)))
}

/// A key on a line: bytes escaped and in quotes, and of long ones the beginning.
pub(crate) struct Shown<'a>(pub(crate) Key<'a>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Key::U64(key) => write!(f, "{key}"),
            Key::Bytes(key) if key.len() <= KEY_SHOWN_MAX_BYTES => write!(f, "\"{}\"", key.escape_ascii()),
            Key::Bytes(key) => write!(f, "\"{}...\"", key[..KEY_SHOWN_MAX_BYTES].escape_ascii()),
        }
    }
}

/// What came of writing, or `read_enough` where who reads closed the pipe: that
/// is neither an error nor a reason to write more.
pub(crate) fn settle<T>(
    written: anyhow::Result<T>,
    read_enough: T,
    unwritten: impl FnOnce(io::Error) -> anyhow::Error,
) -> anyhow::Result<T> {
    match written.map_err(|error| error.downcast::<io::Error>()) {
        Ok(result) => Ok(result),
        Err(Ok(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(read_enough),
        Err(Ok(error)) => Err(unwritten(error)),
        Err(Err(error)) => Err(error),
    }
}

/// The same of a text that is all there is to write.
pub(crate) fn settle_stdout(written: io::Result<()>) -> anyhow::Result<()> {
    settle(written.map_err(Into::into), (), unwritten)
}

pub(crate) fn unwritten(error: io::Error) -> anyhow::Error {
    anyhow!("standard output: {error}")
}

/// Not eprintln!, which panics when nobody reads standard error.
pub(crate) fn complain(error: &dyn fmt::Display) {
    let _ = writeln!(io::stderr(), "zkv: {error}");
}

/// What is wrong with a file's bytes is what was asked for; that it cannot be
/// read is an error.
pub(crate) fn tell_damage(error: StoreError) -> anyhow::Result<bool> {
    match error {
        StoreError::Format { .. } => {
            complain(&error);
            Ok(false)
        }
        error => Err(error.into()),
    }
}
