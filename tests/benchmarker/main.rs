//! `benchmarker` as a process, against a server that the test runs itself.

#![cfg(feature = "cli")]

mod answers;
mod ceiling;
#[path = "../clients/mod.rs"]
mod clients;
mod outputs;
mod requests;
mod resp;
mod schedule;
mod served;
mod usage;
