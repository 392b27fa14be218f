//! The modules of the program `kv_store`. They parse its options, which configure the library's server, and set up the
//! log, inherited sockets, resource limits, and the allocator of the process.

pub(crate) mod access;
pub(crate) mod allocator;
pub(crate) mod args;
mod client_limits;
pub(crate) mod inherited;
pub(crate) mod log;
pub(crate) mod resource_limits;
mod tls;
