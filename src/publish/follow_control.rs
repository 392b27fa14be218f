//! What a program sets and reads while a node follows a table.
//!
//! In: the options of a node, requests of other threads, and topologies. Out: the numbers that the node reports, and
//! the slots that the program serves. [`NodeMachine`](super::node::NodeMachine) decides when a topology takes effect.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Notify;

use super::cache::write_durably;
use super::change::Change;
use super::document::{decode, encode};
use super::error::{FailureKind, PublishError};
use super::limits::TOPOLOGY_LEN_MAX_BYTES;
use super::status::NodeStatus;
use crate::bake::Cancel;
use crate::cluster::{SlotSet, Topology};
use crate::folder::Folder;
use crate::slots::SlotRange;
use crate::sync::unpoisoned;

/// How a node follows a table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FollowOptions {
    /// The folder that keeps generations.
    pub cache: PathBuf,
    /// The slots that the node has. It fetches only files with some of these slots, and serves only their rows.
    /// Canaries of other slots are not looked up. A node of a cluster has the slots that its topology assigns to it
    /// instead.
    pub slots: SlotRange,
    /// The name of the node, which is unique among the nodes of the table.
    pub node: String,
    /// The zone of the node, such as a data center, or empty. A rollout can proceed zone by zone.
    pub zone: String,
    /// The mean time between two polls. Each wait is random, between half and one and a half of this time.
    pub poll: Duration,
    /// The maximum rate of downloads, in bytes per second. `None` for no limit.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// The number of generations that the folder keeps, at least 1.
    pub keep: usize,
    /// The changes from one generation to the next that the node accepts although the publisher has not allowed them.
    pub allow: Vec<Change>,
    /// The maximum percentage of the rows that a generation may lose. `None` for less than half. Has no effect if
    /// `allow` has [`Change::Shrink`].
    pub shrink_max_percent: Option<u8>,
}

impl FollowOptions {
    /// Returns the default options for a folder and a node's name: all slots, no zone, a poll every 5 seconds, no limit
    /// on the rate, 3 generations, and all changes.
    pub fn new(cache: impl Into<PathBuf>, node: impl Into<String>) -> FollowOptions {
        FollowOptions {
            cache: cache.into(),
            slots: SlotRange::ALL,
            node: node.into(),
            zone: String::new(),
            poll: Duration::from_secs(5),
            bandwidth_bytes_per_s: None,
            keep: 3,
            allow: Change::ALL.to_vec(),
            shrink_max_percent: None,
        }
    }
}

/// The numbers that a node reports, which other threads read.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FollowFacts {
    /// The status that the node reports to the store.
    pub status: NodeStatus,
    /// The number of polls.
    pub polls: u64,
    /// The number of downloaded bytes.
    pub fetched_bytes: u64,
    /// The number of failures of each kind, in the order of [`FailureKind::ALL`].
    pub failures: [u64; FailureKind::ALL.len()],
    /// The download in progress: the bytes that are complete, and the length of the file. `None` if there is none.
    pub fetching: Option<(u64, u64)>,
    /// The number of seconds since the last successful poll ended, or since the follower started.
    pub poll_age_s: u64,
    /// The number of seconds since the served generation was published, by the clocks of the publisher and of this
    /// machine, or 0 if none is served.
    pub serving_age_s: u64,
    /// When the last successful poll ended, or when the follower started.
    pub(super) polled_at: Option<Instant>,
    /// When the served generation was published, as RFC 3339 text.
    pub(super) serving_created: String,
    /// Whether the table was served from the folder before the store was read.
    pub started_from_cache: bool,
    /// The slots whose rows are served, such as `0-16383`.
    pub slots: String,
}

/// A handle to a running [`Follower`](super::Follower).
#[derive(Clone, Default)]
pub struct FollowControl {
    pub(super) facts: Arc<Mutex<FollowFacts>>,
    pub(super) wake: Arc<Notify>,
    /// Whether a poll is requested, and whether lookups found damaged blocks.
    pub(super) is_poll_requested: Arc<AtomicBool>,
    pub(super) is_damaged: Arc<AtomicBool>,
    pub(super) cancel: Cancel,
}

impl FollowControl {
    /// Makes the follower poll now, and try a generation again that failed.
    pub fn poll(&self) {
        self.is_poll_requested.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Makes the follower fetch the served file again, because lookups found damaged blocks in it. Until the new file
    /// is complete, the old one stays.
    pub fn damaged(&self) {
        self.is_damaged.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Makes the follower end soon.
    pub fn stop(&self) {
        self.cancel.set();
        self.wake.notify_one();
    }

    /// Returns whether the follower was stopped.
    pub fn is_stopped(&self) -> bool {
        self.cancel.is_set()
    }

    /// Returns the numbers that the node reports.
    pub fn facts(&self) -> FollowFacts {
        let mut facts = unpoisoned(&self.facts).clone();
        facts.poll_age_s = facts.polled_at.map_or(0, |polled_at| polled_at.elapsed().as_secs());
        facts.serving_age_s = age_s(&facts.serving_created);
        facts
    }
}

/// Returns the number of seconds since a time in RFC 3339 text, or 0 if the time is in the future or malformed.
pub(super) fn age_s(created: &str) -> u64 {
    let created = humantime::parse_rfc3339(created).ok();
    created.and_then(|created| SystemTime::now().duration_since(created).ok()).map_or(0, |age| age.as_secs())
}

/// The name of the file with the topology in effect, so that a node can start without the store.
const FILE: &str = "topology.json";

/// The part of a program that serves the slots of a node.
pub trait ClusterMember: Send {
    /// Puts a topology into effect, or returns why it cannot.
    ///
    /// # Errors
    /// The reason.
    fn apply(&mut self, topology: &Topology) -> Result<(), String>;

    /// Announces the slots of the next served file.
    fn set_file_slots(&mut self, slots: &SlotSet);

    /// Sets the slots of coming topologies that the node serves already, because it has confirmed that it has their
    /// rows. Other nodes may put such a topology into effect first, and redirect clients to this node.
    fn confirm(&mut self, slots: &SlotSet);

    /// Returns the slots that the node serves. After a change of the topology, these are more than the topology assigns
    /// to the node, until all other nodes must have read the topology.
    fn served_slots(&self) -> SlotSet;
}

/// Puts the topology into effect that the node followed last, and returns it, if the folder has it.
pub(super) fn restore_topology(member: &mut dyn ClusterMember, folder: &Folder) -> Option<Topology> {
    let json = folder.read(FILE, TOPOLOGY_LEN_MAX_BYTES).ok()?;
    let topology = decode::<Topology>(&json).ok().filter(|topology| topology.check().is_ok())?;
    member.apply(&topology).ok().map(|()| topology)
}

/// Puts a topology into effect, and records it in the folder.
pub(super) fn activate_topology(
    member: &mut dyn ClusterMember,
    topology: &Topology,
    folder: &Folder,
) -> Result<(), PublishError> {
    let rejected = |problem| PublishError::Topology { url: format!("topology {}", topology.number), problem };
    member.apply(topology).map_err(rejected)?;
    write_durably(folder, FILE, &encode(topology))
}
