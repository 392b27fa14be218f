//! Atomic types of the lock-free parts, and the locks beside them.
//!
//! A file whose atomics come from here also compiles in `models/`, where this module holds loom's types, and is checked
//! there under every interleaving and every reordering that the memory model allows.

pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub(crate) use std::sync::{Mutex, MutexGuard};
