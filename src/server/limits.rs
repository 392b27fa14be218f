//! The limits on clients, for example on their connections and memory.

use std::num::NonZeroUsize;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use crate::machine_memory;
use crate::protocol::resp::COMMAND_LEN_MAX_BYTES;
use crate::setting::Setting;

/// The number of descriptors that are reserved for purposes other than connections: new files, metrics, and the process
/// itself.
const DESCRIPTORS_KEPT: u64 = 64;
/// The number of descriptors that a worker needs besides its connections.
const DESCRIPTORS_OF_WORKER: u64 = 4;
/// The maximum number of TLS handshakes at a time, however many connections the server allows.
const HANDSHAKES_MAX: usize = 1024;
/// How many connections a server must allow for each concurrent TLS handshake: a server that allows 400 connections
/// runs at most 100 handshakes at a time.
const CONNECTIONS_PER_HANDSHAKE: usize = 4;
/// The maximum number of metrics connections at a time, however many connections the server allows.
const METRICS_CONNECTIONS_MAX: usize = 256;
/// The minimum number of metrics connections at a time, however few connections the server allows. Their descriptors
/// are part of [`DESCRIPTORS_KEPT`].
const METRICS_CONNECTIONS_MIN: usize = 32;
/// How many connections a server must allow for each concurrent metrics connection.
const CONNECTIONS_PER_METRICS_CONNECTION: usize = 8;
/// The share of memory for clients: by default, the limit on client memory is 1/`CLIENT_MEMORY_SHARE` of the memory
/// that the process can use.
const CLIENT_MEMORY_SHARE: u64 = 8;
/// The limit on client memory must be at least this many times the maximum length of a command. A single command can
/// take twice its length, because a buffer that grows doubles its capacity.
const CLIENT_MEMORY_MIN_COMMANDS: u64 = 4;

/// The limits on clients, for example on their connections and memory. The server closes a connection that exceeds a
/// limit, and logs the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of connections, over all protocols and sockets. A connection beyond the maximum is closed as
    /// soon as it is accepted. `None`: as many as the limit on descriptors allows, but at most
    /// [`Limits::CONNECTIONS_MAX`].
    pub connections_max: Option<NonZeroUsize>,
    /// The maximum length of a connection's unanswered requests: an incomplete request, or requests that the client
    /// sends before it receives the responses to earlier requests. At least [`Limits::BUFFER_MIN_BYTES`].
    pub buffer_max_bytes: usize,
    /// The time without a request after which a client is disconnected. Zero: never.
    pub idle_timeout: Duration,
    /// The time after which a client is disconnected if it neither sends nor receives a byte while a request is
    /// incomplete or responses are pending. Zero: never.
    pub stall_timeout: Duration,
    /// The minimum rate at which a client receives pending responses, averaged over [`Limits::drain_window`]. Zero: no
    /// minimum.
    pub drain_rate_min_bytes_per_s: u64,
    /// The maximum number of replaced generations that connections may hold for their pending responses. Beyond the
    /// maximum, the connections that hold the oldest generations are disconnected. Generations that only direct clients
    /// use do not count, because direct clients have their own descriptors.
    pub generations_max: usize,
    /// The maximum memory that all connections hold together: unfinished commands, copied pending responses, and
    /// sessions of the Redis protocol. Beyond the maximum, the connections that hold the most memory are disconnected.
    /// Must be at least four times the maximum length of a command, which is the lower of `buffer_max_bytes` and 4 MiB.
    ///
    /// `None`: an eighth of the memory that the process can use, but at least four times the maximum length of a
    /// command. The process can use the machine's memory, or less if its control groups have a lower limit.
    pub client_memory_max_bytes: Option<u64>,
}

impl Limits {
    /// The default maximum number of connections, if the limit on descriptors allows it.
    pub const CONNECTIONS_MAX: usize = 16_384;
    /// The minimum of `buffer_max_bytes`. A buffer of this length holds the longest native request and one read.
    pub const BUFFER_MIN_BYTES: usize = 256 << 10;
    /// The default of `buffer_max_bytes`: the length of 8 million short GET commands. The limit of Redis,
    /// `client-query-buffer-limit`, is 1 GiB by default.
    pub const BUFFER_MAX_BYTES: usize = 256 << 20;
    /// The default stall time-out.
    pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);
    /// The default minimum drain rate: a seventh of the rate of a 56 kbit/s modem.
    pub const DRAIN_RATE_MIN_BYTES_PER_S: u64 = 1 << 10;
    /// The default maximum number of replaced generations that connections may hold. A connection holds a replaced
    /// generation until its client has received the responses from it, so only clients that are slow during several
    /// swaps exceed the limit. The limit is low because each generation may take the memory of a whole table.
    pub const GENERATIONS_MAX: usize = 4;

    /// Returns the time over which a drain rate is averaged: twice the stall time-out, so that a single pause shorter
    /// than the time-out does not make a client too slow. Without a stall time-out, the time is 60 s.
    pub fn drain_window(&self) -> Duration {
        let pause = if self.stall_timeout.is_zero() { Self::STALL_TIMEOUT } else { self.stall_timeout };
        pause.saturating_mul(2)
    }

    /// Returns the maximum number of connections of a server whose limit on descriptors allows `available` ones.
    pub(super) fn connections_max(&self, available: usize) -> usize {
        self.connections_max.map_or_else(|| available.min(Self::CONNECTIONS_MAX), NonZeroUsize::get)
    }

    /// Returns the limit on the memory that all connections hold together.
    pub(super) fn client_memory_max_bytes(&self) -> u64 {
        let default = || (machine_memory::total_bytes() / CLIENT_MEMORY_SHARE).max(self.client_memory_min_bytes());
        self.client_memory_max_bytes.unwrap_or_else(default)
    }

    fn client_memory_min_bytes(&self) -> u64 {
        CLIENT_MEMORY_MIN_COMMANDS * self.buffer_max_bytes.min(COMMAND_LEN_MAX_BYTES) as u64
    }

    /// Returns an error if a limit is out of its range.
    pub(super) fn check(&self) -> Result<(), String> {
        let buffer_min_bytes = Self::BUFFER_MIN_BYTES;
        if self.buffer_max_bytes < buffer_min_bytes {
            return Err(format!(
                "a buffer of {} bytes, where at least {buffer_min_bytes} were expected ({})",
                self.buffer_max_bytes,
                Setting::BufferMax
            ));
        }
        let min_bytes = self.client_memory_min_bytes();
        match self.client_memory_max_bytes {
            Some(max_bytes) if max_bytes < min_bytes => Err(format!(
                "a maximum of {max_bytes} bytes of client memory, where at least {min_bytes} were expected, \
                 {CLIENT_MEMORY_MIN_COMMANDS} times the maximum length of a command: raise {}, or lower {}",
                Setting::ClientMemoryMax,
                Setting::BufferMax
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

/// Returns the maximum number of TLS handshakes at a time, for a server with this maximum number of connections.
pub(super) fn handshakes_max(connections_max: usize) -> usize {
    (connections_max / CONNECTIONS_PER_HANDSHAKE).clamp(1, HANDSHAKES_MAX)
}

/// Returns the maximum number of metrics connections at a time, for a server with this maximum number of connections.
pub(super) fn metrics_connections_max(connections_max: usize) -> usize {
    (connections_max / CONNECTIONS_PER_METRICS_CONNECTION).clamp(METRICS_CONNECTIONS_MIN, METRICS_CONNECTIONS_MAX)
}

/// Returns the maximum number of connections and lingering sockets together: what the limit on descriptors allows.
pub(super) fn sockets_max(connections_max: usize, available: usize) -> usize {
    available.max(connections_max)
}

/// The sockets whose connections are not part of a server's maximum number of connections.
#[derive(Clone, Copy, Default)]
pub(super) struct OtherSockets {
    /// Whether there is a TLS port. Its connections count only after their handshakes.
    pub(super) tls: bool,
    pub(super) metrics: bool,
}

/// Returns the number of connections that the limit on descriptors allows, if some descriptors are left for TLS
/// handshakes and metrics.
pub(super) fn connections_available(workers: usize, others: OtherSockets) -> usize {
    let kept = DESCRIPTORS_KEPT + DESCRIPTORS_OF_WORKER * workers as u64;
    let left = getrlimit(Resource::Nofile).current.map_or(u64::MAX, |limit| limit.saturating_sub(kept));
    let left = usize::try_from(left).unwrap_or(usize::MAX);
    let metrics = if others.metrics { metrics_connections_max(left) } else { 0 };
    let left = left.saturating_sub(metrics);
    let handshakes =
        if others.tls { handshakes_max(left / (CONNECTIONS_PER_HANDSHAKE + 1) * CONNECTIONS_PER_HANDSHAKE) } else { 0 };
    left.saturating_sub(handshakes).max(1)
}
