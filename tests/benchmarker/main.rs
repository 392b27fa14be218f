//! `benchmarker` as a process, with a server inside the test.

#![cfg(feature = "cli")]

mod bytes;
mod ceiling;
#[path = "../common/mod.rs"]
mod common;
mod outputs;
mod requests;
mod resp;
mod responses;
mod schedule;
mod served;
mod usage;
