//! The name and the password with which a client logs in.

use std::fmt;

/// The maximum length of a user's name or password. A server rejects longer ones in any case.
const LEN_MAX_BYTES: usize = 4096;

/// The name and the password of a user. Debugging output omits the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    user: String,
    password: Vec<u8>,
}

impl Login {
    /// Creates a login.
    pub fn new(user: impl Into<String>, password: impl Into<Vec<u8>>) -> Self {
        Login { user: user.into(), password: password.into() }
    }

    /// Returns the name of the user, without the bytes that no name can have.
    pub(super) fn user(&self) -> &[u8] {
        let user = self.user.as_bytes();
        let end = user.iter().position(|byte| *byte == 0).unwrap_or(user.len());
        &user[..end.min(LEN_MAX_BYTES)]
    }

    pub(super) fn password(&self) -> &[u8] {
        &self.password[..self.password.len().min(LEN_MAX_BYTES)]
    }

    /// Returns the name of the user for an error message.
    pub(super) fn quoted_user(&self) -> String {
        format!("\"{}\"", self.user().escape_ascii())
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}
