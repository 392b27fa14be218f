//! The parts of the bench `cluster`.

pub(crate) mod check;
pub(crate) mod merge;
pub(crate) mod pipeline;
pub(crate) mod processors;
pub(crate) mod redis;
pub(crate) mod routed;
pub(crate) mod servers;
pub(crate) mod storm;

/// Returns the median of some numbers.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
