//! The turns of connections: what a pass returns, and how its work is counted.

pub(super) mod pass;
pub(super) mod steps;
