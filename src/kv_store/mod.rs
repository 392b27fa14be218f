//! The parts of `kv_store`: its options, how they configure the library, and the sockets and resource limits that it
//! takes from the system before it serves.

pub(crate) mod access;
pub(crate) mod allocator;
pub(crate) mod args;
mod client_limits;
pub(crate) mod inherited;
pub(crate) mod resource_limits;
