//! Arguments that several functions take.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use zero_kv::bake::{Duplicates, Overlaps, TableLayout};
use zero_kv::store::Memory;

/// A user's name or number.
#[derive(FromPyObject)]
pub(crate) enum UserName {
    Number(u32),
    Name(String),
}

impl From<UserName> for String {
    fn from(user: UserName) -> String {
        match user {
            UserName::Number(number) => number.to_string(),
            UserName::Name(name) => name,
        }
    }
}

/// Converts the value of an argument, in seconds, to a duration. `argument` is the name of the argument, for the error.
pub(crate) fn duration(argument: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("{argument} is {seconds}, where seconds, 0 or more, were expected")))
}

/// Parses the argument `memory`.
pub(crate) fn table_memory(memory: &str) -> PyResult<Memory> {
    match memory {
        "map" => Ok(Memory::Map),
        "copy" => Ok(Memory::Copy),
        _ => Err(unknown_value("memory", memory, "\"map\" or \"copy\"")),
    }
}

/// Returns the value of the argument `memory`.
pub(crate) fn memory_name(memory: Memory) -> &'static str {
    match memory {
        Memory::Copy => "copy",
        _ => "map",
    }
}

/// Returns the exception for an argument whose value is none of the expected values.
pub(crate) fn unknown_value(argument: &str, found: &str, expected: &str) -> PyErr {
    PyValueError::new_err(format!("{argument} is {found:?}, where {expected} was expected"))
}

/// Parses the argument `layout`.
pub(crate) fn layout(layout: &str) -> PyResult<TableLayout> {
    TableLayout::from_name(layout).ok_or_else(|| unknown_value("layout", layout, "\"fast\" or \"compact\""))
}

/// Parses the argument `duplicates`.
pub(crate) fn duplicates(duplicates: &str) -> PyResult<Duplicates> {
    match duplicates {
        "error" => Ok(Duplicates::Error),
        "first" => Ok(Duplicates::First),
        "last" => Ok(Duplicates::Last),
        _ => Err(unknown_value("duplicates", duplicates, "\"error\", \"first\" or \"last\"")),
    }
}

/// Parses the argument `overlaps`.
pub(crate) fn overlaps(overlaps: &str) -> PyResult<Overlaps> {
    match overlaps {
        "error" => Ok(Overlaps::Error),
        "first" => Ok(Overlaps::First),
        "last" => Ok(Overlaps::Last),
        "narrowest" => Ok(Overlaps::Narrowest),
        _ => Err(unknown_value("overlaps", overlaps, "\"error\", \"first\", \"last\" or \"narrowest\"")),
    }
}
