//! Encoding of rows and keys as text, and output of errors.
//!
//! In: rows, keys, or errors. Out: text. This module does not depend on the source of the rows.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use anyhow::anyhow;
use serde::Serialize;
use zero_kv::csv_text::csv_settings;
use zero_kv::printable::{PrintableWriter, shortened};
use zero_kv::{Key, KeyType, StoreError};

const BUFFER_LEN_BYTES: usize = 256 << 10;
const KEY_SHOWN_MAX_BYTES: usize = 64;

/// Returns a writer of delimited rows that `baker` can read back. The key of the first row, `first_key`, determines
/// whether all fields must be quoted.
pub(crate) fn csv_writer<W: Write>(output: W, delimiter: u8, first_key: Key<'_>) -> csv::Writer<W> {
    let mut settings = csv_settings(delimiter, first_key.as_bytes().unwrap_or_default());
    settings.buffer_capacity(BUFFER_LEN_BYTES).from_writer(output)
}

/// Returns the written form of a stored key: the key itself if it is plain, otherwise text, which is stored in `text`.
pub(crate) fn written<'k>(key_type: KeyType, key: Key<'k>, text: &'k mut Vec<u8>) -> Key<'k> {
    if key_type.is_plain() {
        return key;
    }
    text.clear();
    key_type.write(key, text);
    Key::Bytes(text)
}

/// Calls `use_text` with the decimal digits or the bytes of a key.
pub(crate) fn with_text<T>(key: Key<'_>, use_text: impl FnOnce(&[u8]) -> T) -> T {
    match key {
        Key::U64(key) => use_text(itoa::Buffer::new().format(key).as_bytes()),
        Key::Bytes(key) => use_text(key),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    bytes.iter().for_each(|byte| write!(digits, "{byte:02x}").expect("a String takes any text"));
    digits
}

/// Adds a buffer to a writer. The buffer is as long as the buffer of a [`csv_writer`].
pub(crate) fn buffered<W: Write>(output: W) -> io::BufWriter<W> {
    io::BufWriter::with_capacity(BUFFER_LEN_BYTES, output)
}

pub(crate) fn write_json_line(output: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *output, line)?;
    output.write_all(b"\n")
}

#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum JsonKey<'a> {
    U64(u64),
    Text(&'a str),
}

impl<'a> JsonKey<'a> {
    /// Returns the key for JSON. If the key is not UTF-8, returns an error with this remedy.
    pub(crate) fn new(key: Key<'a>, remedy: &str) -> anyhow::Result<Self> {
        match key {
            Key::U64(key) => Ok(JsonKey::U64(key)),
            Key::Bytes(bytes) => match str::from_utf8(bytes) {
                Ok(text) => Ok(JsonKey::Text(text)),
                Err(_) => Err(anyhow!("the key {} is not UTF-8, which JSON requires: {remedy}", DisplayKey(key))),
            },
        }
    }
}

/// Returns a value as text. If the value is not UTF-8, returns an error with this remedy.
pub(crate) fn json_value<'a>(key: Key<'_>, value: &'a [u8], remedy: &str) -> anyhow::Result<&'a str> {
    str::from_utf8(value)
        .map_err(|_| anyhow!("the value of key {} is not UTF-8, which JSON requires: {remedy}", DisplayKey(key)))
}

/// Displays a key in a message. Byte keys are quoted and escaped, and truncated after 64 bytes.
pub(crate) struct DisplayKey<'a>(pub(crate) Key<'a>);

impl fmt::Display for DisplayKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Key::U64(key) => write!(f, "{key}"),
            Key::Bytes(key) if key.len() <= KEY_SHOWN_MAX_BYTES => write!(f, "\"{}\"", key.escape_ascii()),
            Key::Bytes(key) => write!(f, "\"{}...\"", key[..KEY_SHOWN_MAX_BYTES].escape_ascii()),
        }
    }
}

/// Returns `if_closed` if writing failed because the reader closed the pipe, which is not an error. `add_context` adds
/// context to every other I/O error.
pub(crate) fn ignore_closed_pipe<T>(
    written: anyhow::Result<T>,
    if_closed: T,
    add_context: impl FnOnce(io::Error) -> anyhow::Error,
) -> anyhow::Result<T> {
    match written.map_err(|error| error.downcast::<io::Error>()) {
        Ok(result) => Ok(result),
        Err(Ok(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(if_closed),
        Err(Ok(error)) => Err(add_context(error)),
        Err(Err(error)) => Err(error),
    }
}

const ERROR_MAX_CHARS: usize = 4096;

pub(crate) type Report = PrintableWriter<io::StdoutLock<'static>>;

/// Calls `write` with standard output, and flushes standard output. All names and messages are made
/// printable. A pipe that its reader closed is not an error.
pub(crate) fn print(write: impl FnOnce(&mut Report) -> io::Result<()>) -> anyhow::Result<()> {
    print_while_read(write).map(drop)
}

/// Does the same. Returns false if the reader has closed the pipe.
pub(crate) fn print_while_read(write: impl FnOnce(&mut Report) -> io::Result<()>) -> anyhow::Result<bool> {
    let mut stdout = PrintableWriter::new(io::stdout().lock());
    let printed = write(&mut stdout).and_then(|()| stdout.flush());
    ignore_closed_pipe(printed.map(|()| true).map_err(Into::into), false, stdout_error)
}

#[cfg(feature = "object-store")]
pub(crate) fn is_on_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Prints a report: as one line of JSON if `json` is true, otherwise as text.
pub(crate) fn print_report(report: &(impl Serialize + fmt::Display), json: bool) -> anyhow::Result<()> {
    print(|stdout| if json { write_json_line(stdout, report) } else { write!(stdout, "{report}") })
}

pub(crate) fn stdout_error(error: io::Error) -> anyhow::Error {
    anyhow!("standard output: {error}")
}

/// Prints an error on one line. `eprintln!` would panic if standard error is a closed pipe.
pub(crate) fn print_error(error: &dyn fmt::Display) {
    let _ = writeln!(io::stderr(), "zkv: {}", shortened(&error.to_string(), ERROR_MAX_CHARS));
}

pub(crate) enum RowOutput {
    /// A file or a pipe, which gets unchanged rows.
    Unchanged(File),
    /// A terminal, whose cursor and settings must not change because of the bytes of a row.
    Terminal(PrintableWriter<File>),
}

impl RowOutput {
    /// Opens standard output. Writes bypass io::stdout, which flushes at line ends.
    pub(crate) fn stdout() -> io::Result<RowOutput> {
        Ok(RowOutput::new(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
    }

    pub(crate) fn new(file: File) -> RowOutput {
        match file.is_terminal() {
            true => RowOutput::Terminal(PrintableWriter::new(file)),
            false => RowOutput::Unchanged(file),
        }
    }
}

impl Write for RowOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            RowOutput::Unchanged(file) => file.write(bytes),
            RowOutput::Terminal(terminal) => terminal.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            RowOutput::Unchanged(file) => file.flush(),
            RowOutput::Terminal(terminal) => terminal.flush(),
        }
    }
}

/// If the error states that a file is damaged, prints the error and returns false, because damage is a result of
/// `inspect` and `verify`, not a failure. Returns every other error, such as an I/O error.
pub(crate) fn report_damage(error: StoreError) -> anyhow::Result<bool> {
    match error {
        StoreError::Format { .. } => {
            print_error(&error);
            Ok(false)
        }
        error => Err(error.into()),
    }
}
