//! What several test programs share: running programs of the package, servers of the protocols, files, and data.

pub mod baker_runs;
pub mod baker_scenes;
pub mod client_programs;
pub mod encoder;
pub mod forged;
pub mod frames;
pub mod full_pipe;
pub mod generations;
pub mod hostile_responses;
pub mod intercepted_calls;
pub mod key_types;
pub mod mixed_load;
pub mod pipelined_gets;
pub mod ports;
pub mod programs;
pub mod random;
pub mod records;
pub mod redis_py;
pub mod redis_replies;
pub mod redis_server;
pub mod reference_server;
pub mod repeating;
pub mod rows;
pub mod scenes;
pub mod scripted_server;
pub mod servers;
pub mod shared_program;
pub mod tables;
pub mod terminal;
pub mod trials;
pub mod typed_tables;
pub mod waiting;

#[cfg(feature = "full")]
pub mod fault_proxy;
#[cfg(feature = "full")]
pub mod published;
#[cfg(feature = "full")]
pub mod store_server;
#[cfg(feature = "full")]
pub mod store_servers;
#[cfg(feature = "full")]
pub mod tls;

// Unit tests issue certificates, too.
#[cfg(feature = "full")]
pub use rcgen;
