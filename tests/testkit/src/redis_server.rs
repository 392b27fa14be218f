//! A real Redis server, and commands of the Redis protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::TempDir;

use super::frames::connect;
use super::trials::{Missing, require};

/// A `redis-server` process. Dropping this value kills the process.
pub struct Redis {
    child: Child,
    socket: PathBuf,
    _folder: TempDir,
    _log: BufReader<ChildStdout>,
}

impl Redis {
    /// Starts an empty server, and waits until it accepts connections.
    pub fn start() -> Result<Redis, Missing> {
        Redis::start_with(&[])
    }

    /// Starts a server like [`Redis::start`], with more options.
    pub fn start_with(options: &[&str]) -> Result<Redis, Missing> {
        require("redis-server", "--version")?;
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("r.sock");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--databases", "1"]).args(options);
        command.arg("--dir").arg(folder.path()).arg("--unixsocket").arg(&socket);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("ready to accept connections") {
            line.clear();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "redis-server ended before it was ready");
        }
        Ok(Redis { child, socket, _folder: folder, _log: log })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn connect(&self) -> UnixStream {
        connect(&self.socket)
    }

    /// Makes the server a replica of a server that does not exist. The server keeps its rows.
    pub fn become_replica(&self) {
        let mut stream = self.connect();
        stream.write_all(&command(&[b"REPLICAOF", b"127.0.0.1", b"1"])).unwrap();
        let mut accepted = [0; 5];
        stream.read_exact(&mut accepted).unwrap();
        assert_eq!(&accepted, b"+OK\r\n");
    }

    /// Sets each key to its value.
    pub fn fill<'r>(&self, rows: impl IntoIterator<Item = (&'r [u8], &'r [u8])>) {
        fill(self.connect(), rows);
    }
}

/// Sets each key to its value.
pub fn fill<'r>(mut stream: UnixStream, rows: impl IntoIterator<Item = (&'r [u8], &'r [u8])>) {
    for (key, value) in rows {
        stream.write_all(&command(&[b"SET", key, value])).unwrap();
        let mut stored = [0; 5];
        stream.read_exact(&mut stored).unwrap();
        assert_eq!(&stored, b"+OK\r\n");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a command as an array of bulk strings, which is the form that clients send.
pub fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Returns the value of the field with this name in the reply to `INFO`.
pub fn line_of<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}
