//! Atomic types and locks of the lock-free parts.
//!
//! A file that imports its atomic types from this module also compiles in `models/`, where the module exports loom's
//! types instead. Loom checks the file there under every interleaving and every reordering that the memory model
//! allows.

pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub(crate) use std::sync::{Mutex, MutexGuard};
