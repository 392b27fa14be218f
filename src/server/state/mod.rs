//! The state that threads share: of the server, of a worker, and of reads from the disk.

pub(super) mod cold_reads;
pub(super) mod server;
pub(super) mod worker;
