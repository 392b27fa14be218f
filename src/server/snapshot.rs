//! The facts that a server reports about itself, at one moment.
//!
//! In: the state and the counters of the server. Out: the value of each fact. The module `facts` names the facts.

use std::sync::PoisonError;
use std::time::Duration;

use super::counters::Sums;
use super::state::ServerState;
use super::statistics::TotalCounts;
use super::steps::STEP_LEN_BYTES;
use crate::format::checksum::BLOCK_LEN_BYTES;
use crate::format::key::KeyKind;
use crate::store::{Memory, Verify, Writers, WritersUnknown};

/// The server's version.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Formats the digest of a table as 32 hexadecimal digits.
pub(super) fn digest_text(digest: u128) -> String {
    format!("{digest:032x}")
}

/// The number of steps that taking and formatting a snapshot of a small table costs.
const SNAPSHOT_STEPS: usize = 1000;

/// The facts that a server reports about itself, at one moment.
pub(super) struct Snapshot {
    pub(super) uptime: Duration,
    pub(super) workers: usize,
    pub(super) socket: String,
    /// The address of the TCP socket. Empty if there is none.
    pub(super) tcp: String,
    /// The path of the served file.
    pub(super) file: String,
    pub(super) memory: &'static str,
    pub(super) verify: &'static str,
    /// Whether clients can map the file.
    pub(super) is_direct: bool,
    /// The number of the current generation.
    pub(super) generation: u64,
    pub(super) digest: u128,
    pub(super) key_kind: KeyKind,
    pub(super) rows: u64,
    pub(super) file_len_bytes: u64,
    /// Bytes of the file that are in memory.
    pub(super) resident_len_bytes: u64,
    /// The number of blocks, and how many of them are verified.
    pub(super) blocks: (usize, usize),
    /// The number of blocks that were found damaged.
    pub(super) damaged_blocks: usize,
    /// Whether the file was changed in place and is not trusted.
    pub(super) is_changed: bool,
    pub(super) sums: Sums,
    pub(super) totals: TotalCounts,
    pub(super) reload_last: String,
    /// The limit on `generations_retained`.
    pub(super) generations_max: usize,
    /// The number of bytes that all connections hold together.
    pub(super) client_memory_bytes: u64,
    /// The limit on `client_memory_bytes`.
    pub(super) client_memory_max_bytes: u64,
    /// Why the file at the path is not served. Empty if the file is served, or if there is no file.
    pub(super) file_refused: String,
    /// The number of panics of each thread, without panics that ended a connection.
    pub(super) thread_panics: Vec<(String, u64)>,
    /// The problems of threads, one sentence each.
    pub(super) thread_problems: Vec<String>,
    /// Why the server cannot detect processes that write to the file. `None` if it can.
    pub(super) writers_unknown: Option<WritersUnknown>,
}

impl Snapshot {
    /// Takes a snapshot of a running server.
    pub(super) fn take(server: &ServerState) -> Snapshot {
        let (generation, statistics, settings) = (server.table.current(), &server.statistics, &server.settings);
        let plan = &settings.source.plan;
        let store = &generation.store;
        Snapshot {
            uptime: statistics.uptime(),
            workers: statistics.worker_count(),
            socket: settings.socket.display().to_string(),
            tcp: settings.tcp.map(|tcp| tcp.to_string()).unwrap_or_default(),
            file: settings.source.path.display().to_string(),
            memory: match plan.memory {
                Memory::Map => "map",
                Memory::Copy => "copy",
                Memory::Sealed => "sealed",
            },
            verify: match (plan.options.verify, plan.background) {
                (Verify::Full, _) => "full",
                (_, true) => "background",
                (_, false) => "touch",
            },
            is_direct: server.table.is_direct(&generation),
            generation: generation.number,
            digest: store.digest(),
            key_kind: store.key_kind(),
            rows: store.len() as u64,
            file_len_bytes: store.file_len_bytes(),
            resident_len_bytes: server.residency.len_bytes(),
            blocks: store.block_counts(),
            damaged_blocks: store.damaged_block_count(),
            is_changed: server.table.is_changed() || !store.is_trusted(),
            sums: statistics.sums(),
            totals: statistics.totals.counts(),
            reload_last: statistics.outcomes.reload_last.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            generations_max: settings.limits.generations_max,
            client_memory_bytes: server.client_memory.held_bytes(),
            client_memory_max_bytes: server.client_memory.max_bytes,
            file_refused: statistics.outcomes.file_refused.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            thread_panics: server
                .liveness
                .threads()
                .map(|thread| (thread.name().to_owned(), thread.panics()))
                .collect(),
            thread_problems: server.liveness.problems(),
            writers_unknown: match generation.writers {
                Writers::Unknown(reason) => Some(reason),
                Writers::None | Writers::Some => None,
            },
        }
    }

    /// Returns the number of steps that taking and formatting a snapshot costs. The number grows with the table,
    /// because a snapshot counts the verified blocks.
    pub(super) fn steps(server: &ServerState) -> usize {
        SNAPSHOT_STEPS + server.table.current().store.records().len() / BLOCK_LEN_BYTES / STEP_LEN_BYTES
    }

    /// Returns one word for the state of the served file: `serving`, or `changed` if the file was changed in place.
    pub(super) fn state(&self) -> &'static str {
        if self.is_changed { "changed" } else { "serving" }
    }

    /// Returns one word for the kind of the table's keys.
    pub(super) fn key_kind(&self) -> &'static str {
        match self.key_kind {
            KeyKind::U64 => "u64",
            KeyKind::Bytes => "bytes",
        }
    }
}
