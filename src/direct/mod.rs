//! The page of memory that a server shares with direct clients.
//!
//! In: the generation that is served and the state of its lease. Out: a few words that every direct client has mapped, by
//! which it sees without a system call whether the file that it has mapped is unchanged. `docs/PROTOCOL.md` describes the
//! page; this module knows no socket and no table.

#[cfg(feature = "server")]
mod owner;
mod page;
mod words;

use std::time::Duration;

pub(crate) use page::Notice;
#[cfg(feature = "server")]
pub(crate) use page::{Board, Waiter};
pub(crate) use words::{Standing, State};

/// How often a server counts the beat up, at least.
#[cfg(feature = "server")]
pub(crate) const BEAT_EVERY: Duration = Duration::from_secs(1);
/// The time without a beat after which a client takes the server for stopped.
pub(crate) const BEAT_MISSED: Duration = Duration::from_secs(4);
