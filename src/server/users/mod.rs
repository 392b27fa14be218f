//! Users: who may connect, and which commands and keys each user may use.
//!
//! In: a users file, in a subset of the format of Redis's ACL files (`parse`), and names and passwords that clients
//! send. Out: the [`Access`] of a connection, which decides whether a command or a key is permitted. The permissions of
//! a user (`permissions`) refer to the commands in [`COMMANDS`](crate::protocol::resp::commands::COMMANDS). This
//! folder depends neither on connections nor on how a protocol executes its requests.

mod access;
mod parse;
mod permissions;
mod table;

pub(super) use access::{Access, Attempts, Denied, LoginFailed};
pub use parse::UsersError;
pub(super) use permissions::{CATEGORIES, User};
pub(super) use table::{Users, UsersByName, watch};
