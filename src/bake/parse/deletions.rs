//! Suspects that an update has a column with marks of deletions, and that the delete column was forgotten.
//!
//! In: the names of an input's columns, and their first values. Out: a warning, if the options choose neither a delete
//! column nor a marker, and a column that the base does not have has a usual name and a value that marks a deletion.

use crate::bake::columns::ValueSpec;
use crate::bake::options::Options;
use crate::bake::row::is_removed;
use crate::bake::typed::TypedPlan;
use crate::bake::warning::Warning;

/// Usual names of columns whose values are Booleans, without `is_` and underscores around them.
const BOOLEAN_NAMES: [&str; 3] = ["deleted", "delete", "tombstone"];
/// Usual names of columns with operations, such as those of Debezium.
const OPERATION_NAMES: [&str; 3] = ["op", "operation", "change_type"];

/// The columns of an input that may mark deletions.
pub(super) struct DeletionColumns<C> {
    /// The name of each column, and where it is.
    columns: Vec<(String, C)>,
}

impl<C: Copy> DeletionColumns<C> {
    /// Finds the columns in an input with these columns.
    pub(super) fn new(
        options: &Options,
        plan: Option<&TypedPlan>,
        columns: impl IntoIterator<Item = (String, C)>,
    ) -> DeletionColumns<C> {
        if options.base.is_none() || options.delete_column.is_some() || options.delete_marker.is_some() {
            return DeletionColumns { columns: Vec::new() };
        }
        let is_named = |name: &str| is_any(&BOOLEAN_NAMES, name) || is_any(&OPERATION_NAMES, name);
        let is_suspect = |(name, _): &(String, C)| is_named(name) && !is_chosen(options, name);
        let is_known = |name: &str| plan.is_some_and(|plan| plan.knows(name));
        let columns = columns.into_iter().filter(is_suspect).filter(|(name, _)| !is_known(name));
        DeletionColumns { columns: columns.collect() }
    }

    /// Returns where the columns are.
    pub(super) fn columns(&self) -> impl Iterator<Item = C> {
        self.columns.iter().map(|(_, column)| *column)
    }

    /// Returns a warning if a column of a row marks a deletion. `value` returns the value of a column.
    pub(super) fn warning<'v>(&self, input: &str, mut value: impl FnMut(C) -> Option<&'v [u8]>) -> Option<Warning> {
        self.columns.iter().find_map(|(name, column)| {
            let found = value(*column).filter(|found| is_mark(name, found))?;
            let found = String::from_utf8_lossy(found).into_owned();
            Some(Warning::PossibleDeletions { input: input.to_owned(), column: name.clone(), found })
        })
    }
}

/// Returns whether the options choose a column as the key or as a value.
fn is_chosen(options: &Options, name: &str) -> bool {
    let values = match &options.value {
        ValueSpec::Unnamed => &[][..],
        ValueSpec::Column(value) => std::slice::from_ref(value),
        ValueSpec::Packed(values) => values,
    };
    options.key.iter().chain(values).any(|column| column.name() == Some(name))
}

fn is_any(usual: &[&str], name: &str) -> bool {
    let name = name.trim_matches('_').to_ascii_lowercase();
    let name = name.strip_prefix("is_").unwrap_or(&name);
    usual.contains(&name)
}

/// Returns whether a value of a column marks a deletion.
fn is_mark(name: &str, value: &[u8]) -> bool {
    let is_operation = [&b"d"[..], b"delete", b"deleted"].iter().any(|word| value.eq_ignore_ascii_case(word));
    is_operation || (is_any(&BOOLEAN_NAMES, name) && is_removed(Some(value)))
}
