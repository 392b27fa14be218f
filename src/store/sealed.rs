//! Files that nobody can change.
//!
//! In: a memory file that was written. Out: one that no process can change, cut
//! off or make longer any more, the one that made it included. A file of a disk
//! is like that if fs-verity is enabled for it: see the kernel's
//! `Documentation/filesystems/fsverity.rst`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::fs::{
    AtFlags, MemfdFlags, SealFlags, StatxAttributes, StatxFlags, fcntl_add_seals, fcntl_get_seals, memfd_create, statx,
};
use rustix::io::Errno;

/// What keeps bytes as they are.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::WRITE);

/// An empty memory file, to be written and then sealed.
pub(super) fn create() -> io::Result<File> {
    Ok(File::from(memfd_create("zero-kv", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?))
}

/// Seals a memory file for good. The system refuses as long as somebody holds one of
/// its pages: the kernel itself does for moments, when it moves pages together or
/// has not entered a written one into its lists. `wait` waits between two tries.
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

/// Whether it is a memory file that was sealed: neither its bytes change nor are
/// they ever gone.
pub(crate) fn is_sealed(file: &File) -> bool {
    // Other files have no seals, and say so by an error.
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SEALS))
}

/// Whether its bytes cannot change, though the disk may fail to give them.
pub(super) fn has_verity(file: &File) -> bool {
    statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::empty())
        .is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::VERITY))
}

/// Opens a file once more, to read it, whether or not it has a name: leases and locks
/// are those of one opening, and so is the right to write.
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
    fn a_memory_file_is_sealed_though_somebody_holds_it_for_a_while() {
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
    fn a_file_that_can_be_changed_is_not_taken_for_sealed() {
        let file = create().unwrap();
        assert!(!is_sealed(&file) && !has_verity(&file));
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert!(!is_sealed(&file));
        let file = tempfile::tempfile().unwrap();
        assert!(!is_sealed(&file) && !has_verity(&file));
    }

    #[test]
    fn a_file_opened_once_more_is_the_same_and_cannot_be_written_to() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"table").unwrap();
        let again = reopened(&file).unwrap();
        let mut bytes = [0; 5];
        again.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"table");
        assert!(again.write_at(b"x", 0).is_err() && again.set_len(0).is_err());
    }
}
