//! Records the operations of a program on the files of a folder, in their exact order.
//!
//! The recorder itself runs writes, syncs, and changes of length, one at a time, so that no two of them overlap. A call
//! that could change a file in another way ends the recording with an error: the list below has the calls that cannot.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_long;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use rustix::io::Errno;

use crate::helpers::intercepted_calls::{self, Call, Calls, Verdict};

/// Calls that change no bytes, length, or name of a file.
#[rustfmt::skip]
const HARMLESS: [c_long; 84] = [
    libc::SYS_read, libc::SYS_pread64, libc::SYS_readv, libc::SYS_preadv, libc::SYS_close, libc::SYS_fstat, libc::SYS_newfstatat,
    libc::SYS_statx, libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_lseek, libc::SYS_mprotect, libc::SYS_munmap, libc::SYS_mremap,
    libc::SYS_madvise, libc::SYS_mincore, libc::SYS_mlock, libc::SYS_brk, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn, libc::SYS_sigaltstack, libc::SYS_futex, libc::SYS_clone, libc::SYS_clone3, libc::SYS_set_robust_list,
    libc::SYS_rseq, libc::SYS_prlimit64, libc::SYS_getrandom, libc::SYS_sched_yield, libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity, libc::SYS_ppoll, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait,
    libc::SYS_eventfd2, libc::SYS_pipe2, libc::SYS_socketpair, libc::SYS_socket, libc::SYS_connect, libc::SYS_sendto,
    libc::SYS_recvfrom, libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_shutdown, libc::SYS_getsockopt, libc::SYS_setsockopt,
    libc::SYS_dup, libc::SYS_dup3, libc::SYS_fcntl, libc::SYS_flock, libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_readlinkat,
    libc::SYS_getdents64, libc::SYS_getcwd, libc::SYS_chdir, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_wait4,
    libc::SYS_waitid, libc::SYS_kill, libc::SYS_tgkill, libc::SYS_getpid, libc::SYS_getppid, libc::SYS_gettid, libc::SYS_getuid,
    libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid, libc::SYS_sysinfo, libc::SYS_uname, libc::SYS_set_tid_address,
    libc::SYS_prctl, libc::SYS_clock_gettime, libc::SYS_clock_nanosleep, libc::SYS_nanosleep, libc::SYS_membarrier,
    libc::SYS_fadvise64, libc::SYS_umask, libc::SYS_fchmod, libc::SYS_fchown, libc::SYS_utimensat,
];
#[cfg(target_arch = "x86_64")]
const HARMLESS_HERE: [c_long; 9] = [
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_poll,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_arch_prctl,
    libc::SYS_vfork,
];
#[cfg(not(target_arch = "x86_64"))]
const HARMLESS_HERE: [c_long; 0] = [];

/// System calls without a folder argument.
#[cfg(target_arch = "x86_64")]
mod short {
    pub(crate) const OPEN: i64 = libc::SYS_open;
    pub(crate) const LINK: i64 = libc::SYS_link;
    pub(crate) const RENAME: i64 = libc::SYS_rename;
    pub(crate) const UNLINK: i64 = libc::SYS_unlink;
}
#[cfg(not(target_arch = "x86_64"))]
mod short {
    pub(crate) const OPEN: i64 = -1;
    pub(crate) const LINK: i64 = -2;
    pub(crate) const RENAME: i64 = -3;
    pub(crate) const UNLINK: i64 = -4;
}

/// Identifies a file independently of its name: the inode number and the creation time, because numbers are reused.
pub(crate) type Inode = (u64, Option<SystemTime>);

/// An operation of a program: a change of files, a sync, or a write to standard output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    Write {
        inode: Inode,
        at_bytes: u64,
        bytes: Arc<[u8]>,
    },
    Resize {
        inode: Inode,
        len_bytes: u64,
    },
    Sync {
        inode: Inode,
    },
    /// A new name for a file that was created, had another name, or had no name.
    Link {
        name: PathBuf,
        inode: Inode,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Unlink {
        name: PathBuf,
    },
    SyncFolder {
        folder: PathBuf,
    },
    /// The program has written to standard output.
    Reported,
}

/// The files of a folder, by their names relative to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Files {
    pub(crate) names: BTreeMap<PathBuf, Inode>,
    pub(crate) contents: HashMap<Inode, Vec<u8>>,
}

impl Files {
    pub(crate) fn in_folder(folder: &Path) -> Files {
        let mut files = Files::default();
        files.add(folder, Path::new(""));
        files
    }

    fn add(&mut self, folder: &Path, prefix: &Path) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), prefix.join(entry.file_name()));
            if path.is_dir() {
                self.add(&path, &name);
            } else {
                let inode = inode(&fs::symlink_metadata(&path).unwrap());
                self.contents.insert(inode, fs::read(&path).unwrap());
                self.names.insert(name, inode);
            }
        }
    }

    pub(crate) fn content(&self, name: &Path) -> Option<&[u8]> {
        self.names.get(name).map(|inode| &self.contents[inode][..])
    }
}

/// The operations of a program in a folder.
#[derive(Clone)]
pub(crate) struct Recording {
    pub(crate) before: Files,
    pub(crate) ops: Vec<Op>,
    pub(crate) after: Files,
}

#[derive(Default)]
struct Recorder {
    root: PathBuf,
    has_unnamed_files: bool,
    ops: Vec<Op>,
    /// Names of files that are being created.
    creating: Vec<PathBuf>,
    unknown: Vec<String>,
}

/// Records a program that runs in a folder. Unnamed files fail if `has_unnamed_files` is false.
///
/// # Errors
///
/// The error of the kernel, if it does not allow system calls to be intercepted.
pub(crate) fn record(command: Command, folder: &Path, has_unnamed_files: bool) -> io::Result<(Recording, Output)> {
    let root = folder.canonicalize()?;
    let before = Files::in_folder(&root);
    let recorder = Arc::new(Mutex::new(Recorder { root: root.clone(), has_unnamed_files, ..Recorder::default() }));
    let harmless = [&HARMLESS[..], &HARMLESS_HERE].concat();
    let (child, supervisor) = {
        let recorder = Arc::clone(&recorder);
        intercepted_calls::spawn(command, &Calls::AllBut(&harmless), move |call| {
            recorder.lock().unwrap().verdict(call)
        })?
    };
    let output = child.wait_with_output()?;
    supervisor.join().expect("a recorder that does not panic");
    let mut recorder = recorder.lock().unwrap();
    recorder.resolve_created();
    let (ops, unknown) = (std::mem::take(&mut recorder.ops), std::mem::take(&mut recorder.unknown));
    if !unknown.is_empty() {
        return Err(io::Error::other(format!("the recorder does not know {}", unknown.join(", "))));
    }
    Ok((Recording { before, ops, after: Files::in_folder(&root) }, output))
}

impl Recorder {
    fn verdict(&mut self, call: &Call) -> Verdict {
        self.resolve_created();
        let ran = match call.number {
            libc::SYS_openat => self.open(call, call.path(Some(0), 1), call.args[2] as i32),
            short::OPEN => self.open(call, call.path(None, 0), call.args[1] as i32),
            libc::SYS_write => self.write(call, None),
            libc::SYS_pwrite64 => self.write(call, Some(call.args[3])),
            libc::SYS_ftruncate => self.resize(call),
            libc::SYS_fsync | libc::SYS_fdatasync => self.sync(call),
            libc::SYS_linkat => self.link(call, &call.path(Some(0), 1), &call.path(Some(2), 3)),
            short::LINK => self.link(call, &call.path(None, 0), &call.path(None, 1)),
            libc::SYS_renameat | libc::SYS_renameat2 => self.rename(&call.path(Some(0), 1), &call.path(Some(2), 3)),
            short::RENAME => self.rename(&call.path(None, 0), &call.path(None, 1)),
            libc::SYS_unlinkat => self.unlink(&call.path(Some(0), 1)),
            short::UNLINK => self.unlink(&call.path(None, 0)),
            libc::SYS_mmap => self.map(call),
            libc::SYS_ioctl => self.ioctl(call),
            libc::SYS_execve => None,
            number => {
                self.unknown.push(format!("system call {number}"));
                None
            }
        };
        ran.unwrap_or(Verdict::Run)
    }

    /// Returns a path below the folder relative to it.
    fn name(&self, path: &Path) -> Option<PathBuf> {
        // The path itself may be a link, or may not exist.
        let folder = path.parent()?.canonicalize().ok()?;
        Some(folder.join(path.file_name()?).strip_prefix(&self.root).ok()?.to_owned())
    }

    /// Returns the file that a descriptor refers to, if it is in the folder, named or not.
    fn file(&self, call: &Call) -> Option<Inode> {
        let metadata = call.descriptor_metadata(0).filter(Metadata::is_file)?;
        call.descriptor_path(0).starts_with(&self.root).then(|| inode(&metadata))
    }

    fn open(&mut self, call: &Call, path: PathBuf, flags: i32) -> Option<Verdict> {
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        if flags & libc::O_TMPFILE == libc::O_TMPFILE {
            return (!self.has_unnamed_files).then_some(Verdict::Fail(Errno::OPNOTSUPP));
        }
        match self.name(&path) {
            Some(name) if flags & libc::O_CREAT != 0 && !path.exists() => self.creating.push(name),
            Some(name) if flags & libc::O_TRUNC != 0 => {
                let inode = inode(&fs::metadata(self.root.join(name)).ok()?);
                self.ops.push(Op::Resize { inode, len_bytes: 0 });
            }
            None if writes && fs::metadata(&path).map_or(true, |found| found.is_file()) => {
                self.unknown.push(format!("system call {} of {}", call.number, path.display()));
            }
            _ => {}
        }
        None
    }

    /// Looks up the inodes of created files once they exist, which is before the next call of the thread that creates
    /// them.
    fn resolve_created(&mut self) {
        let (root, ops) = (&self.root, &mut self.ops);
        self.creating.retain(|name| {
            let found = fs::symlink_metadata(root.join(name));
            ops.extend(found.iter().map(|found| Op::Link { name: name.clone(), inode: inode(found) }));
            found.is_err()
        });
    }

    fn write(&mut self, call: &Call, at_bytes: Option<u64>) -> Option<Verdict> {
        let Some(inode) = self.file(call) else {
            if call.args[0] == 1 {
                self.ops.push(Op::Reported);
            }
            return None;
        };
        let bytes: Arc<[u8]> = call.bytes(1, call.args[2]).into();
        let file = call.duplicate(0).expect("a descriptor of the child");
        let (written, at_bytes) = match at_bytes {
            Some(at_bytes) => (file.write_at(&bytes, at_bytes), at_bytes),
            None => {
                let at_bytes = rustix::fs::tell(&file).expect("a file with a position");
                (io::Write::write(&mut &file, &bytes), at_bytes)
            }
        };
        Some(done(written.map(|len_bytes| {
            self.ops.push(Op::Write { inode, at_bytes, bytes: bytes[..len_bytes].into() });
            len_bytes as i64
        })))
    }

    fn resize(&mut self, call: &Call) -> Option<Verdict> {
        let inode = self.file(call)?;
        let len_bytes = call.args[1];
        let resized = call.duplicate(0).and_then(|file| file.set_len(len_bytes));
        Some(done(resized.map(|()| {
            self.ops.push(Op::Resize { inode, len_bytes });
            0
        })))
    }

    fn sync(&mut self, call: &Call) -> Option<Verdict> {
        let op = match self.file(call) {
            Some(inode) => Op::Sync { inode },
            None => {
                let folder = call.descriptor_path(0);
                Op::SyncFolder { folder: folder.strip_prefix(&self.root).ok()?.to_owned() }
            }
        };
        Some(done(call.duplicate(0).and_then(|file| file.sync_all()).map(|()| {
            self.ops.push(op);
            0
        })))
    }

    fn link(&mut self, call: &Call, from: &Path, to: &Path) -> Option<Verdict> {
        match (fs::metadata(from), self.name(to)) {
            (Ok(found), Some(name)) => self.ops.push(Op::Link { name, inode: inode(&found) }),
            _ => self.unknown.push(format!("system call {} to {}", call.number, to.display())),
        }
        None
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Option<Verdict> {
        match (self.name(from), self.name(to)) {
            (Some(from), Some(to)) => self.ops.push(Op::Rename { from, to }),
            _ => self.unknown.push(format!("a rename of {} to {}", from.display(), to.display())),
        }
        None
    }

    fn unlink(&mut self, path: &Path) -> Option<Verdict> {
        match self.name(path) {
            Some(name) => self.ops.push(Op::Unlink { name }),
            None => self.unknown.push(format!("the removal of {}", path.display())),
        }
        None
    }

    fn map(&mut self, call: &Call) -> Option<Verdict> {
        let (protection, flags) = (call.args[2] as i32, call.args[3] as i32);
        if protection & libc::PROT_WRITE != 0 && flags & libc::MAP_TYPE != libc::MAP_PRIVATE {
            self.unknown.push(format!("a shared mapping of {}", call.descriptor_path(4).display()));
        }
        None
    }

    fn ioctl(&mut self, call: &Call) -> Option<Verdict> {
        if [libc::FICLONE, libc::FICLONERANGE].contains(&(call.args[1] as libc::Ioctl)) {
            self.unknown.push(format!("a clone into {}", call.descriptor_path(0).display()));
        }
        None
    }
}

fn done(result: io::Result<i64>) -> Verdict {
    match result {
        Ok(result) => Verdict::Done(result),
        Err(error) => Verdict::Fail(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}

pub(crate) fn inode(metadata: &Metadata) -> Inode {
    (metadata.ino(), metadata.created().ok())
}
