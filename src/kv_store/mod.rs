//! The modules of the program `kv_store`: its options, which configure the library's server, its log, and the inherited
//! sockets, resource limits, and allocator settings of its process.

pub(crate) mod access;
pub(crate) mod allocator;
pub(crate) mod args;
mod client_limits;
pub(crate) mod inherited;
pub(crate) mod log;
pub(crate) mod resource_limits;
