//! Read-only lookups: one immutable table per machine, shared by all its processes.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("Zero-KV maps files that only a 64-bit address space holds");

#[cfg(feature = "bake")]
pub mod bake;
pub mod client;
pub mod format;
pub mod protocol;
#[cfg(feature = "server")]
pub mod server;
pub mod store;

pub use store::{Store, StoreError};
