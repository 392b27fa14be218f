//! Intercepts the system calls of a child process.
//!
//! A seccomp filter (Linux 5.9) selects system calls. A thread of the child that makes a selected call is suspended
//! until the test has decided whether the kernel runs the call or the child gets an error. Unlike `LD_PRELOAD`, the
//! filter also intercepts calls that do not go through libc. Unlike with `strace -e inject`, a test can count the calls
//! of all threads together.

use std::ffi::c_long;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use rustix::thread::{gettid, set_no_new_privs};

use crate::trials::{Missing, missing};

/// Selects the system calls that wait for a verdict.
pub enum Calls<'a> {
    Only(&'a [c_long]),
    AllBut(&'a [c_long]),
}

/// A system call that a thread of the child has made and waits for.
pub struct Call {
    pub number: c_long,
    pub args: [u64; 6],
    thread: u32,
}

pub enum Verdict {
    /// The kernel runs the call.
    Run,
    /// The call fails and has no effect.
    Fail(Errno),
    /// The test has run the call; the child gets this result.
    Done(i64),
    /// The call does not return. The other threads of the child continue.
    Hang,
}

impl Call {
    /// Returns the path that an argument points to. A relative path is resolved in the folder that `folder_arg` refers
    /// to, or in the child's current folder if there is no such argument.
    pub fn path(&self, folder_arg: Option<usize>, path_arg: usize) -> PathBuf {
        let bytes = self.memory(self.args[path_arg], libc::PATH_MAX as usize, true);
        let path = PathBuf::from(String::from_utf8(bytes).expect("a path that is valid UTF-8"));
        let folder = match folder_arg.map(|arg| self.args[arg] as i32) {
            None | Some(libc::AT_FDCWD) => self.proc("cwd"),
            Some(descriptor) => self.proc(&format!("fd/{descriptor}")),
        };
        match path.strip_prefix("/proc/self") {
            Ok(own) => self.proc(own.to_str().unwrap()),
            Err(_) => fs::read_link(folder).unwrap_or_default().join(path),
        }
    }

    /// Returns bytes that an argument points to.
    pub fn bytes(&self, arg: usize, len_bytes: u64) -> Vec<u8> {
        self.memory(self.args[arg], len_bytes as usize, false)
    }

    /// Returns the name in /proc of the file that a descriptor refers to.
    pub fn descriptor_link(&self, arg: usize) -> PathBuf {
        self.proc(&format!("fd/{}", self.args[arg] as i32))
    }

    /// Returns the path of the file that a descriptor refers to. For an unnamed file, this is the path that the kernel
    /// shows in /proc.
    pub fn descriptor_path(&self, arg: usize) -> PathBuf {
        fs::read_link(self.descriptor_link(arg)).unwrap_or_default()
    }

    pub fn descriptor_metadata(&self, arg: usize) -> Option<Metadata> {
        fs::metadata(self.descriptor_link(arg)).ok()
    }

    /// Duplicates a descriptor of the child into this process.
    pub fn duplicate(&self, arg: usize) -> io::Result<File> {
        let status = fs::read_to_string(self.proc("status"))?;
        let process = status.lines().find_map(|line| line.strip_prefix("Tgid:")).expect("a process").trim();
        let process = Pid::from_raw(process.parse().expect("a number")).expect("a process");
        let process = pidfd_open(process, PidfdFlags::empty())?;
        Ok(pidfd_getfd(process, self.args[arg] as i32, PidfdGetfdFlags::empty())?.into())
    }

    fn proc(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.thread.to_string()).join(name)
    }

    /// Reads memory of the child, up to the first zero byte for text, or up to the end of readable memory.
    fn memory(&self, address: u64, len_bytes: usize, is_text: bool) -> Vec<u8> {
        let memory = File::open(self.proc("mem")).expect("the memory of a child");
        let mut bytes = vec![0; len_bytes];
        let mut read_bytes = 0;
        while read_bytes < len_bytes {
            // Text may end right before a page that cannot be read.
            let at = address + read_bytes as u64;
            let step = if is_text { 4096 - (at % 4096) as usize } else { len_bytes }.min(len_bytes - read_bytes);
            let Ok(read) = memory.read_at(&mut bytes[read_bytes..][..step], at) else { break };
            if let Some(end) = bytes[read_bytes..][..read].iter().position(|byte| is_text && *byte == 0) {
                bytes.truncate(read_bytes + end);
                return bytes;
            }
            read_bytes += read;
        }
        bytes.truncate(read_bytes);
        bytes
    }
}

/// Starts a child, and a thread that ends with the child. The thread calls `decide` for each selected system call,
/// starting with the `execve` of the child.
///
/// # Errors
///
/// The error of the kernel, if it does not support seccomp filters or does not allow them here.
pub fn spawn(
    mut command: Command,
    calls: &Calls<'_>,
    decide: impl FnMut(&Call) -> Verdict + Send + 'static,
) -> io::Result<(Child, JoinHandle<()>)> {
    let mut program = program(calls);
    // The launcher stores its thread ID here, and the listener if the filter was installed.
    let shared = Arc::new(Mutex::new(None));
    let launcher = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let thread = gettid().as_raw_nonzero().get() as u32;
            let (listener, installed) = match install(&mut program) {
                Ok(listener) => (Some(listener), Ok(())),
                Err(error) => (None, Err(error)),
            };
            // From here on, this thread's own calls wait, too. Neither this lock nor the wake-up uses a selected call.
            *shared.lock().unwrap() = Some((thread, listener));
            installed.and_then(|()| command.spawn())
        })
    };
    let (thread, listener) = loop {
        match shared.lock().unwrap().take() {
            Some(installed) => break installed,
            None => thread::yield_now(),
        }
    };
    let supervisor = thread::spawn(move || {
        listener.inspect(|listener| supervise(listener, thread, decide));
    });
    Ok((launcher.join().expect("a launcher that does not panic")?, supervisor))
}

/// Responds to notifications until no process has the filter any more.
fn supervise(listener: &OwnedFd, launcher: u32, mut decide: impl FnMut(&Call) -> Verdict) {
    let mut has_started = false;
    loop {
        let mut ready = [PollFd::new(listener, PollFlags::IN)];
        if poll(&mut ready, None) == Err(Errno::INTR) {
            continue;
        }
        if !ready[0].revents().contains(PollFlags::IN) {
            return;
        }
        let Some((id, call)) = receive(listener) else { continue };
        let is_child = call.thread != launcher;
        let verdict = if is_child && has_started { decide(&call) } else { Verdict::Run };
        has_started |= is_child && call.number == libc::SYS_execve;
        respond(listener, id, &verdict);
    }
}

fn receive(listener: &OwnedFd) -> Option<(u64, Call)> {
    // SAFETY: the type consists of integers, for which zero is a value; the kernel insists on zeros.
    let mut found: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is a seccomp listener, and the argument is what this request writes to.
    let received = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut found) };
    // An error means that the thread was killed meanwhile.
    (received == 0).then(|| {
        let number = c_long::from(found.data.nr);
        (found.id, Call { number, args: found.data.args, thread: found.pid })
    })
}

fn respond(listener: &OwnedFd, id: u64, verdict: &Verdict) {
    let (val, error, flags) = match verdict {
        Verdict::Run => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        Verdict::Fail(errno) => (0, -errno.raw_os_error(), 0),
        Verdict::Done(result) => (*result, 0, 0),
        Verdict::Hang => return,
    };
    let mut response = libc::seccomp_notif_resp { id, val, error, flags };
    // SAFETY: the descriptor is a seccomp listener, and the argument is what this request reads.
    // It fails if the thread was killed meanwhile, and there is nobody to respond to.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut response) };
}

/// Installs a filter for this thread and its children.
fn install(program: &mut [libc::sock_filter]) -> io::Result<OwnedFd> {
    set_no_new_privs(true)?;
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
    // SAFETY: the program outlives the call and has as many instructions as `len` states, and the kernel only reads it.
    let listener = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as i32) })
}

/// Compiles a selection of system calls into a filter for the kernel.
fn program(calls: &Calls<'_>) -> Vec<libc::sock_filter> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const JUMP_IF: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    const NUMBER_AT_BYTES: u32 = 0;
    const DESCRIPTOR_OF_MMAP_AT_BYTES: u32 = 16 + 4 * 8;
    let (allow, notify) = (libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_USER_NOTIF);
    let step = |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut program = vec![
        // An anonymous mapping is never intercepted: while the launcher waits for one, its allocator may hold a lock
        // that the supervisor needs.
        step(LOAD, NUMBER_AT_BYTES, 0),
        step(JUMP_IF, libc::SYS_mmap as u32, 3),
        step(LOAD, DESCRIPTOR_OF_MMAP_AT_BYTES, 0),
        step(JUMP_IF, u32::MAX, 1),
        step(RETURN, allow, 0),
        step(LOAD, NUMBER_AT_BYTES, 0),
        step(JUMP_IF, libc::SYS_execve as u32, 1),
        step(RETURN, notify, 0),
    ];
    let (listed, listed_get, others_get) = match calls {
        Calls::Only(listed) => (listed, notify, allow),
        Calls::AllBut(listed) => (listed, allow, notify),
    };
    for number in *listed {
        program.extend([step(JUMP_IF, *number as u32, 1), step(RETURN, listed_get, 0)]);
    }
    program.push(step(RETURN, others_get, 0));
    program
}

/// Checks that system calls can be intercepted here.
pub fn require_interception() -> Result<(), Missing> {
    match spawn(Command::new("true"), &Calls::Only(&[]), |_| Verdict::Run) {
        Ok((mut child, supervisor)) => {
            child.wait().expect("a child that ends");
            supervisor.join().expect("a supervisor that does not panic");
            Ok(())
        }
        Err(error) => Err(missing("seccomp", &format!("system calls cannot be intercepted: {error}"))),
    }
}

/// Waits for the end of a child. Returns false if it does not end in time.
pub fn ends_within(child: &Child, time: std::time::Duration) -> bool {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).expect("a child");
    let process = process.as_fd();
    let mut ready = [PollFd::new(&process, PollFlags::IN)];
    let timeout = time.try_into().expect("a time that the kernel can represent");
    poll(&mut ready, Some(&timeout)).expect("a child that can be waited for") == 1
}
