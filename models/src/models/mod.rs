//! A module per source file.

mod blocks;
mod lease;
mod ranges;
mod words;

pub(crate) use lease::LeaseState;

/// Threads that use a source file, and what must hold of the outcome.
pub(crate) struct Model {
    pub(crate) name: &'static str,
    /// How often a thread may be preempted in one interleaving. More take longer, and hardly find more.
    preemptions_max: usize,
    run: fn(),
}

pub(crate) fn all() -> impl Iterator<Item = &'static Model> {
    [blocks::MODELS, lease::MODELS, ranges::MODELS, words::MODELS].into_iter().flatten()
}

impl Model {
    /// Panics at the first interleaving in which the model does not hold.
    pub(crate) fn check(&self) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(self.preemptions_max);
        builder.check(self.run);
    }
}
