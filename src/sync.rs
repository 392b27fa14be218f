//! Atomic types and locks for code that is tested with loom, a function that locks a mutex, and a function that runs a
//! loom test.
//!
//! With `--cfg loom`, tests use loom's types instead of std's. The tests in modules named `models` then run the code
//! with every interleaving of threads (up to a maximum number of preemptions) and every reordering that the memory
//! model allows. See models/README.md.

#[cfg(all(test, loom))]
mod models;

#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(all(test, loom))]
pub(crate) use loom::sync::{Mutex, MutexGuard, RwLock};
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock};

/// Locks a mutex, even if a thread panicked while it held the lock. The data in the mutex must be valid after a panic
/// at any point.
pub(crate) fn unpoisoned<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A request that threads make of one other thread, such as to wake up and to examine something.
///
/// The thread calls [`Pending::take`] and then examines. It sees what every requester wrote before [`Pending::request`],
/// unless that requester finds that no request is pending, and sends a wake-up. Both sides change the flag in one atomic
/// operation: with a plain load or store, a requester could find a request pending whose taker has already examined.
#[derive(Debug, Default)]
pub(crate) struct Pending(AtomicBool);

impl Pending {
    /// Returns whether no request was pending, so that the caller must wake the other thread.
    pub(crate) fn request(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Ends the request.
    pub(crate) fn take(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }
}

/// Runs a model in every interleaving of its threads with at most `preemptions_max` preemptions. A higher maximum takes
/// longer and rarely finds more errors.
#[cfg(all(test, loom))]
pub(crate) fn check_model(preemptions_max: usize, model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max);
    builder.check(model);
}
