//! Control groups that limit the memory of processes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A control group that limits the memory of the processes in it. Removed when dropped.
pub(crate) struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Creates a group in version 1 or version 2 of control groups.
    pub(crate) fn new(limit_bytes: u64) -> io::Result<MemoryGroup> {
        let name = format!("zero-kv-cold-{}", std::process::id());
        let version_1 = Path::new("/sys/fs/cgroup/memory");
        let (folder, limit) = match version_1.exists() {
            true => (version_1.join(name), "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup").join(name), "memory.max"),
        };
        if !folder.exists() {
            fs::create_dir(&folder)?;
        }
        let group = MemoryGroup(folder);
        fs::write(group.0.join(limit), limit_bytes.to_string())?;
        Ok(group)
    }

    /// Does what [`MemoryGroup::new`] does. If the group cannot be created, prints the reason and returns `None`.
    pub(crate) fn if_allowed(limit_bytes: u64) -> Option<MemoryGroup> {
        MemoryGroup::new(limit_bytes)
            .inspect_err(|error| println!("the memory is not limited: {error}: run the bench as root"))
            .ok()
    }
}

/// Returns a command that runs a program in a group, or outside of groups if `group` is `None`.
pub(crate) fn command_in(group: Option<&MemoryGroup>, program: &Path) -> Command {
    let enter = group.map(|group| format!("echo $$ > {} && ", group.0.join("cgroup.procs").display()));
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{}exec \"$@\"", enter.unwrap_or_default()), "sh"]).arg(program);
    command
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
