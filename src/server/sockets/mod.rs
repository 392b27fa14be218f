//! Streams of clients, their users, and the memory that the kernel holds for them.

pub(super) mod memory;
pub(super) mod peer;
pub(super) mod stream;
