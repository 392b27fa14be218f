//! Bakes of typed tables.

mod bases;
mod faults;
mod inputs;
#[cfg(feature = "full")]
mod model;
#[cfg(feature = "full")]
mod parquet;
