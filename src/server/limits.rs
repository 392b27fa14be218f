//! What clients may take of the server.

use std::num::NonZeroUsize;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use crate::protocol::resp::COMMAND_LEN_MAX_BYTES;

/// Descriptors that no connection takes: for new files, for the metrics, and for
/// what the process itself has.
const DESCRIPTORS_KEPT: u64 = 64;
/// Descriptors that a worker has beside its connections.
const DESCRIPTORS_OF_WORKER: u64 = 4;

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

    /// How many connections a server of so many workers has at a time.
    pub(super) fn connections_max(&self, workers: usize) -> usize {
        self.connections_max.map_or_else(|| connections_borne(workers).min(Self::CONNECTIONS_MAX), NonZeroUsize::get)
    }

    /// What is wrong with them.
    pub(super) fn check(&self) -> Result<(), String> {
        let (min, max) = (Self::BUFFER_MIN_BYTES, Self::BUFFER_MAX_BYTES);
        match self.buffer_max_bytes {
            len_bytes if (min..=max).contains(&len_bytes) => Ok(()),
            len_bytes => Err(format!("a buffer of {len_bytes} bytes, where {min} to {max} were expected (--buffer)")),
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
        }
    }
}

/// Connections for which there are descriptors beside those that are kept.
pub(super) fn connections_borne(workers: usize) -> usize {
    let kept = DESCRIPTORS_KEPT + DESCRIPTORS_OF_WORKER * workers as u64;
    let left = getrlimit(Resource::Nofile).current.map_or(u64::MAX, |limit| limit.saturating_sub(kept));
    usize::try_from(left.max(1)).unwrap_or(usize::MAX)
}
