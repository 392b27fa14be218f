//! The file format: lengths, limits, encoding, and decoding.
//!
//! In: bytes of a file, or the contents of a new file. Out: typed views and checked numbers. This module opens no files
//! and creates no mappings.
//!
//! `docs/FORMAT.md`, which is included below, is the only description of the bytes. A test compares the example in this
//! document with a file that the baker writes.
#![doc = include_str!("../../docs/FORMAT.md")]

pub mod checksum;
mod error;
pub mod fence;
pub mod form;
pub mod group;
pub mod header;
pub mod heads;
pub mod index;
mod ipv4;
pub mod key;
pub mod key_type;
pub(crate) mod lookup_key;
pub mod record;

pub use error::FormatError;
pub use key::{KeyBounds, OwnedKey, RangeRow, Row};
