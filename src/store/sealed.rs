//! Seals files, so that nobody can change them.
//!
//! In: a memory file with its contents. Out: a memory file that no process, including its creator, can write to or
//! resize any more. A file on a disk has a similar guarantee if fs-verity is enabled for it: see the kernel's
//! `Documentation/filesystems/fsverity.rst`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::fs::{
    AtFlags, MemfdFlags, SealFlags, StatxAttributes, StatxFlags, fcntl_add_seals, fcntl_get_seals, memfd_create, statx,
};
use rustix::io::Errno;

/// The seals that keep the bytes unchanged.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::WRITE);

/// Creates an empty memory file, to be written and then sealed.
pub(super) fn create() -> io::Result<File> {
    Ok(File::from(memfd_create("zero-kv", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?))
}

/// Seals a memory file. Makes up to 20 attempts, and calls `wait` between attempts.
///
/// An attempt fails with EBUSY if a writable mapping of the file exists, or if something holds a reference to one of
/// the file's pages. The kernel itself holds such references briefly: while it compacts memory, and until it has added
/// a written page to its lists.
pub(super) fn seal(file: &File, mut wait: impl FnMut()) -> io::Result<()> {
    const TRIES: u32 = 20;
    for _ in 1..TRIES {
        match fcntl_add_seals(file, SEALS | SealFlags::SEAL) {
            Err(Errno::BUSY) => wait(),
            sealed => return Ok(sealed?),
        }
    }
    Ok(fcntl_add_seals(file, SEALS | SealFlags::SEAL)?)
}

/// Returns whether the file is a sealed memory file, which no process can write to or resize.
pub(crate) fn is_sealed(file: &File) -> bool {
    // For a file that cannot have seals, the call returns an error.
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SEALS))
}

/// Returns whether the file has fs-verity, so that its bytes cannot change. Reading them can still fail.
pub(super) fn has_verity(file: &File) -> bool {
    statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::empty())
        .is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::VERITY))
}

/// Opens a file again, read-only, even if the file has no name. The result is a separate open file description, so it
/// does not share leases, locks, or write access with `file`.
pub(crate) fn reopened(file: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use memmap2::MmapRaw;

    use super::*;

    #[test]
    fn sealing_is_retried_while_the_file_has_a_writable_mapping() {
        let file = create().unwrap();
        file.set_len(4096).unwrap();
        let mut held = Some(MmapRaw::map_raw(&file).unwrap());
        let mut waits = 0;
        seal(&file, || {
            waits += 1;
            held = held.take().filter(|_| waits < 3);
        })
        .unwrap();
        assert_eq!(waits, 3);
        assert!(is_sealed(&file) && file.write_at(b"x", 0).is_err() && file.set_len(0).is_err());
    }

    #[test]
    fn a_file_that_can_be_changed_does_not_count_as_sealed() {
        let file = create().unwrap();
        assert!(!is_sealed(&file) && !has_verity(&file));
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert!(!is_sealed(&file));
        let file = tempfile::tempfile().unwrap();
        assert!(!is_sealed(&file) && !has_verity(&file));
    }

    #[test]
    fn a_reopened_file_has_the_same_bytes_and_is_read_only() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"table").unwrap();
        let again = reopened(&file).unwrap();
        let mut bytes = [0; 5];
        again.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"table");
        assert!(again.write_at(b"x", 0).is_err() && again.set_len(0).is_err());
    }
}
