//! Access control of the Unix socket.
//!
//! The system checks the socket's mode, owner, and group, which the server sets before the socket listens. `Doorkeeper`
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

/// Who may connect to the Unix socket. By default, its owner and its group may, whatever the umask is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// Permissions of the socket. A client needs write permission to connect. `None`: [`SocketAccess::MODE`].
    pub mode: Option<u32>,
    /// The owner. `None`: the user that the server runs as.
    pub owner: Option<u32>,
    /// The group. `None`: the group that the system assigns.
    pub group: Option<u32>,
    /// Users whose processes may connect. If this or `allow_gids` names any, all other processes are disconnected at
    /// once, even root's.
    pub allow_uids: Vec<u32>,
    /// Groups whose processes may connect, by their effective group. The system does not report supplementary groups of
    /// a peer; use `group` for these.
    pub allow_gids: Vec<u32>,
}

impl SocketAccess {
    /// The owner and the group may connect.
    pub const MODE: u32 = 0o660;

    /// Returns whether only certain users or groups may connect.
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
        (Errno::PERM, "user") => {
            format!(": only root may (CAP_CHOWN): start the server as that user, or leave {} out", Setting::SocketOwner)
        }
        (Errno::PERM, _) => format!(
            ": only root and members may (CAP_CHOWN): make the server's user a member, or leave {} out",
            Setting::SocketGroup
        ),
        _ => String::new(),
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
                    "a connection was refused: {} and {} have neither its user nor its group",
                    Setting::AllowUids,
                    Setting::AllowGids
                ),
                Err(error) => warn!(left_out, "a connection was refused: the system does not report its user: {error}"),
            }
        }
        false
    }
}
