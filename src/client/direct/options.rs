//! How a table that is handed over is held.

use crate::client::Options;
use crate::store::{Memory, OpenOptions};

/// How [`Client::direct_with`](super::Client::direct_with) holds the file, and how
/// long it waits for the server.
#[derive(Clone, Debug)]
pub struct DirectOptions {
    /// Where the table is held. With [`Memory::Map`], the default, all processes share what the server transfers;
    /// otherwise this process has a copy.
    pub memory: Memory,
    /// How the table is opened. Its `verify` is ignored: blocks are verified when a lookup first reads them.
    pub open: OpenOptions,
    /// Whether this process may install a handler for SIGBUS, so that a lookup in a file
    /// that was truncated is an error and does not end the process. Default: true. Without
    /// it, a file that can be truncated is not mapped, which is
    /// [`ClientError::Direct`](crate::client::ClientError::Direct). See
    /// [`survive_bus_errors`](crate::store::survive_bus_errors).
    pub survive_bus_errors: bool,
    /// Time-outs of requests to the server, and the user that the server may run as.
    pub client: Options,
}

impl Default for DirectOptions {
    fn default() -> Self {
        DirectOptions {
            memory: Memory::default(),
            open: OpenOptions::default(),
            survive_bus_errors: true,
            client: Options::default(),
        }
    }
}
