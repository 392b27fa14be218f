//! The users of a server, and their replacement when the users file changes or a reload is requested.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tracing::{error, info, warn};

use super::parse::{FILE_LEN_MAX_BYTES, UsersError, parse};
use super::permissions::User;
use crate::config_file;
use crate::counted::counted;
use crate::server::process::liveness::Thread;
use crate::server::process::log_queue::LogLimit;
use crate::server::sockets::Peer;
use crate::server::stats::{Statistics, Totals};
use crate::server::table::{FileVersion, FolderWatch};
use crate::sync::unpoisoned;

/// The maximum number of bytes of a user's name in a log line.
const NAME_SHOWN_MAX_BYTES: usize = 64;

/// Users by name, in the order of their names.
pub(in crate::server) type UsersByName = BTreeMap<String, Arc<User>>;

pub(in crate::server) struct Users {
    /// The path of the users file. `None` if the server has no users file; all clients then have all permissions.
    path: Option<PathBuf>,
    by_name: Mutex<Arc<UsersByName>>,
    /// Increases whenever the users are replaced.
    version: AtomicU64,
    last_number: AtomicU64,
    /// The file's version at the last attempt to read it, whether or not the file was accepted.
    tried: Mutex<Option<FileVersion>>,
    /// Why the server rejected the current users file. Empty if this file is in effect.
    refused: Mutex<String>,
    /// Limits the log lines about failed logins.
    login_log: LogLimit,
}

impl Users {
    /// Reads the users file. Without a file, there is only the user `default`, who needs no password and has all
    /// permissions.
    pub(in crate::server) fn new(path: Option<&Path>) -> Result<Users, UsersError> {
        let users = Users {
            path: path.map(Path::to_path_buf),
            by_name: Mutex::default(),
            version: AtomicU64::new(1),
            last_number: AtomicU64::default(),
            tried: Mutex::new(path.and_then(|path| FileVersion::at(path).ok())),
            refused: Mutex::default(),
            login_log: LogLimit::default(),
        };
        let read = match path {
            Some(path) => read(path)?,
            None => BTreeMap::from([("default".to_owned(), User::open_default())]),
        };
        users.replace(read);
        Ok(users)
    }

    pub(in crate::server) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns whether every TCP client needs a password.
    pub(in crate::server) fn protect_tcp(&self) -> bool {
        self.get(b"default").is_none_or(|user| !user.is_open())
    }

    /// Logs a warning if there is a users file, but every TCP client has all permissions without a password.
    pub(in crate::server) fn warn_if_open(&self) {
        let is_open = self.get(b"default").is_some_and(|user| user.is_open() && user.is_unrestricted());
        if self.path.is_some() && is_open {
            warn!(
                "every TCP client has all permissions without a password, because the users file does not restrict \
                 the user default: add the line: user default off"
            );
        }
    }

    /// Returns a number that increases whenever the users are replaced. The users that a caller gets after this call
    /// have this version or a later one.
    #[inline]
    pub(in crate::server) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(in crate::server) fn by_name(&self) -> Arc<UsersByName> {
        Arc::clone(&unpoisoned(&self.by_name))
    }

    pub(in crate::server) fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        let name = std::str::from_utf8(name).ok()?;
        self.by_name().get(name).cloned()
    }

    /// Returns the enabled user with this name, if the password is right. Takes the same time whether or not there is
    /// such a user.
    pub(super) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let found = self.get(name);
        let blank = User { hashes: vec![Default::default()], ..User::new("") };
        let is_right = found.as_deref().unwrap_or(&blank).accepts(password);
        found.filter(|user| is_right && user.is_on)
    }

    /// Counts and logs a failed login.
    pub(in crate::server) fn report_failed_login(&self, peer: &Peer, name: &[u8], totals: &Totals) {
        totals.logins_failed.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.login_log.line() {
            let (start, rest) = name.split_at(name.len().min(NAME_SHOWN_MAX_BYTES));
            let user = format!("{}{}", start.escape_ascii(), if rest.is_empty() { "" } else { "..." });
            warn!(%peer, user, left_out, "a login failed: the user is unknown or disabled, or the password is wrong");
        }
    }

    /// Returns the numbers that identify the enabled users.
    pub(in crate::server) fn enabled(&self) -> HashSet<u64> {
        self.by_name().values().filter(|user| user.is_on).map(|user| user.number).collect()
    }

    /// Returns why the server rejected the current users file, or an empty string if this file is in effect.
    pub(in crate::server) fn refused(&self) -> String {
        unpoisoned(&self.refused).clone()
    }

    /// Returns how long to wait before a changed file is read, or `None` if no wait is needed.
    pub(super) fn unsettled(&self) -> Option<Duration> {
        let now = self.path.as_ref().and_then(|path| FileVersion::at(path).ok());
        now.filter(|now| unpoisoned(&self.tried).as_ref() != Some(now))?.unsettled()
    }

    /// Reads the users file again if it has changed, or if `is_requested`. Returns whether the users were replaced.
    /// Keeps the previous users if the file is not valid, or gives TCP clients more permissions without a password: see
    /// [`Users::opens_tcp`].
    pub(super) fn reload(&self, is_requested: bool, totals: &Totals) -> bool {
        let Some(path) = &self.path else { return false };
        let now = FileVersion::at(path).ok();
        if std::mem::replace(&mut *unpoisoned(&self.tried), now) == now && !is_requested {
            return false;
        }
        let accepted = read(path).and_then(|users| match self.opens_tcp(&users) {
            true => Err(UsersError::Unprotected { path: path.clone() }),
            false => Ok(users),
        });
        match accepted {
            Ok(users) => {
                info!("{}: the server has {} now", path.display(), counted(users.len(), "user"));
                self.replace(users);
                unpoisoned(&self.refused).clear();
                true
            }
            Err(problem) => {
                totals.refused_users.fetch_add(1, Ordering::Relaxed);
                error!("{problem}: the previous users stay in effect");
                *unpoisoned(&self.refused) = problem.to_string();
                false
            }
        }
    }

    /// Returns whether TCP clients would need no password with these users, and need one now, or would have all
    /// permissions without a password, and have fewer now. A file can do so by mistake: if a program truncates the
    /// file, the user `default` has all permissions. The server may listen on an address that only the users protect.
    fn opens_tcp(&self, users: &BTreeMap<String, User>) -> bool {
        let Some(new) = users.get("default").filter(|user| user.is_open()) else { return false };
        let old = self.get(b"default").filter(|user| user.is_open());
        old.is_none_or(|old| new.is_unrestricted() && !old.is_unrestricted())
    }

    /// Replaces the users. A user keeps its number if its connections may continue.
    fn replace(&self, users: BTreeMap<String, User>) {
        let mut by_name = unpoisoned(&self.by_name);
        let numbered = users.into_iter().map(|(name, mut user)| {
            let may_continue = |old: &&Arc<User>| old.is_on && user.is_on && (user.is_nopass || !old.is_nopass);
            let old_number = by_name.get(&name).filter(may_continue).map(|old| old.number);
            user.number = old_number.unwrap_or_else(|| 1 + self.last_number.fetch_add(1, Ordering::Relaxed));
            (name, Arc::new(user))
        });
        *by_name = Arc::new(numbered.collect());
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// Reads a users file, and logs a warning if other users of the machine can read or change the file.
fn read(path: &Path) -> Result<BTreeMap<String, User>, UsersError> {
    let text = config_file::read(path, FILE_LEN_MAX_BYTES)
        .map_err(|error| UsersError::Read { path: path.to_path_buf(), problem: error.to_string() })?;
    let users = parse(&text).map_err(|(line, problem)| UsersError::Line { path: path.to_path_buf(), line, problem })?;
    for exposure in config_file::exposures(path, "the users and the hashes of their passwords", true) {
        warn!("{}: {exposure}", path.display());
    }
    Ok(users)
}

/// The time after which the file is checked again if no notification arrives.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Follows the users file until the runtime ends. Reads the file again when `reloads` announces a request and, if
/// `is_watching`, when the file changes. Calls `on_change` each time the users are replaced. Another thread watches the
/// file's folder; `thread` records whether that thread is alive.
pub(in crate::server) async fn watch(
    users: Arc<Users>,
    statistics: Arc<Statistics>,
    mut reloads: watch::Receiver<()>,
    is_watching: bool,
    thread: Arc<Thread>,
    on_change: impl Fn(),
) {
    let Some(path) = users.path() else { return };
    let changed = Arc::new(Notify::new());
    let notify = Arc::clone(&changed);
    let _folder_watch = is_watching.then(|| {
        FolderWatch::new(path, &thread, move || notify.notify_one()).inspect_err(|error| {
            let every_s = CHECK_EVERY.as_secs();
            warn!("{}: cannot be watched: {error}: it is checked every {every_s} s instead", path.display());
        })
    });
    let mut wait = CHECK_EVERY;
    loop {
        let is_requested = tokio::select! {
            request = reloads.changed() => match request {
                Ok(()) => true,
                Err(_) => return,
            },
            () = changed.notified() => false,
            () = tokio::time::sleep(wait), if is_watching => false,
        };
        wait = CHECK_EVERY;
        if !is_requested && let Some(unsettled) = users.unsettled() {
            // A process may still be writing to the file.
            wait = unsettled;
            continue;
        }
        let (users, statistics) = (Arc::clone(&users), Arc::clone(&statistics));
        // A slow file system must not delay new connections.
        match tokio::task::spawn_blocking(move || users.reload(is_requested, &statistics.totals)).await {
            Ok(true) => on_change(),
            Ok(false) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::permissions::hash_of;
    use super::*;

    fn users(folder: &tempfile::TempDir, text: &str) -> Users {
        let path = folder.path().join("users.acl");
        std::fs::write(&path, text).unwrap();
        Users::new(Some(&path)).unwrap()
    }

    fn number(users: &Users, name: &str) -> u64 {
        users.get(name.as_bytes()).unwrap().number
    }

    #[test]
    fn without_a_file_the_user_default_is_open() {
        let users = Users::new(None).unwrap();
        assert!(!users.protect_tcp() && users.authenticate(b"default", b"x").is_some());
        assert!(users.authenticate(b"x", b"").is_none());
    }

    #[test]
    fn only_enabled_users_with_the_right_password_are_authenticated() {
        let folder = tempfile::tempdir().unwrap();
        let hash: String = hash_of(b"secret").iter().map(|byte| format!("{byte:02x}")).collect();
        let users =
            users(&folder, &format!("user default off\nuser a on #{hash}\nuser b off #{hash}\nuser c on nopass"));
        assert!(users.protect_tcp());
        for (name, password, is_right) in [
            ("a", "secret", true),
            ("a", "Secret", false),
            ("a", "", false),
            ("b", "secret", false),
            ("c", "", true),
            ("d", "secret", false),
            ("default", "secret", false),
        ] {
            assert_eq!(users.authenticate(name.as_bytes(), password.as_bytes()).is_some(), is_right, "{name}");
        }
    }

    #[test]
    fn a_user_keeps_its_number_unless_it_was_disabled_or_needs_a_password_now() {
        let folder = tempfile::tempdir().unwrap();
        let users = users(
            &folder,
            "user a on nopass\nuser b on #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
        );
        let (path, totals) = (users.path().unwrap().to_path_buf(), Totals::default());
        let (a, b, version) = (number(&users, "a"), number(&users, "b"), users.version());
        assert!(users.reload(true, &totals) && users.version() > version);
        assert_eq!((number(&users, "a"), number(&users, "b")), (a, b));
        std::fs::write(&path, "user a on\nuser b off").unwrap();
        assert!(users.reload(true, &totals));
        assert_ne!(number(&users, "a"), a);
        assert!(!users.enabled().contains(&b));
        std::fs::write(&path, "user b on nopass").unwrap();
        assert!(users.reload(true, &totals) && number(&users, "b") != b && users.get(b"a").is_none());
    }

    #[test]
    fn an_invalid_file_is_counted_and_the_users_stay() {
        let folder = tempfile::tempdir().unwrap();
        let users = users(&folder, "user a on nopass");
        let (path, totals, version) = (users.path().unwrap().to_path_buf(), Totals::default(), users.version());
        assert!(!users.reload(false, &totals), "the file has not changed");
        std::fs::write(&path, "user a on\nuser b >x").unwrap();
        assert!(!users.reload(true, &totals) && users.get(b"a").unwrap().is_nopass);
        assert!(users.refused().contains("users.acl: line 2: found a plain password"), "{}", users.refused());
        std::fs::remove_file(&path).unwrap();
        assert!(!users.reload(false, &totals) && !users.reload(false, &totals), "a missing file is read once");
        assert_eq!((totals.refused_users.load(Ordering::Relaxed), users.version()), (2, version));
        std::fs::write(&path, "user c on").unwrap();
        assert!(users.reload(false, &totals) && users.refused().is_empty());
    }
}
