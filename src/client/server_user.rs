//! Checks the user that a server runs as, before the client sends any bytes.
//!
//! In: a connected socket and its path. Out: an error if an untrusted user could have started this server. The kernel
//! reports the user of the process that called `listen` (`SO_PEERCRED`). The owner of the socket file would prove
//! nothing: an impostor owns the socket that it created.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{User, geteuid};

use super::environment::own_variable;
use super::error::ClientError;
use super::exposure::exposed_directory;
use crate::setting::Setting;
use crate::user_namespace::is_ambiguous;

/// Name of the environment variable with the user that a server may run as. The variable is ignored if
/// [`Options::server_user`](super::Options::server_user) is set.
const VARIABLE: &str = "ZERO_KV_SERVER_USER";

/// Returns the remedy for an error message: how to name the expected user.
fn remedy() -> String {
    format!("if that is the right user, name the user with {} or {VARIABLE}", Setting::ServerUser)
}

/// Checks the user of the server to which `socket` is connected.
pub(super) fn check_peer(socket: impl AsFd, path: &Path, server_user: Option<&str>) -> Result<(), ClientError> {
    let peer =
        getsockopt(&socket, PeerCredentials).map_err(|error| ClientError::connect(&path.into(), error.into()))?;
    check_server_user(path, peer.uid(), server_user)
}

/// Checks the user of a server's process. Programs with their own socket code should call this function before they
/// send anything.
///
/// `path` is the path of the socket, or `@` and its abstract name. `uid` is the peer's user as the kernel reports it
/// (`SO_PEERCRED`). [`Options::server_user`](super::Options::server_user) describes the rules.
///
/// # Errors
/// [`ClientError::UntrustedServer`].
pub fn check_server_user(path: &Path, uid: u32, server_user: Option<&str>) -> Result<(), ClientError> {
    let own_uid = geteuid().as_raw();
    if (uid == 0 || uid == own_uid) && !is_ambiguous(uid) {
        return Ok(());
    }
    let named = server_user.map(OsString::from).or_else(|| own_variable(VARIABLE));
    let problem = match named {
        Some(named) => problem_if_named(&named.to_string_lossy(), uid, own_uid),
        None => problem_if_unnamed(path, uid, own_uid),
    };
    match problem {
        None => Ok(()),
        Some(problem) => Err(ClientError::UntrustedServer { server: path.into(), uid, problem }),
    }
}

/// Returns the problem if the server's user `uid` is not the named user, or if the named user cannot be looked up.
fn problem_if_named(named: &str, uid: u32, own_uid: u32) -> Option<String> {
    let expected = match named.parse() {
        Ok(number) => number,
        Err(_) => match User::from_name(named) {
            Ok(Some(user)) => user.uid.as_raw(),
            Ok(None) => {
                return Some(format!(
                    "the server runs as {}, and there is no user {named:?}: give a name that `getent passwd` lists, or a number",
                    name_of(uid)
                ));
            }
            Err(error) => return Some(format!("the user {named:?} cannot be looked up: {error}: give a number")),
        },
    };
    (expected != uid).then(|| {
        format!(
            "the server runs as {}, where {named}, root, or this process's user {own_uid} was expected: another \
             user may have started this server; {}",
            name_of(uid),
            remedy()
        )
    })
}

/// Returns why the server's user `uid` cannot be trusted if the client names no user. Returns `None` if the user can be
/// trusted.
fn problem_if_unnamed(path: &Path, uid: u32, own_uid: u32) -> Option<String> {
    if is_ambiguous(uid) {
        return Some(format!(
            "the server's user has no number in this user namespace, and is reported as {uid} like all such users: \
             share the server's user namespace, or accept every such user with {} {uid} or {VARIABLE}",
            Setting::ServerUser
        ));
    }
    let reason = if path.as_os_str().as_bytes().starts_with(b"@") {
        "any user can serve under an abstract name".to_owned()
    } else {
        let trusted: Vec<u32> = [0, uid, own_uid].into_iter().filter(|trusted| !is_ambiguous(*trusted)).collect();
        match exposed_directory(path, &trusted) {
            Ok(None) => return None,
            Ok(Some(directory)) => format!("other users can write to {}", directory.display()),
            Err(error) => format!("the socket's directory cannot be checked ({error})"),
        }
    };
    Some(format!(
        "the server runs as {}, where root or this process's user {own_uid} was expected: {reason}, so another user \
         may have started this server; {}",
        name_of(uid),
        remedy()
    ))
}

fn name_of(uid: u32) -> String {
    match User::from_uid(uid.into()) {
        Ok(Some(user)) => format!("user {uid} ({})", user.name),
        _ => format!("user {uid}"),
    }
}
