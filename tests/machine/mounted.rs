//! A file system that a shell has mounted in a mount namespace of its own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::requirements::mounts;
use crate::helpers::scenes::Scene;
use crate::helpers::trials::{Missing, missing};

/// A mount namespace, which ends when this is dropped.
pub(crate) struct Mounted(Child);

impl Mounted {
    /// Runs a script that mounts something, in a scene's folder. If the script fails, `needed` is missing.
    pub(crate) fn by_script(scene: &Scene, needed: &'static str, script: &str) -> Result<Mounted, Missing> {
        let [program, option] = mounts()?;
        let mut command = Command::new(program);
        // The script's own output goes to standard error, because a warning of mkfs must not be taken for success.
        command.args([option, "sh", "-c", &format!("{{ {script}; }} >&2 && echo mounted && exec cat")]);
        command.current_dir(scene.path("")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut shell = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        if line != "mounted\n" {
            let output = shell.wait_with_output().unwrap();
            return Err(missing(needed, String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(Mounted(shell))
    }

    /// Returns where this process finds a path of the namespace.
    pub(crate) fn path(&self, path: &Path) -> PathBuf {
        format!("/proc/{}/root{}", self.0.id(), path.display()).into()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
