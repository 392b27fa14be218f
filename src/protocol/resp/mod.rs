//! The Redis protocol: RESP2, RESP3 and inline commands.
//!
//! In: bytes that a peer sent, or replies to encode. Out: commands, or bytes to send. This module does no I/O and has
//! no access to tables; [`crate::server`] executes commands. Error texts and replies are those of Redis 7.0.
//!
//! `parse` splits bytes into commands. `get` is a fast path for `GET`, and `floor_or_ceiling` for `ZKV.FLOOR` and
//! `ZKV.CEILING`. [`range_or_count`] recognizes `ZKV.RANGE` and `ZKV.COUNT`. [`commands`] lists the commands, [`range`] parses the arguments of the range commands, [`Glob`]
//! matches patterns, and [`Reply`] encodes replies. Clients find the end of a reply with [`reply_len_bytes`].

pub mod commands;
pub mod range;

mod command;
mod get;
mod glob;
mod hash;
mod inline;
mod number;
mod parse;
mod reply;
mod reply_len;

pub use command::{Args, Command};
pub use get::{floor_or_ceiling, get, range_or_count};
pub use glob::{Glob, PART_LEN_MAX_BYTES};
pub use hash::{HashFields, HashRead, hash_read};
pub use number::integer;
pub use parse::{ParseProgress, Parsed, ProtocolError, parse};
pub use reply::{Reply, Sink, Version};
pub use reply_len::{NotReply, reply_len_bytes};

/// Maximum number of arguments of a command, including its name, as in Redis 6.2. In practice,
/// [`COMMAND_LEN_MAX_BYTES`] limits a command to fewer arguments.
pub const ARGS_MAX: usize = 1024 * 1024;
/// Maximum length of an argument.
pub const BULK_LEN_MAX_BYTES: usize = 1024 * 1024;
/// Maximum length of a line, not counting its line end, as in Redis. A line contains an inline command, the number of a
/// command's arguments, or the length of an argument.
pub const LINE_LEN_MAX_BYTES: usize = 64 * 1024;
/// Maximum length of a command with its framing. An incomplete command is always shorter, so a buffer of this length
/// has room for it.
pub const COMMAND_LEN_MAX_BYTES: usize = 4 * 1024 * 1024;
