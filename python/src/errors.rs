//! Converts the library's errors to exceptions of `zero_kv.errors`.

use std::path::Path;
use std::{fmt, io};

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::{PyErr, import_exception};
use zero_kv::bake::{BakeError, Remedy, Warning};
use zero_kv::client::ClientError;
#[cfg(feature = "object-store")]
use zero_kv::publish::{FailureKind, PublishError};
use zero_kv::store::TypedLookupError;
use zero_kv::typed::ColumnError;
use zero_kv::{LookupError, Setting, StoreError};

import_exception!(zero_kv.errors, BakeFailed);
import_exception!(zero_kv.errors, Closed);
import_exception!(zero_kv.errors, Damaged);
import_exception!(zero_kv.errors, DirectRefused);
import_exception!(zero_kv.errors, KeyKind);
import_exception!(zero_kv.errors, KeyTypeChanged);
import_exception!(zero_kv.errors, LoginFailed);
import_exception!(zero_kv.errors, NotPermitted);
import_exception!(zero_kv.errors, NotRunning);
import_exception!(zero_kv.errors, NotTyped);
#[cfg(feature = "object-store")]
import_exception!(zero_kv.errors, ParentConflict);
import_exception!(zero_kv.errors, ProtocolError);
#[cfg(feature = "object-store")]
import_exception!(zero_kv.errors, PublishFailed);
import_exception!(zero_kv.errors, Refused);
import_exception!(zero_kv.errors, ServerError);
#[cfg(feature = "object-store")]
import_exception!(zero_kv.errors, StoreFailed);
import_exception!(zero_kv.errors, TimedOut);
import_exception!(zero_kv.errors, TlsFailed);
import_exception!(zero_kv.errors, UntrustedServer);

/// Returns the exception for a lookup in a table that was closed.
pub(crate) fn closed(path: &Path) -> PyErr {
    Closed::new_err(format!("{}: the table is closed: open it again", path.display()))
}

/// Returns the exception of a call whose rows have several schemas.
pub(crate) fn schema_changed() -> PyErr {
    ServerError::new_err("the table was replaced by a table with another schema during the call: try again")
}

pub(crate) fn lookup_exception(error: LookupError) -> PyErr {
    match error {
        LookupError::KeyKind { .. } => KeyKind::new_err(error.to_string()),
        LookupError::NoRanges => PyValueError::new_err(error.to_string()),
        _ => Damaged::new_err(error.to_string()),
    }
}

/// Returns the exception for a lookup of columns.
pub(crate) fn typed_exception(error: &TypedLookupError) -> PyErr {
    match error {
        TypedLookupError::Lookup(error) => lookup_exception(*error),
        TypedLookupError::Column(error) => column_exception(error),
        _ => NotTyped::new_err(error.to_string()),
    }
}

pub(crate) fn column_exception(error: &ColumnError) -> PyErr {
    match error {
        ColumnError::Malformed { .. } | ColumnError::MalformedCell { .. } => Damaged::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

pub(crate) fn store_exception(error: &StoreError) -> PyErr {
    let message = error.to_string();
    match error {
        StoreError::Io { error, path } if error.kind() == io::ErrorKind::NotFound => {
            os_exception(error, format!("{error}: bake the file with zero_kv.bake"), Some(path))
        }
        // No system call has failed: the file is of another type, for example a socket.
        StoreError::Io { error, .. }
            if error.kind() == io::ErrorKind::InvalidInput && error.raw_os_error().is_none() =>
        {
            PyOSError::new_err(format!("{message}: pass a baked file, or connect to a server with zero_kv.Client"))
        }
        StoreError::Io { error, path } => os_exception(error, message, Some(path)),
        StoreError::Memory { .. } => PyOSError::new_err(message),
        _ => Damaged::new_err(message),
    }
}

pub(crate) fn bake_exception(error: &BakeError) -> PyErr {
    let message = with_keywords(error, &error.remedies());
    match error {
        BakeError::Output { error, path } if error.kind() == io::ErrorKind::NotFound => {
            os_exception(error, format!("{error}: create the folder first"), Some(path))
        }
        BakeError::Output { error, path }
        | BakeError::FolderSync { error, path }
        | BakeError::Temporary { error, folder: path } => os_exception(error, message, Some(path)),
        BakeError::Memory { .. } => PyValueError::new_err(message),
        BakeError::OldTable(error) => store_exception(error),
        _ => BakeFailed::new_err(message),
    }
}

pub(crate) fn bake_warning(warning: &Warning) -> String {
    with_keywords(warning, warning.remedies())
}

/// Appends to a message the keyword arguments of `bake` that implement remedies.
fn with_keywords(message: &impl fmt::Display, remedies: &[Remedy]) -> String {
    let keywords: Vec<_> = remedies.iter().filter_map(|remedy| keyword(*remedy)).collect();
    if keywords.is_empty() { message.to_string() } else { format!("{message} ({})", keywords.join(", ")) }
}

pub(crate) fn client_exception(error: &ClientError) -> PyErr {
    let message = error.to_string();
    match error {
        ClientError::NotRunning { .. } => NotRunning::new_err(message),
        ClientError::NoPermission { .. } | ClientError::Refused { .. } => Refused::new_err(message),
        ClientError::Address(_) | ClientError::Configuration { .. } => PyValueError::new_err(message),
        ClientError::Tls { .. } => TlsFailed::new_err(message),
        ClientError::AuthenticationRequired { .. } | ClientError::LoginFailed { .. } => LoginFailed::new_err(message),
        ClientError::NotPermitted { .. } => NotPermitted::new_err(message),
        ClientError::UntrustedServer { .. } => UntrustedServer::new_err(message),
        ClientError::TimedOut { .. } => TimedOut::new_err(message),
        ClientError::Closed { .. } => Closed::new_err(message),
        ClientError::Protocol { .. } | ClientError::Topology { .. } => ProtocolError::new_err(message),
        ClientError::Direct { .. } => DirectRefused::new_err(message),
        ClientError::NoSchema { .. } => NotTyped::new_err(message),
        ClientError::Columns { .. } => PyValueError::new_err(message),
        ClientError::KeyTypeChanged { .. } => KeyTypeChanged::new_err(message),
        ClientError::KeyLen { .. } => PyValueError::new_err(message),
        ClientError::MixedKeys { .. } => KeyKind::new_err(message),
        ClientError::Io { error, .. } => os_exception(error, message, None),
        _ => ServerError::new_err(message),
    }
}

#[cfg(feature = "object-store")]
pub(crate) fn publish_exception(error: &PublishError) -> PyErr {
    let message = error.to_string();
    match error {
        PublishError::Url { .. } => PyValueError::new_err(message),
        PublishError::Io { error, path } => os_exception(error, message, Some(path)),
        PublishError::Bake(error) => bake_exception(error),
        PublishError::File(error) => store_exception(error),
        PublishError::Parent { .. } => ParentConflict::new_err(message),
        error => follow_exception(error.kind(), message),
    }
}

/// Returns the exception for a published table that cannot be followed.
#[cfg(feature = "object-store")]
pub(crate) fn follow_exception(kind: FailureKind, message: String) -> PyErr {
    match kind {
        FailureKind::Store | FailureKind::Credentials => StoreFailed::new_err(message),
        FailureKind::Disk => PyOSError::new_err(message),
        _ => PublishFailed::new_err(message),
    }
}

/// Returns the keyword argument of `bake` that implements a remedy, if any.
fn keyword(remedy: Remedy) -> Option<&'static str> {
    match remedy {
        Remedy::TakeKeysAsBytes => Some("keys=\"bytes\""),
        Remedy::ChooseKeyKind => Some("keys"),
        Remedy::TakeKeysAsAddresses => Some("keys=\"ip\""),
        Remedy::TakeKeysAsUuids => Some("keys=\"uuid\""),
        Remedy::ChooseLayout => Some("layout"),
        Remedy::ChooseRanges => Some("ranges or cidr"),
        Remedy::ChooseOverlaps => Some("overlaps=\"first\", \"last\", or \"narrowest\""),
        Remedy::DeclareTypes | Remedy::MakeNullable => Some("types"),
        Remedy::CastBase => Some("cast=True"),
        Remedy::KeepOneDuplicate => Some("duplicates=\"first\" or \"last\""),
        Remedy::AllowMoreMemory => Some("memory_bytes"),
        Remedy::UseFewerThreads => Some("threads"),
        Remedy::ChangeRule(Setting::RowsMin) => Some("min_rows"),
        Remedy::ChangeRule(Setting::ShrinkMax) => Some("max_shrink_percent"),
        Remedy::ChangeRule(Setting::AllowEmpty) => Some("allow_empty"),
        Remedy::ChangeRule(Setting::AllowKeyTypeChange) => Some("allow_key_type_change"),
        _ => None,
    }
}

/// Returns an `OSError`, or the subclass that Python derives from the error number, such as `FileNotFoundError`.
/// `filename` of the exception is `path`, which its text shows after `message`.
fn os_exception(error: &io::Error, message: String, path: Option<&Path>) -> PyErr {
    let code = error.raw_os_error();
    // Python shows the number itself.
    let message = code.map_or(message.clone(), |code| message.replace(&format!(" (os error {code})"), ""));
    match (code, path) {
        (Some(code), Some(path)) => {
            // Python shows the path, too, but only with a number.
            let rest = message.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&message).to_owned();
            PyOSError::new_err((code, rest, path.as_os_str().to_owned()))
        }
        (Some(code), None) => PyOSError::new_err((code, message)),
        _ => PyOSError::new_err(message),
    }
}
