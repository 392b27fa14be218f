//! Environment variables that clients trust.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use nix::unistd::{getegid, geteuid, getgid, getuid};

use crate::DEFAULT_SOCKET;

/// The environment variable with the address of the server.
pub const SOCKET_VARIABLE: &str = "ZERO_KV_SOCKET";

/// Returns the address in the environment variable `ZERO_KV_SOCKET`, or [`DEFAULT_SOCKET`].
pub fn default_address() -> PathBuf {
    own_variable(SOCKET_VARIABLE).map_or_else(|| DEFAULT_SOCKET.into(), PathBuf::from)
}

/// Returns the value of an environment variable, unless it is empty. Returns `None` in a set-user-ID or set-group-ID
/// program, whose environment comes from a user with fewer rights.
pub(super) fn own_variable(name: &str) -> Option<OsString> {
    let has_own_rights = getuid() == geteuid() && getgid() == getegid();
    env::var_os(name).filter(|value| has_own_rights && !value.is_empty())
}
