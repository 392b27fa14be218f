//! The file's layout: widths, limits, encode, decode.
//!
//! In: bytes of a file, or what is to become one. Out: typed views and checked
//! numbers. It knows no file handle, no mapping and no policy.
//!
//! `docs/FORMAT.md`, which follows, is the one description of the bytes; a test
//! holds its example against what the baker writes.
#![doc = include_str!("../../docs/FORMAT.md")]

mod bounds;
pub mod checksum;
mod error;
pub mod header;
pub mod index;
pub mod key;
mod owned_key;
pub mod record;

pub use bounds::KeyBounds;
pub use error::FormatError;
pub use owned_key::{OwnedKey, Row};
