//! Atomic types and locks of the lock-free parts.
//!
//! With `--cfg loom`, the types are loom's, and the tests in modules named `models` run the lock-free parts under every
//! interleaving and every reordering that the memory model allows. See models/README.md.

#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(all(test, loom))]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Runs a model in every interleaving in which each thread is preempted at most `preemptions_max` times. More preemptions
/// take longer and hardly find more.
#[cfg(all(test, loom))]
pub(crate) fn check_model(preemptions_max: usize, model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max);
    builder.check(model);
}
