//! Encodes and decodes both wire protocols.
//!
//! In: bytes that a peer sent, or responses to encode. Out: requests, or bytes to send. This module does no I/O.
//! `docs/PROTOCOL.md` and `docs/REDIS.md` describe the bytes; this module has the constants and types.

pub mod native;
pub mod reader;
#[cfg(feature = "server")]
pub mod resp;
pub mod response;
