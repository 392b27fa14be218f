//! Models of the lock-free parts. See README.md.
//!
//! Each module below `models` includes a source file of the main package. The sources name their atomics `crate::sync`,
//! and this crate's `sync` gives them loom's. A program, not a test, because a test would include the sources' own tests.

mod models;
#[path = "../../src/store/standing.rs"]
mod standing;

/// Takes the place of `src/sync.rs`.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

/// Takes the place of `src/format/`: a block is one byte, and its checksum is that byte.
mod format {
    pub(crate) mod checksum {
        pub(crate) const BLOCK_LEN_BYTES: usize = 1;

        pub(crate) fn block_sum(bytes: &[u8]) -> zerocopy::little_endian::U64 {
            u64::from(bytes[0]).into()
        }
    }
}

/// Takes the place of `src/store/`.
mod store {
    pub(crate) use crate::models::LeaseState;
    pub(crate) use crate::standing::Standing;

    pub(crate) mod clock {
        pub(crate) fn now_ns() -> u64 {
            unreachable!("models have clocks of their own")
        }
    }
}

/// Runs the models whose names contain the argument, or all.
fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let mut run = 0;
    for model in models::all().filter(|model| model.name.contains(&wanted)) {
        let started = std::time::Instant::now();
        model.check();
        println!("{}: {:.1} s", model.name, started.elapsed().as_secs_f64());
        run += 1;
    }
    assert!(run > 0, "no model has {wanted:?} in its name");
    println!("{run} models hold in every interleaving");
}
