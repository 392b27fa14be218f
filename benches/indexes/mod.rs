//! The indexes that `benches/index.rs` compares, and the code that measures them.

mod file;
pub(crate) mod measure;
mod memory;
mod report;
mod rivals;
pub(crate) mod spreads;
mod table;
