//! Inputs: files, standard input, readers, and rows in memory.
//!
//! In: names, patterns, and readers. Out: the decompressed bytes of each input, and at the end its length and digest. A
//! file that changes while it is read is an error, because nobody could know which rows were baked. This module does
//! not know the formats of inputs.

mod decompress;
mod patterns;
mod raw;
pub(super) mod row_piece;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
#[cfg(feature = "parquet")]
use std::io::Write;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use super::error::BakeError;
use crate::format::header::MAGIC;
use decompress::Decompressor;
use raw::RawInput;
use row_piece::RowPiece;

pub use decompress::Compression;

#[cfg(feature = "parquet")]
const COPY_LEN_BYTES: usize = 256 << 10;

/// An input of rows.
///
/// Compression by gzip or Zstandard is detected from the input's first bytes.
pub struct Input<'a> {
    name: String,
    kind: InputKind<'a>,
}

enum InputKind<'a> {
    File(PathBuf),
    Stdin,
    Reader(Box<dyn Read + Send + 'a>),
    Rows(FillRows<'a>),
}

/// A function that adds rows to a piece.
pub(super) type FillRows<'a> = Box<dyn FnMut(&mut RowPiece) -> io::Result<()> + Send + 'a>;

impl<'a> Input<'a> {
    /// Returns an input that reads the file at `path`. The file must not change until it has been read.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Input { name: path.display().to_string(), kind: InputKind::File(path) }
    }

    /// Returns an input that reads standard input.
    pub fn stdin() -> Self {
        Input { name: "standard input".to_owned(), kind: InputKind::Stdin }
    }

    /// Returns an input that reads from `reader`. Messages call the input `name`.
    pub fn reader(name: impl Into<String>, reader: impl Read + Send + 'a) -> Self {
        Input { name: name.into(), kind: InputKind::Reader(Box::new(reader)) }
    }

    /// Returns an input whose rows are in memory. Messages call the input `name`. The baking thread calls `fill` with
    /// one empty piece after another, until `fill` adds no row. `fill` should stop adding rows when the piece is full.
    ///
    /// Options for text formats have no effect on these rows, but [`Options::keys`](super::Options::keys) does.
    pub fn rows(name: impl Into<String>, fill: impl FnMut(&mut RowPiece) -> io::Result<()> + Send + 'a) -> Self {
        Input { name: name.into(), kind: InputKind::Rows(Box::new(fill)) }
    }

    /// Returns the files that match `patterns`, in the order of the patterns. Files that match the same pattern are
    /// sorted by path.
    ///
    /// In a pattern, `*`, `?`, and `[…]` match characters of a name as in a shell, and `**` matches folders. A path
    /// that exists is never a pattern. `-` is standard input.
    ///
    /// # Errors
    /// [`BakeError::Input`] if a file does not exist, or no file matches a pattern.
    pub fn expand(patterns: &[PathBuf]) -> Result<Vec<Self>, BakeError> {
        patterns::expand(patterns)
    }

    /// Returns the name that messages use for the input.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of the input's file, or `None` if the input is not a file.
    pub fn path(&self) -> Option<&Path> {
        match &self.kind {
            InputKind::File(path) => Some(path),
            InputKind::Stdin | InputKind::Reader(_) | InputKind::Rows(_) => None,
        }
    }

    /// Opens the input and reads its first bytes.
    pub(super) fn open(self) -> Result<Opened<'a>, BakeError> {
        let Input { name, kind } = self;
        let raw = match kind {
            InputKind::File(path) => File::open(&path).and_then(|file| RawInput::file(file, Some(path))),
            InputKind::Stdin => {
                io::stdin().as_fd().try_clone_to_owned().and_then(|stdin| RawInput::file(File::from(stdin), None))
            }
            InputKind::Reader(reader) => Ok(RawInput::reader(reader)),
            InputKind::Rows(fill) => return Ok(Opened::Rows(fill)),
        };
        let opened = raw.and_then(|raw| {
            let mut decompressor = Decompressor::new(raw)?;
            let head = Head::read(&mut decompressor)?;
            Ok((decompressor, head))
        });
        let (decompressor, head) = match opened {
            Ok(opened) => opened,
            Err(error) => return Err(BakeError::Input { input: name, error }),
        };
        if head.bytes == MAGIC[..Head::LEN_BYTES] {
            return Err(BakeError::InputIsTable { input: name });
        }
        if let Some(message) = head.unsupported() {
            let error = io::Error::new(io::ErrorKind::InvalidData, message);
            return Err(BakeError::Input { input: name, error });
        }
        Ok(Opened::Bytes(Box::new(OpenInput { name, head, decompressor })))
    }
}

impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Input").field(&self.name).finish()
    }
}

/// An open input: bytes to parse, or rows in memory.
pub(super) enum Opened<'a> {
    Bytes(Box<OpenInput<'a>>),
    Rows(FillRows<'a>),
}

/// The first decompressed bytes of an input, by which its format is detected.
struct Head {
    bytes: [u8; Head::LEN_BYTES],
    len_bytes: usize,
    taken_bytes: usize,
}

impl Head {
    const LEN_BYTES: usize = 4;

    fn read(stream: &mut impl Read) -> io::Result<Self> {
        let mut head = Head { bytes: [0; Self::LEN_BYTES], len_bytes: 0, taken_bytes: 0 };
        loop {
            match stream.read(&mut head.bytes[head.len_bytes..])? {
                0 => return Ok(head),
                read_bytes => head.len_bytes += read_bytes,
            }
        }
    }

    /// Returns an error message if the input is in an unsupported container format. If such an input were read as text,
    /// the error for its first row would not name the cause.
    fn unsupported(&self) -> Option<&'static str> {
        match &self.bytes {
            b"\xfd7zX" => Some("is compressed by xz, which baker does not read: xz -dc FILE | baker -"),
            b"PK\x03\x04" => Some("is a zip archive, which baker does not read: unzip -p FILE | baker -"),
            _ => None,
        }
    }

    fn take(&mut self, buffer: &mut [u8]) -> usize {
        let left = &self.bytes[self.taken_bytes..self.len_bytes];
        let taken_bytes = left.len().min(buffer.len());
        buffer[..taken_bytes].copy_from_slice(&left[..taken_bytes]);
        self.taken_bytes += taken_bytes;
        taken_bytes
    }
}

/// The facts about an input that was read, such as its length and digest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputFacts {
    /// The name that messages use for the input.
    pub name: String,
    /// The input's length before decompression. For rows in memory, this is the length of all keys and values.
    pub len_bytes: u64,
    /// The XXH3-128 of the input's bytes before decompression. For rows in memory, this is the XXH3-128 of all keys and
    /// values, each preceded by its length (8 bytes, little-endian).
    pub digest: u128,
    /// The compression of the input.
    pub compression: Compression,
}

/// An open input of bytes, which are decompressed while they are read.
pub(super) struct OpenInput<'a> {
    name: String,
    head: Head,
    decompressor: Decompressor<'a>,
}

impl OpenInput<'_> {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of bytes read so far, before decompression.
    pub(super) fn read_bytes(&self) -> u64 {
        self.decompressor.raw().read_bytes()
    }

    /// Returns the first decompressed bytes.
    pub(super) fn head(&self) -> &[u8] {
        &self.head.bytes[..self.head.len_bytes]
    }

    /// Returns a seekable file with all decompressed bytes: the input's file, or an unnamed copy in `temp_dir`. The
    /// caller must not have read from the input before, because the copy would lack these bytes.
    #[cfg(feature = "parquet")]
    pub(super) fn seekable(&mut self, temp_dir: &Path) -> Result<File, BakeError> {
        let Some(file) = self.decompressor.plain_file() else { return self.copy_to(temp_dir) };
        let read = file.and_then(|file| {
            io::copy(self, &mut io::sink())?;
            Ok(file)
        });
        read.map_err(|error| self.fault(error))
    }

    #[cfg(feature = "parquet")]
    fn copy_to(&mut self, temp_dir: &Path) -> Result<File, BakeError> {
        let not_written = |error| BakeError::temporary(temp_dir, error);
        let mut file = tempfile::tempfile_in(temp_dir).map_err(not_written)?;
        let mut buffer = vec![0; COPY_LEN_BYTES];
        loop {
            match self.read(&mut buffer).map_err(|error| self.fault(error))? {
                0 => return Ok(file),
                read_bytes => file.write_all(&buffer[..read_bytes]).map_err(not_written)?,
            }
        }
    }

    /// Reads the input to its end, and returns its length and digest.
    pub(super) fn finish(mut self) -> Result<InputFacts, BakeError> {
        // Reads to the end, because the digest must not depend on where the format's reader stopped.
        let ended = io::copy(&mut self, &mut io::sink()).and_then(|_| self.decompressor.raw().check_unchanged());
        ended.map_err(|error| self.fault(error))?;
        let raw = self.decompressor.raw();
        let (len_bytes, digest) = (raw.read_bytes(), raw.digest());
        Ok(InputFacts { len_bytes, digest, compression: self.decompressor.compression(), name: self.name })
    }

    fn fault(&self, error: io::Error) -> BakeError {
        BakeError::Input { input: self.name.clone(), error }
    }
}

impl Read for OpenInput<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.head.take(buffer) {
            0 => self.decompressor.read(buffer),
            taken_bytes => Ok(taken_bytes),
        }
    }
}
