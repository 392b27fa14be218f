//! `benchmarker` as a process, against a server that the test runs itself.

#![cfg(feature = "cli")]

mod answers;
mod ceiling;
mod outputs;
mod requests;
mod schedule;
mod served;
mod usage;
