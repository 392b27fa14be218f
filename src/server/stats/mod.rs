//! Counters of each worker, and of the whole server.

pub(super) mod counters;
pub(super) mod statistics;
