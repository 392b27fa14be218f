//! A folder with a table, and a `kv_store` that logs to a file in the folder. The server never blocks on its log, and a test
//! can read the whole log.

use std::fs::{DirEntry, File};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, SystemTime};

use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use tempfile::TempDir;
use zero_kv::client::{Client, Info, Options};

use super::processes::Process;
use super::waiting::eventually;

/// A folder on tmpfs on every Linux machine.
pub(crate) const SHARED_MEMORY: &str = "/dev/shm";

/// A temporary folder for the file of a server.
pub(crate) struct Scene {
    folder: TempDir,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene { folder: tempfile::tempdir().unwrap() }
    }

    /// Creates a folder on tmpfs, where a write through a mapping does not change the modification time of the file.
    pub(crate) fn in_shared_memory() -> Scene {
        const TMPFS_MAGIC: u32 = 0x0102_1994;
        let folder = tempfile::tempdir_in(SHARED_MEMORY).unwrap();
        let kind = rustix::fs::statfs(folder.path()).unwrap().f_type as u32;
        assert_eq!(kind, TMPFS_MAGIC, "{SHARED_MEMORY} is not a tmpfs: mount one there, as Linux does by default");
        Scene { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.path("storage.db")
    }

    /// Returns the command that serves the file of this folder with these options.
    pub(crate) fn command(&self, options: &[&str]) -> Command {
        self.command_for(&self.db(), options)
    }

    /// Returns the command that serves a file in any folder with these options.
    pub(crate) fn command_for(&self, db: &Path, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kv_store"));
        command.arg("--db").arg(db).arg("--socket").arg(self.path("s.sock")).args(options);
        command.env("RUST_LOG", "info").current_dir(self.folder.path());
        command
    }

    pub(crate) fn serve(&self, options: &[&str]) -> Served {
        self.run(self.command(options))
    }

    /// Runs a command that starts a `kv_store`, and waits until the server is ready.
    pub(crate) fn run(&self, command: Command) -> Served {
        self.run_by(command, |mut command| command.spawn())
    }

    /// Lets `spawn` run a command that starts a `kv_store`, and waits until the server is ready.
    pub(crate) fn run_by(&self, mut command: Command, spawn: impl FnOnce(Command) -> io::Result<Child>) -> Served {
        let log = self.path("log");
        command.stderr(File::create(&log).unwrap());
        let mut served = Served { process: Process::new(spawn(command).unwrap(), &self.path("s.sock")), log };
        eventually("the server is ready", || {
            assert!(served.is_alive(), "{}", served.log());
            served.log().contains("ready on")
        });
        served
    }

    /// Replaces the served file with a copy of another file by renaming.
    pub(crate) fn put(&self, file: &Path) {
        let new = self.path("storage.db.new");
        std::fs::copy(file, &new).unwrap();
        settle(&new);
        std::fs::rename(&new, self.db()).unwrap();
    }
}

/// Sets the modification time of a file to the past, so that the server does not wait for further writes.
pub(crate) fn settle(path: &Path) {
    File::options().write(true).open(path).unwrap().set_modified(SystemTime::now() - Duration::from_secs(10)).unwrap();
}

/// A running server. Dropping this value kills the process.
pub(crate) struct Served {
    process: Process,
    log: PathBuf,
}

impl Served {
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Returns the number of log lines that contain a text.
    pub(crate) fn logged(&self, text: &str) -> usize {
        self.log().lines().filter(|line| line.contains(text)).count()
    }

    /// Waits for `count` log lines that contain a text, and asserts that there are no more. A line may be written after
    /// the server has counted the event.
    pub(crate) fn expect_logged(&self, text: &str, count: usize) {
        eventually(&format!("{text:?} is logged {count} times"), || self.logged(text) >= count);
        assert_eq!(self.logged(text), count, "{text:?}: {}", self.log());
    }

    /// Connects a client that expects the user whom the server runs as, who may differ from the user of the test.
    pub(crate) fn client(&self) -> Client {
        let user = std::fs::metadata(format!("/proc/{}", self.id())).unwrap().uid();
        let options = Options { server_user: Some(user.to_string()), ..Options::default() };
        Client::connect_with(self.socket(), &options).unwrap()
    }

    pub(crate) fn info(&self) -> Info {
        self.client().info().unwrap()
    }

    /// Returns a number from the response to Info.
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.info().number(name).unwrap_or_else(|| panic!("Info has no number {name}"))
    }

    /// Waits until a number of Info is at least `least`.
    pub(crate) fn wait_for(&self, name: &str, least: u64) {
        eventually(&format!("{name} is {least}"), || self.number(name) >= least);
    }

    /// Waits for the end of an attempt to reload, and returns its outcome.
    pub(crate) fn outcome_of(&self, attempt: u64) -> String {
        self.wait_for("reload_done", attempt);
        self.info().get("reload_last").unwrap().to_owned()
    }

    /// Returns the resident memory of the process, including its share of the page cache.
    pub(crate) fn resident_bytes(&self) -> u64 {
        ["RssAnon", "RssFile", "RssShmem"].into_iter().map(|name| self.status_bytes(name)).sum()
    }

    /// Returns the inodes of the mapped tables without duplicates.
    pub(crate) fn mapped_tables(&self) -> Vec<u64> {
        let maps = self.proc("maps");
        let tables = maps.lines().filter(|line| line.contains("storage.db") || line.contains("memfd:zero-kv "));
        let mut inodes: Vec<u64> =
            tables.map(|line| line.split_whitespace().nth(4).unwrap().parse().unwrap()).collect();
        inodes.sort_unstable();
        inodes.dedup();
        inodes
    }

    /// Removes the server's lease on a file, as the system does once a writer has waited for
    /// `/proc/sys/fs/lease-break-time`. The server is not notified.
    pub(crate) fn remove_lease(&self, path: &Path) {
        let inode = inode(path);
        let process = pidfd_open(self.pid(), PidfdFlags::empty()).unwrap();
        for entry in std::fs::read_dir(format!("/proc/{}/fd", self.id())).unwrap() {
            let entry = entry.unwrap();
            if std::fs::metadata(entry.path()).is_ok_and(|metadata| metadata.ino() == inode) {
                let number = entry.file_name().to_str().unwrap().parse().unwrap();
                let file = pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).unwrap();
                // SAFETY: Takes a descriptor that is open as long as `file` lives, and a number. It fails if there is no
                // lease on this descriptor, which the assertion below covers.
                unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
            }
        }
        assert!(!is_leased(path), "{} is still leased", path.display());
    }

    /// Duplicates the server's sockets into this process, so that they stay open when the server ends.
    pub(crate) fn duplicate_sockets(&self) -> Vec<OwnedFd> {
        let process = pidfd_open(self.pid(), PidfdFlags::empty()).unwrap();
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.id())).unwrap().map(Result::unwrap);
        let is_socket = |entry: &DirEntry| {
            std::fs::read_link(entry.path()).is_ok_and(|target| target.to_str().unwrap().starts_with("socket:"))
        };
        let number = |entry: DirEntry| entry.file_name().to_str().unwrap().parse().unwrap();
        let duplicate = |entry| pidfd_getfd(&process, number(entry), PidfdGetfdFlags::empty()).unwrap();
        entries.filter(is_socket).map(duplicate).collect()
    }
}

impl Deref for Served {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Served {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.process.kill();
        if std::thread::panicking() {
            let log = std::fs::read(&self.log).unwrap_or_default();
            let end = &log[log.len().saturating_sub(4000)..];
            eprintln!("the log ends with:\n{}", String::from_utf8_lossy(end));
        }
    }
}

pub(crate) fn inode(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().ino()
}

/// Returns whether this process can lease a file, and the lease reveals a writable mapping.
pub(crate) fn can_lease(path: &Path) -> bool {
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
    // SAFETY: Takes a descriptor that is open as long as `file` lives, and a number. The lease ends with the descriptor.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) == 0 }
}

/// Returns whether a process has a lease on a file.
pub(crate) fn is_leased(path: &Path) -> bool {
    let inode = format!(":{} ", inode(path));
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    locks.lines().any(|line| line.contains(" LEASE ") && line.contains(&inode))
}
