//! The state and the counters of a server, at one moment.
//!
//! In: the state and the counters of the server. Out: the values that the facts are computed from (module `facts`).

use std::cell::OnceCell;
use std::sync::Arc;

use super::counters::Sums;
use super::generations::Generation;
use super::published::PublishedFacts;
use super::state::ServerState;
use super::statistics::TotalCounts;
use super::steps::STEP_LEN_BYTES;
use crate::format::checksum::BLOCK_LEN_BYTES;
use crate::format::key::KeyKind;
use crate::store::{Memory, Verify, Writers, WritersUnknown};
use crate::sync::unpoisoned;

/// The server's version.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Formats the digest of a table as 32 hexadecimal digits.
pub(super) fn digest_text(digest: u128) -> String {
    format!("{digest:032x}")
}

/// The cost, in steps, of taking and formatting a [`Snapshot`], not including the cost of counting the verified blocks.
const SNAPSHOT_STEPS: usize = 1000;

/// The state and the counters of a server, at one moment. Values that have no field here are read from `server` when
/// they are reported.
pub(super) struct Snapshot<'s> {
    pub(super) server: &'s ServerState,
    /// The current generation.
    pub(super) generation: Arc<Generation>,
    /// See [`Snapshot::blocks`].
    blocks: OnceCell<(usize, usize)>,
    /// Whether the file was changed in place and is not trusted.
    pub(super) is_changed: bool,
    pub(super) sums: Sums,
    pub(super) totals: TotalCounts,
    /// Why the file at the path is not served. Empty if the file is served, or if there is no file.
    pub(super) file_refused: String,
    /// The published table that the server follows, if there is one.
    pub(super) published: Option<PublishedFacts>,
    /// The problems of the server's threads, for example that a thread makes no progress. Each problem is one sentence.
    pub(super) thread_problems: Vec<String>,
}

impl Snapshot<'_> {
    /// Copies the state and the counters of a running server.
    pub(super) fn take(server: &ServerState) -> Snapshot<'_> {
        let (generation, statistics) = (server.table.current(), &server.statistics);
        let store = &generation.store;
        Snapshot {
            blocks: OnceCell::new(),
            is_changed: server.table.is_changed() || !store.is_trusted(),
            sums: statistics.sums(),
            totals: statistics.totals.counts(),
            file_refused: unpoisoned(&statistics.outcomes.file_refused).clone(),
            published: server.control.published_facts(),
            thread_problems: server.liveness.problems(),
            server,
            generation,
        }
    }

    /// Returns the number of blocks, and how many of them are verified. The blocks of a large table take milliseconds to
    /// count, so the first call counts them.
    pub(super) fn blocks(&self) -> (usize, usize) {
        *self.blocks.get_or_init(|| self.generation.store.block_counts())
    }

    /// Returns the cost, in steps, of taking and formatting a [`Snapshot`]. The cost grows with the table, because the
    /// verified blocks are counted.
    pub(super) fn steps(server: &ServerState) -> usize {
        SNAPSHOT_STEPS + server.table.current().store.records().len() / BLOCK_LEN_BYTES / STEP_LEN_BYTES
    }

    /// Returns one word for the state of the served file: `serving`, or `changed` if the file was changed in place.
    pub(super) fn state(&self) -> &'static str {
        if self.is_changed { "changed" } else { "serving" }
    }

    /// Returns the value of `--memory`: `map`, `copy`, or `sealed`.
    pub(super) fn memory(&self) -> &'static str {
        match self.server.settings.source.plan.memory {
            Memory::Map => "map",
            Memory::Copy => "copy",
            Memory::Sealed => "sealed",
        }
    }

    /// Returns the value of `--verify`: `full`, `background`, or `touch`.
    pub(super) fn verify(&self) -> &'static str {
        let plan = &self.server.settings.source.plan;
        match (plan.options.verify, plan.background) {
            (Verify::Full, _) => "full",
            (_, true) => "background",
            (_, false) => "touch",
        }
    }

    /// Returns why the server cannot detect processes that write to the file, or `None` if it can.
    pub(super) fn writers_unknown(&self) -> Option<WritersUnknown> {
        match self.generation.writers {
            Writers::Unknown(reason) => Some(reason),
            Writers::None | Writers::Some => None,
        }
    }

    /// Returns one word for the kind of the table's keys.
    pub(super) fn key_kind(&self) -> &'static str {
        match self.generation.store.key_kind() {
            KeyKind::U64 => "u64",
            KeyKind::Bytes => "bytes",
        }
    }
}
