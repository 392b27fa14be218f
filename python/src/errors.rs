//! The library's errors as exceptions of `zero_kv.errors`.

use std::io;

use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyPermissionError, PyValueError};
use pyo3::{PyErr, import_exception};
use zero_kv::bake::BakeError;
use zero_kv::{LookupError, StoreError};

import_exception!(zero_kv.errors, BakeFailed);
import_exception!(zero_kv.errors, Damaged);
import_exception!(zero_kv.errors, KeyKind);

pub(crate) fn of_lookup(error: LookupError) -> PyErr {
    match error {
        LookupError::KeyKind { .. } => KeyKind::new_err(error.to_string()),
        _ => Damaged::new_err(error.to_string()),
    }
}

pub(crate) fn of_store(error: &StoreError) -> PyErr {
    let message = error.to_string();
    match error {
        StoreError::Io { error, .. } => of_io(error, message),
        StoreError::Memory { .. } => PyOSError::new_err(message),
        _ => Damaged::new_err(message),
    }
}

pub(crate) fn of_bake(error: &BakeError) -> PyErr {
    let message = error.to_string();
    match error {
        BakeError::Output { error, .. } | BakeError::FolderSync { error, .. } => of_io(error, message),
        BakeError::Row { .. } | BakeError::BaseKeys { .. } => BakeFailed::new_err(message),
        BakeError::Memory { .. } => PyValueError::new_err(message),
        BakeError::OldTable(error) => of_store(error),
        _ => BakeFailed::new_err(message),
    }
}

fn of_io(error: &io::Error, message: String) -> PyErr {
    match error.kind() {
        io::ErrorKind::NotFound => PyFileNotFoundError::new_err(message),
        io::ErrorKind::PermissionDenied => PyPermissionError::new_err(message),
        _ => PyOSError::new_err(message),
    }
}
