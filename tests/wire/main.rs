//! What docs/PROTOCOL.md promises, held against kv_store by raw sockets.

#![cfg(feature = "cli")]

#[path = "../common/mod.rs"]
mod common;

mod changed;
mod document;
mod long;
mod mutations;
mod ordered;
mod reference;
mod short;
