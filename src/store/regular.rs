//! Opens regular files, and rejects all other files without opening them.
//!
//! In: a path. Out: the file, open for reading. Opening a file of another type has side effects: opening a FIFO wakes
//! its writers, opening a tape device moves the tape, and opening a terminal configures the terminal. Therefore, the
//! file's type is read before the file is opened.

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens the file at a path for reading.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if the file at the path is not a regular file; such a file is not opened. The
/// system's error if the file cannot be opened.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    check_type(&file)?;
    Ok(file)
}

fn check_type(file: &File) -> io::Result<()> {
    match file.metadata()?.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file")),
    }
}

/// Checks the type of the file at a path, then opens the same inode for reading, even if the path meanwhile leads to
/// another file.
fn open(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};

    let inode = File::from(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    check_type(&inode)?;
    match super::sealed::reopened(&inode) {
        // Without /proc, the inode cannot be opened for reading, so the path is opened instead.
        Err(error) if error.kind() == io::ErrorKind::NotFound => open_without_waiting(path),
        opened => opened,
    }
}

/// Opens a path for reading. Another file may have replaced the file whose type was checked. If the path now leads to a
/// FIFO, the call does not wait for a writer. If the path now leads to a terminal, the call does not acquire it as the
/// controlling terminal.
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
    fn a_file_that_is_not_regular_is_rejected_without_being_opened() {
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
        // The test opens the FIFO itself, to show that the watch reports an open.
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        File::options().read(true).custom_flags(flags).open(&link).unwrap();
        assert!(was_opened());
        for path in [folder.path(), Path::new("/dev/null")] {
            assert_eq!(open_regular(path).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
    }
}
