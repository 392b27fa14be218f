//! What docs/OPERATIONS.md promises of kv_store as a service: sockets that are handed
//! in, words to the service manager, units.

#![cfg(feature = "cli")]

#[path = "../clients/mod.rs"]
mod clients;
#[path = "../common/mod.rs"]
mod common;

mod notify;
mod sockets;
mod units;
