//! An allocator that counts, for tests that are alone in their process.

#![allow(unreachable_pub, reason = "tests use it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what the whole process allocates.
struct Counting;

/// How often it did.
pub static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: Every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: The caller keeps the contract of `alloc`, and `System` has the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: The pointer came from `System`, and the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
