//! What a server says of itself, and what it can be told to do.

use std::str::FromStr;

use zerocopy::IntoBytes;

use super::{Answer, Client, ClientError};
use crate::protocol::native::{Op, Request};

/// What a server says of itself: lines of a name and a value, as
/// `docs/PROTOCOL.md` lists them. Later servers may have more of them.
///
/// # Example
/// ```no_run
/// let info = zero_kv::client::Client::connect("/tmp/zero-kv.sock")?.info()?;
/// println!("{:?} rows of generation {:?}, on {:?}", info.rows(), info.generation(), info.get("socket"));
/// # Ok::<(), zero_kv::client::ClientError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    text: String,
}

impl Info {
    /// Names and values, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text.lines().map(|line| line.split_once(' ').unwrap_or((line, "")))
    }

    /// The value with this name, if the server has it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find_map(|(of, value)| (of == name).then_some(value))
    }

    /// The number with this name, if the server has it.
    pub fn number<N: FromStr>(&self, name: &str) -> Option<N> {
        self.get(name)?.parse().ok()
    }

    /// Which file it is, of those that the server has served, counted from 1.
    pub fn generation(&self) -> Option<u64> {
        self.number("generation")
    }

    /// The digest of the file that it serves.
    pub fn digest(&self) -> Option<u128> {
        u128::from_str_radix(self.get("digest")?, 16).ok()
    }

    /// How many rows that file has.
    pub fn rows(&self) -> Option<u64> {
        self.number("rows")
    }
}

impl Client {
    /// What the server says of itself.
    ///
    /// # Errors
    /// [`ClientError::Refused`] by a server that does not know the question, and
    /// those of [`Client::get`].
    pub fn info(&mut self) -> Result<Info, ClientError> {
        match self.ask(Op::Info, Request::new(Op::Info, 0).as_bytes())? {
            Answer::Value(text) => Ok(Info { text: String::from_utf8_lossy(&text).into_owned() }),
            _ => Err(self.told_no("information", "it may be a kv_store of an older version")),
        }
    }

    /// Has the server look at its file, and serve it if it is another and good.
    /// The number of the attempt: [`Client::info`] tells, as `reload_done`, when it
    /// is over, and as `reload_last` how it went.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if this user may not ask for it, and those of
    /// [`Client::get`].
    pub fn reload(&mut self) -> Result<u64, ClientError> {
        self.command(Op::Reload, "a reload")
    }

    /// Has the server go back to the generation before. The number of the attempt,
    /// as with [`Client::reload`].
    ///
    /// # Errors
    /// Those of [`Client::reload`].
    pub fn rollback(&mut self) -> Result<u64, ClientError> {
        self.command(Op::Rollback, "a rollback")
    }

    fn command(&mut self, op: Op, asked: &'static str) -> Result<u64, ClientError> {
        match self.ask(op, Request::new(op, 0).as_bytes())? {
            Answer::Value(attempt) => Ok(u64::from_be_bytes(*attempt.first_chunk().expect("a checked length"))),
            _ => Err(self.told_no(asked, "only root and the server's own user may ask, on its Unix socket")),
        }
    }

    fn told_no(&self, asked: &'static str, reason: &'static str) -> ClientError {
        ClientError::Refused { path: self.path.clone(), asked, reason }
    }
}
