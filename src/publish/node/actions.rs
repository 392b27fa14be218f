//! What a node does, and what happens to it: the types between the machine and the follower.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{SlotSet, Topology};
use crate::publish::Record;
use crate::publish::change::Change;
use crate::publish::error::PublishError;
use crate::publish::manifest::Manifest;
use crate::publish::pin::{Decision, Pin};
use crate::publish::status::NodeStatus;

/// The properties of a node that do not change.
#[derive(Clone, Debug)]
pub(in crate::publish) struct NodeOptions {
    pub(in crate::publish) url: String,
    pub(in crate::publish) name: String,
    /// The mean time between two polls.
    pub(in crate::publish) poll: Duration,
    /// The slots of the node. `None` for a node of a cluster, whose topology assigns slots to it.
    pub(in crate::publish) slots: Option<SlotSet>,
    /// Whether the store can be written.
    pub(in crate::publish) is_writable: bool,
    /// The changes from one generation to the next that the node accepts without a permission of the publisher.
    pub(in crate::publish) allow: Vec<Change>,
    /// Determines the random waits.
    pub(in crate::publish) seed: u64,
}

/// What a node does next.
#[derive(Debug)]
pub(in crate::publish) enum Action {
    Read(Read),
    /// Put a topology into effect, and record it in the folder.
    Activate(Arc<Topology>),
    /// Make the folder have the verified file of a generation.
    Transfer(Goal),
    /// Cancel the transfer in progress.
    CancelTransfer,
    /// Record what is served next, and serve it.
    Swap(Goal, Record),
    /// Record what is served, and delete what the folder need not keep. It needs these generations.
    Settle(Record, Vec<Arc<Manifest>>),
    WriteStatus(NodeStatus),
}

/// The file of a generation that a node fetches or serves.
#[derive(Clone, Debug)]
pub(in crate::publish) struct Goal {
    pub(in crate::publish) manifest: Arc<Manifest>,
    pub(in crate::publish) slots: SlotSet,
    /// Whether lookups found damaged blocks in the file that the folder has.
    pub(in crate::publish) repairs: bool,
    /// The changes from the served generation that publishers have allowed.
    pub(in crate::publish) allowed: Vec<Change>,
}

/// A read of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::publish) enum Read {
    /// Find the newest number of the manifests, the pins, or the topologies. The number is known to exist, or 0.
    NewestManifest(u64),
    NewestPin(u64),
    NewestTopology(u64),
    /// Check that the newest known manifest exists, and find later ones after a gap.
    CheckManifest(u64),
    Manifest(u64),
    /// The manifest of a generation that a pin names.
    PinnedManifest(u64),
    /// An older manifest: of a generation that is served if newer ones are unusable, or that a newer one is compared with.
    OlderManifest(u64),
    Pin(u64),
    /// The decision about the pin with a number.
    Decision(u64),
    Topology(u64),
    /// The topology that other nodes report to be in effect.
    ReportedTopology(u64),
    /// The statuses of these nodes.
    Statuses(Vec<String>),
    /// The statuses of all nodes of the table.
    AllStatuses,
}

/// What a read found.
#[derive(Debug)]
pub(in crate::publish) enum Found {
    /// The highest number that exists, or 0.
    Newest(u64),
    /// Whether the checked manifest exists, and the highest number that exists.
    Checked {
        exists: bool,
        /// `None` if it cannot be read.
        manifest: Option<Box<Manifest>>,
        newest: u64,
    },
    Manifest(Option<Manifest>),
    Pin(Option<Pin>),
    Decision(Option<Decision>),
    Topology(Option<Topology>),
    Statuses(Vec<NodeStatus>),
}

/// What happened.
#[derive(Debug)]
pub(in crate::publish) enum Event {
    Read(Read, Result<Found, PublishError>),
    Activated(Arc<Topology>, Result<(), PublishError>),
    /// The folder has a verified file with these slots, which the node needs, and maybe more.
    Transferred(Result<Box<SlotSet>, PublishError>),
    Swapped(Result<(), SwapFailure>),
    Settled(Result<(), PublishError>),
    StatusWritten(Result<(), PublishError>),
    /// The served file is damaged, or no longer in the folder: what was found.
    Damaged(&'static str),
    /// A program requests a poll, also of a generation that failed.
    Woken,
}

/// Why a generation is not served.
#[derive(Debug)]
pub(in crate::publish) struct SwapFailure {
    pub(in crate::publish) error: Box<PublishError>,
    /// Whether the file was damaged, so that it was deleted and must be fetched again.
    pub(in crate::publish) is_damaged: bool,
}

impl SwapFailure {
    pub(in crate::publish) fn new(error: PublishError, is_damaged: bool) -> SwapFailure {
        SwapFailure { error: Box::new(error), is_damaged }
    }
}

/// What a poll changed.
#[derive(Debug, PartialEq, Eq)]
pub enum Polled {
    /// The node serves the generation that it should, which has this number.
    Current(u64),
    /// The node has begun to serve a generation.
    Served(u64),
    /// The node has prepared a generation, and waits for the decision of a rollout.
    Holding(u64),
    /// The generation with this number failed, and is tried again later.
    Waiting(u64),
    /// The table has no generation.
    Empty,
    /// The topology of the cluster assigns no slots to the node.
    Unassigned,
}
