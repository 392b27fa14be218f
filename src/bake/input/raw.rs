//! Reads an input before decompression, and computes the length and digest of its bytes.
//!
//! A regular file that changes while it is read is an error, so that an incomplete file is not mistaken for a complete
//! file.

use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, Chain, Cursor, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use twox_hash::XxHash3_128;

/// The length of the read buffer: large enough that system calls cost little, and small enough for the processor's
/// cache.
const BUFFER_LEN_BYTES: usize = 256 << 10;

/// A buffered input. It begins with the bytes that were already read to detect the compression.
pub(super) type Buffered<'a> = Chain<Cursor<Vec<u8>>, BufReader<RawInput<'a>>>;

pub(super) struct RawInput<'a> {
    kind: RawKind<'a>,
    read_bytes: u64,
    hasher: XxHash3_128,
    has_ended: bool,
    has_failed: bool,
}

enum RawKind<'a> {
    Regular(Regular),
    /// An input of unknown length: a pipe, a terminal, or a reader.
    Stream(Box<dyn Read + Send + 'a>),
}

/// A regular file, with the metadata that it had when it was opened.
struct Regular {
    file: File,
    /// The file's path. `None` for standard input.
    path: Option<PathBuf>,
    opened: Metadata,
    /// The offset at which reading starts. For standard input, the offset is greater than 0 if another process has
    /// already read the first bytes.
    offset_bytes: u64,
}

impl<'a> RawInput<'a> {
    pub(super) fn file(mut file: File, path: Option<PathBuf>) -> io::Result<Self> {
        let opened = file.metadata()?;
        if opened.is_dir() {
            let message = "is a folder, where a file was expected: name the files in it, or a pattern such as '*.csv'";
            return Err(io::Error::new(io::ErrorKind::IsADirectory, message));
        }
        if !opened.is_file() {
            return Ok(Self::reader(Box::new(file)));
        }
        let offset_bytes = file.stream_position()?;
        Ok(Self::new(RawKind::Regular(Regular { file, path, opened, offset_bytes })))
    }

    pub(super) fn reader(reader: Box<dyn Read + Send + 'a>) -> Self {
        Self::new(RawKind::Stream(reader))
    }

    /// Returns an input without bytes.
    pub(super) fn empty() -> Self {
        RawInput::reader(Box::new(io::empty()))
    }

    fn new(kind: RawKind<'a>) -> Self {
        RawInput { kind, read_bytes: 0, hasher: XxHash3_128::new(), has_ended: false, has_failed: false }
    }

    /// Returns the input's file if the input is a regular file that is read from its start.
    #[cfg(feature = "parquet")]
    pub(super) fn whole_file(&self) -> Option<io::Result<File>> {
        match &self.kind {
            RawKind::Regular(regular) if regular.offset_bytes == 0 => Some(regular.file.try_clone()),
            _ => None,
        }
    }

    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// Returns the XXH3-128 hash of the bytes read so far.
    pub(super) fn digest(&self) -> u128 {
        self.hasher.finish_128()
    }

    /// Returns whether reading the input has failed. Returns false if only its decompression has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Returns an error if a regular file has changed since it was opened.
    pub(super) fn check_unchanged(&self) -> io::Result<()> {
        match &self.kind {
            RawKind::Regular(regular) => regular.check_unchanged(),
            RawKind::Stream(_) => Ok(()),
        }
    }

    /// Adds a read buffer to the input. Returns the input's first `len_bytes` bytes (all bytes if the input is shorter)
    /// and the buffered input. The buffered input still begins with the returned bytes.
    pub(super) fn buffered(self, len_bytes: u64) -> io::Result<(Vec<u8>, Buffered<'a>)> {
        let mut input = BufReader::with_capacity(BUFFER_LEN_BYTES, self);
        let mut head = Vec::new();
        input.by_ref().take(len_bytes).read_to_end(&mut head)?;
        Ok((head.clone(), Cursor::new(head).chain(input)))
    }
}

impl Read for RawInput<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.has_ended {
            return Ok(0);
        }
        let read = self.kind.read(buffer).and_then(|read_bytes| {
            self.hasher.write(&buffer[..read_bytes]);
            self.read_bytes += read_bytes as u64;
            self.has_ended = read_bytes == 0;
            self.kind.check_read(self.read_bytes, self.has_ended)?;
            Ok(read_bytes)
        });
        self.has_failed = read.is_err();
        read
    }
}

impl RawKind<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self {
                RawKind::Regular(regular) => regular.file.read(buffer),
                RawKind::Stream(reader) => reader.read(buffer),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    /// Returns an error if the file has grown or shrunk while it was read. Without this check, a file that keeps
    /// growing would be read forever, and a file that shrank would seem complete.
    fn check_read(&self, read_bytes: u64, has_ended: bool) -> io::Result<()> {
        let RawKind::Regular(regular) = self else { return Ok(()) };
        let expected_bytes = regular.len_bytes();
        if read_bytes <= expected_bytes && !has_ended {
            return Ok(());
        }
        regular.check_unchanged()?;
        match read_bytes == expected_bytes {
            true => Ok(()),
            false => Err(changed(&format!("returned {read_bytes} bytes, where {expected_bytes} were expected"))),
        }
    }
}

impl Regular {
    fn len_bytes(&self) -> u64 {
        self.opened.len().saturating_sub(self.offset_bytes)
    }

    fn check_unchanged(&self) -> io::Result<()> {
        let now = self.file.metadata()?;
        // A shell's here-document has no link even when it is opened, so a link count of 0 does not prove a removal.
        let mut is_removed = now.nlink() == 0 && self.opened.nlink() != 0;
        if let Some(path) = &self.path {
            match fs::metadata(path) {
                Ok(named) if (named.dev(), named.ino()) != (now.dev(), now.ino()) => {
                    return Err(changed("was replaced by another file"));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => is_removed = true,
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        let (len_bytes, opened_len_bytes) = (now.len(), self.opened.len());
        let written_at = |metadata: &Metadata| (metadata.mtime(), metadata.mtime_nsec());
        if is_removed {
            Err(changed("was removed"))
        } else if len_bytes != opened_len_bytes {
            let verb = if len_bytes > opened_len_bytes { "grew" } else { "shrank" };
            Err(changed(&format!("{verb} from {opened_len_bytes} to {len_bytes} bytes")))
        } else if written_at(&now) != written_at(&self.opened) {
            Err(changed("was written to"))
        } else {
            Ok(())
        }
    }
}

fn changed(what: &str) -> io::Error {
    io::Error::other(format!("{what} while it was read: bake again from a file that does not change"))
}
