//! What every stage of a bake is given: what was asked, and what it may use.

use rayon::ThreadPool;

use super::budget::Budget;
use super::{BakeError, Options};

/// What a bake works with.
pub(super) struct Context<'o> {
    pub(super) options: &'o Options,
    pub(super) budget: &'o Budget,
    pub(super) pool: &'o ThreadPool,
}

impl Context<'_> {
    pub(super) fn check_cancelled(&self) -> Result<(), BakeError> {
        if self.options.cancel.is_set() { Err(BakeError::Cancelled) } else { Ok(()) }
    }
}
