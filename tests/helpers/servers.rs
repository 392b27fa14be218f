//! A running `kv_store`.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::waiting::PATIENCE;

/// A `kv_store` process whose log is a pipe. Dropping this value kills the process.
pub(crate) struct Server {
    pub(crate) child: Child,
    socket: PathBuf,
    log: BufReader<std::process::ChildStderr>,
}

impl Server {
    /// Starts a `kv_store` and waits until its log says that the server is ready.
    pub(crate) fn start(db: &Path, socket: &Path) -> Server {
        Server::of(kv_store(db, socket), socket)
    }

    /// Runs a command that starts a `kv_store`, and waits until its log says that the server is ready.
    pub(crate) fn of(command: Command, socket: &Path) -> Server {
        let mut server = Server::spawn(command, socket);
        server.wait_for_log("ready");
        server
    }

    /// Runs a command that starts a `kv_store` without waiting for the server.
    pub(crate) fn spawn(mut command: Command, socket: &Path) -> Server {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        Server { child, socket: socket.to_path_buf(), log }
    }

    /// Waits for a log line that contains `text`, and returns the line.
    pub(crate) fn wait_for_log(&mut self, text: &str) -> String {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert_ne!(self.log.read_line(&mut line).unwrap(), 0, "the log ended before {text:?}");
        }
        line
    }

    pub(crate) fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Returns the size of the process's anonymous memory.
    pub(crate) fn anonymous_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// Returns the number of file descriptors that the process has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the command that serves a file and logs at level `info`.
pub(crate) fn kv_store(db: &Path, socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kv_store"));
    command.arg("--db").arg(db).arg("--socket").arg(socket).env("RUST_LOG", "info");
    command
}
