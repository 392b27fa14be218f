//! Removes the run's folder and stops its processes at the end, also
//! after a signal.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{self, Child, ChildStdout, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// The resources that a signal must clean up.
struct Left {
    folder: Option<PathBuf>,
    children: Vec<Child>,
}

static LEFT: Mutex<Left> = Mutex::new(Left { folder: None, children: Vec::new() });

fn left() -> MutexGuard<'static, Left> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates the run's folder in `parent`. From here on, SIGINT, SIGTERM and SIGHUP
/// clean up before they end the process.
pub(crate) fn run_folder(parent: &Path) -> Result<TempDir> {
    ctrlc::set_handler(|| {
        // Never unlocked, so that no process is started afterward.
        let mut left = left();
        left.children.iter_mut().for_each(end);
        if let Some(folder) = &left.folder {
            remove(folder);
        }
        process::exit(130);
    })?;
    let mut left = left();
    let folder = tempfile::Builder::new().prefix("run.").tempdir_in(parent);
    let folder = folder.with_context(|| format!("{}: cannot make a folder in it", parent.display()))?;
    left.folder = Some(folder.path().to_path_buf());
    Ok(folder)
}

/// Removes a folder into which another thread may still write files. Once
/// the folder is removed, the thread cannot.
fn remove(folder: &Path) {
    const ATTEMPTS: usize = 100;
    for _ in 0..ATTEMPTS {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => {}
            _ => return,
        }
    }
}

/// A process that is stopped when the value is dropped.
pub(crate) struct Process {
    id: u32,
    output: Option<ChildStdout>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Result<Process> {
        let mut left = left();
        let mut child =
            command.spawn().with_context(|| format!("{}: cannot start", command.get_program().display()))?;
        let process = Process { id: child.id(), output: child.stdout.take() };
        left.children.push(child);
        Ok(process)
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Takes the process's standard output, if it is a pipe.
    pub(crate) fn output(&mut self) -> Option<ChildStdout> {
        self.output.take()
    }

    /// Returns the exit status if the process has ended.
    pub(crate) fn ended(&self) -> Option<String> {
        let mut left = left();
        let child = left.children.iter_mut().find(|child| child.id() == self.id)?;
        child.try_wait().ok().flatten().map(|status| status.to_string())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut left = left();
        if let Some(at) = left.children.iter().position(|child| child.id() == self.id) {
            end(&mut left.children.swap_remove(at));
        }
    }
}

fn end(child: &mut Child) {
    // For a child that has already exited, only `wait` has an effect.
    let _ = child.kill();
    let _ = child.wait();
}
