//! What clients may take of the server.

use std::num::NonZeroUsize;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use crate::machine_memory;
use crate::protocol::resp::COMMAND_LEN_MAX_BYTES;

/// Descriptors that no connection takes: for new files, for the metrics, and for
/// what the process itself has.
const DESCRIPTORS_KEPT: u64 = 64;
/// Descriptors that a worker has beside its connections.
const DESCRIPTORS_OF_WORKER: u64 = 4;
/// The part of the machine's memory that connections may hold together, unless told otherwise: one in this many.
const CLIENT_MEMORY_SHARE: u64 = 8;
/// The limit on client memory is at least this many command buffers. One command alone can take two, because a buffer
/// that grows doubles its capacity.
const CLIENT_MEMORY_MIN_BUFFERS: u64 = 4;

/// What clients may take of the server. Beyond a limit a connection is closed, and
/// the log says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time, of all protocols and sockets. One beyond them is closed
    /// as soon as it is accepted. `None`: what the limit of descriptors leaves, at most
    /// [`Limits::CONNECTIONS_MAX`].
    pub connections_max: Option<NonZeroUsize>,
    /// Bytes of a command that has not come whole, in the Redis protocol; from
    /// [`Limits::BUFFER_MIN_BYTES`] to [`Limits::BUFFER_MAX_BYTES`]. Native requests
    /// are all shorter.
    pub buffer_max_bytes: usize,
    /// How long a client may ask for nothing. Zero: for ever.
    pub idle_timeout: Duration,
    /// How long a client may take no byte of the answers that wait for it, or
    /// send no byte of a request that it has begun. Zero: for ever.
    pub stall_timeout: Duration,
    /// The minimum rate at which a client takes pending responses, averaged over
    /// [`Limits::drain_window`]. Zero: no minimum.
    pub drain_rate_min_bytes_per_s: u64,
    /// The maximum number of replaced generations that pending responses of connections may hold.
    /// Beyond it, the connections that hold the oldest are disconnected. Clients in direct mode
    /// hold descriptors of their own and do not count.
    pub generations_max: usize,
    /// The maximum memory that all connections hold together: unfinished commands, copied responses
    /// that are pending, and sessions of the Redis protocol. Beyond it, the connections that hold
    /// the most are disconnected. At least four times `buffer_max_bytes`. `None`: an eighth of the
    /// machine's memory, or of the smallest limit of the process's control groups.
    pub client_memory_max_bytes: Option<u64>,
}

impl Limits {
    /// The most connections, unless more are asked for.
    pub const CONNECTIONS_MAX: usize = 16_384;
    /// The smallest buffer: the longest native request fits, and a read behind it.
    pub const BUFFER_MIN_BYTES: usize = 256 << 10;
    /// The largest buffer: the longest command of the Redis protocol fits.
    pub const BUFFER_MAX_BYTES: usize = COMMAND_LEN_MAX_BYTES;
    /// The time-out of clients that stall, unless another is asked for.
    pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);
    /// The default minimum drain rate: a fifth of what a modem line of 56 kbit/s takes.
    pub const DRAIN_RATE_MIN_BYTES_PER_S: u64 = 1 << 10;
    /// The default limit on replaced generations that are held. Their clients have not taken their
    /// responses through several swaps, and each may hold the memory of a whole table.
    pub const GENERATIONS_MAX: usize = 4;

    /// Returns the time over which a drain rate is averaged: two stall time-outs, so that one pause
    /// is never enough to be slow, and 60 s without a stall time-out.
    pub fn drain_window(&self) -> Duration {
        let pause = if self.stall_timeout.is_zero() { Self::STALL_TIMEOUT } else { self.stall_timeout };
        pause.saturating_mul(2)
    }

    /// How many connections a server of so many workers has at a time.
    pub(super) fn connections_max(&self, workers: usize) -> usize {
        self.connections_max.map_or_else(|| connections_borne(workers).min(Self::CONNECTIONS_MAX), NonZeroUsize::get)
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
            return Err(format!("a buffer of {len_bytes} bytes, where {min} to {max} were expected (--buffer)"));
        }
        let min_bytes = self.client_memory_min_bytes();
        match self.client_memory_max_bytes {
            Some(max_bytes) if max_bytes < min_bytes => Err(format!(
                "a maximum of {max_bytes} bytes of client memory, where at least {min_bytes} were expected, \
                 {CLIENT_MEMORY_MIN_BUFFERS} times --buffer: raise --client-memory-max, or lower --buffer"
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

/// Connections for which there are descriptors beside those that are kept.
pub(super) fn connections_borne(workers: usize) -> usize {
    let kept = DESCRIPTORS_KEPT + DESCRIPTORS_OF_WORKER * workers as u64;
    let left = getrlimit(Resource::Nofile).current.map_or(u64::MAX, |limit| limit.saturating_sub(kept));
    usize::try_from(left.max(1)).unwrap_or(usize::MAX)
}
