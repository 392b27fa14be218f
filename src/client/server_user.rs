//! Checks the user that a server runs as, before the client sends any bytes, and whether other users could replace the
//! server's socket.
//!
//! In: a connected socket and its path. Out: an error if an untrusted user could have started this server. The kernel
//! reports the user of the process that called `listen` (`SO_PEERCRED`). The owner of the socket file would prove
//! nothing: an impostor owns the socket that it created.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::{User, geteuid};

use super::address::own_variable;
use super::error::ClientError;
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
                    "the server runs as {}, and there is no user {named:?}: give a name that `getent passwd` lists, \
                     or a number",
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
            "the server's user has no number in this user namespace, and is reported as {uid} like all unmapped \
             users: share the server's user namespace, or accept all unmapped users with {} {uid} or {VARIABLE}",
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

/// Maximum number of symbolic links that the kernel follows in one path.
const LINKS_MAX: usize = 40;
/// Mode bits that let the group and all other users write. If a file has an access control list, the group bits limit
/// the rights that the list grants to other users and groups.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Returns the first directory on the way to `path` whose entries a user outside `trusted` can change. The sticky bit
/// does not protect a directory: any user who can write to it can create a name before the rightful owner does.
///
/// Directories are checked in the order in which the kernel visits them, starting at the root. To redirect the path
/// afterwards, a user would need write permission in one of the checked directories.
fn exposed_directory(path: &Path, trusted: &[u32]) -> io::Result<Option<PathBuf>> {
    walk(PathBuf::from("/"), names_reversed(&std::path::absolute(path)?), trusted)
}

/// Resolves the names in `rest`, starting in `directory`. Returns the first directory that untrusted users can change.
/// `rest` is in reverse order.
fn walk(mut directory: PathBuf, mut rest: Vec<OsString>, trusted: &[u32]) -> io::Result<Option<PathBuf>> {
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            directory.pop();
            continue;
        }
        if !is_protected(&fs::symlink_metadata(&directory)?, trusted) {
            return Ok(Some(directory));
        }
        let next = directory.join(&name);
        if !fs::symlink_metadata(&next)?.is_symlink() {
            directory = next;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            directory = PathBuf::from("/");
        }
        rest.extend(names_reversed(&target));
    }
    Ok(None)
}

fn is_protected(directory: &Metadata, trusted: &[u32]) -> bool {
    trusted.contains(&directory.uid()) && directory.mode() & WRITABLE_BY_OTHERS == 0
}

fn names_reversed(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().rev().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Creates the file `a/b/s` in a temporary directory. Returns this directory and the user ID of its owner.
    fn directories() -> (tempfile::TempDir, u32) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/b/s"), "").unwrap();
        for name in ["", "a", "a/b"] {
            set_mode(&folder.path().join(name), 0o755);
        }
        let owner = fs::metadata(folder.path()).unwrap().uid();
        (folder, owner)
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// Checks `path`, starting at `folder`. Returns the first exposed directory, relative to `folder`.
    fn find_exposed(folder: &tempfile::TempDir, path: &str, trusted: &[u32]) -> io::Result<Option<PathBuf>> {
        let found = walk(folder.path().to_path_buf(), names_reversed(Path::new(path)), trusted)?;
        Ok(found.map(|directory| directory.strip_prefix(folder.path()).unwrap().to_path_buf()))
    }

    #[test]
    fn the_owner_and_mode_of_every_directory_of_the_path_are_checked() {
        let (folder, owner) = directories();
        assert_eq!(find_exposed(&folder, "a/b/s", &[owner]).unwrap(), None);
        for exposed in ["", "a", "a/b"] {
            for mode in [0o775, 0o757, 0o1777, 0o2775] {
                set_mode(&folder.path().join(exposed), mode);
                assert_eq!(find_exposed(&folder, "a/b/s", &[owner]).unwrap(), Some(exposed.into()), "{mode:o}");
            }
            set_mode(&folder.path().join(exposed), 0o711);
            assert_eq!(find_exposed(&folder, "a/b/s", &[owner]).unwrap(), None, "{exposed}");
        }
        assert_eq!(find_exposed(&folder, "a/b/s", &[owner + 1]).unwrap(), Some("".into()), "another user owns it");
    }

    #[test]
    fn a_link_in_an_exposed_directory_is_rejected_even_if_its_target_is_protected() {
        let (folder, owner) = directories();
        fs::create_dir(folder.path().join("open")).unwrap();
        symlink("../a/b", folder.path().join("open/link")).unwrap();
        set_mode(&folder.path().join("open"), 0o755);
        assert_eq!(find_exposed(&folder, "open/link/s", &[owner]).unwrap(), None);
        assert_eq!(find_exposed(&folder, "open/link/../b/s", &[owner]).unwrap(), None);
        set_mode(&folder.path().join("open"), 0o1777);
        assert_eq!(find_exposed(&folder, "open/link/s", &[owner]).unwrap(), Some("open".into()));
    }

    #[test]
    fn a_cycle_of_links_and_a_missing_name_are_errors() {
        let (folder, owner) = directories();
        symlink("cycle", folder.path().join("cycle")).unwrap();
        let error = find_exposed(&folder, "cycle/s", &[owner]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
        let error = find_exposed(&folder, "missing/s", &[owner]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn absolute_paths_are_checked_from_the_root() {
        let owner = fs::metadata("/").unwrap().uid();
        assert_eq!(exposed_directory(Path::new("/no/such/file"), &[owner + 1]).unwrap(), Some("/".into()));
    }
}
