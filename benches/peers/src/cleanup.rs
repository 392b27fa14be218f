//! The run's folder and the processes that it starts: gone when it ends, also
//! when a signal ends it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{self, Child, ChildStdout, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// What a signal has to clear away.
struct Left {
    folder: Option<PathBuf>,
    children: Vec<Child>,
}

static LEFT: Mutex<Left> = Mutex::new(Left { folder: None, children: Vec::new() });

fn left() -> MutexGuard<'static, Left> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the run's folder in `parent`. From here on SIGINT, SIGTERM and SIGHUP
/// clear up before they end the process.
pub(crate) fn run_folder(parent: &Path) -> Result<TempDir> {
    ctrlc::set_handler(|| {
        // Never unlocked: nothing is started any more.
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

/// Removes a folder that another thread may still be putting files into: once
/// the folder is gone, it cannot.
fn remove(folder: &Path) {
    const ATTEMPTS: usize = 100;
    for _ in 0..ATTEMPTS {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => {}
            _ => return,
        }
    }
}

/// A process that ends with this.
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

    /// Its standard output, if that is a pipe.
    pub(crate) fn output(&mut self) -> Option<ChildStdout> {
        self.output.take()
    }

    /// How it ended, if it has.
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
    // A child that has ended by itself is only waited for.
    let _ = child.kill();
    let _ = child.wait();
}
