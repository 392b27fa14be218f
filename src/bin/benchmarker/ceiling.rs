//! Starts and stops the server that looks nothing up, see [`crate::canned_server`].

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

/// The hidden option that makes a benchmarker this server.
pub(crate) const SERVE_CANNED: &str = "serve-canned";

/// The server as a process. It has ended when this is dropped.
pub(crate) struct Ceiling {
    child: Child,
    socket: PathBuf,
}

impl Ceiling {
    /// Starts it, for answers of this mean length, and waits until it listens.
    pub(crate) fn start(answer_len_bytes: f64) -> anyhow::Result<Ceiling> {
        let this_program = std::env::current_exe().context("the benchmarker's own file")?;
        let mut child = Command::new(&this_program)
            .arg(format!("--{SERVE_CANNED}={answer_len_bytes}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Of a group of its own: Ctrl-C then ends the benchmarker, and so its standard input.
            .process_group(0)
            .spawn()
            .with_context(|| this_program.display().to_string())?;
        let mut path = Vec::new();
        let stdout = child.stdout.take().expect("it was piped");
        let mut ceiling = Ceiling { child, socket: PathBuf::new() };
        BufReader::new(stdout).read_until(b'\n', &mut path).context("the ceiling's socket")?;
        if path.pop() != Some(b'\n') {
            bail!("the server for --ceiling ended before it listened");
        }
        ceiling.socket = OsString::from_vec(path).into();
        Ok(ceiling)
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Ceiling {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
