//! The configuration of a server.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::generations::{Plan, Source};
use super::limits::Limits;
use super::listener::{Inherited, SocketAccess};
use crate::DEFAULT_SOCKET;
use crate::replace::{ReplaceError, ReplaceRules};
use crate::store::{Memory, OpenOptions, Verify};

/// The default time for which a worker polls, about as long as the kernel takes to wake a thread.
pub const SPIN: Duration = Duration::from_micros(50);

/// When the blocks of a file are verified against their checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Check {
    /// Each block when a request first touches it.
    #[default]
    Touch,
    /// Each block when a request first touches it, and the others in the background while the file is served.
    Background,
    /// All blocks before the file is served.
    Full,
}

/// The configuration of a server: the listening sockets, and how files are opened and checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where files are held in memory.
    pub memory: Memory,
    /// How files are opened. Its `verify` is ignored in favor of `check`.
    pub open: OpenOptions,
    /// When blocks are verified.
    pub check: Check,
    /// A file of keys and digests of their expected values. A table is served only if lookups of these keys agree with
    /// the file. Some rows of the table are looked up in any case.
    pub canaries: Option<PathBuf>,
    /// The rules that a file must satisfy to become the first generation or to replace the current one. They do not
    /// apply to rollbacks.
    pub replace: ReplaceRules,
    /// Returns the program's option that allows a table that the rules reject. Messages about the table name it.
    pub replace_option: Option<fn(&ReplaceError) -> &'static str>,
    /// Whether to lease files where the system allows it, so that they need no fstat after every batch. Leases need the
    /// process's SIGIO, for which the server installs a handler.
    pub lease: bool,
    /// Whether to serve a new file as soon as it appears at the path, without a request.
    pub watch: bool,
    /// Whether clients on this machine may map the file and look keys up without the server: see
    /// [`Direct`](crate::client::Direct). Does not apply to `Memory::Copy`.
    pub direct: bool,
    /// The Unix socket: a path, or with `abstract_socket` an `@` and an abstract name.
    pub socket: PathBuf,
    /// Whether `socket` is an abstract name. An abstract socket has no mode and no owner: every process of the machine,
    /// or of the network namespace, may connect.
    pub abstract_socket: bool,
    /// Who may connect to `socket`. Does not apply to `tcp`.
    pub access: SocketAccess,
    /// Listening sockets that replace `socket` and `tcp`.
    pub inherited: Inherited,
    /// The TCP address, for clients that cannot use Unix sockets. Port 0 chooses a free port.
    pub tcp: Option<SocketAddr>,
    /// Whether `tcp` may be reachable from other machines. There is no password: everyone who can connect can read the
    /// table.
    pub tcp_exposed: bool,
    /// The number of worker threads. `None`: one for every two processors, because clients need the others.
    pub workers: Option<NonZeroUsize>,
    /// How long a worker polls after a response before it sleeps. Zero: it sleeps at once. `None`: [`SPIN`], or zero on
    /// one processor.
    pub spin: Option<Duration>,
    /// The limits on what clients may use.
    pub limits: Limits,
    /// Whether to notify the service manager (systemd, by NOTIFY_SOCKET) that this process is ready, reloads, stops, and
    /// is alive (WATCHDOG_USEC). For programs that only run this server.
    pub notify: bool,
}

impl Config {
    /// Returns the file to serve and the checks that it must pass.
    pub(super) fn source(&self, db: &Path) -> Source {
        let verify = if self.check == Check::Full { Verify::Full } else { Verify::Touch };
        let options = OpenOptions { verify, ..self.open.clone() };
        let (background, canaries) = (self.check == Check::Background, self.canaries.clone());
        let plan = Plan {
            memory: self.memory,
            options,
            background,
            canaries,
            replace: self.replace.clone(),
            replace_option: self.replace_option,
        };
        Source { path: db.to_path_buf(), plan, watch: self.watch, direct: self.direct }
    }

    /// Returns the number of workers. By default one for every two processors: clients run on this machine too, and
    /// spend about as much time on a request as the server.
    pub(super) fn worker_count(&self) -> usize {
        self.workers.map_or_else(|| processors().div_ceil(2), NonZeroUsize::get)
    }

    /// Returns how long a worker polls. On one processor, polling would keep the client from running.
    pub(super) fn spin_time(&self) -> Duration {
        self.spin.unwrap_or(if processors() > 1 { SPIN } else { Duration::ZERO })
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            memory: Memory::default(),
            open: OpenOptions::default(),
            check: Check::default(),
            canaries: None,
            replace: ReplaceRules::default(),
            replace_option: None,
            lease: true,
            watch: true,
            direct: true,
            socket: DEFAULT_SOCKET.into(),
            abstract_socket: false,
            access: SocketAccess::default(),
            inherited: Inherited::default(),
            tcp: None,
            tcp_exposed: false,
            workers: None,
            spin: None,
            limits: Limits::default(),
            notify: false,
        }
    }
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}
