//! `baker` as a process: its inputs, its messages, and its files.

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
