//! Reads configuration files: users, certificates, keys, passwords, topologies, canaries, and options.
//!
//! In: a path, and the maximum length of the file. Out: the bytes of the file, or an error. Reading takes bounded
//! memory, and never waits for another process, except for the writer of a pipe in [`read_once`].

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::store::open_regular;
use crate::user_namespace::is_ambiguous;

/// The maximum length of a file with PEM certificates or keys. The authorities of a Linux distribution take 200 KiB.
pub const PEM_LEN_MAX_BYTES: usize = 4 << 20;
/// The maximum length of a file with canaries.
pub const CANARIES_LEN_MAX_BYTES: usize = 64 << 20;

/// How long [`read_once`] waits for the writer of a pipe: long enough for a person who types a passphrase.
const PIPE_WAIT: Duration = Duration::from_secs(30);

/// The remedy for a file that is not regular.
const REMEDY: &str = "write the contents to a regular file, and name this file";

/// Reads a regular file.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if the file is not regular, [`io::ErrorKind::FileTooLarge`] if it is longer than
/// `len_max_bytes`, and the errors of the system.
pub fn read(path: &Path, len_max_bytes: usize) -> io::Result<Vec<u8>> {
    let file = open_regular(path).map_err(|error| not_regular(path, error))?;
    let mut bytes = Vec::new();
    file.take(len_max_bytes as u64 + 1).read_to_end(&mut bytes)?;
    checked(bytes, len_max_bytes)
}

/// Reads a regular file with text.
///
/// # Errors
/// The errors of [`read`], and [`io::ErrorKind::InvalidData`] if the file is not UTF-8.
pub fn read_text(path: &Path, len_max_bytes: usize) -> io::Result<String> {
    String::from_utf8(read(path, len_max_bytes)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Reads a file that the program does not read again. The file can also be a pipe without a name, such as a process
/// substitution of a shell or standard input, whose writer has 30 seconds. A FIFO with a name is rejected as any other
/// file that is not regular: it may never have a writer.
///
/// # Errors
/// The errors of [`read`], and [`io::ErrorKind::TimedOut`] for a pipe that stays open.
pub fn read_once(path: &Path, len_max_bytes: usize) -> io::Result<Vec<u8>> {
    /// From `<linux/magic.h>`: the file system of pipes without a name.
    const PIPEFS: rustix::fs::FsWord = 0x5049_5045;
    let is_pipe = fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
    match is_pipe && rustix::fs::statfs(path).is_ok_and(|found| found.f_type == PIPEFS) {
        true => checked(read_pipe(path, len_max_bytes, PIPE_WAIT)?, len_max_bytes),
        false => read(path, len_max_bytes),
    }
}

fn checked(bytes: Vec<u8>, len_max_bytes: usize) -> io::Result<Vec<u8>> {
    match bytes.len() {
        len_bytes if len_bytes <= len_max_bytes => Ok(bytes),
        _ => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("found more than {len_max_bytes} bytes, expected fewer: is this the right file?"),
        )),
    }
}

/// Reads a pipe to its end, or until it has returned more than `len_max_bytes` bytes.
fn read_pipe(path: &Path, len_max_bytes: usize, wait: Duration) -> io::Result<Vec<u8>> {
    // Another file may have replaced the pipe, so the open must not wait for a writer.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let mut pipe = File::options().read(true).custom_flags(flags).open(path)?;
    if !pipe.metadata()?.file_type().is_fifo() {
        return Err(io::Error::other("another file replaced the pipe while it was being opened"));
    }
    let end = Instant::now() + wait;
    let (mut bytes, mut piece) = (Vec::new(), [0; 16 << 10]);
    while bytes.len() <= len_max_bytes {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).unwrap_or_default();
        // A FIFO that has had no writer yet is not ready, although reading it would return its end.
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&left)) {
            Ok(0) => {
                let wait_s = wait.as_secs();
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("the pipe has not ended within {wait_s} s: {REMEDY}"),
                ));
            }
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match pipe.read(&mut piece) {
            Ok(0) if bytes.is_empty() => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!("the pipe is empty, or was read before: {REMEDY}"),
                ));
            }
            Ok(0) => break,
            Ok(len_bytes) => bytes.extend_from_slice(&piece[..len_bytes]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// Adds what was found, what was expected, and the remedy to the error for a file that is not regular.
fn not_regular(path: &Path, error: io::Error) -> io::Error {
    let Ok(found) = fs::metadata(path) else { return error };
    let kind = found.file_type();
    let found = match () {
        () if error.kind() != io::ErrorKind::InvalidInput => return error,
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () if kind.is_char_device() || kind.is_block_device() => "a device",
        () => return error,
    };
    io::Error::new(io::ErrorKind::InvalidInput, format!("found {found}, expected a regular file: {REMEDY}"))
}

/// Returns who else can read or change a file, each with the remedy. `contents` says what the file has. Only a secret
/// file must not be readable by others.
pub fn exposures(path: &Path, contents: &str, is_secret: bool) -> Vec<String> {
    let Ok(found) = fs::metadata(path) else { return Vec::new() };
    let (mode, owner, own) = (found.mode(), found.uid(), nix::unistd::geteuid().as_raw());
    let mut exposures = Vec::new();
    if is_secret && mode & 0o004 != 0 {
        exposures.push(format!("every user of this machine can read {contents}: chmod o-r"));
    }
    if mode & 0o002 != 0 {
        exposures.push(format!("every user of this machine can change {contents}: chmod o-w"));
    }
    if mode & 0o020 != 0 {
        exposures.push(format!("members of the group {} can change {contents}: chmod g-w", found.gid()));
    }
    // In a user namespace, the number can stand for root outside of the namespace.
    if owner != 0 && owner != own && !is_ambiguous(owner) {
        exposures.push(format!(
            "the user {owner} owns the file and can change {contents}: chown it to root or to the server's user, {own}"
        ));
    }
    exposures
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn fifo(folder: &tempfile::TempDir) -> std::path::PathBuf {
        let path = folder.path().join("fifo");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        path
    }

    #[test]
    fn a_file_has_at_most_the_maximum_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.acl");
        fs::write(&path, b"12345").unwrap();
        for read in [read, read_once] {
            assert_eq!(read(&path, 5).unwrap(), b"12345");
            let error = read(&path, 4).unwrap_err();
            assert!(error.to_string().contains("found more than 4 bytes, expected fewer"), "{error}");
            assert_eq!(read(&folder.path().join("none"), 5).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        // A file without an end takes bounded memory.
        let endless = File::create(&path).unwrap();
        endless.set_len(1 << 40).unwrap();
        assert_eq!(read(&path, 1000).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_file_that_is_not_regular_is_named_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let fifo = fifo(&folder);
        for (path, kind) in [
            (folder.path(), "a directory"),
            (Path::new("/dev/zero"), "a device"),
            (&socket, "a socket"),
            (&fifo, "a pipe"),
        ] {
            let error = read(path, 5).unwrap_err().to_string();
            assert!(error.contains(&format!("found {kind}, expected a regular file: write")), "{error}");
            assert_eq!(read_once(path, 5).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn a_pipe_is_read_once_to_its_end() {
        let (reader, mut writer) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        writer.write_all(b"12345").unwrap();
        let error = read_pipe(Path::new(&path), 10, Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("the pipe has not ended within 0 s"), "{error}");
        writer.write_all(b"12345").unwrap();
        assert_eq!(read_pipe(Path::new(&path), 4, Duration::ZERO).unwrap(), b"12345", "the caller rejects it");
        writer.write_all(b"12345").unwrap();
        drop(writer);
        assert_eq!(read_once(Path::new(&path), 5).unwrap(), b"12345");
        let error = read_once(Path::new(&path), 5).unwrap_err();
        assert!(error.to_string().contains("the pipe is empty, or was read before"), "{error}");
    }

    #[test]
    fn a_pipe_without_a_writer_is_not_an_empty_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = fifo(&folder);
        assert_eq!(read_pipe(&path, 5, Duration::ZERO).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn whoever_can_read_or_change_a_file_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.acl");
        fs::write(&path, b"").unwrap();
        for (mode, is_secret, expected) in [
            (0o600, true, &[][..]),
            (0o640, true, &[]),
            (0o644, true, &["chmod o-r"]),
            (0o644, false, &[]),
            (0o606, false, &["chmod o-w"]),
            (0o666, true, &["chmod o-r", "chmod o-w", "chmod g-w"]),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let found = exposures(&path, "the users", is_secret);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (found, remedy) in found.iter().zip(expected) {
                assert!(found.contains("the users: ") && found.ends_with(remedy), "{found}");
            }
        }
        assert_eq!(exposures(&folder.path().join("none"), "the users", true), Vec::<String>::new());
    }
}
