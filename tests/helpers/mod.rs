//! Helpers that several test binaries share.

#![allow(dead_code, unused_imports, unused_macros, reason = "each test binary uses a part of these modules")]

pub(crate) mod encoder;
pub(crate) mod forged;
pub(crate) mod frames;
pub(crate) mod random;
pub(crate) mod records;
pub(crate) mod reference_server;
pub(crate) mod repeating;
pub(crate) mod rows;
pub(crate) mod waiting;

// These modules start the programs of the package or need its development dependencies. The fuzz targets have neither.
#[cfg(feature = "cli")]
pub(crate) mod baker_runs;
#[cfg(feature = "cli")]
pub(crate) mod baker_scenes;
#[cfg(feature = "cli")]
pub(crate) mod client_programs;
#[cfg(feature = "cli")]
pub(crate) mod fault_proxy;
#[cfg(feature = "cli")]
pub(crate) mod full_pipe;
#[cfg(feature = "cli")]
pub(crate) mod generations;
#[cfg(feature = "cli")]
pub(crate) mod hostile_responses;
#[cfg(feature = "cli")]
pub(crate) mod intercepted_calls;
#[cfg(feature = "cli")]
pub(crate) mod mixed_load;
#[cfg(feature = "cli")]
pub(crate) mod pipelined_gets;
#[cfg(feature = "cli")]
pub(crate) mod ports;
#[cfg(all(feature = "cli", feature = "object-store"))]
pub(crate) mod published;
#[cfg(feature = "cli")]
pub(crate) mod redis_py;
#[cfg(feature = "cli")]
pub(crate) mod redis_replies;
#[cfg(feature = "cli")]
pub(crate) mod redis_server;
#[cfg(feature = "cli")]
pub(crate) mod scenes;
#[cfg(feature = "cli")]
pub(crate) mod scripted_server;
#[cfg(feature = "cli")]
pub(crate) mod servers;
#[cfg(feature = "cli")]
pub(crate) mod shared_program;
#[cfg(feature = "cli")]
pub(crate) mod store_server;
#[cfg(all(feature = "cli", feature = "object-store"))]
pub(crate) mod store_servers;
#[cfg(feature = "cli")]
pub(crate) mod tables;
#[cfg(feature = "cli")]
pub(crate) mod terminal;
#[cfg(feature = "tls")]
pub(crate) mod tls;
#[cfg(feature = "cli")]
pub(crate) mod trials;
#[cfg(feature = "cli")]
pub(crate) mod typed_tables;
