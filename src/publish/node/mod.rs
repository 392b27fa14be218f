//! The decisions of a node that follows a published table, without input and output.
//!
//! In: the results of reads, transfers, and swaps, and the time. Out: what the node does next. At every step, the
//! machine derives the next action from all documents that it knows: pins, decisions of rollouts, manifests, and
//! topologies. Nothing that it decided earlier is carried out later without this check. At most one read, one transfer,
//! one swap, and one write of the status are in progress, next to each other, so a node that fetches still follows pins
//! and topologies and reports its state.
//!
//! [`Follower`](super::Follower) carries the actions out. The simulation carries them out on a virtual clock, in a
//! store with faults.
//!
//! Reasons and evidence: `docs/decisions/simulated-fleets.md`.

mod reads;
mod reports;
mod selection;
mod topologies;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::Record;
use super::change::Change;
use super::error::{FailureKind, PublishError};
use super::limits::EARLIER_SLOTS_MAX;
use super::manifest::Manifest;
use super::pin::{Decision, Pin};
use super::status::NodeStatus;
use crate::cluster::{SlotSet, Topology};
use crate::slots::SlotRange;
use reads::SeriesReader;
use topologies::Topologies;

/// The maximum time between two attempts to serve a generation that failed.
const RETRY_MAX: Duration = Duration::from_secs(300);
/// The maximum time after which a status is written again although it did not change.
const STATUS_EVERY: Duration = Duration::from_secs(60);
/// The number of polls after which a node that is part of a cluster or that fetches writes its status again.
const STATUS_POLLS: u32 = 3;
/// The minimum time between two writes of the status, if a poll takes longer.
const STATUS_GAP: Duration = Duration::from_secs(1);
/// The number of polls after which a node checks that the store still has the newest manifest.
const CHECK_POLLS: u64 = 12;
/// The number of manifests that are kept in memory, besides those in use.
const MANIFESTS_MAX: usize = 24;
/// The maximum number of generations whose failures are remembered.
const FAILURES_MAX: usize = 16;

/// The reads of a poll, or those before a swap.
#[derive(Default)]
struct Round {
    /// Whether only the documents are read that could change what is about to be served.
    is_confirmation: bool,
    /// The first error, and the read that it is of.
    error: Option<(Read, PublishError)>,
    has_read_pinned: bool,
    has_read_decision: bool,
    has_read_statuses: bool,
    has_read_reported: bool,
    has_checked: bool,
    has_checked_serving: bool,
    /// Whether an older manifest could not be read in this round.
    has_failed_older: bool,
}

/// A transfer in progress, or the file that it made complete.
#[derive(Clone)]
struct Prepared {
    generation: u64,
    slots: SlotSet,
    /// Whether the generation was the newest one, and no pin selected it. The node serves it even if a newer one has
    /// appeared since then. Otherwise, a node whose fetches take longer than the time between two generations would
    /// never serve a new one.
    is_newest: bool,
}

struct Transfer {
    prepared: Prepared,
    is_canceled: bool,
    since: Duration,
}

/// A generation that the node cannot serve.
struct Failure {
    attempts: u32,
    retry_at: Duration,
    text: String,
    /// Whether the generation itself is unusable, so that an older one is served until it can be used.
    is_unusable: bool,
}

/// The state of a node.
#[derive(Default)]
pub(super) struct NodeMachine {
    options: NodeOptions,
    random: u64,
    manifests: SeriesReader,
    pins: SeriesReader,
    bodies: BTreeMap<u64, Arc<Manifest>>,
    pin: Option<Pin>,
    /// The number of a pin, and the decision about it, which is final.
    decision: Option<(u64, Decision)>,
    topologies: Topologies,
    /// The slots that the program serves, including those that it has just given away.
    served_slots: SlotSet,

    /// The served generation, and the digest of its table.
    serving: u64,
    digest: String,
    held: SlotSet,
    held_ranges: Vec<SlotRange>,
    /// The sets of slots that a node of a cluster had before, newest first.
    earlier_slots: Vec<SlotSet>,
    /// Whether lookups found damaged blocks in the served file.
    is_damaged: bool,
    /// How often the served generation was found damaged.
    repairs: u32,
    transfer: Option<Transfer>,
    ready: Option<Prepared>,
    /// The generation that the pins still select, according to a read that has just ended.
    confirmed: Option<u64>,
    /// The generation whose file was complete when the read in progress began.
    confirming: Option<u64>,
    swap: Option<Goal>,
    /// The failures of generations, by their numbers.
    failures: BTreeMap<u64, Failure>,
    /// Older manifests that are missing or damaged.
    unreadable: BTreeSet<u64>,
    /// Whether the folder has the record of the current state, and nothing that is not needed.
    is_settled: bool,
    is_settling: bool,
    /// Whether a failed confirmation or record waits for the next poll.
    waits_for_poll: bool,

    round: Option<Round>,
    is_reading: bool,
    next_round_at: Duration,
    /// Whether a poll was requested since the last one began.
    is_woken: bool,
    /// The number of polls that have begun.
    polls: u64,
    polls_checked: u64,
    /// Whether the manifest of the served generation was compared with the one in the store since the node started.
    has_checked_serving: bool,
    /// Whether the store has the newest known manifest.
    is_newest_missing: bool,
    polled_at: Option<Duration>,
    /// Errors that were not reported yet.
    poll_error: Option<PublishError>,
    goal_error: Option<(u64, PublishError)>,
    /// Why the last poll failed.
    poll_problem: String,
    failure_counts: [u64; FailureKind::ALL.len()],
    /// Whether something ended that was not reported yet, and whether a generation was served since the last report.
    is_unreported: bool,
    has_served: bool,
    /// Messages about damage, which may be repaired before the next report.
    notices: Vec<String>,

    is_writing_status: bool,
    status_tried_at: Option<Duration>,
    status_written: Option<(Duration, NodeStatus)>,
    is_status_failing: bool,
    beat: u64,
}

impl NodeMachine {
    /// Creates the machine of a node that starts with a record in its folder and the manifests of complete generations.
    pub(super) fn new(options: NodeOptions, record: &Record, manifests: Vec<Manifest>) -> NodeMachine {
        let bodies: BTreeMap<u64, Arc<Manifest>> =
            manifests.into_iter().map(|manifest| (manifest.number, Arc::new(manifest))).collect();
        let newest = bodies.keys().copied().max().unwrap_or(0);
        let mut random = options.seed;
        let beat = split_mix(&mut random);
        // An earlier version recorded the number of the pin without its content, which is then read again.
        let pin = if record.pinned.is_some() { record.pin } else { record.pin.saturating_sub(1) };
        let mut pins = SeriesReader::new(pin);
        pins.exists_up_to(record.pin);
        NodeMachine {
            random,
            manifests: SeriesReader::new(newest),
            pins,
            bodies,
            pin: record.pinned.clone(),
            topologies: Topologies::new(&options.name),
            earlier_slots: record.earlier_slots.iter().map(|ranges| valid_slots(ranges)).collect(),
            is_settled: true,
            beat,
            options,
            ..NodeMachine::default()
        }
    }

    /// Records that the node serves a generation from its folder.
    pub(super) fn serves(&mut self, manifest: &Manifest, slots: SlotSet) {
        (self.serving, self.digest) = (manifest.number, manifest.digest());
        self.hold(slots);
        self.bodies.insert(manifest.number, Arc::new(manifest.clone()));
        // A killed process may have left files in the folder.
        self.is_settled = false;
    }

    fn hold(&mut self, slots: SlotSet) {
        if self.options.slots.is_none() && self.held != slots {
            let held = std::mem::replace(&mut self.held, SlotSet::NONE);
            self.earlier_slots.retain(|earlier| *earlier != slots && *earlier != held);
            if !held.is_empty() {
                self.earlier_slots.insert(0, held);
            }
            self.earlier_slots.truncate(EARLIER_SLOTS_MAX);
        }
        (self.held_ranges, self.held) = (slots.ranges(), slots);
        self.topologies.held_changed();
    }

    /// Returns the sets of slots that a node of a cluster had before, newest first.
    pub(super) fn earlier_slots(&self) -> &[SlotSet] {
        &self.earlier_slots
    }

    #[cfg(test)]
    pub(super) fn are_topologies_pending(&self) -> bool {
        self.topologies.are_pending()
    }

    /// Records that a topology is in effect.
    pub(super) fn follows(&mut self, topology: Arc<Topology>) {
        self.topologies.activated(topology);
    }

    /// Returns the slots of topologies that are not in effect yet that the program serves. It must serve them before
    /// the status is written, which confirms that it does.
    pub(super) fn confirmed(&self) -> SlotSet {
        match self.options.slots {
            Some(_) => SlotSet::NONE,
            None => self.topologies.confirmed(&self.held),
        }
    }

    /// Sets the slots that the program serves, as a node of a cluster.
    pub(super) fn set_served_slots(&mut self, slots: SlotSet) {
        self.served_slots = slots;
    }

    /// Returns the next action, or `None` if there is none before [`NodeMachine::wait_until`] or the next event.
    pub(super) fn next(&mut self, now: Duration) -> Option<Action> {
        if let Some(topology) = self.topologies.next_activation(now, &self.options, &self.held) {
            return Some(Action::Activate(topology));
        }
        // The first poll shows which generations are needed.
        let is_polled = self.polls > 1 || self.polls == 1 && self.round.is_none();
        if !self.is_settled && is_polled && !self.is_settling && !self.waits_for_poll && self.swap.is_none() {
            self.is_settling = true;
            return Some(Action::Settle(self.record(), self.used_manifests()));
        }
        self.next_transfer_or_swap(now).or_else(|| self.next_status(now)).or_else(|| self.next_read(now))
    }

    /// Returns the time of the next action, if no event comes first.
    pub(super) fn wait_until(&self, now: Duration) -> Duration {
        let round = match self.round {
            None => self.next_round_at,
            Some(_) => Duration::MAX,
        };
        let status = match self.options.is_writable && !self.is_writing_status {
            true => self.status_due_at(&self.status()),
            false => Duration::MAX,
        };
        let retries = self.failures.values().map(|failure| failure.retry_at).filter(|retry_at| *retry_at > now);
        round.min(status).min(retries.min().unwrap_or(Duration::MAX))
    }

    pub(super) fn apply(&mut self, event: Event, now: Duration) {
        match event {
            Event::Read(read, result) => {
                self.is_reading = false;
                self.apply_read(read, result, now);
            }
            Event::Activated(topology, Ok(())) => self.topologies.activated(topology),
            Event::Activated(_, Err(error)) => self.topologies.rejected(error),
            Event::Transferred(result) => self.transferred(result, now),
            Event::Swapped(result) => self.swapped(result, now),
            Event::Settled(result) => {
                self.is_settling = false;
                match result {
                    Ok(()) => self.is_settled = true,
                    Err(error) => {
                        self.waits_for_poll = true;
                        self.fail_poll(error);
                        self.is_unreported = true;
                    }
                }
            }
            Event::StatusWritten(result) => self.status_written(result),
            Event::Damaged(problem) => self.damaged(problem, now),
            Event::Woken => {
                self.waits_for_poll = false;
                (self.failures, self.unreadable) = (BTreeMap::new(), BTreeSet::new());
                (self.next_round_at, self.is_woken) = (now, true);
            }
        }
    }

    pub(super) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    fn transferred(&mut self, result: Result<Box<SlotSet>, PublishError>, now: Duration) {
        let Some(transfer) = self.transfer.take() else { return };
        // The read in progress may have begun before the transfer ended.
        (self.confirming, self.confirmed) = (None, None);
        match result {
            Ok(slots) => self.ready = Some(Prepared { slots: *slots, ..transfer.prepared }),
            Err(PublishError::Canceled) => {}
            Err(error) => self.fail(transfer.prepared.generation, error, false, now),
        }
        self.is_unreported = true;
    }

    fn swapped(&mut self, result: Result<(), SwapFailure>, now: Duration) {
        let Some(goal) = self.swap.take() else { return };
        self.ready = None;
        match result {
            Ok(()) => {
                if self.serving != goal.manifest.number {
                    self.repairs = 0;
                }
                (self.serving, self.digest) = (goal.manifest.number, goal.manifest.digest());
                self.hold(goal.slots);
                self.failures.remove(&self.serving);
                let is_served = |(generation, _): &(u64, PublishError)| *generation == goal.manifest.number;
                if self.goal_error.as_ref().is_some_and(is_served) {
                    self.goal_error = None;
                }
                (self.is_damaged, self.is_settled, self.has_served) = (false, false, true);
            }
            Err(SwapFailure { error, is_damaged }) => self.fail(goal.manifest.number, *error, is_damaged, now),
        }
        self.is_unreported = true;
    }

    /// Records that a generation cannot be served now, so that the next attempt waits. The first attempt to replace a
    /// damaged file does not wait.
    fn fail(&mut self, generation: u64, error: PublishError, is_damaged: bool, now: Duration) {
        let attempts = self.failures.get(&generation).map_or(0, |failure| failure.attempts) + 1;
        let wait = self.options.poll.saturating_mul(1 << attempts.min(10)).min(RETRY_MAX);
        let wait = if is_damaged && attempts == 1 { Duration::ZERO } else { wait };
        self.failure_counts[error.kind() as usize] += 1;
        let is_of_generation =
            matches!(error.kind(), FailureKind::Missing | FailureKind::Corrupt | FailureKind::Rejected);
        let is_unusable = is_of_generation && !is_damaged;
        self.failures
            .insert(generation, Failure { attempts, retry_at: now + wait, text: error.to_string(), is_unusable });
        if self.failures.len() > FAILURES_MAX {
            self.failures.pop_first();
        }
        // Of several failed generations, the newest one is reported.
        if self.goal_error.as_ref().is_none_or(|(reported, _)| *reported <= generation) {
            self.goal_error = Some((generation, error));
        }
    }

    fn damaged(&mut self, problem: &str, now: Duration) {
        if self.serving == 0 || self.is_damaged {
            return;
        }
        (self.is_damaged, self.repairs) = (true, self.repairs + 1);
        let problem = format!("{problem}: it is fetched again");
        let error = PublishError::Corrupt { object: format!("generation {}", self.serving), problem };
        self.notices.push(error.to_string());
        // A faulty disk must not make the node fetch copies all the time.
        let attempts = self.repairs - 1;
        let failure = Failure { attempts, retry_at: now, text: String::new(), is_unusable: false };
        self.failures.insert(self.serving, failure);
        self.fail(self.serving, error, true, now);
    }
}

/// Returns the slots of ranges that a folder has recorded.
pub(super) fn valid_slots(ranges: &[SlotRange]) -> SlotSet {
    ranges.iter().copied().filter(|range| range.is_valid()).collect()
}

/// Returns the next number of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The properties of a node that do not change.
#[derive(Clone, Debug, Default)]
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
    /// The maximum percentage of the rows that a generation may lose. `None` for less than half.
    pub(in crate::publish) shrink_max_percent: Option<u8>,
    /// Determines the random waits.
    pub(in crate::publish) seed: u64,
}

/// The next step of a node.
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
    /// An older manifest: of a generation that is served if newer ones are unusable, or that a newer one is compared
    /// with.
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

/// The result of a read.
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
    Manifest(Option<Box<Manifest>>),
    Pin(Option<Pin>),
    Decision(Option<Decision>),
    Topology(Option<Topology>),
    Statuses(Vec<NodeStatus>),
}

/// An event that the machine records.
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
    /// A program requests a poll, which retries failed generations.
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

/// The result of a poll.
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
