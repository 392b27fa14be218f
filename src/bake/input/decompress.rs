//! Compressed bytes in, plain ones out, whatever the input's name says.

use std::fmt;
#[cfg(feature = "parquet")]
use std::fs::File;
use std::io::{self, Read};

use flate2::bufread::MultiGzDecoder;
use zstd::stream::read::Decoder;

use super::raw::Raw;

/// As many bytes of an input tell how it is compressed.
const MAGIC_LEN_BYTES: usize = 4;

/// How an input is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// Not at all.
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
    /// By the first bytes, which may be fewer than asked for if the input has no more.
    fn of(head: &[u8]) -> Self {
        match head {
            // Method 8 is the only one there is.
            [0x1f, 0x8b] | [0x1f, 0x8b, 8, ..] => Compression::Gzip,
            // A frame, or one to be skipped, with which parallel compressors begin.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            _ => Compression::None,
        }
    }
}

/// An input's bytes, decompressed.
pub(super) enum Stream<'a> {
    Plain(Raw<'a>),
    Gzip(Box<MultiGzDecoder<Raw<'a>>>),
    Zstd(Decoder<'static, Raw<'a>>),
}

impl<'a> Stream<'a> {
    pub(super) fn new(mut raw: Raw<'a>) -> io::Result<Self> {
        Ok(match Compression::of(raw.head(MAGIC_LEN_BYTES)?) {
            Compression::None => Stream::Plain(raw),
            Compression::Gzip => Stream::Gzip(Box::new(MultiGzDecoder::new(raw))),
            Compression::Zstd => Stream::Zstd(Decoder::with_buffer(raw)?),
        })
    }

    pub(super) fn compression(&self) -> Compression {
        match self {
            Stream::Plain(_) => Compression::None,
            Stream::Gzip(_) => Compression::Gzip,
            Stream::Zstd(_) => Compression::Zstd,
        }
    }

    pub(super) fn raw(&self) -> &Raw<'a> {
        match self {
            Stream::Plain(raw) => raw,
            Stream::Gzip(decoder) => decoder.get_ref(),
            Stream::Zstd(decoder) => decoder.get_ref(),
        }
    }

    #[cfg(feature = "parquet")]
    /// The file, if its bytes are those of the stream.
    pub(super) fn plain_file(&self) -> Option<io::Result<File>> {
        match self {
            Stream::Plain(raw) => raw.whole_file(),
            Stream::Gzip(_) | Stream::Zstd(_) => None,
        }
    }

    /// What is wrong with compressed bytes.
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

impl Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self {
            Stream::Plain(raw) => raw.read(buffer),
            Stream::Gzip(decoder) => decoder.read(buffer),
            Stream::Zstd(decoder) => decoder.read(buffer),
        };
        read.map_err(|error| self.fault(error))
    }
}
