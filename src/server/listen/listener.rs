//! The listening sockets: on a path, under an abstract name, on a TCP address, or inherited.
//!
//! In: addresses and access rules. Out: listening sockets. No client can connect to a socket on a path before the
//! socket's owner, group, and mode are set. This module does not depend on a protocol.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, Permissions};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, chownat, flock, fstat, major, minor, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use rustix::process::{Gid, Uid, geteuid};
use tokio::net::UnixStream;
use tracing::warn;

use super::ServerError;
use crate::folder::Folder;
use crate::server::process::log_queue::LogLimit;
use crate::setting::Setting;

/// The number of connections that may wait to be accepted. The system lowers this number to its maximum
/// (net.core.somaxconn).
const BACKLOG: i32 = i32::MAX;

pub(in crate::server) struct Listener {
    socket: UnixListener,
    /// The path of the socket, or an `@` and its abstract name.
    path: PathBuf,
    _bound: Option<Bound>,
}

/// The file of a bound socket. Dropping this value removes the file.
struct Bound {
    path: PathBuf,
    /// Distinguishes the file of this socket from a file that another server created at the path.
    identity: Identity,
}

impl Drop for Bound {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // If the file cannot be removed, the next server replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Returns the inherited Unix socket, if there is one. Otherwise, listens on a path or under an abstract name, and
    /// replaces the socket file of a server that no longer runs.
    pub(in crate::server) fn new(
        path: &Path,
        is_abstract: bool,
        access: &SocketAccess,
        inherited: &Inherited,
    ) -> Result<Listener, ServerError> {
        let refuse = |problem: String| ServerError::Socket { path: path.to_path_buf(), problem };
        if let Some(socket) = &inherited.unix {
            return from_inherited(socket, access)
                .map_err(|problem| ServerError::Socket { path: path_of(socket), problem });
        }
        if access.mode.is_some_and(|mode| mode > 0o777) {
            return Err(refuse("a mode is at most 0777: choose a mode such as 0660".to_owned()));
        }
        match (abstract_name(path), is_abstract) {
            (None, false) => listen_on_path(path, access).map_err(refuse),
            (Some(name), true) => listen_on_name(path, name, access).map_err(refuse),
            (Some(_), false) => Err(refuse(format!(
                "begins with @, which stands for an abstract name: an abstract socket has no owner and no mode, so \
                 every process of this machine, or of this network namespace, may connect: pass {} to allow this, \
                 or write ./@ for a file",
                Setting::AbstractSocket
            ))),
            (None, true) => {
                Err(refuse(format!("{} requires a {} that begins with @", Setting::AbstractSocket, Setting::Socket)))
            }
        }
    }

    /// Listens on a path. The owner and the group of the socket may connect.
    #[cfg(feature = "metrics")]
    pub(in crate::server) fn bind(path: &Path) -> Result<Listener, ServerError> {
        listen_on_path(path, &SocketAccess::default())
            .map_err(|problem| ServerError::Socket { path: path.to_path_buf(), problem })
    }

    /// Duplicates the socket, so that an async runtime can use it.
    pub(in crate::server) fn socket(&self) -> io::Result<UnixListener> {
        self.socket.try_clone()
    }

    pub(in crate::server) fn path(&self) -> &Path {
        &self.path
    }
}

fn from_inherited(socket: &UnixListener, access: &SocketAccess) -> Result<Listener, String> {
    if access.is_about_file() {
        return Err(format!(
            "is an inherited socket, whose mode, owner, and group are set by the service manager \
             (SocketMode=, SocketUser=, SocketGroup= of a .socket unit): omit {}, {}, and {}",
            Setting::SocketMode,
            Setting::SocketOwner,
            Setting::SocketGroup
        ));
    }
    let fault = |error: io::Error| format!("is an inherited socket that cannot be used: {error}");
    socket.set_nonblocking(true).map_err(fault)?;
    Ok(Listener { socket: socket.try_clone().map_err(fault)?, path: path_of(socket), _bound: None })
}

fn listen_on_path(path: &Path, access: &SocketAccess) -> Result<Listener, String> {
    check(path)?;
    let _lock = Lock::acquire(path)?;
    let address = SocketAddrUnix::new(path).map_err(cannot_listen)?;
    let socket = new_socket().map_err(cannot_listen)?;
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            remove_abandoned(path)?;
            bind(&socket, &address).map_err(cannot_listen)?;
        }
        bound => bound.map_err(cannot_listen)?,
    }
    let (node, identity) = open_node(path)?;
    let bound = Bound { path: path.to_path_buf(), identity };
    access.set(&node)?;
    // Until this call, the kernel refuses connection attempts.
    listen(&socket, BACKLOG).map_err(cannot_listen)?;
    Ok(Listener { socket: socket.into(), path: path.to_path_buf(), _bound: Some(bound) })
}

fn listen_on_name(path: &Path, name: &[u8], access: &SocketAccess) -> Result<Listener, String> {
    if access.is_about_file() {
        return Err("an abstract socket has no mode, no owner, and no group: omit these options".to_owned());
    }
    if name.is_empty() || name.len() > PATH_LEN_MAX_BYTES {
        return Err(format!("an abstract name has 1 to {PATH_LEN_MAX_BYTES} bytes after the @"));
    }
    let address = SocketAddrUnix::new_abstract_name(name).map_err(cannot_listen)?;
    let socket = new_socket().map_err(cannot_listen)?;
    bind(&socket, &address).map_err(|error| match error {
        Errno::ADDRINUSE => {
            format!("another server has this name: stop that server, or choose another {}", Setting::Socket)
        }
        error => cannot_listen(error),
    })?;
    listen(&socket, BACKLOG).map_err(cannot_listen)?;
    Ok(Listener { socket: socket.into(), path: path.to_path_buf(), _bound: None })
}

fn new_socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

fn cannot_listen(error: Errno) -> String {
    format!("cannot listen: {error}")
}

/// The maximum length of the path or abstract name of a Unix socket, without the zero byte after a path or before an
/// abstract name.
const PATH_LEN_MAX_BYTES: usize = 107;

/// The device number and the inode number of a file.
type Identity = (u64, u64);

/// Opens the file of a socket that was just bound to this path. The caller sets the owner, group, and mode through the
/// returned descriptor, because a user who can write to the folder could replace the file at the path.
fn open_node(path: &Path) -> Result<(OwnedFd, Identity), String> {
    let fault = |error: Errno| format!("cannot be examined: {error}");
    let node = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).map_err(fault)?;
    let status = fstat(&node).map_err(fault)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::Socket {
        return Err("was replaced by another file right after it was created: choose a folder that only the server's \
                    user can write to"
            .to_owned());
    }
    Ok((node, (status.st_dev, status.st_ino)))
}

fn identity(path: &Path) -> io::Result<Identity> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Checks whether a socket can have this path.
fn check(path: &Path) -> Result<(), String> {
    let len_bytes = path.as_os_str().as_bytes().len();
    if len_bytes > PATH_LEN_MAX_BYTES {
        return Err(format!(
            "{len_bytes} bytes, where at most {PATH_LEN_MAX_BYTES} fit into a Unix socket address: choose a shorter \
             path"
        ));
    }
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err("ends in a slash, and is not the name of a socket: choose another path".to_owned());
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(format!("{} is not a folder: choose another path", folder.display())),
        Err(error) => Err(format!("folder {}: {error}: create it, or choose another path", folder.display())),
    }
}

/// Removes a socket's file, if no process listens on the socket.
fn remove_abandoned(path: &Path) -> Result<(), String> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err("exists and is not a socket: remove it, or choose another path".to_owned());
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("cannot be examined: {error}")),
    }
    match probe(path) {
        Ok(()) | Err(Errno::AGAIN) => {
            Err("another server listens on it: stop that server, or choose another path".to_owned())
        }
        Err(Errno::CONNREFUSED) => fs::remove_file(path)
            .map_err(|error| format!("was left by a server that no longer runs, and cannot be removed: {error}")),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => {
            Err(format!("another server may listen on it ({error}): stop that server, or choose another path"))
        }
    }
}

/// Connects without waiting, to find out whether a process listens. `EAGAIN` means that a process listens and that its
/// queue is full.
fn probe(path: &Path) -> Result<(), Errno> {
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)
}

/// How long a server waits for the lock, which another server may hold while it starts.
const WAIT_MAX: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

const REMEDY: &str = "stop the server that uses it, if there is one, and remove the file, or choose a path in a \
                      directory that only the server's user can write to";

/// A lock that prevents other servers from starting on the same socket path. Without the lock, another server could
/// remove a socket that is bound but does not listen yet, because the socket looks abandoned. Another server could also
/// replace an abandoned socket just before this server removes it, so that this server removes the new socket. Dropping
/// the lock removes the lock file.
struct Lock {
    _file: File,
    folder: Folder,
    name: OsString,
}

impl Lock {
    fn acquire(socket: &Path) -> Result<Lock, String> {
        Lock::acquire_within(socket, WAIT_MAX)
    }

    fn acquire_within(socket: &Path, wait_max: Duration) -> Result<Lock, String> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let fault = |problem: String| format!("cannot lock {}: {problem}", path.display());
        let (folder, name) = Folder::of(&path).map_err(|error| fault(error.to_string()))?;
        let started = Instant::now();
        loop {
            let file = folder.open_lock_file(&name).map_err(|error| fault(not_opened(&path, &error)))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    // The previous holder may have removed the file after this server opened it.
                    if folder.has_file(&name, &file).unwrap_or(false) {
                        return Ok(Lock { _file: file, folder, name });
                    }
                }
                Err(Errno::WOULDBLOCK) if started.elapsed() >= wait_max => {
                    let holder = file.metadata().ok().and_then(|found| holder(&found));
                    return Err(fault(held(holder.as_deref().unwrap_or("another process"))));
                }
                Err(Errno::WOULDBLOCK) => thread::sleep(PAUSE),
                Err(error) => return Err(fault(error.to_string())),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // If the file cannot be removed, the next server locks and removes it.
        let _ = self.folder.remove(&self.name);
    }
}

/// Describes why the lock file could not be opened or created.
fn not_opened(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::InvalidInput => return format!("it {error}: {REMEDY}"),
        io::ErrorKind::PermissionDenied => {}
        _ => return error.to_string(),
    }
    let Ok(found) = fs::symlink_metadata(path) else { return error.to_string() };
    let (owner, ours) = (found.uid(), geteuid().as_raw());
    match holder(&found) {
        Some(holder) => held(&holder),
        None => format!("it belongs to user {owner}, so this server's user {ours} cannot open it: {REMEDY}"),
    }
}

fn held(holder: &str) -> String {
    format!("{holder} holds the lock: stop that process, or choose another path")
}

/// Describes the process and the user that hold the lock on a file. Returns `None` if the system does not list the
/// lock.
fn holder(found: &Metadata) -> Option<String> {
    let place = format!("{:02x}:{:02x}:{}", major(found.dev()), minor(found.dev()), found.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // An example of a line: `1: FLOCK  ADVISORY  WRITE 4242 fd:01:131077 0 EOF`.
    let pid = locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        (fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&place.as_str())).then(|| fields[4].to_owned())
    })?;
    let user = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    Some(format!("process {pid} of user {user}"))
}

/// Listening sockets that this process inherited. systemd passes these sockets (socket activation) and keeps them open
/// while the server restarts, so that no connection is refused during a restart.
///
/// An inherited Unix socket replaces [`Config::socket`](crate::server::Config::socket), and an inherited TCP socket
/// replaces [`Config::tcp`](crate::server::Config::tcp). The server does not remove the file of an inherited Unix
/// socket.
#[derive(Clone, Debug, Default)]
pub struct Inherited {
    pub(in crate::server) unix: Option<Arc<UnixListener>>,
    pub(in crate::server) tcp: Option<Arc<TcpListener>>,
}

impl Inherited {
    /// Adds a Unix socket.
    ///
    /// # Errors
    /// If the socket does not listen, or if a Unix socket was added before.
    pub fn add_unix(&mut self, socket: UnixListener) -> Result<(), String> {
        check_listens(&socket)?;
        match self.unix.replace(Arc::new(socket)) {
            None => Ok(()),
            Some(_) => Err("a second Unix socket, where at most one was expected".to_owned()),
        }
    }

    /// Adds a TCP socket.
    ///
    /// # Errors
    /// If the socket does not listen, or if a TCP socket was added before.
    pub fn add_tcp(&mut self, socket: TcpListener) -> Result<(), String> {
        check_listens(&socket)?;
        match self.tcp.replace(Arc::new(socket)) {
            None => Ok(()),
            Some(_) => Err("a second TCP socket, where at most one was expected".to_owned()),
        }
    }

    /// Returns the path of the Unix socket, or an `@` and its abstract name, if there is a Unix socket.
    pub fn unix_path(&self) -> Option<PathBuf> {
        self.unix.as_ref().map(|socket| path_of(socket))
    }

    /// Returns the address of the TCP socket, if there is one.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|socket| socket.local_addr().ok())
    }
}

fn check_listens(socket: impl std::os::fd::AsFd) -> Result<(), String> {
    match rustix::net::sockopt::socket_acceptconn(socket) {
        Ok(true) => Ok(()),
        Ok(false) => Err("a socket that does not listen: a .socket unit needs Accept=no".to_owned()),
        Err(error) => Err(format!("cannot be examined: {}", io::Error::from(error))),
    }
}

fn path_of(socket: &UnixListener) -> PathBuf {
    let Ok(address) = socket.local_addr() else { return PathBuf::new() };
    match (address.as_pathname(), address.as_abstract_name()) {
        (Some(path), _) => path.to_path_buf(),
        (_, Some(name)) => std::ffi::OsString::from_vec([b"@", name].concat()).into(),
        (None, None) => PathBuf::new(),
    }
}

/// Returns the abstract name that follows the `@` at the beginning of a path. `None` for other paths.
fn abstract_name(path: &std::path::Path) -> Option<&[u8]> {
    path.as_os_str().as_bytes().strip_prefix(b"@")
}

/// The access control of the Unix socket. By default, the socket's owner and group may connect, whatever the umask is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// The permission bits of the socket. A client needs write permission to connect. `None`: [`SocketAccess::MODE`].
    pub mode: Option<u32>,
    /// The user ID of the socket's owner. `None`: the user that the server runs as.
    pub owner: Option<u32>,
    /// The ID of the socket's group. `None`: the group that the system assigns.
    pub group: Option<u32>,
    /// The IDs of the users whose processes may connect. If this list or `allow_gids` is not empty, a process that
    /// neither list admits is disconnected at once, even if it belongs to root.
    pub allow_uids: Vec<u32>,
    /// The IDs of the groups whose processes may connect. Only the effective group of a process counts, because the
    /// system does not report the supplementary groups of a peer. For supplementary groups, use `group`.
    pub allow_gids: Vec<u32>,
}

impl SocketAccess {
    /// The default mode: the owner and the group may connect.
    pub const MODE: u32 = 0o660;

    /// Returns whether only processes of certain users or groups may connect.
    pub fn names_peers(&self) -> bool {
        !self.allow_uids.is_empty() || !self.allow_gids.is_empty()
    }

    /// Returns whether the mode, the owner, or the group of the socket's file is set.
    fn is_about_file(&self) -> bool {
        self.mode.is_some() || self.owner.is_some() || self.group.is_some()
    }

    /// Sets the owner, group, and mode of a socket's file.
    fn set(&self, node: &OwnedFd) -> Result<(), String> {
        if let Some(owner) = self.owner {
            chownat(node, c"", Some(Uid::from_raw(owner)), None, AtFlags::EMPTY_PATH)
                .map_err(|error| cannot_assign("user", owner, error))?;
        }
        if let Some(group) = self.group {
            chownat(node, c"", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)
                .map_err(|error| cannot_assign("group", group, error))?;
        }
        let mode = self.mode.unwrap_or(Self::MODE);
        fs::set_permissions(format!("/proc/self/fd/{}", node.as_raw_fd()), Permissions::from_mode(mode))
            .map_err(|error| format!("mode {mode:04o} cannot be set: {error}: check that /proc is mounted"))
    }
}

fn cannot_assign(what: &str, id: u32, error: Errno) -> String {
    let remedy = match (error, what) {
        (Errno::PERM, "user") => {
            format!(
                ": only root may assign it (CAP_CHOWN): start the server as this user, or omit {}",
                Setting::SocketOwner
            )
        }
        (Errno::PERM, _) => format!(
            ": only root (CAP_CHOWN) and members of the group may assign it: make the server's user a member, \
             or omit {}",
            Setting::SocketGroup
        ),
        _ => String::new(),
    };
    format!("cannot be assigned to {what} {id}: {error}{remedy}")
}

/// Admits peers by their user and group.
pub(in crate::server) struct PeerFilter {
    access: SocketAccess,
    log_limit: LogLimit,
}

impl PeerFilter {
    pub(in crate::server) fn new(access: &SocketAccess) -> Self {
        PeerFilter { access: access.clone(), log_limit: LogLimit::default() }
    }

    pub(in crate::server) fn admits(&self, stream: &UnixStream) -> bool {
        let SocketAccess { allow_uids, allow_gids, .. } = &self.access;
        if !self.access.names_peers() {
            return true;
        }
        let peer = stream.peer_cred();
        if let Ok(peer) = &peer
            && (allow_uids.contains(&peer.uid()) || allow_gids.contains(&peer.gid()))
        {
            return true;
        }
        if let Some(left_out) = self.log_limit.line() {
            match peer {
                Ok(peer) => warn!(
                    uid = peer.uid(),
                    gid = peer.gid(),
                    pid = peer.pid(),
                    left_out,
                    "a connection was refused: {} and {} contain neither its user nor its group",
                    Setting::AllowUids,
                    Setting::AllowGids
                ),
                Err(error) => warn!(left_out, "a connection was refused: the system does not report its user: {error}"),
            }
        }
        false
    }
}

/// Determines whether a TCP socket may have an address that other machines can reach.
#[derive(Clone, Copy, Default)]
pub(in crate::server) struct Exposure {
    /// Whether TLS protects what the socket's clients send and receive.
    pub(in crate::server) is_encrypted: bool,
    /// Whether a client must prove who it is before it can read the table.
    pub(in crate::server) is_authenticated: bool,
    /// Whether the configuration allows other machines to reach the socket even without encryption or authentication.
    pub(in crate::server) is_allowed: bool,
}

impl Exposure {
    /// Returns an error if other machines can reach the address, unless the configuration allows this, or the socket
    /// has both encryption and authentication.
    fn check(self, address: SocketAddr) -> Result<(), String> {
        let Exposure { is_encrypted, is_authenticated, is_allowed } = self;
        if address.ip().to_canonical().is_loopback() || is_allowed || is_encrypted && is_authenticated {
            return Ok(());
        }
        let (problem, remedy, readers) = match (is_encrypted, is_authenticated) {
            (true, _) => (
                "clients need neither a certificate nor a password",
                format!("require client certificates ({}) or passwords ({})", Setting::TlsClientCa, Setting::Users),
                "can connect",
            ),
            (false, true) => (
                "passwords and values are not encrypted",
                format!("use TLS ({})", Setting::Tls),
                "can read the network traffic",
            ),
            (false, false) => (
                "there is no password",
                format!("use TLS with client certificates or users ({})", Setting::Tls),
                "can connect",
            ),
        };
        Err(format!(
            "other machines may reach this address, and {problem}: choose 127.0.0.1 or [::1], {remedy}, or pass {} if \
             everyone who {readers} may read the table",
            Setting::TcpExposed
        ))
    }
}

/// Returns the inherited TCP socket, if there is one. Otherwise, listens on `address`, or returns `None` if there is no
/// address. Rejects an address that other machines can reach, unless `exposed` is true. `needs_password` says whether
/// every client needs a password.
pub(in crate::server) fn tcp(
    inherited: &Inherited,
    address: Option<SocketAddr>,
    exposed: bool,
    needs_password: bool,
) -> Result<Option<TcpListener>, ServerError> {
    let exposure = Exposure { is_authenticated: needs_password, is_allowed: exposed, ..Exposure::default() };
    match (&inherited.tcp, inherited.tcp_address().or(address)) {
        (Some(socket), Some(address)) => open_tcp(address, exposure, || socket.try_clone()).map(Some),
        (None, Some(address)) => listen_on_tcp(address, exposure).map(Some),
        (_, None) => Ok(None),
    }
}

pub(in crate::server) fn listen_on_tcp(address: SocketAddr, exposure: Exposure) -> Result<TcpListener, ServerError> {
    open_tcp(address, exposure, || {
        let listener = TcpListener::bind(address)?;
        // The standard library lets only 128 connections wait. The kernel drops the first packet of others, and their
        // clients send it again after a second.
        listen(&listener, BACKLOG)?;
        Ok(listener)
    })
}

fn open_tcp(
    address: SocketAddr,
    exposure: Exposure,
    listen: impl FnOnce() -> io::Result<TcpListener>,
) -> Result<TcpListener, ServerError> {
    let refuse = |problem: String| ServerError::Tcp { address, problem };
    exposure.check(address).map_err(refuse)?;
    let listening = listen().and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listening.map_err(|error| refuse(format!("cannot listen: {error}: choose another address")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_and_user_that_hold_the_lock_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s.sock");
        let held = Lock::acquire(&socket).unwrap();
        let error = Lock::acquire_within(&socket, Duration::ZERO).err().unwrap();
        // On a file system with its own device numbers (Btrfs), the error does not name the holder, because /proc/locks
        // lists the lock with a different device number.
        let holder = format!("process {} of user {} holds the lock", std::process::id(), geteuid().as_raw());
        assert!(error.contains(&holder) || error.contains("another process holds the lock"), "{error}");
        // A server of another user cannot even open the lock file.
        let path = folder.path().join("s.sock.lock");
        let denied = || not_opened(&path, &io::ErrorKind::PermissionDenied.into());
        assert_eq!(denied().contains(&holder), error.contains(&holder), "{}", denied());
        drop(held);
        fs::write(&path, "").unwrap();
        let user = geteuid().as_raw();
        let expected =
            format!("it belongs to user {user}, so this server's user {user} cannot open it: stop the server");
        assert!(denied().starts_with(&expected), "{}", denied());
        fs::remove_file(&path).unwrap();
        Lock::acquire_within(&socket, Duration::ZERO).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no lock file is left");
    }
}
