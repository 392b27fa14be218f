//! `baker` as a process: what it accepts, what it says, and what it leaves.

#![cfg(feature = "cli")]

#[path = "../support/mod.rs"]
mod support;

mod failures;
mod faults;
mod keys;
mod options;
mod places;
mod report;
mod rows;
mod runs;
mod signals;
mod tables;
mod usage;
