//! Suspicious differences between a generation and the one before it.
//!
//! In: the rows, the kind of keys, and the columns of two generations. Out: the differences that a failed export often
//! causes. A publisher rejects such a generation unless the difference is allowed. Nodes reject those without rows, or
//! with the other kind of keys, that no publisher has allowed.

use crate::counted::counted;

/// A difference between a generation and the one before it that is rejected unless it is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Change {
    /// The new generation has no rows.
    Empty,
    /// The new generation has at most half of the rows.
    Shrink,
    /// The new generation has the other kind of keys.
    KeyKind,
    /// The new generation has other columns.
    Schema,
}

impl Change {
    /// All changes.
    pub const ALL: [Change; 4] = [Change::Empty, Change::Shrink, Change::KeyKind, Change::Schema];

    /// Returns the name of the change in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Change::Empty => "empty",
            Change::Shrink => "shrink",
            Change::KeyKind => "key-kind",
            Change::Schema => "schema",
        }
    }

    /// Returns the change with a name.
    pub fn from_name(name: &str) -> Option<Change> {
        Change::ALL.into_iter().find(|change| change.name() == name)
    }
}

/// The compared properties of a generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) rows: u64,
    pub(super) key_kind: String,
    pub(super) schema: Vec<String>,
}

impl Facts {
    /// Returns the changes from an older generation, each with what was found and what was expected.
    pub(super) fn changes_from(&self, old: &Facts) -> Vec<(Change, String)> {
        // Any table may replace one without rows.
        if old.rows == 0 {
            return Vec::new();
        }
        let mut changes = Vec::new();
        let (rows, old_rows) = (self.rows, old.rows);
        if rows == 0 {
            changes.push((Change::Empty, format!("it has no rows, expected about {old_rows}")));
        } else if rows <= old_rows / 2 {
            changes.push((
                Change::Shrink,
                format!("it has {}, expected more than {}", counted(rows, "row"), old_rows / 2),
            ));
        }
        if self.key_kind != old.key_kind {
            changes.push((Change::KeyKind, format!("its keys are {}, expected {}", self.key_kind, old.key_kind)));
        }
        if self.schema != old.schema {
            changes.push((
                Change::Schema,
                format!("its columns are {}, expected {}", list(&self.schema), list(&old.schema)),
            ));
        }
        changes
    }
}

fn list(schema: &[String]) -> String {
    if schema.is_empty() { "none".to_owned() } else { schema.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(rows: u64, key_kind: &str, schema: &[&str]) -> Facts {
        Facts {
            rows,
            key_kind: key_kind.to_owned(),
            schema: schema.iter().map(|column| (*column).to_owned()).collect(),
        }
    }

    #[test]
    fn changes_of_failed_exports_are_found() {
        let changes = |new: &Facts, old: &Facts| -> Vec<Change> {
            new.changes_from(old).into_iter().map(|(change, _)| change).collect()
        };
        let old = facts(1000, "u64", &["name:text"]);
        assert_eq!(changes(&facts(501, "u64", &["name:text"]), &old), []);
        assert_eq!(changes(&facts(1 << 60, "u64", &["name:text"]), &old), []);
        assert_eq!(changes(&facts(500, "u64", &["name:text"]), &old), [Change::Shrink]);
        assert_eq!(changes(&facts(0, "bytes", &[]), &old), [Change::Empty, Change::KeyKind, Change::Schema]);
        assert_eq!(changes(&facts(1, "bytes", &["name:text"]), &old), [Change::Shrink, Change::KeyKind]);
        assert_eq!(changes(&old, &facts(0, "bytes", &[])), []);
        assert_eq!(changes(&facts(1, "u64", &[]), &facts(1, "u64", &[])), []);
        for change in Change::ALL {
            assert_eq!(Change::from_name(change.name()), Some(change));
        }
        assert_eq!(Change::from_name("other"), None);
    }
}
