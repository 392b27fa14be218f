//! Atomic types and locks, which loom can replace, for the lock-free parts.
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

/// Runs a model in every interleaving with at most `preemptions_max` preemptions. A greater number takes longer and
/// rarely finds more errors.
#[cfg(all(test, loom))]
pub(crate) fn check_model(preemptions_max: usize, model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max);
    builder.check(model);
}
