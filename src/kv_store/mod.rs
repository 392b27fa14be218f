//! The parts of `kv_store`: its options, what they make of the library, and what it
//! takes from the system before it serves.

pub(crate) mod access;
pub(crate) mod allocator;
pub(crate) mod args;
mod connections;
pub(crate) mod inherited;
pub(crate) mod limits;
