//! Starts and stops the server of `--ceiling`, which responds without lookups (see [`crate::canned_server`]).

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

/// Name of the hidden option that makes the benchmarker run as a server that responds without lookups.
pub(crate) const SERVE_CANNED: &str = "serve-canned";

/// The process of a server that responds without lookups. Dropping the value stops the process, and waits until it has
/// ended.
pub(crate) struct CeilingServer {
    child: Child,
    socket: PathBuf,
}

impl CeilingServer {
    /// Starts a server whose responses have this mean length, and waits until the server listens.
    pub(crate) fn start(response_len_bytes: f64) -> anyhow::Result<CeilingServer> {
        let this_program = std::env::current_exe().context("cannot find the benchmarker's executable")?;
        let mut child = Command::new(&this_program)
            .arg(format!("--{SERVE_CANNED}={response_len_bytes}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The server is in a separate process group, so Ctrl-C stops only the benchmarker. When the benchmarker
            // ends, the server's standard input is closed, which stops the server.
            .process_group(0)
            .spawn()
            .with_context(|| this_program.display().to_string())?;
        let mut path = Vec::new();
        let stdout = child.stdout.take().expect("it was piped");
        let mut ceiling = CeilingServer { child, socket: PathBuf::new() };
        BufReader::new(stdout)
            .read_until(b'\n', &mut path)
            .context("cannot read the socket's path from the server of --ceiling")?;
        if path.pop() != Some(b'\n') {
            bail!("the server of --ceiling exited before it listened");
        }
        ceiling.socket = OsString::from_vec(path).into();
        Ok(ceiling)
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for CeilingServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
