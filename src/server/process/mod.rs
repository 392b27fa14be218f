//! The process and its threads: panics, priorities, the log, the service manager, and the health of threads.

pub(super) mod liveness;
pub(super) mod log_queue;
pub(super) mod newest_tasks;
pub(super) mod panics;
pub(super) mod priority;
pub(super) mod service;
