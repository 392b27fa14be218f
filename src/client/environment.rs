//! Environment variables that clients trust.

use std::env;
use std::ffi::OsString;

use nix::unistd::{getegid, geteuid, getgid, getuid};

/// Returns the value of an environment variable, unless it is empty. Returns `None` in a set-user-ID or set-group-ID
/// program, whose environment comes from a user with fewer rights.
pub(super) fn own_variable(name: &str) -> Option<OsString> {
    let has_own_rights = getuid() == geteuid() && getgid() == getegid();
    env::var_os(name).filter(|value| has_own_rights && !value.is_empty())
}
