//! The library's errors as exceptions of `zero_kv.errors`.

use std::io;

use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyPermissionError, PyValueError};
use pyo3::{PyErr, import_exception};
use zero_kv::bake::BakeError;
use zero_kv::client::ClientError;
use zero_kv::{LookupError, StoreError};

import_exception!(zero_kv.errors, BakeFailed);
import_exception!(zero_kv.errors, Closed);
import_exception!(zero_kv.errors, Damaged);
import_exception!(zero_kv.errors, DirectRefused);
import_exception!(zero_kv.errors, KeyKind);
import_exception!(zero_kv.errors, NotRunning);
import_exception!(zero_kv.errors, ProtocolError);
import_exception!(zero_kv.errors, Refused);
import_exception!(zero_kv.errors, ServerError);
import_exception!(zero_kv.errors, TimedOut);

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

pub(crate) fn of_client(error: &ClientError) -> PyErr {
    let message = error.to_string();
    match error {
        ClientError::NotRunning { .. } => NotRunning::new_err(message),
        ClientError::Refused { .. } => Refused::new_err(message),
        ClientError::TimedOut { .. } => TimedOut::new_err(message),
        ClientError::Closed { .. } => Closed::new_err(message),
        ClientError::Protocol { .. } => ProtocolError::new_err(message),
        ClientError::Direct { .. } => DirectRefused::new_err(message),
        ClientError::KeyLen { .. } => PyValueError::new_err(message),
        ClientError::MixedKeys { .. } => KeyKind::new_err(message),
        ClientError::Io { error, .. } => of_io(error, message),
        _ => ServerError::new_err(message),
    }
}

fn of_io(error: &io::Error, message: String) -> PyErr {
    match error.kind() {
        io::ErrorKind::NotFound => PyFileNotFoundError::new_err(message),
        io::ErrorKind::PermissionDenied => PyPermissionError::new_err(message),
        _ => PyOSError::new_err(message),
    }
}
