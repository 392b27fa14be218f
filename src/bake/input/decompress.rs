//! Decompresses inputs. The first bytes of an input, not its name, determine the compression.

use std::fmt;
#[cfg(feature = "parquet")]
use std::fs::File;
use std::io::{self, Read};

use flate2::bufread::MultiGzDecoder;
#[cfg(feature = "zstd")]
use zstd::stream::read::Decoder;

use super::raw::{Buffered, RawInput};

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
pub(super) enum Decompressor<'a> {
    Plain(Box<Buffered<'a>>),
    Gzip(Box<MultiGzDecoder<Buffered<'a>>>),
    #[cfg(feature = "zstd")]
    Zstd(Box<Decoder<'static, Buffered<'a>>>),
}

impl<'a> Decompressor<'a> {
    pub(super) fn new(raw: RawInput<'a>) -> io::Result<Self> {
        let (head, input) = raw.buffered(MAGIC_LEN_BYTES)?;
        Ok(match Compression::detect(&head) {
            Compression::None => Decompressor::Plain(Box::new(input)),
            Compression::Gzip => Decompressor::Gzip(Box::new(MultiGzDecoder::new(input))),
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

    pub(super) fn compression(&self) -> Compression {
        match self {
            Decompressor::Plain(_) => Compression::None,
            Decompressor::Gzip(_) => Compression::Gzip,
            #[cfg(feature = "zstd")]
            Decompressor::Zstd(_) => Compression::Zstd,
        }
    }

    pub(super) fn raw(&self) -> &RawInput<'a> {
        let input = match self {
            Decompressor::Plain(input) => input,
            Decompressor::Gzip(decoder) => decoder.get_ref(),
            #[cfg(feature = "zstd")]
            Decompressor::Zstd(decoder) => decoder.get_ref(),
        };
        input.get_ref().1.get_ref()
    }

    /// Returns the input's file, if the file is not compressed and is read from its start.
    #[cfg(feature = "parquet")]
    pub(super) fn plain_file(&self) -> Option<io::Result<File>> {
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
                "is compressed by {compression} and ends after {read_bytes} bytes in the middle of a {}: copy or compress it again",
                if compression == Compression::Gzip { "member" } else { "frame" }
            ),
            _ => format!(
                "cannot be decompressed as {compression}: {error}, within the first {read_bytes} bytes: copy or compress it again"
            ),
        };
        io::Error::new(error.kind(), message)
    }
}

impl Read for Decompressor<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self {
            Decompressor::Plain(input) => input.read(buffer),
            Decompressor::Gzip(decoder) => decoder.read(buffer),
            #[cfg(feature = "zstd")]
            Decompressor::Zstd(decoder) => decoder.read(buffer),
        };
        read.map_err(|error| self.fault(error))
    }
}
