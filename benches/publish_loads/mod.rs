//! The parts of `benches/publish.rs`.

pub(crate) mod node;
pub(crate) mod plain_get;
pub(crate) mod report;
pub(crate) mod store;
