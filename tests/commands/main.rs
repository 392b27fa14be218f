//! Commands that a client must not be able to have executed, or to hold up others with.

#![cfg(feature = "cli")]

#[path = "../common/mod.rs"]
mod common;

mod http;
