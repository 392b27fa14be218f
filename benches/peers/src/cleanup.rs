//! Stops the processes of a run and removes its folder at the end, even if a signal ends the run.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{self, Child, ChildStdout, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// The resources of the run that the signal handler must clean up.
struct RunResources {
    folder: Option<PathBuf>,
    children: Vec<Child>,
}

static RESOURCES: Mutex<RunResources> = Mutex::new(RunResources { folder: None, children: Vec::new() });

fn resources() -> MutexGuard<'static, RunResources> {
    RESOURCES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates the run's folder in `parent`. From this call on, SIGINT, SIGTERM, and SIGHUP clean up before they end the
/// process.
pub(crate) fn run_folder(parent: &Path) -> Result<TempDir> {
    ctrlc::set_handler(|| {
        // The mutex stays locked, so that no other process is started.
        let mut resources = resources();
        resources.children.iter_mut().for_each(stop);
        if let Some(folder) = &resources.folder {
            remove(folder);
        }
        process::exit(130);
    })?;
    let mut resources = resources();
    let folder = tempfile::Builder::new().prefix("run.").tempdir_in(parent);
    let folder = folder.with_context(|| format!("{}: cannot make a folder in it", parent.display()))?;
    resources.folder = Some(folder.path().to_path_buf());
    Ok(folder)
}

/// Removes a folder. Tries several times, because another thread may create files in the folder at the same time.
fn remove(folder: &Path) {
    const ATTEMPTS: usize = 100;
    for _ in 0..ATTEMPTS {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => {}
            _ => return,
        }
    }
}

/// A child process. Dropping the value stops the process.
pub(crate) struct Process {
    id: u32,
    output: Option<ChildStdout>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Result<Process> {
        let mut resources = resources();
        let mut child =
            command.spawn().with_context(|| format!("{}: cannot start", command.get_program().display()))?;
        let process = Process { id: child.id(), output: child.stdout.take() };
        resources.children.push(child);
        Ok(process)
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Returns the pipe of the process's standard output. Returns `None` if there is no pipe, and after the first call.
    pub(crate) fn output(&mut self) -> Option<ChildStdout> {
        self.output.take()
    }

    /// Returns the exit status of the process if it has ended, for messages.
    pub(crate) fn ended(&self) -> Option<String> {
        let mut resources = resources();
        let child = resources.children.iter_mut().find(|child| child.id() == self.id)?;
        child.try_wait().ok().flatten().map(|status| status.to_string())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut resources = resources();
        if let Some(at) = resources.children.iter().position(|child| child.id() == self.id) {
            stop(&mut resources.children.swap_remove(at));
        }
    }
}

fn stop(child: &mut Child) {
    // If the child has already exited, only `wait` has an effect.
    let _ = child.kill();
    let _ = child.wait();
}
