//! The Redis protocol: RESP2, RESP3 and inline commands.
//!
//! In: bytes a peer sent, or replies to give. Out: commands, or bytes to send.
//! It knows no socket, no runtime and no table; what a command does is for
//! [`crate::server`] to say. Texts and results are those of Redis 7.0.
//!
//! [`parse`] tells commands apart and [`get`] recognises the most frequent one;
//! [`commands`] says which there are, [`range`] how ours are written, [`Glob`]
//! what a pattern matches, and [`Reply`] writes answers.
//! [`reply_len_bytes`] is the client's side.

pub mod commands;
pub mod range;

mod command;
mod get;
mod glob;
mod inline;
mod number;
mod parse;
mod reply;
mod reply_len;

pub use command::{Args, Command};
pub use get::get;
pub use glob::Glob;
pub use number::integer;
pub use parse::{Parsed, Progress, ProtocolError, parse};
pub use reply::{Reply, Sink, Version};
pub use reply_len::{NotReply, reply_len_bytes};

/// The most arguments of a command, its name included. Redis 6.2 has the same.
/// Such a command must also keep [`COMMAND_LEN_MAX_BYTES`].
pub const ARGS_MAX: usize = 1024 * 1024;
/// The longest argument.
pub const BULK_LEN_MAX_BYTES: usize = 1024 * 1024;
/// The longest line: an inline command, or a count, without its line end. Redis has the same.
pub const LINE_LEN_MAX_BYTES: usize = 64 * 1024;
/// The longest command, with all that frames it. A command that has not come
/// whole is always shorter, so a buffer of this size holds every one.
pub const COMMAND_LEN_MAX_BYTES: usize = 4 * 1024 * 1024;
