//! Who may connect to the Unix socket.
//!
//! The system decides by the socket's mode, owner and group, which are set before
//! it listens. `Doorkeeper` decides by who the peer is, once it has connected.

use std::fs::{self, Permissions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{AtFlags, chownat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use tokio::net::UnixStream;
use tracing::warn;

use crate::server::log_limit::LogLimit;

/// Who may connect to the Unix socket. By default its owner and its group, whatever
/// the umask is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// Permissions of the socket; connecting takes those to write. `None`:
    /// [`SocketAccess::MODE`].
    pub mode: Option<u32>,
    /// The user that owns it. `None`: the one that the server runs as.
    pub owner: Option<u32>,
    /// Its group. `None`: the one that the system gives it.
    pub group: Option<u32>,
    /// Users whose processes are served. If there are any here or in `allow_gids`,
    /// all others are closed at once, root's too.
    pub allow_uids: Vec<u32>,
    /// Groups whose processes are served: those that have one as their effective
    /// group. The system does not tell of supplementary groups with it; for these
    /// there is `group`.
    pub allow_gids: Vec<u32>,
}

impl SocketAccess {
    /// Owner and group may connect.
    pub const MODE: u32 = 0o660;

    /// Whether it names those who are served.
    pub fn names_peers(&self) -> bool {
        !self.allow_uids.is_empty() || !self.allow_gids.is_empty()
    }

    /// Whether it asks for anything that is a property of a socket's file.
    pub(super) fn is_about_file(&self) -> bool {
        self.mode.is_some() || self.owner.is_some() || self.group.is_some()
    }

    /// Sets owner, group and mode of a socket's file.
    pub(super) fn set(&self, node: &OwnedFd) -> Result<(), String> {
        if let Some(owner) = self.owner {
            chownat(node, c"", Some(Uid::from_raw(owner)), None, AtFlags::EMPTY_PATH)
                .map_err(|error| cannot_give("user", owner, error))?;
        }
        if let Some(group) = self.group {
            chownat(node, c"", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)
                .map_err(|error| cannot_give("group", group, error))?;
        }
        let mode = self.mode.unwrap_or(Self::MODE);
        fs::set_permissions(format!("/proc/self/fd/{}", node.as_raw_fd()), Permissions::from_mode(mode))
            .map_err(|error| format!("cannot have mode {mode:04o}: {error}: this goes through /proc, is it mounted?"))
    }
}

fn cannot_give(what: &str, id: u32, error: Errno) -> String {
    let todo = match (error, what) {
        (Errno::PERM, "user") => ": only root may (CAP_CHOWN): start the server as that user, or leave --owner out",
        (Errno::PERM, _) => {
            ": only root may, or who is a member (CAP_CHOWN): make the server's user a member, or leave --group out"
        }
        _ => "",
    };
    format!("cannot be given to {what} {id}: {error}{todo}")
}

/// Admits peers by their user and group.
pub(in crate::server) struct Doorkeeper {
    access: SocketAccess,
    log_limit: LogLimit,
}

impl Doorkeeper {
    pub(in crate::server) fn new(access: &SocketAccess) -> Self {
        Doorkeeper { access: access.clone(), log_limit: LogLimit::default() }
    }

    /// Whether a peer is to be served.
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
                    "a connection was refused: --allow-uid and --allow-gid have neither its user nor its group"
                ),
                Err(error) => warn!(left_out, "a connection was refused: its user is not known: {error}"),
            }
        }
        false
    }
}
