//! `benchmarker` as a process, against a server that the test runs itself.

#![cfg(feature = "cli")]

mod answers;
mod bytes;
mod ceiling;
#[path = "../common/mod.rs"]
mod common;
mod outputs;
mod requests;
mod resp;
mod schedule;
mod served;
mod usage;
