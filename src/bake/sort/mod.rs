//! Rows in any order into rows in key order, within a budget of memory.
//!
//! In: batches of rows, in the order of the input. Out: one ascending stream
//! without a key twice. `batch` holds rows in an `arena`, each as in `held`, `run` sorts and settles what fits
//! into memory, `spill` keeps runs on disk, `source` reads rows back in order from wherever they are,
//! `merge` makes one stream of many.

pub(super) mod arena;
pub(super) mod batch;
pub(super) mod blocks;
pub(super) mod held;
pub(super) mod merge;
pub(super) mod run;
pub(super) mod source;
pub(super) mod spill;
