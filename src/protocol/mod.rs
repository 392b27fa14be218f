//! Bytes on the wire.
//!
//! In: bytes a peer sent, or answers to give. Out: requests, or bytes to send.
//! It knows no socket, no runtime and no file. `docs/PROTOCOL.md` draws what
//! is sent; this module holds the constants and the types.

pub mod answer;
pub mod native;
pub mod reader;
#[cfg(feature = "server")]
pub mod resp;
