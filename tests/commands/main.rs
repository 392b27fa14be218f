//! Commands that a client must not be able to have executed, or to hold up others with.

#![cfg(feature = "cli")]

use zero_kv::protocol::native::{Op, push_long, range_flags};
use zero_kv::protocol::resp::commands::{ARGS_MAX_AT_ONCE, COMMANDS, Id, Spec};
use zero_kv::protocol::resp::{BULK_LEN_MAX_BYTES, COMMAND_LEN_MAX_BYTES};

#[path = "../common/mod.rs"]
mod common;

mod http;
mod others;
mod worst;
