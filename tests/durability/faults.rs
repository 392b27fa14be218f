//! The system calls that fail, and with which errors.

use std::collections::BTreeSet;
use std::ffi::c_long;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::helpers::intercepted_calls::Call;
use crate::helpers::random::Random;

/// A kind of system call: its numbers, and the argument that names its file.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) numbers: &'static [c_long],
    file: FileArg,
    pub(crate) errors: &'static [Errno],
    /// Whether a run cannot succeed after this call has failed.
    pub(crate) is_vital: bool,
}

#[derive(Clone, Copy)]
enum FileArg {
    Descriptor(usize),
    /// The argument of the folder, and the argument of the path.
    PathIn(usize, usize),
    Path(usize),
    /// No argument: the call creates a file in memory.
    Memory,
}

const READS: &[Errno] = &[Errno::IO, Errno::INTR];
const WRITES: &[Errno] = &[Errno::IO, Errno::NOSPC, Errno::INTR];
const NAMES: &[Errno] = &[Errno::IO, Errno::NOSPC];

const fn kind(
    name: &'static str,
    numbers: &'static [c_long],
    file: FileArg,
    errors: &'static [Errno],
    is_vital: bool,
) -> Kind {
    Kind { name, numbers, file, errors, is_vital }
}

/// The kinds of system calls that the programs make on files.
pub(crate) const KINDS: &[Kind] = &[
    kind("openat", &[libc::SYS_openat], FileArg::PathIn(0, 1), &[Errno::IO, Errno::NOSPC, Errno::MFILE], false),
    kind("read", &[libc::SYS_read, libc::SYS_pread64, libc::SYS_readv], FileArg::Descriptor(0), READS, true),
    kind("write", &[libc::SYS_write, libc::SYS_pwrite64, libc::SYS_writev], FileArg::Descriptor(0), WRITES, true),
    kind("ftruncate", &[libc::SYS_ftruncate, libc::SYS_fallocate], FileArg::Descriptor(0), WRITES, true),
    kind("fsync", &[libc::SYS_fsync, libc::SYS_fdatasync], FileArg::Descriptor(0), &[Errno::IO, Errno::NOSPC], true),
    kind("linkat", &[libc::SYS_linkat], FileArg::PathIn(2, 3), NAMES, true),
    kind("renameat", &[libc::SYS_renameat, libc::SYS_renameat2], FileArg::PathIn(2, 3), NAMES, true),
    kind("unlinkat", &[libc::SYS_unlinkat], FileArg::PathIn(0, 1), &[Errno::IO], false),
    kind("mmap", &[libc::SYS_mmap], FileArg::Descriptor(4), &[Errno::NOMEM], false),
    kind("statx", &[libc::SYS_statx, libc::SYS_newfstatat], FileArg::PathIn(0, 1), &[Errno::IO], false),
    kind("fstat", &[libc::SYS_fstat], FileArg::Descriptor(0), &[Errno::IO], false),
    kind("getdents64", &[libc::SYS_getdents64], FileArg::Descriptor(0), &[Errno::IO], false),
    kind("flock", &[libc::SYS_flock], FileArg::Descriptor(0), &[Errno::NOLCK], false),
    kind("fcntl", &[libc::SYS_fcntl], FileArg::Descriptor(0), &[Errno::MFILE], false),
    kind("lseek", &[libc::SYS_lseek], FileArg::Descriptor(0), &[Errno::IO], false),
    kind("fadvise64", &[libc::SYS_fadvise64], FileArg::Descriptor(0), &[Errno::IO], false),
    kind("memfd_create", &[libc::SYS_memfd_create], FileArg::Memory, &[Errno::MFILE], false),
    #[cfg(target_arch = "x86_64")]
    kind("rename", &[libc::SYS_rename], FileArg::Path(1), NAMES, true),
    #[cfg(target_arch = "x86_64")]
    kind("unlink", &[libc::SYS_unlink], FileArg::Path(0), &[Errno::IO], false),
    #[cfg(target_arch = "x86_64")]
    kind("stat", &[libc::SYS_stat, libc::SYS_lstat], FileArg::Path(0), &[Errno::IO], false),
];

/// Returns the numbers of all kinds.
pub(crate) fn numbers() -> Vec<c_long> {
    KINDS.iter().flat_map(|kind| kind.numbers).copied().collect()
}

/// Returns the kind of a call as an index, and the path of the file that the call concerns.
pub(crate) fn kind_of(call: &Call) -> Option<(usize, PathBuf)> {
    let index = KINDS.iter().position(|kind| kind.numbers.contains(&call.number))?;
    let path = match KINDS[index].file {
        FileArg::Descriptor(arg) => call.descriptor_path(arg),
        FileArg::PathIn(folder, path) => call.path(Some(folder), path),
        FileArg::Path(path) => call.path(None, path),
        FileArg::Memory => PathBuf::from("/memfd:"),
    };
    Some((index, path))
}

/// Returns the target of a descriptor's link in /proc, and any other path unchanged.
pub(crate) fn resolved(path: PathBuf) -> PathBuf {
    match path.starts_with("/proc") && path.components().any(|part| part.as_os_str() == "fd") {
        true => fs::read_link(&path).unwrap_or(path),
        false => path,
    }
}

/// A fault: the `ordinal`th call of a kind fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: usize,
    pub(crate) ordinal: usize,
    pub(crate) errno: Errno,
}

impl Fault {
    pub(crate) fn name(&self) -> String {
        format!("{} {} fails with {:?}", KINDS[self.kind].name, self.ordinal + 1, self.errno)
    }
}

/// Counts calls, and makes one of them fail.
#[derive(Default)]
pub(crate) struct Injector {
    pub(crate) fault: Option<Fault>,
    /// The number of calls of each kind so far.
    pub(crate) counts: Vec<usize>,
    /// The file of the call that failed.
    pub(crate) failed: Option<PathBuf>,
}

impl Injector {
    pub(crate) fn new(fault: Option<Fault>) -> Injector {
        Injector { fault, counts: vec![0; KINDS.len()], failed: None }
    }

    /// Counts a call. Returns the error with which it must fail, if any.
    pub(crate) fn count(&mut self, kind: usize, path: &Path) -> Option<Errno> {
        let ordinal = self.counts[kind];
        self.counts[kind] += 1;
        let fault = self.fault.filter(|fault| (fault.kind, fault.ordinal) == (kind, ordinal))?;
        self.failed = Some(path.to_path_buf());
        Some(fault.errno)
    }

    /// Returns every possible fault of the counted calls.
    pub(crate) fn possible_faults(&self) -> Vec<Fault> {
        let of_kind = |(kind, count): (usize, &usize)| {
            (0..*count).flat_map(move |ordinal| {
                KINDS[kind].errors.iter().map(move |errno| Fault { kind, ordinal, errno: *errno })
            })
        };
        self.counts.iter().enumerate().flat_map(of_kind).collect()
    }
}

/// Draws faults. It draws the kind first, so that rare kinds are among them.
pub(crate) fn draw_faults(possible: &[Fault], count: usize, random: &mut Random) -> Vec<Fault> {
    let kinds: BTreeSet<usize> = possible.iter().map(|fault| fault.kind).collect();
    let kinds: Vec<usize> = kinds.into_iter().collect();
    let draw = |_| {
        let kind = kinds[random.below(kinds.len())];
        let of_kind: Vec<&Fault> = possible.iter().filter(|fault| fault.kind == kind).collect();
        *of_kind[random.below(of_kind.len())]
    };
    (0..count).map(draw).collect()
}
