//! A process of `kv_store`. [`Server`](super::servers::Server) reads its log from a pipe, and
//! [`Served`](super::scenes::Served) from a file.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};

use super::waiting::PATIENCE;

/// A process of `kv_store`. Dropping this value kills the process.
pub(crate) struct Process {
    child: Child,
    socket: PathBuf,
}

impl Process {
    pub(crate) fn new(child: Child, socket: &Path) -> Process {
        Process { child, socket: socket.to_path_buf() }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Kills the process, unless it has ended, and waits for its end.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns a file of the process's folder in `/proc`.
    pub(crate) fn proc(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.id())).unwrap()
    }

    /// Returns a size from `/proc/PID/status`, for example for the name `VmRSS`.
    pub(crate) fn status_bytes(&self, name: &str) -> u64 {
        let status = self.proc("status");
        let size = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib = size.unwrap_or_else(|| panic!("no {name} in {status}")).trim_end_matches(" kB").trim();
        kib.parse::<u64>().unwrap() << 10
    }

    /// Returns the size of the process's anonymous memory.
    pub(crate) fn anonymous_bytes(&self) -> u64 {
        self.status_bytes("RssAnon")
    }

    /// Returns the number of file descriptors that the process has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id())).unwrap().count()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
