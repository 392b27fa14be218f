//! The page of memory that a server shares with direct clients.
//!
//! In: the number of the current generation and the state of the lease on its file. Out: a few words in a page that
//! every direct client maps. These words show a client, without a system call, whether its mapped file is unchanged.
//! `docs/PROTOCOL.md` describes the page. This module uses no sockets and no tables.

#[cfg(feature = "server")]
mod board;
#[cfg(feature = "server")]
mod owner;
mod page;
mod words;

use std::time::Duration;

#[cfg(feature = "server")]
pub(crate) use board::{Board, Waiter};
pub(crate) use page::Notice;
pub(crate) use words::TableState;

/// The maximum time between two heartbeats of a server.
#[cfg(feature = "server")]
pub(crate) const BEAT_EVERY: Duration = Duration::from_secs(1);
/// If a client observes no heartbeat for this time, it reports that it is not connected to the server.
pub(crate) const BEAT_MISSED: Duration = Duration::from_secs(4);
