//! The user that a client logs in as, and the source of the password.
//!
//! In: a password, the path of a file with the password, or the environment. Out: credentials for one connection.

use std::fmt;
use std::path::{Path, PathBuf};

use super::address::own_variable;
use crate::config_file;
use crate::setting::Setting;

/// The maximum length of a user's name, and of a password. No server accepts a longer name or password.
const LEN_MAX_BYTES: usize = 4096;
/// The environment variable with the password, for logins that take their password from the environment.
const PASSWORD: &str = "ZERO_KV_PASSWORD";
/// The environment variable with the path of a file that contains the password. Used only if [`PASSWORD`] is not set.
const PASSWORD_FILE: &str = "ZERO_KV_PASSWORD_FILE";

/// The name and the password of a user. Debugging output omits the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    user: String,
    password: Password,
}

/// The source of a password.
#[derive(Clone, PartialEq, Eq)]
enum Password {
    Given(Vec<u8>),
    File(PathBuf),
    Environment,
}

/// A name and a password that can be sent to a server.
pub(super) struct Credentials {
    user: Vec<u8>,
    password: Vec<u8>,
}

impl Login {
    /// Creates a login with a password.
    pub fn new(user: impl Into<String>, password: impl Into<Vec<u8>>) -> Self {
        Login { user: user.into(), password: Password::Given(password.into()) }
    }

    /// Creates a login whose password is in a file. The file is read for each connection, so the password can be
    /// changed while the program runs. One line end at the end of the file is not part of the password.
    pub fn with_password_file(user: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Login { user: user.into(), password: Password::File(path.into()) }
    }

    /// Creates a login that takes the password from the environment variable `ZERO_KV_PASSWORD`, or if this variable is
    /// not set, from the file that `ZERO_KV_PASSWORD_FILE` names. A client uses such a login if its address names a
    /// user and its options have no login. Both variables are ignored in a set-user-ID or set-group-ID program.
    pub fn from_environment(user: impl Into<String>) -> Self {
        Login { user: user.into(), password: Password::Environment }
    }

    /// Returns the name of the user.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Reads the password.
    ///
    /// # Errors
    /// The reason why the name or the password cannot be used, and the remedy.
    pub(super) fn credentials(&self) -> Result<Credentials, String> {
        if self.user.is_empty() || self.user.len() > LEN_MAX_BYTES || self.user.contains('\0') {
            return Err(format!(
                "a user's name has 1 to {LEN_MAX_BYTES} bytes other than 0, but {} has {} bytes",
                quoted(self.user.as_bytes()),
                self.user.len()
            ));
        }
        let password = match &self.password {
            Password::Given(password) => password.clone(),
            Password::File(path) => read(path)?,
            Password::Environment => match (own_variable(PASSWORD), own_variable(PASSWORD_FILE)) {
                (Some(password), _) => password.into_encoded_bytes(),
                (None, Some(path)) => read(&PathBuf::from(path))?,
                (None, None) => {
                    return Err(format!(
                        "there is no password for user {}: set {PASSWORD}, or name a file with the password with {} or \
                         {PASSWORD_FILE}",
                        quoted(self.user.as_bytes()),
                        Setting::PasswordFile
                    ));
                }
            },
        };
        match password.len() {
            ..=LEN_MAX_BYTES => Ok(Credentials { user: self.user.clone().into(), password }),
            len => Err(format!("a password of {len} bytes, where at most {LEN_MAX_BYTES} bytes are allowed")),
        }
    }
}

/// Reads a password from a file.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let name = path.display();
    // The line end takes at most two more bytes.
    let mut password = config_file::read_once(path, LEN_MAX_BYTES + 2)
        .map_err(|error| format!("the password file {name} cannot be read: {error}"))?;
    if password.last() == Some(&b'\n') {
        password.pop();
        if password.last() == Some(&b'\r') {
            password.pop();
        }
    }
    match password.is_empty() {
        true => Err(format!("the password file {name} is empty: write the password into it")),
        false => Ok(password),
    }
}

/// Returns a user's name for an error message.
fn quoted(user: &[u8]) -> String {
    format!("\"{}\"", user[..user.len().min(64)].escape_ascii())
}

impl Credentials {
    pub(super) fn user(&self) -> &[u8] {
        &self.user
    }

    pub(super) fn password(&self) -> &[u8] {
        &self.password
    }

    /// Returns the name of the user for an error message.
    pub(super) fn quoted_user(&self) -> String {
        quoted(&self.user)
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Logs contain debugging output, so it has no password.
        let mut login = f.debug_struct("Login");
        login.field("user", &self.user);
        if let Password::File(path) = &self.password {
            login.field("password_file", path);
        }
        login.finish_non_exhaustive()
    }
}
