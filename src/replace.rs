//! Rules for a table that replaces another one.
//!
//! In: how many rows two tables have, and of which kind their keys are. Out: whether one may replace the other. An export
//! that failed often looks like a small table, or one without rows: both the bake and the server reject what their rules
//! do not allow, and the old table stays.

use thiserror::Error;

use crate::format::key::KeyKind;

/// What a table must be like to replace another one, or to be the first.
///
/// By default, a table without rows replaces no table with rows, and the kind of the keys does not change. A table
/// without rows is replaced by any other.
///
/// # Example
/// ```
/// # #[cfg(feature = "bake")] {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("storage.db");
/// use zero_kv::bake::{self, Options};
///
/// let bake = |csv: &'static str, options: &Options| bake::bake_csv(csv.as_bytes(), &path, options, &mut |_| ());
/// let mut options = Options::default();
/// bake("7,seven\n8,eight\n", &options)?;
/// assert!(bake("", &options).unwrap_err().to_string().contains("--allow-empty"));
/// options.replace.shrink_max_percent = Some(40);
/// assert!(bake("7,seven\n", &options).unwrap_err().to_string().contains("--max-shrink"));
/// options.replace.shrink_max_percent = Some(50);
/// assert!(bake("7,seven\n", &options).is_ok());
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplaceRules {
    /// Rows that every table must have, also the first one.
    pub rows_min: u64,
    /// The share of the old table's rows that may be lost. Without it, any share but all of them.
    pub shrink_max_percent: Option<u8>,
    /// Whether a table without rows may replace one with rows.
    pub allow_empty: bool,
    /// Whether a table may replace one whose keys are of the other kind.
    pub allow_key_kind_change: bool,
}

/// What the rules look at in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableSummary {
    pub(crate) rows: u64,
    pub(crate) key_kind: KeyKind,
}

/// Why a table may not replace another one.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplaceError {
    /// It has fewer rows than any table must have.
    #[error("the new table has {found} rows, and at least {min} are required: check its input, or lower --min-rows")]
    TooFewRows {
        /// The new table's rows.
        found: u64,
        /// The rows that are required.
        min: u64,
    },
    /// It has no rows, and the old one has.
    #[error("the new table has no rows, and the old one has {old}: check its input, or pass --allow-empty")]
    Empty {
        /// The old table's rows.
        old: u64,
    },
    /// It has lost too many rows.
    #[error(
        "the new table has {found} rows, and the old one has {old}, of which at most {max_percent} % may be lost: check its \
         input, or raise --max-shrink"
    )]
    Shrunk {
        /// The new table's rows.
        found: u64,
        /// The old table's rows.
        old: u64,
        /// The share of them that may be lost.
        max_percent: u8,
    },
    /// Its keys are of the other kind.
    #[error(
        "keys of the new table are {found}, and those of the old one are {old}: bake it with the other --keys, or pass \
         --allow-key-kind-change"
    )]
    KeyKind {
        /// What the new table's keys are.
        found: KeyKind,
        /// What the old table's keys are.
        old: KeyKind,
    },
}

impl ReplaceRules {
    /// Lets any table replace any other.
    pub const fn any() -> ReplaceRules {
        ReplaceRules { rows_min: 0, shrink_max_percent: None, allow_empty: true, allow_key_kind_change: true }
    }

    /// Checks whether a table may replace another one; without another one, whether it may be the first.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub(crate) fn check(&self, new: TableSummary, old: Option<TableSummary>) -> Result<(), ReplaceError> {
        if new.rows < self.rows_min {
            return Err(ReplaceError::TooFewRows { found: new.rows, min: self.rows_min });
        }
        let Some(old) = old.filter(|old| old.rows > 0) else { return Ok(()) };
        if new.rows == 0 {
            return if self.allow_empty { Ok(()) } else { Err(ReplaceError::Empty { old: old.rows }) };
        }
        if new.key_kind != old.key_kind && !self.allow_key_kind_change {
            return Err(ReplaceError::KeyKind { found: new.key_kind, old: old.key_kind });
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

    fn table(rows: u64, key_kind: KeyKind) -> TableSummary {
        TableSummary { rows, key_kind }
    }

    fn numbers(rows: u64) -> TableSummary {
        table(rows, KeyKind::U64)
    }

    #[test]
    fn by_default_rows_do_not_vanish_and_keys_keep_their_kind() {
        let rules = ReplaceRules::default();
        let (one, none, text) = (numbers(1), numbers(0), table(5, KeyKind::Bytes));
        for (new, old) in
            [(one, None), (none, None), (none, Some(none)), (one, Some(numbers(1000))), (text, Some(none))]
        {
            assert_eq!(rules.check(new, old), Ok(()), "{new:?} in place of {old:?}");
        }
        assert_eq!(rules.check(none, Some(one)), Err(ReplaceError::Empty { old: 1 }));
        let error = ReplaceError::KeyKind { found: KeyKind::Bytes, old: KeyKind::U64 };
        assert_eq!(rules.check(text, Some(one)), Err(error));
        let rules = ReplaceRules { allow_empty: true, allow_key_kind_change: true, ..rules };
        assert_eq!(rules.check(none, Some(one)), Ok(()));
        assert_eq!(rules.check(text, Some(one)), Ok(()));
    }

    #[test]
    fn a_table_has_the_rows_that_are_required_even_if_it_is_the_first() {
        let rules = ReplaceRules { rows_min: 10, allow_empty: true, ..ReplaceRules::default() };
        for old in [None, Some(numbers(5))] {
            assert_eq!(rules.check(numbers(9), old), Err(ReplaceError::TooFewRows { found: 9, min: 10 }));
            assert_eq!(rules.check(numbers(0), old), Err(ReplaceError::TooFewRows { found: 0, min: 10 }));
            assert_eq!(rules.check(numbers(10), old), Ok(()));
        }
    }

    #[test]
    fn a_share_of_the_rows_may_be_lost_and_not_one_more() {
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
