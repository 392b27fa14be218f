//! The parts of `benches/cold.rs`.

pub(crate) mod device;
mod group;
pub(crate) mod library;
pub(crate) mod pipeline;
pub(crate) mod server;
pub(crate) mod table;
mod watchdog;
