//! Requirements of tests on the machine. Each is checked without a server, so a server that cannot use a fulfilled
//! requirement fails its test.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::geteuid;
use tempfile::TempDir;

use super::stopping::StoppedThread;
use crate::helpers::scenes::can_lease;
use crate::helpers::trials::{Missing, missing};

/// A user that no test runs as.
pub(crate) const OTHER: u32 = 4321;

/// A program and its option that run a command in a mount namespace of its own.
pub(crate) type Mounter = [&'static str; 2];

/// Requires that the tests run as root and can become other users.
pub(crate) fn root() -> Result<(), Missing> {
    match geteuid().is_root() && succeeds(Command::new("true").uid(OTHER).gid(OTHER)) {
        true => Ok(()),
        false => Err(missing("root", "tests run as root only can become other users")),
    }
}

/// Requires that files can be leased in the folder for temporary files.
pub(crate) fn leases() -> Result<(), Missing> {
    leases_in(std::env::temp_dir())
}

/// Requires that files can be leased in a folder.
pub(crate) fn leases_in(folder: impl AsRef<Path>) -> Result<(), Missing> {
    let folder = folder.as_ref();
    // A file that is open for writing cannot be leased.
    let closed = tempfile::NamedTempFile::new_in(folder).map(|file| file.into_temp_path());
    match closed.is_ok_and(|path| can_lease(&path)) {
        true => Ok(()),
        false => Err(missing("leases", &format!("files in {} cannot be leased", folder.display()))),
    }
}

/// Returns how to run a shell that can mount disks.
pub(crate) fn mounts() -> Result<Mounter, Missing> {
    let can_mount = |[program, option]: &Mounter| {
        succeeds(Command::new(program).args([option, "mount", "-t", "tmpfs", "none", "/proc"]))
    };
    let mounter = [["unshare", "-m"], ["unshare", "-rm"]].into_iter().find(can_mount);
    mounter.ok_or_else(|| missing("mounts", "`unshare` cannot run, or nothing can be mounted"))
}

/// Requires that this process can stop single threads of its children.
pub(crate) fn ptrace() -> Result<(), Missing> {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("`cat` is installed");
    let stopped = StoppedThread::stop(child.id() as libc::pid_t).map(drop);
    child.kill().and_then(|()| child.wait()).expect("a child that ends");
    stopped.map_err(|error| missing("ptrace", &format!("ptrace(2): {error}")))
}

/// Requires that a process can enter a new user namespace.
pub(crate) fn user_namespaces() -> Result<(), Missing> {
    match succeeds(Command::new("unshare").args(["--user", "true"])) {
        true => Ok(()),
        false => Err(missing("user-namespaces", "`unshare --user` fails")),
    }
}

/// Returns a new folder on a file system that does not contain `path`.
pub(crate) fn second_disk(path: &Path) -> Result<TempDir, Missing> {
    let device = std::fs::metadata(path).unwrap().dev();
    let folders = ["/dev/shm", env!("CARGO_TARGET_TMPDIR"), "/run", "/var/tmp"].into_iter();
    let mut others = folders.filter(|folder| std::fs::metadata(folder).is_ok_and(|found| found.dev() != device));
    let other = others.find_map(|folder| tempfile::tempdir_in(folder).ok());
    other.ok_or_else(|| missing("second-disk", "all writable folders are on one file system"))
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
