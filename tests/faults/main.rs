//! What can happen to a running server: new files, broken files, and clients that do not
//! behave. Each promise is a test, by processes of `kv_store`.
//!
//! What is random or goes on for long runs for seconds; `ZERO_KV_FAULTS_SECONDS` says for how
//! many, for each test that does, and makes the swaps under load 200 over 100 connections.

#![cfg(feature = "cli")]

#[path = "../common/mod.rs"]
mod common;

mod clients;
mod files;
mod flips;
mod gets;
mod large;
mod load;
mod mixed;
#[path = "../redis/reply.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod reply;
mod retention;
#[allow(dead_code, reason = "a part of it is used here")]
mod served;
mod swaps;
mod values;

use std::io::Write;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

/// Held by tests that measure nothing.
fn together() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Held by tests that measure times, or take all descriptors: no other runs meanwhile.
fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Tells what was seen, also of a test that passes.
fn report(text: &str) {
    // Not by a macro, whose output is shown only of tests that fail.
    let _ = writeln!(std::io::stderr(), "{text}");
}
