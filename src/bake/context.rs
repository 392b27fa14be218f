//! The state that the stages of a bake share: the options, the budget, and the threads.

use rayon::ThreadPool;

use super::budget::Budget;
use super::error::BakeError;
use super::options::Options;
use super::typed::TypedPlan;

/// The options, the typed columns, the budget, and the threads of a bake.
pub(super) struct Context<'o> {
    pub(super) options: &'o Options,
    /// The columns of a typed table.
    pub(super) typed: Option<TypedPlan>,
    pub(super) budget: &'o Budget,
    pub(super) pool: &'o ThreadPool,
}

impl Context<'_> {
    pub(super) fn check_canceled(&self) -> Result<(), BakeError> {
        if self.options.cancel.is_set() { Err(BakeError::Canceled) } else { Ok(()) }
    }
}
