//! Options of direct mode.

use crate::client::Options;
use crate::store::{Memory, OpenOptions};

/// Options of [`Client::direct_with`](super::Client::direct_with).
#[derive(Clone, Debug)]
pub struct DirectOptions {
    /// The memory in which the table is kept. With [`Memory::Map`], the default, all processes share the server's
    /// memory. Otherwise this process has its own copy.
    pub memory: Memory,
    /// Options for opening the table. `verify` is ignored: a block of a mapped table is verified when a lookup first
    /// reads the block, and a copied table is verified when it is copied.
    pub open: OpenOptions,
    /// Whether this process may install a handler for SIGBUS. True by default. With the handler, a lookup in a
    /// truncated file returns an error; without it, the lookup would end the process. If false, a file that can be
    /// truncated is not mapped, and direct mode fails with [`ClientError::Direct`](crate::client::ClientError::Direct).
    /// See [`survive_bus_errors`](crate::store::survive_bus_errors).
    pub survive_bus_errors: bool,
    /// Options of the connection to the server. Only `connect_timeout`, `call_timeout`, and `server_user` are used.
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
