//! Opens regular files, and nothing else.
//!
//! In: a path. Out: the file, open for reading. Opening a FIFO wakes its writers, and opening a tape or a terminal
//! moves or configures it. So the file's type is read before the file is opened.

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens the file at a path for reading.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if the path leads to something other than a regular file, which is then not opened.
/// The system's error if the file cannot be opened.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    check_type(&file)?;
    Ok(file)
}

fn check_type(file: &File) -> io::Result<()> {
    match file.metadata()?.is_file() {
        true => Ok(()),
        false => Err(not_regular()),
    }
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file")
}

/// Opens the inode whose type was read, so that nobody can put another one at the path in between.
fn open(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};

    let inode = File::from(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    check_type(&inode)?;
    match super::sealed::reopened(&inode) {
        // Without /proc, the path is opened again.
        Err(error) if error.kind() == io::ErrorKind::NotFound => open_without_waiting(path),
        opened => opened,
    }
}

/// Opens a path. If the path leads to a FIFO or a terminal by now, the call neither waits for a writer nor acquires the
/// terminal.
fn open_without_waiting(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::OFlags;

    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    File::options().read(true).custom_flags(flags.bits() as i32).open(path)
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::os::unix::fs::{OpenOptionsExt, symlink};

    use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_regular_file_is_opened_for_reading_through_links() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        std::fs::write(&path, "bytes").unwrap();
        symlink(&path, folder.path().join("link")).unwrap();
        for path in [path.clone(), folder.path().join("link")] {
            let file = open_regular(&path).unwrap();
            assert_eq!(io::read_to_string(&file).unwrap(), "bytes");
            assert!(file.set_len(0).is_err(), "the file must be open for reading only");
        }
        let error = open_regular(&folder.path().join("none")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_is_not_a_regular_file_is_refused_without_being_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (fifo, link) = (folder.path().join("fifo"), folder.path().join("link"));
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        symlink(&fifo, &link).unwrap();
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&events, &fifo, WatchFlags::OPEN).unwrap();
        let was_opened = || {
            let mut buffer = [MaybeUninit::uninit(); 512];
            Reader::new(&events, &mut buffer).next().is_ok()
        };
        for path in [&fifo, &link] {
            assert_eq!(open_regular(path).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            assert!(!was_opened(), "{}", path.display());
        }
        // An actual open shows that the watch reports it.
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        File::options().read(true).custom_flags(flags).open(&link).unwrap();
        assert!(was_opened());
        for path in [folder.path(), Path::new("/dev/null")] {
            assert_eq!(open_regular(path).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
    }
}
