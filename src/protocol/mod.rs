//! Encoding and decoding of both wire protocols.
//!
//! In: bytes that a peer sent, or responses to encode. Out: requests, or bytes to send. The module has no sockets,
//! runtimes, or files. `docs/PROTOCOL.md` and `docs/REDIS.md` describe the bytes; this module holds the constants and types.

pub mod native;
pub mod reader;
#[cfg(feature = "server")]
pub mod resp;
pub mod response;
