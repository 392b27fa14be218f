//! Where rows come from: files, standard input, readers, and whoever has them in memory.
//!
//! In: names, patterns, readers. Out: the bytes of each, decompressed, and then
//! what was read: its length and its digest. A file that does not stay the same
//! while it is read is an error, since nobody can say which rows were baked.
//! What the bytes mean is not known here.

mod decompress;
mod patterns;
mod raw;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
#[cfg(feature = "parquet")]
use std::io::Write;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use super::BakeError;
use super::parse::rows::RowPiece;
use decompress::Stream;
use raw::Raw;

pub use decompress::Compression;

#[cfg(feature = "parquet")]
const COPY_LEN_BYTES: usize = 256 << 10;

/// One source of rows.
///
/// Input that is compressed by gzip or Zstandard is recognised by its first bytes.
pub struct Input<'a> {
    name: String,
    source: Source<'a>,
}

enum Source<'a> {
    File(PathBuf),
    Stdin,
    Reader(Box<dyn Read + Send + 'a>),
    Rows(FillRows<'a>),
}

/// Adds rows to a piece.
pub(super) type FillRows<'a> = Box<dyn FnMut(&mut RowPiece) -> io::Result<()> + Send + 'a>;

impl<'a> Input<'a> {
    /// The file at `path`, which must stay as it is until it is read.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Input { name: path.display().to_string(), source: Source::File(path) }
    }

    /// Standard input.
    pub fn stdin() -> Self {
        Input { name: "standard input".to_owned(), source: Source::Stdin }
    }

    /// A reader; messages call it `name`.
    pub fn reader(name: impl Into<String>, reader: impl Read + Send + 'a) -> Self {
        Input { name: name.into(), source: Source::Reader(Box::new(reader)) }
    }

    /// Rows in memory; messages call them `name`. `fill` is called on the thread that bakes, with one empty piece
    /// after the other, until it adds no row. It should stop adding when the piece is full.
    ///
    /// The options that say how rows are read from text do not matter; those that say what keys are do.
    pub fn rows(name: impl Into<String>, fill: impl FnMut(&mut RowPiece) -> io::Result<()> + Send + 'a) -> Self {
        Input { name: name.into(), source: Source::Rows(Box::new(fill)) }
    }

    /// The files that `patterns` stand for, in the order of the patterns, and those of one
    /// pattern in the order of their paths.
    ///
    /// In a pattern `*`, `?` and `[…]` stand for characters of a name as in a shell, and
    /// `**` for folders. A path that exists is never a pattern. `-` is standard input.
    ///
    /// # Errors
    /// [`BakeError::Input`] if there is no such file, or none that matches a pattern.
    pub fn expand(patterns: &[PathBuf]) -> Result<Vec<Self>, BakeError> {
        patterns::expand(patterns)
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path, if it is a file that was named.
    pub fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::File(path) => Some(path),
            Source::Stdin | Source::Reader(_) | Source::Rows(_) => None,
        }
    }

    /// Begins to read.
    pub(super) fn open(self) -> Result<Opened<'a>, BakeError> {
        let Input { name, source } = self;
        let raw = match source {
            Source::File(path) => File::open(&path).and_then(|file| Raw::file(file, Some(path))),
            Source::Stdin => {
                io::stdin().as_fd().try_clone_to_owned().and_then(|stdin| Raw::file(File::from(stdin), None))
            }
            Source::Reader(reader) => Ok(Raw::reader(reader)),
            Source::Rows(fill) => return Ok(Opened::Rows(fill)),
        };
        let opened = raw.and_then(|raw| {
            let mut stream = Stream::new(raw)?;
            let head = Head::read(&mut stream)?;
            match head.is_other() {
                Some(what) => Err(io::Error::new(io::ErrorKind::InvalidData, what)),
                None => Ok((stream, head)),
            }
        });
        match opened {
            Ok((stream, head)) => Ok(Opened::Bytes(Box::new(OpenInput { name, head, stream }))),
            Err(error) => Err(BakeError::Input { input: name, error }),
        }
    }
}

impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Input").field(&self.name).finish()
    }
}

/// An input that is about to be read.
pub(super) enum Opened<'a> {
    Bytes(Box<OpenInput<'a>>),
    Rows(FillRows<'a>),
}

/// The first bytes of an input, which tell its format.
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

    /// What else it is, and what to do. As text it would be refused for a reason that tells nobody.
    fn is_other(&self) -> Option<&'static str> {
        match &self.bytes {
            b"\x89ZKV" => Some("is a baked table: name it with --base, or merge tables with `baker merge`"),
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

/// What was read from one input.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputFacts {
    /// What messages call it.
    pub name: String,
    /// How many bytes it has, as they stand there: compressed ones, if they are. Of rows in memory, those of keys and values.
    pub len_bytes: u64,
    /// XXH3-128 of these bytes. Of rows in memory, of each key and value behind its length in 8 bytes, little-endian.
    pub digest: u128,
    /// How they are compressed.
    pub compression: Compression,
}

/// An input that is being read. Reading gives its bytes decompressed.
pub(super) struct OpenInput<'a> {
    name: String,
    head: Head,
    stream: Stream<'a>,
}

impl OpenInput<'_> {
    /// How many bytes were read so far, as they stand there.
    pub(super) fn read_bytes(&self) -> u64 {
        self.stream.raw().read_bytes()
    }

    /// Whether the input, decompressed, begins with these bytes.
    pub(super) fn starts_with(&self, magic: [u8; Head::LEN_BYTES]) -> bool {
        self.head.bytes[..self.head.len_bytes] == magic
    }

    #[cfg(feature = "parquet")]
    /// A file with all bytes of an input of which nothing was read yet: the file itself, or
    /// an unnamed one in `temp_dir`. After this, all of the input has been read.
    pub(super) fn seekable(&mut self, temp_dir: &Path) -> Result<File, BakeError> {
        let seekable = match self.stream.plain_file() {
            Some(file) => file.and_then(|file| {
                io::copy(self, &mut io::sink())?;
                Ok(file)
            }),
            None => self.copy_to(temp_dir),
        };
        seekable.map_err(|error| self.fault(error))
    }

    #[cfg(feature = "parquet")]
    fn copy_to(&mut self, temp_dir: &Path) -> io::Result<File> {
        let not_written = |error: io::Error| {
            let message = format!("must be copied to {}, which fails: {error}", temp_dir.display());
            io::Error::new(error.kind(), format!("{message}: name another folder with --temp-dir"))
        };
        let mut file = tempfile::tempfile_in(temp_dir).map_err(not_written)?;
        let mut buffer = vec![0; COPY_LEN_BYTES];
        loop {
            match self.read(&mut buffer)? {
                0 => return Ok(file),
                read_bytes => file.write_all(&buffer[..read_bytes]).map_err(not_written)?,
            }
        }
    }

    /// What was read, once all was.
    pub(super) fn finish(mut self) -> Result<InputFacts, BakeError> {
        // A reader that stopped early must not give another digest.
        let ended = io::copy(&mut self, &mut io::sink()).and_then(|_| self.stream.raw().check_unchanged());
        ended.map_err(|error| self.fault(error))?;
        let raw = self.stream.raw();
        let (len_bytes, digest) = (raw.read_bytes(), raw.digest());
        Ok(InputFacts { len_bytes, digest, compression: self.stream.compression(), name: self.name })
    }

    fn fault(&self, error: io::Error) -> BakeError {
        BakeError::Input { input: self.name.clone(), error }
    }
}

impl Read for OpenInput<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.head.take(buffer) {
            0 => self.stream.read(buffer),
            taken_bytes => Ok(taken_bytes),
        }
    }
}
