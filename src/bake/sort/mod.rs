//! Sorts rows within a memory budget.
//!
//! In: the parsed rows of each piece, in the order of the input. Out: one ascending sequence without duplicate keys.
//! `parsed_piece` holds a piece's encoded rows (`held_row`) in an `arena`. `run` sorts the rows that fit into memory,
//! and `spill` writes sorted runs to disk with a checksum for each block. `blocks` reads blocks from disk and verifies
//! them. `sorted_rows` reads sorted rows from memory or disk, `merge` merges them, and `tally` counts dropped rows.
//!
//! Reasons and evidence: `docs/decisions/bake-sorting.md`.

pub(super) mod block_sums;
pub(super) mod blocks;
pub(super) mod extent_owner;
pub(super) mod held_row;
pub(super) mod merge;
pub(super) mod origin_jumps;
pub(super) mod parsed_piece;
pub(super) mod run;
pub(super) mod sorted_rows;
pub(super) mod spill;
pub(super) mod tally;
