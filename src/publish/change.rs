//! Suspicious differences between a generation and the one before it.
//!
//! In: the rows, the type of keys, and the columns of two generations. Out: the differences that a failed export often
//! causes. A publisher rejects such a generation unless the difference is allowed. Nodes reject those without rows, or
//! with keys of another type, that no publisher has allowed.

use std::collections::BTreeMap;

use crate::counted::counted;

/// A difference between a generation and the one before it that is rejected unless it is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Change {
    /// The new generation has no rows.
    Empty,
    /// The new generation has at most half of the rows, or has lost more of them than a rule permits.
    Shrink,
    /// The new generation has keys of another type.
    KeyType,
    /// The new generation has other columns.
    Schema,
}

impl Change {
    /// All changes.
    pub const ALL: [Change; 4] = [Change::Empty, Change::Shrink, Change::KeyType, Change::Schema];

    /// Returns the name of the change in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Change::Empty => "empty",
            Change::Shrink => "shrink",
            Change::KeyType => "key-type",
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
    /// `shrink_max_percent` is the maximum percentage of the rows that may be lost. By default, less than half may be.
    pub(super) fn changes_from(&self, old: &Facts, shrink_max_percent: Option<u8>) -> Vec<(Change, String)> {
        // Any table may replace one without rows.
        if old.rows == 0 {
            return Vec::new();
        }
        let mut changes = Vec::new();
        let (rows, old_rows) = (self.rows, old.rows);
        if rows == 0 {
            changes.push((Change::Empty, format!("it has no rows, expected about {old_rows}")));
        } else if let Some(rows_min) = rows_min(old_rows, shrink_max_percent).filter(|rows_min| rows < *rows_min) {
            changes.push((Change::Shrink, format!("it has {}, expected at least {rows_min}", counted(rows, "row"))));
        }
        if self.key_kind != old.key_kind {
            changes.push((Change::KeyType, format!("its keys are {}, expected {}", self.key_kind, old.key_kind)));
        }
        if self.schema != old.schema {
            changes.push((Change::Schema, format!("its columns differ: {}", differences(&self.schema, &old.schema))));
        }
        changes
    }
}

/// Returns the minimum number of rows of a generation after one with `old_rows` rows.
fn rows_min(old_rows: u64, shrink_max_percent: Option<u8>) -> Option<u64> {
    let Some(percent) = shrink_max_percent else { return Some(old_rows / 2 + 1) };
    let kept_percent = 100_u8.checked_sub(percent)?;
    u64::try_from((u128::from(old_rows) * u128::from(kept_percent)).div_ceil(100)).ok()
}

/// Returns the columns of two different schemas that differ, each column as `name:type` text. A reader that names a
/// column finds it again only if its name and its type are the same.
fn differences(new: &[String], old: &[String]) -> String {
    // Manifests of other programs may have columns without a type.
    let split = |column: &'_ String| -> (String, String) {
        let (name, column_type) = column.rsplit_once(':').unwrap_or((column, ""));
        (name.to_owned(), column_type.to_owned())
    };
    let types = |columns: &[String]| columns.iter().map(split).collect::<BTreeMap<String, String>>();
    let (new_types, old_types) = (types(new), types(old));
    let mut found: Vec<String> = Vec::new();
    for (name, old_type) in &old_types {
        match new_types.get(name) {
            None => found.push(format!("{name}:{old_type} is missing")),
            Some(new_type) if new_type != old_type => found.push(format!("{name} is {new_type}, expected {old_type}")),
            Some(_) => {}
        }
    }
    let added = new_types.iter().filter(|(name, _)| !old_types.contains_key(*name));
    found.extend(added.map(|(name, new_type)| format!("{name}:{new_type} is new")));
    match found.is_empty() {
        true => format!("their order is {}, expected {}", new.join(","), old.join(",")),
        false => found.join("; "),
    }
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
    fn columns_that_differ_are_named() {
        let problem =
            |new: &[&str], old: &[&str]| match &facts(9, "u64", new).changes_from(&facts(9, "u64", old), None)[..] {
                [(Change::Schema, problem)] => problem.clone(),
                changes => panic!("{changes:?}"),
            };
        let old = ["name:text", "score:f32"];
        assert_eq!(
            problem(&["name:text", "rating:f32"], &old),
            "its columns differ: score:f32 is missing; rating:f32 is new"
        );
        assert_eq!(problem(&["name:text"], &old), "its columns differ: score:f32 is missing");
        assert_eq!(problem(&["name:text", "score:f64"], &old), "its columns differ: score is f64, expected f32");
        assert_eq!(
            problem(&["score:f32", "name:text"], &old),
            "its columns differ: their order is score:f32,name:text, expected name:text,score:f32"
        );
        assert_eq!(problem(&[], &["v:u8"]), "its columns differ: v:u8 is missing");
        // A name may contain a colon, and a manifest may be malformed.
        assert_eq!(problem(&["a:b:u8"], &["a:b:u16"]), "its columns differ: a:b is u8, expected u16");
        assert_eq!(problem(&["a", "a"], &["a"]), "its columns differ: their order is a,a, expected a");
    }

    #[test]
    fn changes_of_failed_exports_are_found() {
        let changes = |new: &Facts, old: &Facts| -> Vec<Change> {
            new.changes_from(old, None).into_iter().map(|(change, _)| change).collect()
        };
        let old = facts(1000, "u64", &["name:text"]);
        assert_eq!(changes(&facts(501, "u64", &["name:text"]), &old), []);
        assert_eq!(changes(&facts(1 << 60, "u64", &["name:text"]), &old), []);
        assert_eq!(changes(&facts(500, "u64", &["name:text"]), &old), [Change::Shrink]);
        assert_eq!(changes(&facts(0, "bytes", &[]), &old), [Change::Empty, Change::KeyType, Change::Schema]);
        assert_eq!(changes(&facts(1, "bytes", &["name:text"]), &old), [Change::Shrink, Change::KeyType]);
        assert_eq!(changes(&old, &facts(0, "bytes", &[])), []);
        assert_eq!(changes(&facts(1, "u64", &[]), &facts(1, "u64", &[])), []);
        for (rows, percent, is_shrunk) in
            [(800, 20, false), (799, 20, true), (1, 100, false), (999, 0, true), (1000, 0, false), (334, 66, true)]
        {
            let changes = facts(rows, "u64", &["name:text"]).changes_from(&old, Some(percent));
            assert_eq!(!changes.is_empty(), is_shrunk, "{rows} rows, {percent} %: {changes:?}");
        }
        for change in Change::ALL {
            assert_eq!(Change::from_name(change.name()), Some(change));
        }
        assert_eq!(Change::from_name("other"), None);
    }
}
