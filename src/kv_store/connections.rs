//! What clients may take, as the command line has it.

use std::num::NonZeroUsize;
use std::time::Duration;

use zero_kv::server::Limits;

use crate::size::size;

const BUFFER_HELP: &str = "Bytes of a Redis command that one connection may have waiting until it is whole, from 256KiB to \
                           4MiB: above it the client gets an error and is cut off";

#[derive(clap::Args)]
pub(crate) struct LimitArgs {
    /// Connections at a time; one more is closed at once [default: what the limit of descriptors
    /// leaves, at most 16384]
    #[arg(long, value_name = "N")]
    max_connections: Option<NonZeroUsize>,
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "4MiB", help = BUFFER_HELP)]
    buffer: u64,
    /// Cut off a client that asks for nothing for so long; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    idle_timeout: u32,
    /// Cut off a client that takes no byte of its answers, or sends no byte of a request that it
    /// has begun, for so long; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    stall_timeout: u32,
    /// Disconnect a client that takes pending responses slower than this many bytes per second, averaged
    /// over two stall time-outs (60 s by default); 0: never
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1KiB")]
    min_drain_rate: u64,
    /// Maximum number of replaced generations that pending responses may hold; above it, the clients of
    /// the oldest are disconnected
    #[arg(long, value_name = "N", default_value_t = Limits::GENERATIONS_MAX)]
    generations_max: usize,
    /// Maximum memory that all connections hold together in buffers; above it, those that hold the most
    /// are disconnected [default: an eighth of the memory of the machine, or of its control group]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    client_memory_max: Option<u64>,
}

impl From<LimitArgs> for Limits {
    fn from(args: LimitArgs) -> Limits {
        Limits {
            connections_max: args.max_connections,
            buffer_max_bytes: usize::try_from(args.buffer).unwrap_or(usize::MAX),
            idle_timeout: Duration::from_secs(args.idle_timeout.into()),
            stall_timeout: Duration::from_secs(args.stall_timeout.into()),
            drain_rate_min_bytes_per_s: args.min_drain_rate,
            generations_max: args.generations_max,
            client_memory_max_bytes: args.client_memory_max,
        }
    }
}
