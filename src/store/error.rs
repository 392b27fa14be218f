//! Why a file cannot be served, and why a lookup has no answer.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::format::FormatError;
use crate::format::key::KeyKind;

/// Why a file cannot be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file cannot be opened or mapped.
    #[error("{}: {error}{}", path.display(), if error.kind() == io::ErrorKind::NotFound { ": bake one with `baker input.csv`" } else { "" })]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The file's bytes cannot be held in memory as was asked.
    #[error("{}: {problem}", path.display())]
    Memory {
        /// The file.
        path: PathBuf,
        /// What is in the way, and what to do.
        problem: String,
    },
    /// The options' [`Pace`](super::Pace) canceled the opening of the file.
    #[error("{}: canceled", path.display())]
    Canceled {
        /// The file.
        path: PathBuf,
    },
    /// The file's bytes are not what they must be.
    #[error("{}: {error}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with them.
        error: FormatError,
    },
}

/// Why a lookup has no answer.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LookupError {
    /// The table's keys are not of the kind asked for.
    #[error(
        "keys of this table are {held}, where {asked} were asked for: ask for a key of its kind, or bake another with `baker --keys`"
    )]
    KeyKind {
        /// What the table's keys are.
        held: KeyKind,
        /// What was asked for.
        asked: KeyKind,
    },
    /// What would tell is damaged: a block of the file does not have its checksum,
    /// or the file was changed in place since it was opened.
    #[error(
        "the file is damaged where the answer is: check it with `zkv verify`, and put new files in place by rename"
    )]
    Damaged,
}
