//! Rules for a table that replaces another one.
//!
//! In: the row counts and key types of two tables. Out: whether the new table may replace the old one. A failed export
//! often results in a small or empty table. The bake and the server therefore apply these rules, and keep the old table
//! if the new one breaks a rule.

use thiserror::Error;

use crate::counted::counted;
use crate::format::key_type::KeyType;
use crate::setting::Setting;

/// The conditions that a new table must meet to replace another table, or to be the first one.
///
/// By default, a table without rows does not replace a table with rows, and the type of the keys does not
/// change. A table without rows can be replaced by any table that has at least `rows_min` rows, and has no keys of any type.
///
/// # Example
/// ```
/// # #[cfg(feature = "bake")] {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("storage.db");
/// use zero_kv::bake::{self, Options};
///
/// let bake = |csv: &'static str, options: &Options| bake::bake_csv(csv.as_bytes(), &path, options);
/// let mut options = Options::default();
/// bake("7,seven\n8,eight\n", &options)?;
/// assert!(bake("", &options).unwrap_err().to_string().contains("allow an empty table"));
/// options.replace.shrink_max_percent = Some(40);
/// assert!(bake("7,seven\n", &options).unwrap_err().to_string().contains("allow a greater loss"));
/// options.replace.shrink_max_percent = Some(50);
/// assert!(bake("7,seven\n", &options).is_ok());
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplaceRules {
    /// Minimum number of rows of every table, including the first one.
    pub rows_min: u64,
    /// Maximum percentage of the old table's rows that the new table may lose. `None` allows any percentage below 100.
    /// This rule does not apply to a new table without rows: see `allow_empty`.
    pub shrink_max_percent: Option<u8>,
    /// Whether a table without rows may replace a table with rows.
    pub allow_empty: bool,
    /// Whether a table may replace a table whose keys have another type.
    pub allow_key_type_change: bool,
}

/// The properties of a table that [`ReplaceRules::check`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableSummary {
    pub(crate) rows: u64,
    pub(crate) key_type: KeyType,
}

/// The rule that a new table breaks, and the values that break it.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplaceError {
    /// The new table has fewer rows than the minimum.
    #[error(
        "the new table has {}, and at least {min} are required: check the input, or lower the minimum",
        counted(found, "row")
    )]
    TooFewRows {
        /// The new table's number of rows.
        found: u64,
        /// The minimum number of rows.
        min: u64,
    },
    /// The new table has no rows, and the old one has rows.
    #[error("the new table has no rows, and the old one has {old}: check the input, or allow an empty table")]
    Empty {
        /// The old table's number of rows.
        old: u64,
    },
    /// The new table lost too many of the old table's rows.
    #[error(
        "the new table has {}, and the old one has {old}, of which at most {max_percent} % may be lost: check \
         the input, or allow a greater loss",
        counted(found, "row")
    )]
    Shrunk {
        /// The new table's number of rows.
        found: u64,
        /// The old table's number of rows.
        old: u64,
        /// The maximum percentage of rows that the new table may lose.
        max_percent: u8,
    },
    /// The keys of the two tables are of different types.
    #[error(
        "keys of the new table are {found}, but keys of the old table are {old}: bake the new table with keys of the \
         old type, or allow the change"
    )]
    KeyType {
        /// The type of the new table's keys.
        found: KeyType,
        /// The type of the old table's keys.
        old: KeyType,
    },
}

impl ReplaceError {
    /// Returns the setting that must change for the new table to be accepted.
    pub fn setting(&self) -> Setting {
        match self {
            ReplaceError::TooFewRows { .. } => Setting::RowsMin,
            ReplaceError::Empty { .. } => Setting::AllowEmpty,
            ReplaceError::Shrunk { .. } => Setting::ShrinkMax,
            ReplaceError::KeyType { .. } => Setting::AllowKeyTypeChange,
        }
    }
}

impl ReplaceRules {
    /// Returns rules that let any table replace any other.
    pub const fn any() -> ReplaceRules {
        ReplaceRules { rows_min: 0, shrink_max_percent: None, allow_empty: true, allow_key_type_change: true }
    }

    /// Checks whether the table `new` may replace the table `old`. If `old` is `None`, checks whether `new` may be the
    /// first table.
    ///
    /// # Errors
    /// [`ReplaceError`] for the first rule that the new table breaks.
    pub(crate) fn check(&self, new: TableSummary, old: Option<TableSummary>) -> Result<(), ReplaceError> {
        if new.rows < self.rows_min {
            return Err(ReplaceError::TooFewRows { found: new.rows, min: self.rows_min });
        }
        let Some(old) = old.filter(|old| old.rows > 0) else { return Ok(()) };
        if new.rows == 0 {
            return if self.allow_empty { Ok(()) } else { Err(ReplaceError::Empty { old: old.rows }) };
        }
        if new.key_type != old.key_type && !self.allow_key_type_change {
            return Err(ReplaceError::KeyType { found: new.key_type, old: old.key_type });
        }
        match self.shrink_max_percent {
            Some(max_percent) if has_shrunk(new.rows, old.rows, max_percent) => {
                Err(ReplaceError::Shrunk { found: new.rows, old: old.rows, max_percent })
            }
            _ => Ok(()),
        }
    }
}

fn has_shrunk(new_rows: u64, old_rows: u64, max_percent: u8) -> bool {
    let lost = old_rows.saturating_sub(new_rows);
    u128::from(lost) * 100 > u128::from(old_rows) * u128::from(max_percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: u64, key_type: KeyType) -> TableSummary {
        TableSummary { rows, key_type }
    }

    fn numbers(rows: u64) -> TableSummary {
        table(rows, KeyType::U64)
    }

    #[test]
    fn default_rules_reject_the_loss_of_all_rows_and_a_change_of_the_key_type() {
        let rules = ReplaceRules::default();
        let (one, none, text) = (numbers(1), numbers(0), table(5, KeyType::BYTES));
        for (new, old) in
            [(one, None), (none, None), (none, Some(none)), (one, Some(numbers(1000))), (text, Some(none))]
        {
            assert_eq!(rules.check(new, old), Ok(()), "{new:?} replaces {old:?}");
        }
        assert_eq!(rules.check(none, Some(one)), Err(ReplaceError::Empty { old: 1 }));
        let error = ReplaceError::KeyType { found: KeyType::BYTES, old: KeyType::U64 };
        assert_eq!(rules.check(text, Some(one)), Err(error));
        let rules = ReplaceRules { allow_empty: true, allow_key_type_change: true, ..rules };
        assert_eq!(rules.check(none, Some(one)), Ok(()));
        assert_eq!(rules.check(text, Some(one)), Ok(()));
    }

    #[test]
    fn the_minimum_number_of_rows_applies_to_the_first_table_too() {
        let rules = ReplaceRules { rows_min: 10, allow_empty: true, ..ReplaceRules::default() };
        for old in [None, Some(numbers(5))] {
            assert_eq!(rules.check(numbers(9), old), Err(ReplaceError::TooFewRows { found: 9, min: 10 }));
            assert_eq!(rules.check(numbers(0), old), Err(ReplaceError::TooFewRows { found: 0, min: 10 }));
            assert_eq!(rules.check(numbers(10), old), Ok(()));
        }
    }

    #[test]
    fn a_table_may_lose_the_allowed_percentage_of_rows_and_not_one_row_more() {
        let lose = |percent, new, old| {
            let rules = ReplaceRules { shrink_max_percent: Some(percent), ..ReplaceRules::default() };
            rules.check(numbers(new), Some(numbers(old))).is_ok()
        };
        assert!(lose(50, 500, 1000) && !lose(50, 499, 1000) && lose(50, 2000, 1000));
        assert!(lose(0, 1000, 1000) && !lose(0, 999, 1000));
        assert!(lose(100, 1, 1000) && lose(33, 2, 2) && !lose(33, 2, 3));
        assert!(!lose(99, 1, u64::MAX) && lose(99, u64::MAX, u64::MAX));
    }
}
