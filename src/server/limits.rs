//! The limits on what clients may use.

use std::num::NonZeroUsize;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use crate::machine_memory;
use crate::protocol::resp::COMMAND_LEN_MAX_BYTES;
use crate::setting::Setting;

/// Descriptors that are kept for other purposes than connections: new files, metrics, and the process itself.
const DESCRIPTORS_KEPT: u64 = 64;
/// Descriptors that a worker needs besides its connections.
const DESCRIPTORS_OF_WORKER: u64 = 4;
/// By default, all connections together may hold the machine's memory divided by this number.
const CLIENT_MEMORY_SHARE: u64 = 8;
/// The limit on client memory is at least this many command buffers. One command alone can take two, because a buffer
/// that grows doubles its capacity.
const CLIENT_MEMORY_MIN_BUFFERS: u64 = 4;

/// The limits on what clients may use. The server closes a connection that exceeds a limit, and logs the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of connections, of all protocols and sockets. A connection beyond it is closed as soon as it
    /// is accepted. `None`: as many as the limit on descriptors allows, at most [`Limits::CONNECTIONS_MAX`].
    pub connections_max: Option<NonZeroUsize>,
    /// The maximum length of an incomplete command of the Redis protocol, from [`Limits::BUFFER_MIN_BYTES`] to
    /// [`Limits::BUFFER_MAX_BYTES`]. All native requests are shorter.
    pub buffer_max_bytes: usize,
    /// How long a client may send no request. Zero: forever.
    pub idle_timeout: Duration,
    /// How long a client may receive no byte of pending responses, or send no byte of an incomplete request. Zero:
    /// forever.
    pub stall_timeout: Duration,
    /// The minimum rate at which a client receives pending responses, averaged over [`Limits::drain_window`]. Zero: no
    /// minimum.
    pub drain_rate_min_bytes_per_s: u64,
    /// The maximum number of replaced generations that pending responses of connections may hold. Beyond it, the
    /// connections that hold the oldest ones are disconnected. Direct clients have their own descriptors and do not
    /// count.
    pub generations_max: usize,
    /// The maximum memory that all connections hold together: unfinished commands, copied responses
    /// that are pending, and sessions of the Redis protocol. Beyond it, the connections that hold
    /// the most are disconnected. At least four times `buffer_max_bytes`. `None`: an eighth of the
    /// machine's memory, or of the smallest limit of the process's control groups.
    pub client_memory_max_bytes: Option<u64>,
}

impl Limits {
    /// The default maximum number of connections, if the limit on descriptors allows it.
    pub const CONNECTIONS_MAX: usize = 16_384;
    /// The smallest buffer: the longest native request and one read fit into it.
    pub const BUFFER_MIN_BYTES: usize = 256 << 10;
    /// The largest buffer: the longest command of the Redis protocol fits into it.
    pub const BUFFER_MAX_BYTES: usize = COMMAND_LEN_MAX_BYTES;
    /// The default time-out of clients that stall.
    pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);
    /// The default minimum drain rate: a seventh of the rate of a 56 kbit/s modem.
    pub const DRAIN_RATE_MIN_BYTES_PER_S: u64 = 1 << 10;
    /// The default limit on replaced generations that are held. Beyond it, the clients of the oldest generation have
    /// not received their responses during several swaps, and each generation may take the memory of a whole table.
    pub const GENERATIONS_MAX: usize = 4;

    /// Returns the time over which a drain rate is averaged: two stall time-outs, so that a single pause never makes a
    /// client slow. Without a stall time-out, 60 s.
    pub fn drain_window(&self) -> Duration {
        let pause = if self.stall_timeout.is_zero() { Self::STALL_TIMEOUT } else { self.stall_timeout };
        pause.saturating_mul(2)
    }

    /// Returns the maximum number of connections of a server with this many workers.
    pub(super) fn connections_max(&self, workers: usize) -> usize {
        self.connections_max
            .map_or_else(|| connections_available(workers).min(Self::CONNECTIONS_MAX), NonZeroUsize::get)
    }

    /// Returns the limit on the memory that all connections hold together.
    pub(super) fn client_memory_max_bytes(&self) -> u64 {
        let default = || (machine_memory::total_bytes() / CLIENT_MEMORY_SHARE).max(self.client_memory_min_bytes());
        self.client_memory_max_bytes.unwrap_or_else(default)
    }

    fn client_memory_min_bytes(&self) -> u64 {
        CLIENT_MEMORY_MIN_BUFFERS * self.buffer_max_bytes as u64
    }

    /// Returns an error if a limit is out of its range.
    pub(super) fn check(&self) -> Result<(), String> {
        let (min, max) = (Self::BUFFER_MIN_BYTES, Self::BUFFER_MAX_BYTES);
        if !(min..=max).contains(&self.buffer_max_bytes) {
            let len_bytes = self.buffer_max_bytes;
            let setting = Setting::BufferMax;
            return Err(format!("a buffer of {len_bytes} bytes, where {min} to {max} were expected ({setting})"));
        }
        let min_bytes = self.client_memory_min_bytes();
        match self.client_memory_max_bytes {
            Some(max_bytes) if max_bytes < min_bytes => Err(format!(
                "a maximum of {max_bytes} bytes of client memory, where at least {min_bytes} were expected, \
                 {CLIENT_MEMORY_MIN_BUFFERS} times {buffer}: raise {}, or lower {buffer}",
                Setting::ClientMemoryMax,
                buffer = Setting::BufferMax
            )),
            _ => Ok(()),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: None,
            buffer_max_bytes: Self::BUFFER_MAX_BYTES,
            idle_timeout: Duration::ZERO,
            stall_timeout: Self::STALL_TIMEOUT,
            drain_rate_min_bytes_per_s: Self::DRAIN_RATE_MIN_BYTES_PER_S,
            generations_max: Self::GENERATIONS_MAX,
            client_memory_max_bytes: None,
        }
    }
}

/// Returns the number of connections that the limit on descriptors allows.
pub(super) fn connections_available(workers: usize) -> usize {
    let kept = DESCRIPTORS_KEPT + DESCRIPTORS_OF_WORKER * workers as u64;
    let left = getrlimit(Resource::Nofile).current.map_or(u64::MAX, |limit| limit.saturating_sub(kept));
    usize::try_from(left.max(1)).unwrap_or(usize::MAX)
}
