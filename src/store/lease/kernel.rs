//! Implements the system calls of a lease.

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;

use super::{IS_ENABLED, Leasable};
use crate::store::{clock, file_system};

impl Leasable for File {
    fn are_leases_on(&self) -> bool {
        IS_ENABLED.load(Ordering::Acquire)
    }

    #[inline(always)]
    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn acquire(&self) -> io::Result<()> {
        match file_system::has_reliable_leases(self)? {
            true => set_lease(self, true),
            false => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn release(&self) {
        // The call fails if the system has already revoked the lease.
        let _ = set_lease(self, false);
    }

    fn is_held(&self) -> io::Result<bool> {
        is_held(self)
    }
}

fn set_lease(file: &File, is_wanted: bool) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let kind = if is_wanted { libc::F_RDLCK } else { libc::F_UNLCK };
    // SAFETY: `fcntl` takes a descriptor that is open as long as `file` lives, and a number.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns whether the lease is held. If a writer waits for the release, the result is `false`: the system then reports
/// the state that the lease is changing to.
fn is_held(file: &File) -> io::Result<bool> {
    use std::os::fd::AsRawFd;
    // SAFETY: `fcntl` takes a descriptor that is open as long as `file` lives.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) } {
        -1 => Err(io::Error::last_os_error()),
        kind => Ok(kind == libc::F_RDLCK),
    }
}
