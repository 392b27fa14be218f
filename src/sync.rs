//! Atomic types and locks for code that is tested with loom, requests between threads, a function that locks a mutex,
//! and a function that runs a loom test.
//!
//! With `--cfg loom`, tests use loom's types instead of std's. The tests in modules named `models` then run the code
//! with every interleaving of threads (up to a maximum number of preemptions) and every reordering that the memory
//! model allows. See models/README.md.
//!
//! # Pairs of memory orderings
//! Everything that several threads or processes access without a lock, and why each load finds what it must find. x86
//! reorders only a store and a later load, so a missing pair shows first on Arm. A pair is checked by a model, or by
//! the written reason.
//!
//! | written | the store, and what precedes it | read | the load, and what follows it | checked by |
//! |---|---|---|---|---|
//! | epoch | `Blocks::end_epoch` (AcqRel), after the root was verified | at the beginning of a batch | `Blocks::epoch` (Acquire), before any byte is read | `blocks` |
//! | epoch | `Blocks::end_epoch` (AcqRel), before the stamp is trusted again | at the end of a batch | `Blocks::epoch` (Acquire), after the fence in `Blocks::accept` and the load of the trusted stamp | `blocks` |
//! | trusted stamp, faults | `TrustedStamp::set` (Release), after the epoch has ended | at the end of a batch | `TrustedStamp` (Acquire), before the load of the epoch | `blocks` |
//! | bytes of the file | by another process, after it changed the file's times | by a lookup (plain loads) | fence (Acquire) in `Blocks::accept`, then fstat or statx | `blocks`; the kernel changes times before bytes, and `__mark_inode_dirty` has a full barrier in between |
//! | bytes of the file, when it is trusted again | by another process, which has closed the file or has not written for some time | by a thread that verifies the root (plain loads) | fstat or statx, then the fence (Acquire) in `stamp::examined` | `blocks` |
//! | zeros in place of a missing page | `guard::patch`: the fault is counted, then a fence (Release), then mmap | by a lookup (plain loads) | fence (Acquire) in `Blocks::accept`, then `Guarded::faults` (Acquire) | `blocks`, with a Release store in place of the fence and of mmap |
//! | tag of a block | swap (Release), after the checksum was compared, under the lock `tagging` | before a lookup reads the block | relaxed: the tag only says that the block need not be verified again; a change of the block's bytes ends the epoch, which the batch finds | `blocks` |
//! | tag of a copied block, count of its section | swap and update (Release), after the value of the epoch was changed | before a lookup reads the copy | relaxed; then the fence in `Blocks::accept` and the load of the epoch. A checksum in the copy, with which a thread verifies another block, is read under the lock of the copies, under which the tag was written | `blocks`; all updates of a count are read-modify-writes, so the fence pairs with each of them |
//! | tag of a group | Release, after the values of the epoch of its copies were loaded (Acquire) | before a long value is read | relaxed; then as for a copied block | as for a copied block |
//! | tags, when tag numbers are used again | `forget_tags`, under the write lock `tagging` | by a lookup of the next epoch | after `Blocks::epoch` (Acquire), which `end_epoch` stores later | `blocks` |
//! | pages of the mapping, replaced by copies | mremap, under the lock of the copies, before the block's tag | by a lookup (plain loads) | as for the tag of a copied block | the kernel invalidates the old page on all processors before mremap returns |
//! | deadline of a lease | `Lease::publish` (SeqCst); a lost lease is published before the lease is released | at the end of a batch | `Lease::proof` (Acquire), after the fence in `Blocks::accept` | `lease` |
//! | state of a lease in the kernel | by the process that opens the file for writing, under the kernel's lock | after the deadline | fence in `Blocks::accept`, then `F_GETLEASE` | `lease`: the bytes are read before the kernel's lock is taken, and written after it was released |
//! | clock | | at the end of a batch | after the Acquire load of the deadline | a clock that is read some ns early is within the margin of half a second: see `lease` |
//! | state and deadline in the shared page | `Words` (SeqCst), under `Board::writing`: the deadline, then the state | by a direct client | `Words::standing_since`: fence (Acquire), deadline and owner, fence, state, fence | `words` |
//! | owner word | by the kernel, before it releases the files of a process that ends | by a direct client | as above | `words`; see `direct/owner.rs` |
//! | magic and time namespace in the shared page | SeqCst, before the page's descriptor is sent | by a direct client | relaxed, after the descriptor was received | never written again; the kernel's lock of the socket |
//! | heartbeat in the shared page | `Board::beat` | by the thread of a direct client | relaxed: a counter on its own | only its change counts |
//! | waiting tasks of the shared page | `Board::wake`: the state is stored, then the lock `waiting` taken | `Waiter::wait` | the lock is taken, then the state loaded | the task's entry is found, or the lock orders the store before the load |
//! | ranges of mappings | `Entry::occupy` (fence Release, then Release), `Ranges::push` (AcqRel) | by the handler of SIGBUS | `Entry::range` (Acquire, then fence Acquire), `Ranges::iter` (Acquire) | `ranges` |
//! | previous handlers of SIGBUS | Release, before sigaction | by the handler | Acquire | the kernel's lock of the handlers; a lone thread sees its own store |
//! | requests of a thread | [`Pending::request`] (AcqRel), after what the request is about | by that thread | [`Pending::take`] (AcqRel), before it examines | `sync` |
//! | requests of a follower | Release, then `Notify` | by the follower | swap (AcqRel) after the notification | both sides are ordered by `Notify`'s lock |
//! | generation of a worker | under the lock of its slot | by the worker | under this lock | a mutex |
//! | generation of a direct client, view of a cluster | `ArcSwap::store` | by lookups and connections | `ArcSwap::load` | arc-swap, which is sequentially consistent |
//! | versions of users and of the view | Release, after the new value was stored | by connections | Acquire, before the value is loaded | message passing; a connection that reads the old version reads it again in its next turn |
//! | count of cold reads | `fetch_sub` (AcqRel), then the waker is taken | `ColdWait::poll` | the waker is stored, then Acquire | the lock of the waker orders them, as for waiting tasks |
//! | whether leases are taken | Release, after SIGIO is handled | before a lease is taken | Acquire | message passing |
//! | outcome and number of the last reload | the outcome, under its lock, then the number (relaxed) | by Info | the number (relaxed), then the outcome, under its lock | if Info locks the outcome first, its load of the number precedes the store |
//! | activity of connections, liveness, counters, limits | relaxed | by reports and limits | relaxed | each is one number on its own; an evicted connection without a waker is aborted |
//!
//! These modules have orderings other than relaxed: `direct/board`, `direct/owner`, `direct/page`, `direct/words`,
//! `publish/follow`, `publish/follow_control`, `server/cluster`, `server/cold_reads`, `server/users/table`,
//! `store/blocks`, `store/guard`, `store/guard/handler`, `store/guard/ranges`, `store/lease`, `store/lease/kernel`,
//! `store/stamp`, and this one.

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
pub fn unpoisoned<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A request that threads make of one other thread, such as to wake up and to examine something.
///
/// The thread calls [`Pending::take`] and then examines. It sees what every requester wrote before
/// [`Pending::request`], unless that requester finds that no request is pending, and sends a wake-up. Both sides change
/// the flag in one atomic operation: with a plain load or store, a requester could find a request pending whose taker
/// has already examined.
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
