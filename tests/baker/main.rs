//! `baker` as a process: what it accepts, what it says, and what it leaves.

#![cfg(feature = "cli")]

#[path = "../support/mod.rs"]
mod support;

mod failures;
mod keys;
mod places;
mod rows;
mod runs;
