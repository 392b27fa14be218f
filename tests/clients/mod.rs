//! Programs that are not ours: whether they are installed, and a real Redis.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of this")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// How long a server may be silent, on however slow a machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Names, between commas, of what fails the tests that need it where it is not installed;
/// 1 stands for what `.ci/run` installs on every machine.
const REQUIRE: &str = "ZERO_KV_REQUIRE_CLIENTS";

/// Says why a test is skipped, or fails it if nothing may be.
pub fn skip(reason: &str) {
    skip_tool("1", reason);
}

/// The same for what is not on every machine, and may be required by its name.
pub fn skip_tool(name: &str, reason: &str) {
    let required = std::env::var(REQUIRE).unwrap_or_default();
    assert!(!required.split(',').any(|required| required == name), "{reason}, and {REQUIRE} is {required}");
    // Not by a macro, whose output is shown only of tests that fail.
    let _ = writeln!(io::stderr(), "skipped: {reason}");
}

/// Whether a program of Redis's is there. If not, the test is skipped.
pub fn has_redis(program: &str) -> bool {
    let ran = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = ran.is_ok_and(|status| status.success());
    if !is_there {
        skip(&format!("{program} is not installed"));
    }
    is_there
}

/// A redis-server of the test's own. It ends when this is dropped.
pub struct Redis {
    child: Child,
    folder: TempDir,
    _log: BufReader<ChildStdout>,
}

impl Redis {
    /// Starts one that holds nothing, and waits until it takes connections; `None` if
    /// there is none to start.
    pub fn start() -> Option<Redis> {
        if !has_redis("redis-server") {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--databases", "1"]);
        command.arg("--dir").arg(folder.path()).arg("--unixsocket").arg(folder.path().join("r.sock"));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("ready to accept connections") {
            line.clear();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "redis-server ended before it was ready");
        }
        Some(Redis { child, folder, _log: log })
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("r.sock")
    }

    pub fn connect(&self) -> UnixStream {
        connect(&self.socket())
    }

    /// Sets a key to each value.
    pub fn fill<'r>(&self, rows: impl IntoIterator<Item = (&'r [u8], &'r [u8])>) {
        let mut stream = self.connect();
        for (key, value) in rows {
            stream.write_all(&command(&[b"SET", key, value])).unwrap();
            let mut stored = [0; 5];
            stream.read_exact(&mut stored).unwrap();
            assert_eq!(&stored, b"+OK\r\n");
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection on which a test never waits for ever.
pub fn connect(socket: &std::path::Path) -> UnixStream {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A command as clients send it: an array of bulk strings.
pub fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// What stands behind a name in the lines of `INFO`.
pub fn line_of<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}
