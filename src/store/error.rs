//! The reasons why a file cannot be opened, and why a lookup fails.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::format::FormatError;
use crate::format::key::KeyKind;

/// The reason why a file cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file cannot be opened or mapped.
    #[error("{}: {error}{}", path.display(), remedy(error))]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The file's bytes cannot be held in memory as requested.
    #[error("{}: {problem}", path.display())]
    Memory {
        /// The file.
        path: PathBuf,
        /// The cause and the remedy.
        problem: String,
    },
    /// The [`Pace`](super::Pace) in the options canceled the opening of the file.
    #[error("{}: canceled", path.display())]
    Canceled {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged or is not a baked file of this version.
    #[error("{}: {error}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The problem.
        #[source]
        error: FormatError,
    },
}

fn remedy(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::NotFound { ": bake one with `baker input.csv`" } else { "" }
}

impl StoreError {
    /// Returns a function that converts a system error into a [`StoreError::Io`] for the file at `path`.
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> StoreError {
        move |error| StoreError::Io { path: path.to_path_buf(), error }
    }

    /// Returns a function that converts a [`FormatError`] into a [`StoreError::Format`] for the file at `path`.
    pub(crate) fn format(path: &Path) -> impl Fn(FormatError) -> StoreError {
        move |error| StoreError::Format { path: path.to_path_buf(), error }
    }
}

/// The reason why a lookup fails.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LookupError {
    /// The key is not of the table's kind.
    #[error(
        "keys of this table are {held}, but the requested key is of another kind, {asked}: request a key of the \
         table's kind, or bake a table with keys of the requested kind"
    )]
    KeyKind {
        /// The kind of the table's keys.
        held: KeyKind,
        /// The kind of the requested key.
        asked: KeyKind,
    },
    /// The rows of the table are no ranges.
    #[error(
        "the rows of this table are single keys, where ranges were expected: bake a table of ranges, or look up the \
         floor of the key"
    )]
    NoRanges,
    /// The result depends on damaged bytes: a block does not match its checksum, or the file was changed in place since
    /// it was opened.
    #[error(
        "the result depends on damaged bytes of the file: check the file with `zkv verify`, and replace it only by \
         rename"
    )]
    Damaged,
}
