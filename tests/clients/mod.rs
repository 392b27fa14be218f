//! Third-party programs that tests run, and a real Redis.
//!
//! A test that needs a program or a right that the machine lacks is reported as ignored, with the reason. The built-in
//! harness cannot decide that at run time, so these test binaries use libtest-mimic.

#![allow(dead_code, unused_imports, unused_macros, unreachable_pub, reason = "each test binary uses a part of this")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use libtest_mimic::{Completion, Trial};
use tempfile::TempDir;

/// How long a server may be silent, on however slow a machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Names programs and rights, separated by commas. A test that needs one of them fails if it is missing.
const REQUIRE: &str = "ZERO_KV_REQUIRE";

/// Says what is missing, and ends a test as ignored.
#[derive(Clone, Debug)]
pub struct Missing(String);

/// Returns the reason why a test is ignored.
///
/// Panics if the environment requires what is missing, so that the test fails instead.
pub fn missing(what: &str, reason: &str) -> Missing {
    let required = std::env::var(REQUIRE).unwrap_or_default();
    let is_required = required.split(',').any(|required| required == what);
    assert!(!is_required, "{reason}, and {REQUIRE}={required} requires {what}");
    Missing(reason.to_owned())
}

/// Checks that a program is installed. `version` is the option that prints its version.
pub fn require(program: &str, version: &str) -> Result<(), Missing> {
    let ran = Command::new(program).arg(version).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match ran.is_ok_and(|status| status.success()) {
        true => Ok(()),
        false => Err(missing(program, &format!("{program} is not installed"))),
    }
}

/// What a test function returns.
pub trait Outcome {
    fn completion(self) -> Completion;
}

impl Outcome for () {
    fn completion(self) -> Completion {
        Completion::Completed
    }
}

impl Outcome for Result<(), Missing> {
    fn completion(self) -> Completion {
        match self {
            Ok(()) => Completion::Completed,
            Err(Missing(reason)) => Completion::ignored_with(reason),
        }
    }
}

/// Makes a test of a function.
pub fn trial<O: Outcome>(name: impl Into<String>, test: impl FnOnce() -> O + Send + 'static) -> Trial {
    Trial::ignorable_test(name, || Ok(test().completion()))
}

/// Lists test functions as a vector of trials, each named after its module and function.
macro_rules! trials {
    ($($module:ident::$test:ident),* $(,)?) => {
        vec![$(crate::clients::trial(concat!(stringify!($module), "::", stringify!($test)), $module::$test)),*]
    };
}
pub(crate) use trials;

/// A redis-server of the test's own. It ends when this is dropped.
pub struct Redis {
    child: Child,
    folder: TempDir,
    _log: BufReader<ChildStdout>,
}

impl Redis {
    /// Starts an empty one, and waits until it accepts connections.
    pub fn start() -> Result<Redis, Missing> {
        require("redis-server", "--version")?;
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
        Ok(Redis { child, folder, _log: log })
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
