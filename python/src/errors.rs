//! The library's errors as exceptions of `zero_kv.errors`.

use std::io;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::{PyErr, import_exception};
use zero_kv::bake::{BakeError, RowFault};
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
import_exception!(zero_kv.errors, UntrustedServer);

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
    let message = match error {
        BakeError::Row { input, line, fault } => format!("{input}:{line}: {}", row_fault(fault)),
        _ => error.to_string(),
    };
    match error {
        BakeError::Output { error, .. } | BakeError::FolderSync { error, .. } | BakeError::Temporary { error, .. } => {
            of_io(error, message)
        }
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
        ClientError::UntrustedServer { .. } => UntrustedServer::new_err(message),
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

/// What is wrong with a row, and what to do in Python.
fn row_fault(fault: &RowFault) -> String {
    match fault {
        RowFault::Duplicate { key, first } => {
            format!("key {key} is already on {first}: remove one, or choose with duplicates=\"first\" or \"last\"")
        }
        RowFault::Key { found, .. } => {
            format!("the key is {found:?}, where a decimal was expected: correct the row, or pass keys=\"bytes\"")
        }
        RowFault::KeyLen { len_bytes } => format!("a key of {len_bytes} bytes, where 1 to 65,535 are allowed"),
        _ => fault.to_string(),
    }
}

/// Python makes of the code what it is, such as a FileNotFoundError.
fn of_io(error: &io::Error, message: String) -> PyErr {
    match error.raw_os_error() {
        Some(code) => PyOSError::new_err((code, message)),
        None => PyOSError::new_err(message),
    }
}
