//! Access control of the Unix socket.
//!
//! The system checks the socket's mode, owner, and group, which the server sets before it listens. [`PeerFilter`]
//! checks the user and group of a peer that has connected.

use std::fs::{self, Permissions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{AtFlags, chownat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use tokio::net::UnixStream;
use tracing::warn;

use crate::server::log_limit::LogLimit;
use crate::setting::Setting;

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
    pub(super) fn is_about_file(&self) -> bool {
        self.mode.is_some() || self.owner.is_some() || self.group.is_some()
    }

    /// Sets the owner, group, and mode of a socket's file.
    pub(super) fn set(&self, node: &OwnedFd) -> Result<(), String> {
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

    /// Returns whether a peer may connect.
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
