//! The state of connected clients, and the rules that disconnect them.

pub(super) mod activity;
pub(super) mod memory;
pub(super) mod registry;
pub(super) mod timeouts;
