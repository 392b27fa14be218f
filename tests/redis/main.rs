//! `kv_store` as Redis's clients see it: compared with a real Redis, and driven by clients
//! that are not ours. Where one is not installed, its tests say so and pass, unless
//! `ZERO_KV_REQUIRE_CLIENTS` is 1.

#![cfg(feature = "cli")]

mod benchmark;
mod cli;
#[path = "../clients/mod.rs"]
mod clients;
#[path = "../common/mod.rs"]
mod common;
mod differential;
mod document;
mod errors;
mod protocols;
mod python;
mod reply;
mod served;
