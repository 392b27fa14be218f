//! The file that contains an extent (a range of a file), for error messages.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::bake::error::BakeError;
use crate::format::FormatError;
use crate::store::StoreError;

/// The file that contains an extent (a range of a file). Error messages name this file or its folder.
#[derive(Clone, Debug)]
pub(in crate::bake) enum ExtentOwner {
    /// An unnamed file in this folder.
    Temporary(Arc<Path>),
    /// The records of the table at this path.
    Table(Arc<Path>),
    /// New records for the output at this path.
    Output(Arc<Path>),
}

impl ExtentOwner {
    pub(in crate::bake) fn failed(&self, error: io::Error) -> BakeError {
        match self {
            ExtentOwner::Temporary(folder) => BakeError::temporary(folder, error),
            ExtentOwner::Output(path) => BakeError::output(path, error),
            ExtentOwner::Table(path) => {
                let error = match error.kind() {
                    io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "was truncated while it was read"),
                    _ => error,
                };
                BakeError::OldTable(StoreError::Io { path: path.to_path_buf(), error })
            }
        }
    }

    pub(in crate::bake) fn damaged(&self, error: FormatError) -> BakeError {
        match (self, error) {
            (ExtentOwner::Table(path), error) => {
                BakeError::OldTable(StoreError::Format { path: path.to_path_buf(), error })
            }
            (ExtentOwner::Temporary(folder), FormatError::BlockChecksum { offset_bytes, .. }) => {
                BakeError::TemporaryDamaged { folder: folder.to_path_buf(), offset_bytes }
            }
            (ExtentOwner::Output(path), FormatError::BlockChecksum { offset_bytes, .. }) => {
                BakeError::Damaged { path: path.to_path_buf(), offset_bytes }
            }
            (ExtentOwner::Output(path), error) => BakeError::output(path, io::Error::other(error)),
            (ExtentOwner::Temporary(folder), error) => BakeError::temporary(folder, io::Error::other(error)),
        }
    }
}
