//! Counts the rows that a bake drops.

use crate::bake::row_fault::display_key;
use crate::format::key::Key;

/// The counts of dropped rows, and the duplicate that an error message names if duplicates are not allowed.
#[derive(Debug, Default)]
pub(in crate::bake) struct Tally {
    /// The number of rows in the inputs and merged tables that were dropped because another row with the same key was
    /// kept.
    pub(in crate::bake) duplicates_dropped: u64,
    /// The number of the base's rows that were replaced by rows of the input.
    pub(in crate::bake) base_replaced: u64,
    /// The number of the base's rows that were removed by deletions in the input.
    pub(in crate::bake) base_removed: u64,
    /// The duplicate to report if duplicates are errors. Among all pairs of rows with the same key that have been found
    /// so far, this is the pair whose second row is earliest in the input.
    pub(in crate::bake) duplicate: Option<Duplicate>,
}

/// Two rows with the same key.
#[derive(Debug)]
pub(in crate::bake) struct Duplicate {
    pub(in crate::bake) key: String,
    pub(in crate::bake) first_origin: u64,
    pub(in crate::bake) later_origin: u64,
}

impl Duplicate {
    pub(in crate::bake) fn new(key: Key<'_>, one: u64, other: u64) -> Duplicate {
        Duplicate { key: display_key(key), first_origin: one.min(other), later_origin: one.max(other) }
    }
}

impl Tally {
    /// Adds the counts of another tally, and keeps the duplicate whose second row is earlier in the input.
    pub(in crate::bake) fn add(&mut self, other: Tally) {
        self.duplicates_dropped += other.duplicates_dropped;
        self.base_replaced += other.base_replaced;
        self.base_removed += other.base_removed;
        if let Some(duplicate) = other.duplicate {
            let later_origin = duplicate.later_origin;
            self.note(|| duplicate, later_origin);
        }
    }

    /// Stores a duplicate (two rows with the same key), unless the second row of the stored duplicate is earlier in the
    /// input. `later_origin` is the origin (input and line) of the new duplicate's second row.
    pub(in crate::bake) fn note(&mut self, duplicate: impl FnOnce() -> Duplicate, later_origin: u64) {
        if self.duplicate.as_ref().is_none_or(|noted| later_origin < noted.later_origin) {
            self.duplicate = Some(duplicate());
        }
    }
}
