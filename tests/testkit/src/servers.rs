//! A running `kv_store`.

use std::fs::{DirEntry, File};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open};
use zero_kv::client::{Client, Info, Options};

use super::frames::connect;
use super::programs::program;
use super::scenes::{inode, is_leased};
use super::waiting::{eventually, found_eventually};

/// A `kv_store` process. Its log is a file, so the server never blocks on its log, and a test can read the whole log.
/// Dropping this value kills the process.
pub struct Server {
    child: Child,
    socket: PathBuf,
    /// An unnamed file.
    log: File,
    /// The length of the log up to the end of the last line that the test has waited for.
    awaited_len_bytes: usize,
}

impl Server {
    /// Starts a `kv_store` and waits until the server is ready.
    pub fn start(db: &Path, socket: &Path) -> Server {
        Server::of(kv_store(db, socket), socket)
    }

    /// Runs a command that starts a `kv_store`, and waits until the server is ready.
    pub fn of(command: Command, socket: &Path) -> Server {
        let mut server = Server::spawn(command, socket);
        server.wait_for_log("ready on ");
        server
    }

    /// Runs a command that starts a `kv_store` without waiting for the server.
    pub fn spawn(command: Command, socket: &Path) -> Server {
        Server::spawn_by(command, socket, |mut command| command.spawn())
    }

    /// Lets `spawn` run a command that starts a `kv_store`, without waiting for the server.
    pub fn spawn_by(mut command: Command, socket: &Path, spawn: impl FnOnce(Command) -> io::Result<Child>) -> Server {
        let log = tempfile::tempfile().unwrap();
        command.stderr(log.try_clone().unwrap());
        Server { child: spawn(command).unwrap(), socket: socket.to_path_buf(), log, awaited_len_bytes: 0 }
    }

    pub fn log(&self) -> String {
        let mut log = vec![0; self.log.metadata().unwrap().len() as usize];
        // The process writes at the offset of the descriptor, which reading must not change.
        self.log.read_exact_at(&mut log, 0).unwrap();
        // The last line may be incomplete.
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Returns the number of log lines that contain a text.
    pub fn logged(&self, text: &str) -> usize {
        self.log().lines().filter(|line| line.contains(text)).count()
    }

    /// Waits for `count` log lines that contain a text, and asserts that there are no more. A line may be written after
    /// the server has counted the event.
    pub fn expect_logged(&self, text: &str, count: usize) {
        eventually(&format!("{text:?} is logged {count} times"), || self.logged(text) >= count);
        assert_eq!(self.logged(text), count, "{text:?}: {}", self.log());
    }

    /// Waits for a log line that contains `text`, after the last line that the test has waited for, and returns the
    /// line.
    #[track_caller]
    pub fn wait_for_log(&mut self, text: &str) -> String {
        found_eventually(&format!("{text:?} is logged"), || {
            let is_alive = self.is_alive();
            let log = self.log();
            for line in log[self.awaited_len_bytes..].split_inclusive('\n').filter(|line| line.ends_with('\n')) {
                self.awaited_len_bytes += line.len();
                if line.contains(text) {
                    return Some(line.to_owned());
                }
            }
            assert!(is_alive, "the server ended before {text:?} was logged: {log}");
            std::thread::sleep(Duration::from_millis(1));
            None
        })
    }

    /// Returns the TCP address that the server listens on.
    pub fn tcp(&self) -> SocketAddr {
        let log = self.log();
        let ready = log.lines().find(|line| line.contains("ready on ")).expect("the server is ready");
        let address = ready.split([' ', ',']).find_map(|word| word.parse().ok());
        address.unwrap_or_else(|| panic!("no address in {ready:?}"))
    }

    /// Returns the TCP address on which the server uses TLS.
    pub fn tls(&self) -> SocketAddr {
        self.info().get("tls").unwrap().parse().unwrap()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn connect(&self) -> UnixStream {
        connect(&self.socket)
    }

    /// Connects a client that expects the user whom the server runs as, who may differ from the user of the test.
    pub fn client(&self) -> Client {
        let user = std::fs::metadata(format!("/proc/{}", self.id())).unwrap().uid();
        let options = Options { server_user: Some(user.to_string()), ..Options::default() };
        Client::connect_with(self.socket(), &options).unwrap()
    }

    pub fn info(&self) -> Info {
        self.client().info().unwrap()
    }

    /// Returns a number from the response to Info.
    pub fn number(&self, name: &str) -> u64 {
        self.info().number(name).unwrap_or_else(|| panic!("Info has no number {name}"))
    }

    /// Waits until a number of Info is at least `least`.
    pub fn wait_for(&self, name: &str, least: u64) {
        eventually(&format!("{name} is {least}"), || self.number(name) >= least);
    }

    /// Waits for the end of an attempt to reload, and returns its outcome.
    pub fn outcome_of(&self, attempt: u64) -> String {
        self.wait_for("reload_done", attempt);
        self.info().get("reload_last").unwrap().to_owned()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Kills the process, unless it has ended, and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns a file of the process's folder in `/proc`.
    pub fn proc(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.id())).unwrap()
    }

    /// Returns a size from `/proc/PID/status`, for example for the name `VmRSS`.
    pub fn status_bytes(&self, name: &str) -> u64 {
        status_bytes(self.id(), name)
    }

    /// Returns the size of the process's anonymous memory.
    pub fn anonymous_bytes(&self) -> u64 {
        self.status_bytes("RssAnon")
    }

    /// Returns the resident memory of the process, including its share of the page cache.
    pub fn resident_bytes(&self) -> u64 {
        ["RssAnon", "RssFile", "RssShmem"].into_iter().map(|name| self.status_bytes(name)).sum()
    }

    /// Returns the inodes of the mapped tables without duplicates.
    pub fn mapped_tables(&self) -> Vec<u64> {
        let maps = self.proc("maps");
        let tables = maps.lines().filter(|line| line.contains("storage.db") || line.contains("memfd:zero-kv "));
        let mut inodes: Vec<u64> =
            tables.map(|line| line.split_whitespace().nth(4).unwrap().parse().unwrap()).collect();
        inodes.sort_unstable();
        inodes.dedup();
        inodes
    }

    fn open_files(&self) -> impl Iterator<Item = DirEntry> {
        std::fs::read_dir(format!("/proc/{}/fd", self.id())).unwrap().map(Result::unwrap)
    }

    /// Returns the number of file descriptors that the process has open.
    pub fn descriptors(&self) -> usize {
        self.open_files().count()
    }

    /// Duplicates a file descriptor of the process.
    fn duplicate(&self, open_file: &DirEntry) -> OwnedFd {
        let process = pidfd_open(self.pid(), PidfdFlags::empty()).unwrap();
        let number = open_file.file_name().to_str().unwrap().parse().unwrap();
        pidfd_getfd(process, number, PidfdGetfdFlags::empty()).unwrap()
    }

    /// Duplicates the server's sockets into this process, so that they stay open when the server ends.
    pub fn duplicate_sockets(&self) -> Vec<OwnedFd> {
        let is_socket = |open_file: &DirEntry| {
            std::fs::read_link(open_file.path()).is_ok_and(|target| target.to_str().unwrap().starts_with("socket:"))
        };
        self.open_files().filter(is_socket).map(|socket| self.duplicate(&socket)).collect()
    }

    /// Removes the server's lease on a file, as the system does once a writer has waited for
    /// `/proc/sys/fs/lease-break-time`. The server is not notified.
    pub fn remove_lease(&self, path: &Path) {
        let inode = inode(path);
        for entry in self.open_files() {
            if std::fs::metadata(entry.path()).is_ok_and(|metadata| metadata.ino() == inode) {
                let file = self.duplicate(&entry);
                // SAFETY: Takes a descriptor that is open as long as `file` lives, and a number. It fails if there is
                // no lease on this descriptor, which the assertion below covers.
                unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
            }
        }
        assert!(!is_leased(path), "{} is still leased", path.display());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("the log ends with:\n{}", lines[lines.len().saturating_sub(30)..].join("\n"));
        }
    }
}

/// Returns a size from `/proc/PID/status`.
pub fn status_bytes(process: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = size.unwrap_or_else(|| panic!("no {name} in {status}")).trim_end_matches(" kB").trim();
    kib.parse::<u64>().unwrap() << 10
}

/// Runs a command that must fail with this exit status. Returns its standard error.
#[track_caller]
pub fn failure_message(mut command: Command, status: i32) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Returns the command that serves a file and logs at level `info`.
pub fn kv_store(db: &Path, socket: &Path) -> Command {
    let mut command = Command::new(program("kv_store"));
    command.arg("--db").arg(db).arg("--socket").arg(socket).env("RUST_LOG", "info");
    command
}
