//! A running server gets new files, broken files, and clients that misbehave.
//!
//! Random and long tests run for a few seconds. `ZERO_KV_FAULTS_SECONDS` sets the duration of each of them in seconds,
//! and makes the test of swaps under load swap 200 times over 100 connections. `ZERO_KV_SOAK_SECONDS` sets the duration
//! of the soak test.

use testkit as helpers;

mod resilience {
    mod clients;
    mod files;
    mod flips;
    mod large;
    mod load;
    mod retention;
    mod soak;
    mod swaps;
}

use std::io::Write;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

/// Returns a guard for a test that can run at the same time as other tests.
fn run_concurrently() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a guard for a test that measures times or takes all descriptors. No other test runs at the same time.
fn run_alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Prints a line, even if the test passes.
fn report(text: &str) {
    // The harness shows the output of `println!` only for tests that fail.
    let _ = writeln!(std::io::stderr(), "{text}");
}
