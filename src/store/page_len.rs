//! The lengths of the system's pages, which depend on the processor and on the kernel.

use std::fs;
use std::sync::OnceLock;

use nix::unistd::{SysconfVar, sysconf};

/// The length of the smallest page of any system.
pub(super) const PAGE_LEN_BYTES: usize = 4096;

/// Returns the length of a page of this system.
pub(crate) fn page_len_bytes() -> usize {
    let len_bytes = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    len_bytes
        .and_then(|len_bytes| usize::try_from(len_bytes).ok())
        .map_or(PAGE_LEN_BYTES, |len| len.max(PAGE_LEN_BYTES))
}

/// Returns the length of a huge page of this system: 2 MiB on x86-64, and on AArch64 2, 32, or 512 MiB with pages of 4,
/// 16, or 64 KiB.
pub(crate) fn huge_page_len_bytes() -> usize {
    static LEN_BYTES: OnceLock<usize> = OnceLock::new();
    *LEN_BYTES.get_or_init(|| {
        let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").unwrap_or_default();
        // A kernel without huge pages has no such file. Its pages are then aligned as if there were short ones.
        text.trim_end().parse().ok().filter(|len: &usize| len.is_power_of_two()).unwrap_or(SHORT_HUGE_PAGE_LEN_BYTES)
    })
}

/// The length of the shortest huge page of any system. Memory is padded to whole pages of this length, but not of longer
/// ones, which would waste up to 512 MiB.
pub(crate) const SHORT_HUGE_PAGE_LEN_BYTES: usize = 2 << 20;
