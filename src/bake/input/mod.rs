//! Inputs: files, standard input, readers, and rows in memory.
//!
//! In: names, patterns, and readers. Out: the decompressed bytes of each input, and at the end its length and digest. A
//! file that changes while it is read is an error, because it would be unknown which rows were baked. This module does
//! not know the formats of inputs.

mod raw;
#[cfg(all(test, feature = "parquet", feature = "zstd"))]
mod tests;

use std::fmt;
use std::fs::File;
#[cfg(feature = "parquet")]
use std::io::Write;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;
use glob::MatchOptions;
use twox_hash::XxHash3_128;
#[cfg(feature = "zstd")]
use zstd::stream::read::Decoder;

use super::error::BakeError;
use crate::format::header::MAGIC;
use crate::format::key::Key;
use raw::{Buffered, RawInput};

#[cfg(feature = "parquet")]
const COPY_LEN_BYTES: usize = 256 << 10;
/// The number of decompressed bytes that are read from the start of an input to detect its format: those up to the
/// magic bytes of a tar archive.
const HEAD_LEN_BYTES: usize = 262;

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
    /// empty pieces until `fill` adds no row. `fill` should stop adding rows when the piece is full.
    ///
    /// [`Options::keys`](super::Options::keys) applies to these rows. Options for text formats have no effect.
    #[doc(hidden)]
    pub fn rows(name: impl Into<String>, fill: impl FnMut(&mut RowPiece) -> io::Result<()> + Send + 'a) -> Self {
        Input { name: name.into(), kind: InputKind::Rows(Box::new(fill)) }
    }

    /// Returns the files that match `patterns`, in the order of the patterns. Files that match the same pattern are
    /// sorted by path.
    ///
    /// In a pattern, `*`, `?`, and `[…]` match characters of a name as in a shell, and `**` matches folders. A path
    /// that exists is never treated as a pattern. `-` is standard input.
    ///
    /// # Errors
    /// [`BakeError::Input`] if a file does not exist, or no file matches a pattern.
    pub fn expand(patterns: &[PathBuf]) -> Result<Vec<Self>, BakeError> {
        expand(patterns)
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
            let (mut decompressor, mut head) = (Decompressor::new(raw)?, Vec::new());
            decompressor.by_ref().take(HEAD_LEN_BYTES as u64).read_to_end(&mut head)?;
            match unsupported(&head) {
                Some((what, remedy)) => {
                    let message = format!("{what}, which is not supported: {remedy}");
                    Err(io::Error::new(io::ErrorKind::InvalidData, message))
                }
                None => Ok(Cursor::new(head).chain(decompressor)),
            }
        });
        let input = match opened {
            Ok(input) => OpenInput { name, input },
            Err(error) => return Err(BakeError::Input { input: name, error }),
        };
        // Read as text, a table would fail with an error about its first row, which would not name the cause.
        if input.head().starts_with(&MAGIC[..4]) {
            return Err(BakeError::InputIsTable { input: input.name });
        }
        Ok(Opened::Bytes(Box::new(input)))
    }
}

/// The first bytes of formats that are not supported, what they are, and the remedy. If such an input were read as
/// text, the error for its first row would not name the cause.
const UNSUPPORTED: &[(&[u8], &str, &str)] = &[
    (b"\xfd7zXZ\0", "is compressed by xz", "xz -dc FILE | baker -"),
    (b"LZIP\x01", "is compressed by lzip", "lzip -dc FILE | baker -"),
    (b"\x04\x22\x4d\x18", "is compressed by LZ4", "lz4 -dc FILE | baker -"),
    (b"\x1f\x9d", "is compressed by compress", "gzip -dc FILE | baker -"),
    (b"\x1f\x8b\x08", "is compressed twice", "gzip -dc FILE | baker -"),
    (b"\x28\xb5\x2f\xfd", "is compressed twice", "zstd -dc FILE | baker -"),
    (b"\xff\x06\0\0sNaPpY", "is compressed by Snappy", "decompress it first"),
    (b"PK\x03\x04", "is a zip archive or a spreadsheet", "unzip -p FILE | baker -, or save the sheet as CSV"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is a spreadsheet or another document of Microsoft Office", "save it as CSV"),
    (b"7z\xbc\xaf\x27\x1c", "is a 7z archive", "7z x -so FILE | baker -"),
    (b"ARROW1\0\0", "is an Arrow IPC file (Feather)", "convert it to Parquet, for example with pyarrow or DuckDB"),
    (b"Obj\x01", "is an Avro file", "convert it to Parquet, for example with DuckDB"),
    (b"SQLite format 3\0", "is an SQLite database", "sqlite3 -csv FILE 'SELECT key, value FROM TABLE' | baker -"),
    (b"\x89HDF\r\n\x1a\n", "is an HDF5 file", "convert it to Parquet, for example with pandas"),
    (b"\xff\xfe\0\0", "is UTF-32 text", "iconv -f UTF-32 -t UTF-8 FILE | baker -"),
    (b"\0\0\xfe\xff", "is UTF-32 text", "iconv -f UTF-32 -t UTF-8 FILE | baker -"),
];
/// The offset and the bytes that identify a tar archive.
const TAR: (usize, &[u8]) = (257, b"ustar");
/// The minimum number of characters that text without a byte order mark must have to be recognized as UTF-16.
const UTF_16_CHARS_MIN: usize = 4;

/// Returns what an input is, and the remedy, if its first bytes belong to a format that is not supported.
fn unsupported(head: &[u8]) -> Option<(&'static str, &'static str)> {
    if let Some((_, what, remedy)) = UNSUPPORTED.iter().find(|(magic, ..)| head.starts_with(magic)) {
        return Some((what, remedy));
    }
    // The first bytes of these formats are letters, so the bytes after them decide, too.
    let has_control = |from: usize| head[from..].iter().any(|byte| matches!(byte, 0..=8 | 14..=31));
    match head {
        [b'B', b'Z', b'h', b'1'..=b'9', b'1', b'A', b'Y', b'&', b'S', b'Y', ..] => {
            Some(("is compressed by bzip2", "bzip2 -dc FILE | baker -"))
        }
        [b'O', b'R', b'C', ..] if has_control(3) => {
            Some(("is an ORC file", "convert it to Parquet, for example with pyarrow or Spark"))
        }
        [b'R', b'E', b'D', b'I', b'S', b'0', b'0', ..] if has_control(9.min(head.len())) => {
            Some(("is a dump of Redis (RDB)", "export its keys and values as JSON Lines"))
        }
        [b'F', b'E', b'A', b'1', ..] if has_control(4) => {
            Some(("is a Feather file", "convert it to Parquet, for example with pyarrow"))
        }
        // Other bytes can follow a byte order mark, but delimiters and line ends have a byte 0.
        [0xff, 0xfe, text @ ..] if text.as_chunks::<2>().0.iter().any(|pair| pair[1] == 0) => {
            Some(("is UTF-16 text", "iconv -f UTF-16 -t UTF-8 FILE | baker -"))
        }
        [0xfe, 0xff, text @ ..] if text.as_chunks::<2>().0.iter().any(|pair| pair[0] == 0) => {
            Some(("is UTF-16 text", "iconv -f UTF-16 -t UTF-8 FILE | baker -"))
        }
        _ if head.get(TAR.0..).is_some_and(|rest| rest.starts_with(TAR.1)) => {
            Some(("is a tar archive", "tar -xOf FILE | baker -"))
        }
        _ => utf_16(head).map(|remedy| ("is UTF-16 text without a byte order mark", remedy)),
    }
}

/// Recognizes UTF-16 without a byte order mark: every second byte of most characters is 0, and no first byte.
fn utf_16(head: &[u8]) -> Option<&'static str> {
    let (pairs, _) = head.as_chunks::<2>();
    let has_zeros = |zero: usize| {
        let zeros = pairs.iter().filter(|pair| pair[zero] == 0).count();
        zeros * 4 >= pairs.len() * 3 && pairs.iter().all(|pair| pair[1 - zero] != 0)
    };
    match pairs.len() >= UTF_16_CHARS_MIN {
        true if has_zeros(1) => Some("iconv -f UTF-16LE -t UTF-8 FILE | baker -"),
        true if has_zeros(0) => Some("iconv -f UTF-16BE -t UTF-8 FILE | baker -"),
        _ => None,
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

/// The facts about an input that was read, such as its length and digest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputFacts {
    /// The name that messages use for the input.
    pub name: String,
    /// The input's length before decompression. For rows in memory, this is the length of all keys and values.
    pub len_bytes: u64,
    /// The XXH3-128 hash of the input's bytes before decompression. For rows in memory, the hash of all keys and
    /// values, each preceded by its length (8 bytes, little-endian).
    pub digest: u128,
    /// The compression of the input.
    pub compression: Compression,
}

/// An open input of bytes, which are decompressed while they are read.
pub(super) struct OpenInput<'a> {
    name: String,
    /// The first decompressed bytes, which were read to detect the format, followed by the rest of the input.
    input: Chain<Cursor<Vec<u8>>, Decompressor<'a>>,
}

impl<'a> OpenInput<'a> {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of bytes read so far, counted before decompression.
    pub(super) fn read_bytes(&self) -> u64 {
        self.decompressor().raw().read_bytes()
    }

    /// Returns the first decompressed bytes.
    pub(super) fn head(&self) -> &[u8] {
        self.input.get_ref().0.get_ref()
    }

    fn decompressor(&self) -> &Decompressor<'a> {
        self.input.get_ref().1
    }

    /// Returns a seekable file with all decompressed bytes: the input's file, or an unnamed copy in `temp_dir`. The
    /// caller must not have read from the input before, because the copy would lack the bytes that were read.
    #[cfg(feature = "parquet")]
    pub(super) fn seekable(&mut self, temp_dir: &Path) -> Result<File, BakeError> {
        let Some(file) = self.decompressor().plain_file() else { return self.copy_to(temp_dir) };
        let read = file.and_then(|file| {
            io::copy(self, &mut io::sink())?;
            Ok(file)
        });
        read.map_err(|error| self.fault(error))
    }

    #[cfg(feature = "parquet")]
    fn copy_to(&mut self, temp_dir: &Path) -> Result<File, BakeError> {
        let not_written = |error| BakeError::temporary(temp_dir, error);
        let mut file = crate::folder::unnamed_file_in(temp_dir).map_err(not_written)?;
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
        let ended = io::copy(&mut self, &mut io::sink()).and_then(|_| self.decompressor().raw().check_unchanged());
        ended.map_err(|error| self.fault(error))?;
        let (compression, raw) = (self.decompressor().compression(), self.decompressor().raw());
        let (len_bytes, digest) = (raw.read_bytes(), raw.digest());
        Ok(InputFacts { len_bytes, digest, compression, name: self.name })
    }

    fn fault(&self, error: io::Error) -> BakeError {
        BakeError::Input { input: self.name.clone(), error }
    }
}

impl Read for OpenInput<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.input.read(buffer)
    }
}

/// The number of bytes that are read from the start of an input to detect its compression.
const MAGIC_LEN_BYTES: u64 = 4;

/// The compression of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// No compression.
    None,
    /// gzip (RFC 1952), one member or several.
    Gzip,
    /// Zstandard (RFC 8878), one frame or several.
    Zstd,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
        })
    }
}

impl Compression {
    /// Detects the compression of an input. `head` must contain at least the first [`MAGIC_LEN_BYTES`] of the input, or
    /// all bytes of a shorter input.
    fn detect(head: &[u8]) -> Self {
        match head {
            // gzip has no compression method other than 8 (deflate).
            [0x1f, 0x8b] | [0x1f, 0x8b, 8, ..] => Compression::Gzip,
            // The start of a frame, or of a skippable frame, which parallel compressors write first.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            _ => Compression::None,
        }
    }
}

/// Decompresses an input.
enum Decompressor<'a> {
    Plain(Box<Buffered<'a>>),
    Gzip(Box<GzipMembers<'a>>),
    #[cfg(feature = "zstd")]
    Zstd(Box<Decoder<'static, Buffered<'a>>>),
}

impl<'a> Decompressor<'a> {
    fn new(raw: RawInput<'a>) -> io::Result<Self> {
        let (head, input) = raw.buffered(MAGIC_LEN_BYTES)?;
        Ok(match Compression::detect(&head) {
            Compression::None => Decompressor::Plain(Box::new(input)),
            Compression::Gzip => Decompressor::Gzip(Box::new(GzipMembers::new(input))),
            #[cfg(feature = "zstd")]
            Compression::Zstd => Decompressor::Zstd(Box::new(Decoder::with_buffer(input)?)),
            #[cfg(not(feature = "zstd"))]
            Compression::Zstd => {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "is compressed by zstd, but this program was built without the feature zstd: build it with the \
                     feature zstd or full, or decompress the input first",
                ));
            }
        })
    }

    fn compression(&self) -> Compression {
        match self {
            Decompressor::Plain(_) => Compression::None,
            Decompressor::Gzip(_) => Compression::Gzip,
            #[cfg(feature = "zstd")]
            Decompressor::Zstd(_) => Compression::Zstd,
        }
    }

    fn raw(&self) -> &RawInput<'a> {
        let input = match self {
            Decompressor::Plain(input) => input,
            Decompressor::Gzip(members) => members.decoder.get_ref(),
            #[cfg(feature = "zstd")]
            Decompressor::Zstd(decoder) => decoder.get_ref(),
        };
        input.get_ref().1.get_ref()
    }

    /// Returns the input's file, if the file is not compressed and is read from its start.
    #[cfg(feature = "parquet")]
    fn plain_file(&self) -> Option<io::Result<File>> {
        match self {
            Decompressor::Plain(_) => self.raw().whole_file(),
            _ => None,
        }
    }

    /// Adds the compression, the number of bytes read, and the remedy to a decoder's error. Returns the error unchanged
    /// if the input could not be read.
    fn fault(&self, error: io::Error) -> io::Error {
        if self.raw().has_failed() {
            return error;
        }
        let (compression, read_bytes) = (self.compression(), self.raw().read_bytes());
        let message = match error.kind() {
            io::ErrorKind::UnexpectedEof => format!(
                "is compressed by {compression} and ends after {read_bytes} bytes in the middle of a {}: copy or \
                 compress it again",
                if compression == Compression::Gzip { "member" } else { "frame" }
            ),
            _ if compression == Compression::Zstd && error.to_string().contains("too much memory") => {
                "is compressed by zstd with a window of more than 128 MiB: zstd -dc -M2048MB FILE | baker -, or compress it \
                 again with a shorter window"
                    .to_owned()
            }
            _ => format!(
                "cannot be decompressed as {compression}: {error}, within the first {read_bytes} bytes: copy or \
                 compress it again"
            ),
        };
        io::Error::new(error.kind(), message)
    }
}

impl Read for Decompressor<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self {
            Decompressor::Plain(input) => input.read(buffer),
            Decompressor::Gzip(members) => members.read(buffer),
            #[cfg(feature = "zstd")]
            Decompressor::Zstd(decoder) => decoder.read(buffer),
        };
        read.map_err(|error| self.fault(error))
    }
}

/// Decompresses the members of a gzip file. Zeros between and after members are skipped, as in GNU gzip: tapes and some
/// backup programs pad files with them.
struct GzipMembers<'a> {
    /// The decoder of the current member.
    decoder: GzDecoder<Buffered<'a>>,
    has_ended: bool,
}

impl<'a> GzipMembers<'a> {
    fn new(input: Buffered<'a>) -> Self {
        GzipMembers { decoder: GzDecoder::new(input), has_ended: false }
    }

    /// Skips zeros after a member. Returns whether another member follows.
    fn skip_zeros(&mut self) -> io::Result<bool> {
        let input = self.decoder.get_mut();
        loop {
            let bytes = input.fill_buf()?;
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            let (is_empty, is_member) = (bytes.is_empty(), zeros < bytes.len());
            input.consume(zeros);
            if is_empty || is_member {
                return Ok(is_member);
            }
        }
    }
}

impl Read for GzipMembers<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.has_ended && !buffer.is_empty() {
            match self.decoder.read(buffer)? {
                0 if self.skip_zeros()? => {
                    let empty = Cursor::new(Vec::new()).chain(BufReader::with_capacity(0, RawInput::empty()));
                    let input = std::mem::replace(self.decoder.get_mut(), empty);
                    self.decoder = GzDecoder::new(input);
                }
                0 => self.has_ended = true,
                read_bytes => return Ok(read_bytes),
            }
        }
        Ok(0)
    }
}

/// Options that make patterns match as in a shell.
const OPTIONS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

fn expand<'a>(patterns: &[PathBuf]) -> Result<Vec<Input<'a>>, BakeError> {
    let mut inputs = Vec::new();
    for pattern in patterns {
        match pattern.to_str() {
            Some("-") if patterns.iter().filter(|other| *other == pattern).count() > 1 => {
                let message = "is named twice, but can be read only once: name it once";
                let error = io::Error::new(io::ErrorKind::InvalidInput, message);
                return Err(BakeError::Input { input: "standard input".to_owned(), error });
            }
            Some("-") => inputs.push(Input::stdin()),
            _ => {
                let fault = |error| BakeError::Input { input: pattern.display().to_string(), error };
                inputs.extend(files(pattern).map_err(fault)?.into_iter().map(Input::file));
            }
        }
    }
    Ok(inputs)
}

fn files(pattern: &Path) -> io::Result<Vec<PathBuf>> {
    let no_such_file = match pattern.symlink_metadata() {
        Ok(_) => return Ok(vec![pattern.to_path_buf()]),
        Err(error) => error,
    };
    let Some(text) = pattern.to_str().filter(|text| text.contains(['*', '?', '['])) else {
        return Err(no_such_file);
    };
    let invalid = |message| io::Error::new(io::ErrorKind::InvalidInput, message);
    let paths = glob::glob_with(text, OPTIONS).map_err(|error| invalid(error.to_string()))?;
    let mut paths = paths.map(|path| path.map_err(io::Error::from)).collect::<io::Result<Vec<_>>>()?;
    if paths.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "is not a file, and matches no file as a pattern: check the path",
        ));
    }
    paths.sort();
    Ok(paths)
}

/// Receives consecutive rows from the caller of [`Input::rows`](crate::bake::Input::rows).
pub struct RowPiece {
    /// The bytes of all rows: the key, the end of the range if there is one, and the value.
    bytes: Vec<u8>,
    /// For each row, the offsets in `bytes` at which the key, the end of the range, and the value end.
    offsets: Vec<[usize; 3]>,
    wanted_bytes: usize,
}

impl RowPiece {
    pub(in crate::bake) fn new(mut buffer: Vec<u8>, wanted_bytes: usize) -> Self {
        buffer.clear();
        RowPiece { bytes: buffer, offsets: Vec::new(), wanted_bytes }
    }

    /// Adds a row. A number is stored as decimal text. The bake checks keys and values later.
    pub fn push<'k>(&mut self, key: impl Into<Key<'k>>, value: impl AsRef<[u8]>) {
        self.push_range(key, b"", value);
    }

    /// Adds a row of a table of ranges. `start` is the first key of the range, and `end` is the written form of the
    /// last key: in a table with composite keys, of its last part. Without [`Options::ranges`](super::Options::ranges), the
    /// bake ignores `end`.
    pub fn push_range<'k>(&mut self, start: impl Into<Key<'k>>, end: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        match start.into() {
            Key::U64(key) => self.bytes.extend_from_slice(itoa::Buffer::new().format(key).as_bytes()),
            Key::Bytes(key) => self.bytes.extend_from_slice(key),
        }
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(end.as_ref());
        let range_end = self.bytes.len();
        self.bytes.extend_from_slice(value.as_ref());
        self.offsets.push([key_end, range_end, self.bytes.len()]);
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Returns whether the piece has no rows.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Returns whether the piece has reached the recommended size. A full piece still accepts rows, but then takes more
    /// memory than recommended.
    pub fn is_full(&self) -> bool {
        self.len_bytes() >= self.wanted_bytes
    }

    /// Returns the approximate memory that the rows take.
    pub(in crate::bake) fn len_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&self.offsets[..])
    }

    pub(in crate::bake) fn content_len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the key, the end of the range, and the value of each row. Without a range, the end is empty.
    pub(in crate::bake) fn iter(&self) -> impl Iterator<Item = [&[u8]; 3]> {
        let starts = std::iter::once(0).chain(self.offsets.iter().map(|[.., value_end]| *value_end));
        starts.zip(&self.offsets).map(|(start, &[key_end, range_end, value_end])| {
            [&self.bytes[start..key_end], &self.bytes[key_end..range_end], &self.bytes[range_end..value_end]]
        })
    }

    /// Adds the rows to a digest. The lengths of keys and values are part of the digest, so that the digest depends on
    /// where each key and each value ends.
    pub(in crate::bake) fn digest_into(&self, hasher: &mut XxHash3_128) {
        for [key, end, value] in self.iter() {
            let end = (!end.is_empty()).then_some(end);
            for bytes in [key].into_iter().chain(end).chain([value]) {
                hasher.write(&(bytes.len() as u64).to_le_bytes());
                hasher.write(bytes);
            }
        }
    }

    pub(in crate::bake) fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }
}
