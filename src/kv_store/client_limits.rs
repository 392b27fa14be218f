//! Options that limit the connections, time, and memory of clients.

use std::num::NonZeroUsize;
use std::time::Duration;

use zero_kv::cli::number::{parse_count, parse_u32};
use zero_kv::cli::size::parse_size;
use zero_kv::server::Limits;

#[derive(clap::Args)]
pub(crate) struct ClientLimitArgs {
    /// Allow at most this many connections, and close each further connection immediately [default: as many as the
    /// limit of file descriptors allows, at most 16384]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    max_connections: Option<NonZeroUsize>,
    /// Keep at most this many bytes of unanswered requests per connection: an incomplete request, and requests that the
    /// client sends before it reads the responses to earlier requests. A client that sends more gets an error and is
    /// disconnected. The limit cannot be less than 256KiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "256MiB")]
    buffer: u64,
    /// Disconnect a client that sends no request for this long; 0: never
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_u32)]
    idle_timeout: u32,
    /// Disconnect a client that reads no byte of its pending responses, or sends no byte of an
    /// incomplete request, for this long; 0: never
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_u32)]
    stall_timeout: u32,
    /// Disconnect a client that reads its pending responses slower than this many bytes per second, averaged
    /// over two stall time-outs (60 s by default); 0: never
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1KiB")]
    min_drain_rate: u64,
    /// Keep at most this many replaced generations for pending responses; beyond that, disconnect the
    /// clients with pending responses from the oldest generation
    #[arg(long, value_name = "N", default_value_t = Limits::GENERATIONS_MAX)]
    generations_max: usize,
    /// Let all connections together use at most this much memory for buffers; beyond that, disconnect the
    /// clients that use the most [default: an eighth of the memory of the machine, or of the control group]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    client_memory_max: Option<u64>,
}

impl From<ClientLimitArgs> for Limits {
    fn from(args: ClientLimitArgs) -> Limits {
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
