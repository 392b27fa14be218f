//! The length of the system's pages.

use nix::unistd::{SysconfVar, sysconf};

/// The length of the smallest page of any system.
pub(super) const PAGE_LEN_BYTES: usize = 4096;

/// Returns the length of a page of this system.
pub(super) fn page_len_bytes() -> usize {
    let len_bytes = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    len_bytes
        .and_then(|len_bytes| usize::try_from(len_bytes).ok())
        .map_or(PAGE_LEN_BYTES, |len| len.max(PAGE_LEN_BYTES))
}
