//! The configuration of a server.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::cluster::ClusterNode;
use super::limits::Limits;
use super::listen::listener::{Inherited, SocketAccess};
use super::state::ForeignKeys;
use super::table::{Plan, SavedTables, Source};
use crate::DEFAULT_SOCKET;
use crate::replace::ReplaceRules;
use crate::store::{Memory, OpenOptions};

/// The default time for which a worker, after each response, polls for requests instead of sleeping: about the time
/// that the kernel takes to wake a sleeping thread.
pub const SPIN: Duration = Duration::from_micros(50);

/// The configuration of a server: the listening sockets, and how files are opened and checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// How files are held in memory: see [`Memory`].
    pub memory: Memory,
    /// The options for opening files.
    pub open: OpenOptions,
    /// Whether blocks that no request has read are verified in the background while the file is served.
    pub verify_in_background: bool,
    /// The folder in which a rollback saves the table that it serves, for restarts. `None`: the folder of the file.
    pub rollback_folder: Option<PathBuf>,
    /// The path of a canary file, which lists keys, each with the digest of its expected value. A table is served only
    /// if all canaries match. Even without canaries, the server looks up a sample of the table's rows before it serves
    /// the table.
    pub canaries: Option<PathBuf>,
    /// The rules that a file must satisfy to become the first generation or to replace the current generation.
    /// Rollbacks ignore the rules.
    pub replace: ReplaceRules,
    /// Whether to take kernel leases on files, if the system allows leases. While the server holds a lease on a file,
    /// it need not call fstat after each batch. Leases use the process's SIGIO, for which the server installs a
    /// handler.
    pub lease: bool,
    /// Whether to serve a new file as soon as it appears at the path, without a reload request.
    pub watch: bool,
    /// Whether clients on this machine may map the file and look keys up in their own processes: see
    /// [`Direct`](crate::client::Direct). Has no effect with `Memory::Copy`.
    pub direct: bool,
    /// The Unix socket: a path, or an `@` and an abstract name if `abstract_socket` is true.
    pub socket: PathBuf,
    /// Whether `socket` is an abstract name. An abstract socket has no mode and no owner: every process of the machine,
    /// or of the network namespace, may connect.
    pub abstract_socket: bool,
    /// The access control of `socket`. Does not apply to `tcp`.
    pub access: SocketAccess,
    /// Inherited listening sockets. An inherited Unix socket replaces `socket`, and an inherited TCP socket replaces
    /// `tcp`.
    #[doc(hidden)]
    pub inherited: Inherited,
    /// The TCP address to listen on, for clients that cannot use Unix sockets. Port 0 selects a free port.
    pub tcp: Option<SocketAddr>,
    /// Whether `tcp` may be reachable from other machines. Without `users`, everyone who can connect can read the
    /// table. With `users`, everyone who can read the network traffic can read the passwords and the values.
    pub tcp_exposed: bool,
    /// The path of a users file, which lists users with their passwords and permissions, in the format of Redis's ACL
    /// files. The permissions apply to all TCP clients, with or without TLS, and to those clients of `socket` that log
    /// in. The file is read again when it changes and on a reload.
    pub users: Option<PathBuf>,
    /// What a Redis command does with a foreign key: text that is not a key of the table's type.
    #[doc(hidden)]
    pub foreign_keys: ForeignKeys,
    /// This server as a node of a cluster. `None`: the server is not part of a cluster. Clients of a node cannot map
    /// the file, because a mapped file does not show which rows other nodes have.
    #[doc(hidden)]
    pub cluster: Option<Arc<ClusterNode>>,
    /// The number of worker threads. `None`: one for every two processors, because clients need the other processors.
    pub workers: Option<NonZeroUsize>,
    /// How long a worker, after each response, polls for requests instead of sleeping. Zero: the worker does not poll.
    /// `None`: [`SPIN`], or zero if the machine has one processor.
    pub spin: Option<Duration>,
    /// The limits on clients, for example on their connections and memory.
    pub limits: Limits,
    /// Whether to notify the service manager (systemd, through NOTIFY_SOCKET) when this process is ready, reloads, or
    /// stops. If the service manager has a watchdog (WATCHDOG_USEC), the server also notifies it regularly that this
    /// process is alive. Intended for programs that run only this server.
    pub notify: bool,
}

impl Config {
    /// Returns the file to serve and the checks that it must pass.
    pub(super) fn source(&self, db: &Path) -> Source {
        let plan = Plan {
            memory: self.memory,
            options: self.open.clone(),
            background: self.verify_in_background,
            canaries: self.canaries.clone(),
            replace: self.replace.clone(),
            slots: self.cluster.as_ref().and_then(|node| node.fixed_file_slots()),
        };
        let direct = self.direct && self.cluster.is_none();
        let saved = SavedTables::new(db, self.rollback_folder.as_deref());
        Source { path: db.to_path_buf(), plan, saved, watch: self.watch, direct, cluster: self.cluster.clone() }
    }

    /// Returns the number of workers. The default is one for every two processors, because clients usually run on the
    /// same machine and spend about as much time on a request as the server.
    pub(super) fn worker_count(&self) -> usize {
        self.workers.map_or_else(|| processors().div_ceil(2), NonZeroUsize::get)
    }

    /// Returns how long a worker polls for requests before it sleeps. On a machine with one processor, the default is
    /// zero, because polling would keep the client from running.
    pub(super) fn spin_time(&self) -> Duration {
        self.spin.unwrap_or(if processors() > 1 { SPIN } else { Duration::ZERO })
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            memory: Memory::default(),
            open: OpenOptions::default(),
            verify_in_background: false,
            rollback_folder: None,
            canaries: None,
            replace: ReplaceRules::default(),
            lease: true,
            watch: true,
            direct: true,
            socket: DEFAULT_SOCKET.into(),
            abstract_socket: false,
            access: SocketAccess::default(),
            inherited: Inherited::default(),
            tcp: None,
            tcp_exposed: false,
            users: None,
            foreign_keys: ForeignKeys::default(),
            cluster: None,
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
