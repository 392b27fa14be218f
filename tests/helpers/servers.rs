//! A running `kv_store`.

use std::io::{BufRead, BufReader};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};

use super::processes::Process;

/// A `kv_store` process whose log is a pipe. Dropping this value kills the process.
pub(crate) struct Server {
    process: Process,
    log: BufReader<ChildStderr>,
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
        Server { process: Process::new(child, socket), log }
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
}

impl Deref for Server {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Returns the command that serves a file and logs at level `info`.
pub(crate) fn kv_store(db: &Path, socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kv_store"));
    command.arg("--db").arg(db).arg("--socket").arg(socket).env("RUST_LOG", "info");
    command
}
