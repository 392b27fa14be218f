//! A folder for the file of a server, and the leases on files.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use zero_kv::bake::Keys;

use super::rows::bake_text;
use super::servers::{Server, kv_store};

/// A folder that is on tmpfs on every Linux machine.
pub const SHARED_MEMORY: &str = "/dev/shm";

/// A temporary folder for the file of a server.
pub struct Scene {
    folder: TempDir,
}

impl Scene {
    pub fn new() -> Scene {
        Scene { folder: tempfile::tempdir().unwrap() }
    }

    /// Creates a folder with the table that is baked from delimited text.
    pub fn baked(keys: Keys, text: impl AsRef<[u8]>) -> Scene {
        let scene = Scene::new();
        bake_text(&scene.db(), keys, text);
        settle(&scene.db());
        scene
    }

    /// Creates a folder on tmpfs, where a write through a mapping does not change the modification time of the file.
    pub fn in_shared_memory() -> Scene {
        const TMPFS_MAGIC: u32 = 0x0102_1994;
        let folder = tempfile::tempdir_in(SHARED_MEMORY).unwrap();
        let kind = rustix::fs::statfs(folder.path()).unwrap().f_type as u32;
        assert_eq!(kind, TMPFS_MAGIC, "{SHARED_MEMORY} is not a tmpfs: mount one there, as Linux does by default");
        Scene { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn db(&self) -> PathBuf {
        self.path("storage.db")
    }

    pub fn socket(&self) -> PathBuf {
        self.path("s.sock")
    }

    /// Returns the command that serves the file of this folder with these options.
    pub fn command(&self, options: &[&str]) -> Command {
        self.command_for(&self.db(), options)
    }

    /// Returns the command that serves a file in any folder with these options.
    pub fn command_for(&self, db: &Path, options: &[&str]) -> Command {
        let mut command = kv_store(db, &self.socket());
        command.args(options).current_dir(self.folder.path());
        command
    }

    pub fn serve(&self, options: &[&str]) -> Server {
        self.run(self.command(options))
    }

    /// Runs a command that starts a `kv_store`, and waits until the server is ready.
    pub fn run(&self, command: Command) -> Server {
        Server::of(command, &self.socket())
    }

    /// Replaces the served file with a copy of another file by renaming.
    pub fn put(&self, file: &Path) {
        let new = self.path("storage.db.new");
        std::fs::copy(file, &new).unwrap();
        settle(&new);
        std::fs::rename(&new, self.db()).unwrap();
    }
}

/// Sets the modification time of a file to the past, so that the server does not wait for further writes.
pub fn settle(path: &Path) {
    File::options().write(true).open(path).unwrap().set_modified(SystemTime::now() - Duration::from_secs(10)).unwrap();
}

pub fn inode(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().ino()
}

/// Returns whether this process can lease a file, but not while the file has a writable mapping.
pub fn can_lease(path: &Path) -> bool {
    let writable = File::options().read(true).write(true).open(path).unwrap();
    writable.set_len(1).unwrap();
    let mapping = memmap2::MmapRaw::map_raw(&writable).unwrap();
    drop(writable);
    let is_writer_revealed = !takes_lease(path);
    drop(mapping);
    is_writer_revealed && takes_lease(path)
}

fn takes_lease(path: &Path) -> bool {
    let file = File::open(path).unwrap();
    // SAFETY: Takes a descriptor that is open as long as `file` lives, and a number. The lease ends with the
    // descriptor.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) == 0 }
}

/// Returns whether a process has a lease on a file.
pub fn is_leased(path: &Path) -> bool {
    let inode = format!(":{} ", inode(path));
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    locks.lines().any(|line| line.contains(" LEASE ") && line.contains(&inode))
}
