//! What one connection may do.
//!
//! In: logins, and the users of the server. Out: whether a command, a key, or all keys are permitted. A permission is
//! always checked before a key is looked up, so a client learns nothing about keys that it may not use.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::permissions::User;
use super::table::Users;
use crate::format::key::Key;
use crate::format::key_type::KeyType;
use crate::protocol::resp::commands::{Id, Spec};

/// The reason why a request is not permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Denied {
    /// The connection must log in first.
    Unauthenticated,
    /// The user may not use the command.
    Command,
    /// The user may not use one of the keys.
    Keys,
}

/// How a connection got its permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Login {
    /// The connection has not logged in. On the Unix socket, such a connection has all permissions, because the file
    /// permissions of the socket have admitted it. On TCP, it is the user `default` if this user is enabled and needs
    /// no password.
    None { is_unix: bool },
    /// The client has sent the name and the password of its user.
    User,
}

/// When the client gets the error of a failed login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum LoginFailed {
    /// The client gets the error only after this time. Once the time has passed, the login must be executed again.
    Delayed(Instant),
    /// The client gets the error now.
    Now,
}

#[derive(Clone, Debug)]
pub(in crate::server) struct Access {
    login: Login,
    /// The user. `None` if the connection has all permissions without being a user, or must log in first.
    user: Option<Arc<User>>,
    is_authenticated: bool,
    /// The value of `Users::version` when the other fields were derived from the users.
    version: u64,
    /// `version` if the connection has all permissions, and `NO_VERSION` otherwise. One comparison with the current
    /// version therefore shows whether the connection has all permissions now.
    unrestricted_version: u64,
    reads_any_key: bool,
}

/// A number that is never a version of the users.
const NO_VERSION: u64 = 0;

impl Access {
    /// Returns the permissions of a new connection.
    pub(in crate::server) fn new(users: &Users, is_unix: bool) -> Access {
        let mut access = Access {
            login: Login::None { is_unix },
            user: None,
            is_authenticated: false,
            version: NO_VERSION,
            unrestricted_version: NO_VERSION,
            reads_any_key: false,
        };
        access.refresh(users);
        access
    }

    /// Returns the permissions of a connection that has logged in as a user.
    pub(in crate::server) fn of(user: Arc<User>) -> Access {
        let version = NO_VERSION;
        let (login, unrestricted_version, reads_any_key) = (Login::User, NO_VERSION, false);
        Access { login, user: Some(user), is_authenticated: true, version, unrestricted_version, reads_any_key }
    }

    /// Returns whether the connection has all permissions, according to the current users.
    #[inline]
    pub(in crate::server) fn is_unrestricted(&self, users: &Users) -> bool {
        self.unrestricted_version == users.version()
    }

    /// Returns whether the connection may use the command GET and all keys, as of the last [`Access::refresh`].
    #[inline]
    pub(in crate::server) fn reads_any_key(&self) -> bool {
        self.reads_any_key
    }

    /// Returns whether the connection may use all keys.
    pub(in crate::server) fn permits_all_keys(&self) -> bool {
        self.is_authenticated && self.user.as_ref().is_none_or(|user| user.keys.is_all())
    }

    /// Returns whether the connection may use at least one key, which the table may lack.
    pub(in crate::server) fn permits_some_key(&self) -> bool {
        self.is_authenticated && self.user.as_ref().is_none_or(|user| user.keys.is_some())
    }

    pub(in crate::server) fn is_named_user(&self) -> bool {
        self.login == Login::User
    }

    pub(in crate::server) fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Updates the permissions if the users have changed. Returns false if the connection must end, because its user
    /// was removed or disabled, or needs a password that it did not need before.
    #[must_use]
    pub(in crate::server) fn follow(&mut self, users: &Users) -> bool {
        if self.version == users.version() {
            return true;
        }
        if let (Login::User, Some(user)) = (self.login, &self.user)
            && !users.enabled().contains(&user.number)
        {
            return false;
        }
        self.refresh(users);
        true
    }

    fn refresh(&mut self, users: &Users) {
        let version = users.version();
        let user = match (self.login, &self.user) {
            (Login::None { is_unix: true }, _) => None,
            (Login::None { is_unix: false }, _) => users.get(b"default").filter(|user| user.is_open()),
            (Login::User, user) => user.as_ref().and_then(|user| users.get(user.name.as_bytes())),
        };
        self.is_authenticated = user.is_some() || self.login == Login::None { is_unix: true };
        self.user = user;
        self.version = version;
        let is_unrestricted = self.is_authenticated && self.user.as_ref().is_none_or(|user| user.is_unrestricted());
        self.unrestricted_version = if is_unrestricted { version } else { NO_VERSION };
        self.reads_any_key = self.permits_all_keys() && self.user.as_ref().is_none_or(|user| user.reads());
    }

    /// Logs the connection in as a user.
    ///
    /// # Errors
    /// If the user is unknown or disabled, or if the password is wrong. The permissions of the connection then do not
    /// change.
    pub(in crate::server) fn log_in(
        &mut self,
        users: &Users,
        name: &[u8],
        password: &[u8],
        attempts: &mut Attempts,
    ) -> Result<(), LoginFailed> {
        let Some(user) = users.authenticate(name, password) else {
            // Without a users file, there is no password to guess.
            let delayed = users.path().and_then(|_| attempts.delay(Instant::now()));
            return Err(delayed.map_or(LoginFailed::Now, LoginFailed::Delayed));
        };
        attempts.succeeded();
        (self.login, self.user) = (Login::User, Some(user));
        self.refresh(users);
        Ok(())
    }

    /// Returns the name of the user for ACL WHOAMI and CLIENT LIST.
    pub(in crate::server) fn user_name(&self, users: &Users) -> String {
        match &self.user {
            Some(user) => user.name.clone(),
            None if self.is_authenticated && users.path().is_some() => "(superuser)".to_owned(),
            None => "default".to_owned(),
        }
    }

    /// Returns the number that identifies the user, or 0 if the connection is not a user.
    pub(in crate::server) fn user_number(&self) -> u64 {
        self.user.as_ref().map_or(0, |user| user.number)
    }

    /// Checks whether the user may use a command. Does not check its arguments.
    pub(in crate::server) fn check_command(&self, spec: &Spec) -> Result<(), Denied> {
        // These commands log in or end the connection. Redis always permits them.
        if spec.flags.contains(&"no_auth") {
            return Ok(());
        }
        self.check_permission(spec.id)
    }

    pub(in crate::server) fn check_permission(&self, id: Id) -> Result<(), Denied> {
        self.check(|user| user.commands.permits(id))
    }

    /// Checks whether the user may use commands that write. The server executes no such command: the client gets the
    /// error of a read-only server if this check succeeds, and the returned error otherwise.
    pub(in crate::server) fn check_write(&self) -> Result<(), Denied> {
        self.check(|user| user.commands.permits_writes())
    }

    fn check(&self, permits: impl FnOnce(&User) -> bool) -> Result<(), Denied> {
        match &self.user {
            _ if !self.is_authenticated => Err(Denied::Unauthenticated),
            Some(user) if !permits(user) => Err(Denied::Command),
            _ => Ok(()),
        }
    }

    /// Returns whether the key that a client sent as `text` is permitted.
    pub(in crate::server) fn permits_key(&self, key_type: KeyType, text: &[u8]) -> bool {
        self.is_authenticated && self.user.as_ref().is_none_or(|user| user.keys.permits(key_type, text))
    }

    /// Returns whether a stored key is permitted.
    pub(in crate::server) fn permits_stored_key(&self, key_type: KeyType, key: Key<'_>) -> bool {
        self.is_authenticated && self.user.as_ref().is_none_or(|user| user.keys.permits_stored(key_type, key))
    }

    /// Returns whether all byte keys of a range are permitted, because they begin with the same permitted prefix.
    pub(in crate::server) fn permits_range(&self, start: &[u8], end: &[u8], is_end_excluded: bool) -> bool {
        self.is_authenticated
            && self.user.as_ref().is_none_or(|user| user.keys.permits_range(start, end, is_end_excluded))
    }

    /// Returns whether all keys are permitted that a client selects by sending `text` as a prefix.
    pub(in crate::server) fn permits_prefix(&self, key_type: KeyType, text: &[u8]) -> bool {
        self.is_authenticated && self.user.as_ref().is_none_or(|user| user.keys.permits_prefix(key_type, text))
    }
}

/// The delay of the reply to the first failed login of a connection.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The maximum delay of the reply to a failed login.
const DELAY_MAX: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Default)]
pub(in crate::server) struct Attempts {
    failed: u32,
    /// The time from which the current login may be answered. `None` if no login waits.
    until: Option<Instant>,
}

impl Attempts {
    /// Returns the time until which the reply to a failed login must wait. Once this time has passed, counts the failed
    /// login and returns `None`. Must be called again for the same login after the wait.
    pub(in crate::server) fn delay(&mut self, now: Instant) -> Option<Instant> {
        let until = *self.until.get_or_insert_with(|| now + delay_after(self.failed));
        if now < until {
            return Some(until);
        }
        *self = Attempts { failed: self.failed.saturating_add(1), until: None };
        None
    }

    /// Ends the wait of a login that has succeeded after all, for example because the users file was replaced
    /// meanwhile.
    pub(in crate::server) fn succeeded(&mut self) {
        self.until = None;
    }
}

fn delay_after(failed: u32) -> Duration {
    FIRST_DELAY.saturating_mul(2_u32.saturating_pow(failed)).min(DELAY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failed_login_is_delayed_twice_as_long_up_to_the_maximum() {
        let (mut attempts, mut now) = (Attempts::default(), Instant::now());
        let mut delays_ms = Vec::new();
        for _ in 0..40 {
            let until = attempts.delay(now).unwrap();
            assert_eq!(attempts.delay(until - Duration::from_nanos(1)), Some(until));
            delays_ms.push((until - now).as_millis());
            now = until;
            assert_eq!(attempts.delay(now), None);
        }
        assert_eq!(delays_ms[..8], [100, 200, 400, 800, 1600, 3200, 6400, 10_000]);
        assert!(delays_ms[8..].iter().all(|delay_ms| *delay_ms == 10_000));
    }

    #[test]
    fn a_login_that_succeeds_after_all_ends_the_wait_but_not_the_count() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        attempts.delay(now).unwrap();
        attempts.delay(now + FIRST_DELAY);
        attempts.delay(now).unwrap();
        attempts.succeeded();
        assert_eq!(attempts.delay(now), Some(now + 2 * FIRST_DELAY));
    }
}
