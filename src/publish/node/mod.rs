//! The decisions of a node that follows a published table, without input and output.
//!
//! In: the results of reads, transfers, and swaps, and the time. Out: what the node does next. At every step, the machine
//! derives the next action from all documents that it knows: pins, decisions of rollouts, manifests, and topologies.
//! Nothing that it decided earlier is carried out later without this check. At most one read, one transfer, one swap, and
//! one write of the status are in progress, next to each other, so a node that fetches still follows pins and topologies
//! and reports its state.
//!
//! [`Follower`](super::Follower) carries the actions out. The simulation carries them out on a virtual clock, in a store
//! with faults.

mod series;
mod topologies;

use std::collections::BTreeMap;
use std::mem::{discriminant, take};
use std::sync::Arc;
use std::time::Duration;

use super::error::{FailureKind, PublishError};
use super::manifest::Manifest;
use super::pin::{Decision, Pin};
use super::record::Record;
use super::status::NodeStatus;
use crate::cluster::{SlotSet, Topology};
use crate::slots::SlotRange;
use series::{SeriesRead, SeriesReader};
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
const MANIFESTS_MAX: usize = 8;

/// The properties of a node that do not change.
#[derive(Clone, Debug)]
pub(super) struct NodeOptions {
    pub(super) url: String,
    pub(super) name: String,
    /// The mean time between two polls.
    pub(super) poll: Duration,
    /// The slots of the node. `None` for a node of a cluster, whose topology assigns slots to it.
    pub(super) slots: Option<SlotSet>,
    /// Whether the store can be written.
    pub(super) is_writable: bool,
    /// Determines the random waits.
    pub(super) seed: u64,
}

/// What a node does next.
#[derive(Debug)]
pub(super) enum Action {
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
pub(super) struct Goal {
    pub(super) manifest: Arc<Manifest>,
    pub(super) slots: SlotSet,
    /// Whether lookups found damaged blocks in the file that the folder has.
    pub(super) repairs: bool,
}

/// A read of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// Find the newest number of the manifests, the pins, or the topologies. The number is known to exist, or 0.
    NewestManifest(u64),
    NewestPin(u64),
    NewestTopology(u64),
    /// Check that the newest known manifest exists, and find later ones after a gap.
    CheckManifest(u64),
    Manifest(u64),
    /// The manifest of a generation that a pin names.
    PinnedManifest(u64),
    Pin(u64),
    Decision(u64),
    Topology(u64),
    /// The topology before the newest one, which a node without a topology puts into effect.
    TopologyBefore(u64),
    /// The statuses of these nodes.
    Statuses(Vec<String>),
}

/// What a read found.
#[derive(Debug)]
pub(super) enum Found {
    /// The highest number that exists, or 0.
    Newest(u64),
    /// Whether the checked manifest exists, and the highest number that exists.
    Checked {
        exists: bool,
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
pub(super) enum Event {
    Read(Read, Result<Found, PublishError>),
    Activated(Arc<Topology>, Result<(), PublishError>),
    Transferred(Result<(), PublishError>),
    Swapped(Result<(), SwapFailure>),
    Settled(Result<(), PublishError>),
    StatusWritten(Result<(), PublishError>),
    /// Lookups found damaged blocks in the served file.
    Damaged,
    /// A program requests a poll, also of a generation that failed.
    Woken,
}

/// Why a generation is not served.
#[derive(Debug)]
pub(super) struct SwapFailure {
    pub(super) error: PublishError,
    /// Whether the file was damaged, so that it was deleted and must be fetched again.
    pub(super) is_damaged: bool,
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

/// What the documents select.
enum Selection {
    /// Unknown, because a document cannot be read. The node continues what it does, but does not swap.
    Unknown,
    /// The table has no generation.
    Nothing,
    Generation {
        manifest: Arc<Manifest>,
        /// Whether the node waits for the decision of a rollout.
        holds: bool,
        /// Whether no pin selects the generation.
        is_newest: bool,
    },
}

/// The reads of a poll, or those before a swap.
struct Round {
    /// Whether only the documents are read that could change what is about to be served.
    is_confirmation: bool,
    /// The first error, and the read that it is of.
    error: Option<(Read, PublishError)>,
    has_read_pinned: bool,
    has_read_decision: bool,
    has_read_statuses: bool,
    has_checked: bool,
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
    generation: u64,
    attempts: u32,
    retry_at: Duration,
    text: String,
}

/// The state of a node.
pub(super) struct NodeMachine {
    options: NodeOptions,
    random: u64,
    manifests: SeriesReader,
    pins: SeriesReader,
    bodies: BTreeMap<u64, Arc<Manifest>>,
    pin: Option<Pin>,
    /// The decision about a generation, which is final.
    decision: Option<(u64, Decision)>,
    topologies: Topologies,
    /// The slots that the program serves, including those that it has given away a moment ago.
    served_slots: SlotSet,

    /// What the node serves, and the digest of the table.
    serving: u64,
    digest: String,
    held: SlotSet,
    held_ranges: Vec<SlotRange>,
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
    failure: Option<Failure>,
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
    /// Whether the store has the newest known manifest.
    is_newest_missing: bool,
    polled_at: Option<Duration>,
    /// Errors that were not reported yet.
    poll_error: Option<PublishError>,
    goal_error: Option<PublishError>,
    /// Why the last poll failed.
    poll_problem: String,
    failures: [u64; FailureKind::ALL.len()],
    /// Whether something ended that was not reported yet, and whether a generation was served since the last report.
    is_unreported: bool,
    has_served: bool,

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
            decision: None,
            topologies: Topologies::default(),
            served_slots: SlotSet::NONE,
            serving: 0,
            digest: String::new(),
            held: SlotSet::NONE,
            held_ranges: Vec::new(),
            is_damaged: false,
            repairs: 0,
            transfer: None,
            ready: None,
            confirmed: None,
            confirming: None,
            swap: None,
            failure: None,
            is_settled: true,
            is_settling: false,
            waits_for_poll: false,
            round: None,
            is_reading: false,
            next_round_at: Duration::ZERO,
            is_woken: false,
            polls: 0,
            polls_checked: 0,
            is_newest_missing: false,
            polled_at: None,
            poll_error: None,
            goal_error: None,
            poll_problem: String::new(),
            failures: Default::default(),
            is_unreported: false,
            has_served: false,
            is_writing_status: false,
            status_tried_at: None,
            status_written: None,
            is_status_failing: false,
            beat,
            options,
        }
    }

    /// Records that the node serves a generation from its folder.
    pub(super) fn serves(&mut self, manifest: &Manifest, slots: SlotSet) {
        (self.serving, self.digest) = (manifest.number, manifest.digest());
        (self.held_ranges, self.held) = (slots.ranges(), slots);
        self.bodies.insert(manifest.number, Arc::new(manifest.clone()));
    }

    /// Records that a topology is in effect.
    pub(super) fn follows(&mut self, topology: Arc<Topology>) {
        self.topologies.activated(topology);
    }

    /// Returns the slots of topologies that are not in effect yet that the program serves. It must serve them before the
    /// status is written, which confirms that it does.
    pub(super) fn confirmed(&self) -> SlotSet {
        match self.options.slots {
            Some(_) => SlotSet::NONE,
            None => self.topologies.confirmed(&self.options.name, &self.held),
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
        if !self.is_settled && !self.is_settling && !self.waits_for_poll && self.swap.is_none() {
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
        let retry = self.failure.as_ref().map(|failure| failure.retry_at).filter(|retry_at| *retry_at > now);
        round.min(status).min(retry.unwrap_or(Duration::MAX))
    }

    // Goals.

    /// Returns the slots that the node needs.
    pub(super) fn needed(&self) -> SlotSet {
        match &self.options.slots {
            Some(slots) => slots.clone(),
            None => {
                let mut needed = self.served_slots.clone();
                needed.insert_all(&self.topologies.slots_of(&self.options.name));
                needed
            }
        }
    }

    fn selection(&self) -> Selection {
        if !self.pins.is_known() {
            return Selection::Unknown;
        }
        let node = self.options.name.as_str();
        let selected = self.pin.as_ref().map(|pin| (pin.generation_for(Some(node)), pin.hold && pin.applies_to(node)));
        let Some((Some(number), holds)) = selected else { return self.newest_selection() };
        let decision = self.decision.filter(|(decided, _)| *decided == number).map(|(_, decision)| decision);
        let (number, holds) = match (holds && number != self.serving, decision) {
            (true, Some(Decision::Abort)) if self.serving == 0 => return Selection::Nothing,
            (true, Some(Decision::Abort)) => (self.serving, false),
            (true, None) => (number, true),
            _ => (number, false),
        };
        match self.bodies.get(&number) {
            Some(manifest) => Selection::Generation { manifest: Arc::clone(manifest), holds, is_newest: false },
            None => Selection::Unknown,
        }
    }

    fn newest_selection(&self) -> Selection {
        let newest = self.manifests.number();
        let earlier = self.transfer.as_ref().map(|transfer| &transfer.prepared).or(self.ready.as_ref());
        let earlier =
            earlier.filter(|prepared| prepared.is_newest && (self.serving + 1..newest).contains(&prepared.generation));
        let number = earlier.map_or(newest, |prepared| prepared.generation);
        match self.bodies.get(&number) {
            // Only a pin makes a node go back.
            _ if newest == 0 && self.serving == 0 => Selection::Nothing,
            Some(manifest) if number >= self.serving => {
                Selection::Generation { manifest: Arc::clone(manifest), holds: false, is_newest: true }
            }
            _ => Selection::Unknown,
        }
    }

    /// Returns whether the node serves a generation with the slots that it needs.
    fn is_served(&self, generation: u64, needed: &SlotSet) -> bool {
        generation == self.serving && !self.is_damaged && needed.is_subset(&self.held)
    }

    /// Returns the manifest of the generation that the node should serve but does not.
    pub(super) fn missing(&self) -> Option<Arc<Manifest>> {
        match self.selection() {
            Selection::Generation { manifest, .. } if !self.is_served(manifest.number, &self.needed()) => {
                Some(manifest)
            }
            _ => None,
        }
    }

    /// Returns whether the served file is damaged, or lacks rows of slots that the node needs.
    fn lacks_rows(&self, needed: &SlotSet) -> bool {
        self.serving != 0 && (self.is_damaged || !needed.is_subset(&self.held))
    }

    /// Returns whether a generation is served as soon as its file is complete.
    fn can_serve(&self, selection: &Selection, now: Duration) -> bool {
        let Selection::Generation { manifest, holds, .. } = selection else { return false };
        let is_failing = |failure: &Failure| failure.generation == manifest.number && now < failure.retry_at;
        !holds && !self.failure.as_ref().is_some_and(is_failing)
    }

    fn next_transfer_or_swap(&mut self, now: Duration) -> Option<Action> {
        let confirmed = self.confirmed.take();
        if self.swap.is_some() {
            return None;
        }
        let needed = self.needed();
        let selection = match self.selection() {
            // The rows of new slots do not wait for the decision of a rollout, or for a document that cannot be read.
            selection if self.lacks_rows(&needed) && !self.can_serve(&selection, now) => {
                self.bodies.get(&self.serving).map_or(selection, |manifest| Selection::Generation {
                    manifest: Arc::clone(manifest),
                    holds: false,
                    is_newest: false,
                })
            }
            selection => selection,
        };
        let (manifest, holds, is_newest) = match selection {
            Selection::Unknown => return None,
            Selection::Nothing => return self.cancel_transfer(),
            Selection::Generation { manifest, holds, is_newest } => (manifest, holds, is_newest),
        };
        let generation = manifest.number;
        if needed.is_empty() || self.is_served(generation, &needed) {
            self.ready = None;
            if self.failure.as_ref().is_some_and(|failure| failure.generation == generation) {
                self.failure = None;
            }
            return self.cancel_transfer();
        }
        if let Some(transfer) = &self.transfer {
            let is_wanted = transfer.prepared.generation == generation && needed.is_subset(&transfer.prepared.slots);
            return if is_wanted { None } else { self.cancel_transfer() };
        }
        let is_failing =
            self.failure.as_ref().is_some_and(|failure| failure.generation == generation && now < failure.retry_at);
        if is_failing || self.is_settling {
            return None;
        }
        let is_ready = |ready: &Prepared| ready.generation == generation && needed.is_subset(&ready.slots);
        let Some(ready) = self.ready.clone().filter(is_ready) else {
            self.ready = None;
            let prepared = Prepared { generation, slots: needed.clone(), is_newest };
            self.transfer = Some(Transfer { prepared, is_canceled: false, since: now });
            return Some(Action::Transfer(Goal {
                manifest,
                slots: needed,
                repairs: self.is_damaged && generation == self.serving,
            }));
        };
        if holds || self.waits_for_poll {
            return None;
        }
        if generation != self.serving && confirmed != Some(generation) {
            // The pins may have changed during the transfer.
            return if self.round.is_none() { self.begin_round(now, true) } else { None };
        }
        let goal = Goal { manifest, slots: ready.slots, repairs: false };
        let record = Record { generation, slots: goal.slots.ranges(), ..self.record() };
        self.swap = Some(goal.clone());
        Some(Action::Swap(goal, record))
    }

    fn cancel_transfer(&mut self) -> Option<Action> {
        let transfer = self.transfer.as_mut().filter(|transfer| !transfer.is_canceled)?;
        transfer.is_canceled = true;
        Some(Action::CancelTransfer)
    }

    fn record(&self) -> Record {
        Record {
            generation: self.serving,
            pin: self.pins.number(),
            pinned: self.pin.clone(),
            slots: self.held_ranges.clone(),
        }
    }

    // Reads.

    fn next_read(&mut self, now: Duration) -> Option<Action> {
        if self.is_reading {
            return None;
        }
        if self.round.is_none() {
            return if now >= self.next_round_at { self.begin_round(now, false) } else { None };
        }
        match self.next_read_of_round() {
            Some(read) => {
                self.is_reading = true;
                self.confirming = self.ready.as_ref().map(|ready| ready.generation);
                Some(Action::Read(read))
            }
            None => {
                self.end_round(now);
                // The end of a round may make a swap possible.
                self.next(now)
            }
        }
    }

    fn begin_round(&mut self, now: Duration, is_confirmation: bool) -> Option<Action> {
        self.pins.begin_round();
        if !is_confirmation {
            self.polls += 1;
            self.is_woken = false;
            self.manifests.begin_round();
            self.topologies.series.begin_round();
        }
        self.round = Some(Round {
            is_confirmation,
            error: None,
            has_read_pinned: false,
            has_read_decision: false,
            has_read_statuses: false,
            has_checked: false,
        });
        self.next_read(now)
    }

    fn next_read_of_round(&self) -> Option<Read> {
        let round = self.round.as_ref()?;
        match self.pins.next_read() {
            Some(SeriesRead::Search(known)) => return Some(Read::NewestPin(known)),
            Some(SeriesRead::Number(number)) => return Some(Read::Pin(number)),
            None if round.is_confirmation => return None,
            None => {}
        }
        match self.manifests.next_read() {
            Some(SeriesRead::Search(known)) => return Some(Read::NewestManifest(known)),
            Some(SeriesRead::Number(number)) => return Some(Read::Manifest(number)),
            None => {}
        }
        let pin = self.pin.as_ref().filter(|_| self.pins.is_known());
        let selected = pin.and_then(|pin| pin.generation_for(Some(&self.options.name)));
        if let Some(number) = selected {
            if !round.has_read_pinned && !self.bodies.contains_key(&number) {
                return Some(Read::PinnedManifest(number));
            }
            let holds = pin.is_some_and(|pin| pin.hold && pin.applies_to(&self.options.name));
            let is_decided = self.decision.is_some_and(|(decided, _)| decided == number);
            if !round.has_read_decision && holds && number != self.serving && !is_decided {
                return Some(Read::Decision(number));
            }
        }
        if self.options.slots.is_none()
            && let Some(read) = self.topologies.next_read(round.has_read_statuses, &self.options)
        {
            return Some(read);
        }
        let is_check_due =
            self.polls_checked == 0 || self.is_newest_missing || self.polls >= self.polls_checked + CHECK_POLLS;
        (!round.has_checked && is_check_due && self.manifests.exists() > 0)
            .then(|| Read::CheckManifest(self.manifests.exists()))
    }

    fn end_round(&mut self, now: Duration) {
        let Some(mut round) = self.round.take() else { return };
        let mut error = round.error.take().map(|(_, error)| error);
        if error.is_none() && !self.pins.is_known() {
            error = Some(self.missing_pin());
        }
        self.is_unreported = true;
        if round.is_confirmation {
            if let Some(error) = error {
                self.fail_poll(error);
                self.waits_for_poll = true;
            }
            return;
        }
        let error = error.or_else(|| self.contradiction()).or_else(|| self.topologies.error.take());
        self.waits_for_poll = false;
        match error {
            Some(error) => self.fail_poll(error),
            None => {
                (self.poll_error, self.polled_at) = (None, Some(now));
                self.poll_problem.clear();
            }
        }
        let poll_ns = self.options.poll.as_nanos() as u64;
        let wait = poll_ns / 2 + split_mix(&mut self.random) % (poll_ns + 1);
        self.next_round_at = if self.is_woken { now } else { now + Duration::from_nanos(wait) };
        self.prune_bodies();
    }

    fn missing_pin(&self) -> PublishError {
        let number = self.pins.exists();
        PublishError::NoGeneration {
            url: self.options.url.clone(),
            problem: format!("pin {number} is missing or cannot be read: the served generation stays: create a pin"),
        }
    }

    /// Returns why what the store returned contradicts what the node knows.
    fn contradiction(&self) -> Option<PublishError> {
        let (newest, serving) = (self.manifests.exists(), self.serving);
        let problem = if serving > newest || self.is_newest_missing {
            format!(
                "the store does not have manifest {}, but this node serves generation {serving}: the store returned an \
                 older state, the manifest was deleted, or the table was created again: to serve that table, empty the \
                 cache and start again",
                newest.max(serving)
            )
        } else {
            return None;
        };
        Some(PublishError::NoGeneration { url: self.options.url.clone(), problem })
    }

    fn fail_poll(&mut self, error: PublishError) {
        self.failures[error.kind() as usize] += 1;
        self.poll_problem = error.to_string();
        self.poll_error = Some(error);
    }

    /// Returns the generations that are served, fetched, or about to be served.
    fn used(&self) -> Vec<u64> {
        let selected = match self.selection() {
            Selection::Generation { manifest, .. } => Some(manifest.number),
            _ => None,
        };
        let prepared = self.transfer.as_ref().map(|transfer| transfer.prepared.generation);
        let ready = self.ready.as_ref().map(|ready| ready.generation);
        [Some(self.serving), selected, prepared, ready].into_iter().flatten().collect()
    }

    fn used_manifests(&self) -> Vec<Arc<Manifest>> {
        self.used().iter().filter_map(|number| self.bodies.get(number)).cloned().collect()
    }

    /// Forgets the manifests that are not in use.
    fn prune_bodies(&mut self) {
        let mut used = self.used();
        used.push(self.manifests.number());
        while self.bodies.len() > MANIFESTS_MAX {
            let Some(unused) = self.bodies.keys().copied().find(|number| !used.contains(number)) else { return };
            self.bodies.remove(&unused);
        }
    }

    // Events.

    /// Records what happened.
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
            Event::Damaged => self.damaged(now),
            Event::Woken => {
                (self.failure, self.waits_for_poll) = (None, false);
                (self.next_round_at, self.is_woken) = (now, true);
            }
        }
    }

    fn apply_read(&mut self, read: Read, result: Result<Found, PublishError>, now: Duration) {
        let (found, mut error) = match result {
            Ok(found) => (Some(found), None),
            Err(error) => (None, Some(error)),
        };
        let is_damaged = matches!(error, Some(PublishError::Document { .. }));
        match (&read, found) {
            (Read::NewestPin(_), Some(Found::Newest(newest))) => self.pins.searched(newest),
            (Read::NewestPin(_), _) => self.pins.failed(),
            (Read::NewestManifest(_), Some(Found::Newest(newest))) => self.manifests.searched(newest),
            (Read::NewestManifest(_), _) => self.manifests.failed(),
            (Read::Pin(number), Some(Found::Pin(Some(pin)))) => {
                if self.pins.found(*number) {
                    self.pin = Some(pin);
                    self.is_settled = false;
                    if self.round.as_ref().is_some_and(|round| round.is_confirmation) {
                        // Read the other documents that the pin needs.
                        self.next_round_at = now;
                    }
                }
            }
            (Read::Pin(number), Some(_)) => self.pins.missing(*number),
            (Read::Pin(number), None) if is_damaged => self.pins.damaged(*number),
            (Read::Pin(_), None) => self.pins.failed(),
            (Read::Manifest(number), Some(Found::Manifest(Some(manifest)))) => {
                if self.manifests.found(*number) {
                    self.is_newest_missing = false;
                }
                self.bodies.insert(*number, Arc::new(manifest));
            }
            (Read::Manifest(number), Some(_)) => self.manifests.missing(*number),
            (Read::Manifest(number), None) if is_damaged => self.manifests.damaged(*number),
            (Read::Manifest(_), None) => self.manifests.failed(),
            (Read::CheckManifest(_), Some(Found::Checked { exists, newest })) => {
                self.polls_checked = self.polls;
                self.is_newest_missing = !exists && newest <= self.manifests.exists();
                self.manifests.exists_up_to(newest);
            }
            (Read::PinnedManifest(number), Some(Found::Manifest(Some(manifest)))) => {
                self.bodies.insert(*number, Arc::new(manifest));
            }
            (Read::Decision(number), Some(Found::Decision(Some(decision)))) => {
                self.decision = Some((*number, decision))
            }
            (Read::NewestTopology(_) | Read::Topology(_) | Read::TopologyBefore(_) | Read::Statuses(_), found) => {
                self.topologies.apply_read(&read, found, is_damaged, now);
            }
            _ => {}
        }
        // The pins that a swap depends on were read to their end at this moment.
        if matches!(read, Read::Pin(_)) && error.is_none() && self.pins.next_read().is_none() && self.pins.is_known() {
            self.confirmed = self.confirming;
        }
        let Some(round) = &mut self.round else { return };
        match &read {
            Read::PinnedManifest(number) => {
                round.has_read_pinned = true;
                if error.is_none() && !self.bodies.contains_key(number) {
                    let problem =
                        format!("the pin names generation {number}, which does not exist: pin an existing generation");
                    error = Some(PublishError::NoGeneration { url: self.options.url.clone(), problem });
                }
            }
            Read::Decision(_) => round.has_read_decision = true,
            Read::Statuses(_) => round.has_read_statuses = true,
            Read::CheckManifest(_) => round.has_checked = true,
            _ => {}
        }
        let is_same_series = |(failed, _): &(Read, PublishError)| discriminant(failed) == discriminant(&read);
        let is_known = match &read {
            Read::Pin(_) => self.pins.is_known(),
            Read::Manifest(_) => self.manifests.is_known(),
            Read::Topology(_) => self.topologies.series.is_known(),
            _ => false,
        };
        match (&round.error, error) {
            // A later document leads out of a damaged one.
            (Some(failed), None) if is_known && is_same_series(failed) => round.error = None,
            (None, Some(error)) => round.error = Some((read, error)),
            _ => {}
        }
    }

    fn transferred(&mut self, result: Result<(), PublishError>, now: Duration) {
        let Some(transfer) = self.transfer.take() else { return };
        // A read that is in progress may have begun before the transfer ended.
        (self.confirming, self.confirmed) = (None, None);
        match result {
            Ok(()) => self.ready = Some(transfer.prepared),
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
                (self.held_ranges, self.held) = (goal.slots.ranges(), goal.slots);
                (self.failure, self.goal_error) = (None, None);
                (self.is_damaged, self.is_settled, self.has_served) = (false, false, true);
            }
            Err(SwapFailure { error, is_damaged }) => self.fail(goal.manifest.number, error, is_damaged, now),
        }
        self.is_unreported = true;
    }

    /// Records that a generation cannot be served now, so that the next attempt waits. The first attempt to replace a
    /// damaged file does not wait.
    fn fail(&mut self, generation: u64, error: PublishError, is_damaged: bool, now: Duration) {
        let attempts = self.failure.as_ref().filter(|failure| failure.generation == generation);
        let attempts = attempts.map_or(0, |failure| failure.attempts) + 1;
        let wait = self.options.poll.saturating_mul(1 << attempts.min(10)).min(RETRY_MAX);
        let wait = if is_damaged && attempts == 1 { Duration::ZERO } else { wait };
        self.failures[error.kind() as usize] += 1;
        self.failure = Some(Failure { generation, attempts, retry_at: now + wait, text: error.to_string() });
        self.goal_error = Some(error);
    }

    fn damaged(&mut self, now: Duration) {
        if self.serving == 0 || self.is_damaged {
            return;
        }
        (self.is_damaged, self.repairs) = (true, self.repairs + 1);
        let problem = "lookups found damaged blocks in the file in the cache: it is fetched again".to_owned();
        let error = PublishError::Corrupt { object: format!("generation {}", self.serving), problem };
        // A disk that damages each copy must not make the node fetch it all the time.
        let attempts = self.repairs - 1;
        self.failure =
            (attempts > 0).then(|| Failure { generation: self.serving, attempts, retry_at: now, text: String::new() });
        self.fail(self.serving, error, true, now);
    }

    // Reports.

    fn is_idle(&self) -> bool {
        self.round.is_none() && self.transfer.is_none() && self.swap.is_none() && !self.is_settling
    }

    /// Returns the outcome of the polls that have ended, as soon as nothing that they started is in progress.
    pub(super) fn take_report(&mut self) -> Option<Result<Polled, PublishError>> {
        if !self.is_unreported || !self.is_idle() || self.polls == 0 {
            return None;
        }
        self.is_unreported = false;
        let has_served = take(&mut self.has_served);
        if let Some(error) = self.goal_error.take().or_else(|| self.poll_error.take()) {
            return Some(Err(error));
        }
        Some(Ok(match self.selection() {
            _ if has_served => Polled::Served(self.serving),
            Selection::Generation { manifest, holds, .. } => {
                let (number, needed) = (manifest.number, self.needed());
                match self.is_served(number, &needed) {
                    _ if needed.is_empty() => Polled::Unassigned,
                    true => Polled::Current(number),
                    false if holds => Polled::Holding(number),
                    false => Polled::Waiting(number),
                }
            }
            Selection::Nothing => Polled::Empty,
            Selection::Unknown => Polled::Waiting(self.manifests.number()),
        }))
    }

    /// Returns whether a transfer, a swap, or a record is in progress.
    pub(super) fn is_folder_in_use(&self) -> bool {
        self.transfer.is_some() || self.swap.is_some() || self.is_settling
    }

    /// Returns what is about to be served.
    pub(super) fn swapping(&self) -> Option<&Goal> {
        self.swap.as_ref()
    }

    pub(super) fn polls(&self) -> u64 {
        self.polls
    }

    pub(super) fn serving(&self) -> u64 {
        self.serving
    }

    pub(super) fn held(&self) -> &SlotSet {
        &self.held
    }

    pub(super) fn failures(&self) -> [u64; FailureKind::ALL.len()] {
        self.failures
    }

    /// Returns when the last successful poll ended.
    pub(super) fn polled_at(&self) -> Option<Duration> {
        self.polled_at
    }

    /// Returns the generation that is being fetched, and when the fetch began.
    pub(super) fn fetching(&self) -> Option<(u64, Duration)> {
        self.transfer.as_ref().map(|transfer| (transfer.prepared.generation, transfer.since))
    }

    /// Returns the status of the node, without what depends on other clocks or on the progress of a transfer.
    pub(super) fn status(&self) -> NodeStatus {
        let missing = self.missing().map(|manifest| manifest.number);
        let failure = self.failure.as_ref().filter(|failure| Some(failure.generation) == missing);
        let ready = self.ready.as_ref().filter(|ready| Some(ready.generation) == missing);
        let is_member = self.options.slots.is_none();
        let problem = match failure {
            Some(failure) => &failure.text,
            None => &self.poll_problem,
        };
        NodeStatus {
            node: self.options.name.clone(),
            serving: self.serving,
            digest: self.digest.clone(),
            prepared: ready.map_or(0, |ready| ready.generation),
            newest: self.manifests.number(),
            pin: self.pins.number(),
            error: problem.clone(),
            failed: failure.map_or(0, |failure| failure.generation),
            slots: if is_member { self.held_ranges.clone() } else { Vec::new() },
            topology: self.topologies.number(),
            ready_topology: if is_member { self.topologies.ready(&self.options.name, &self.held) } else { 0 },
            fetching: self.transfer.as_ref().map_or(0, |transfer| transfer.prepared.generation),
            beat: self.beat,
            ..NodeStatus::default()
        }
    }

    fn status_every(&self) -> Duration {
        let is_watched = self.options.slots.is_none() || self.transfer.is_some() || self.swap.is_some();
        if is_watched { STATUS_EVERY.min(STATUS_POLLS * self.options.poll) } else { STATUS_EVERY }
    }

    fn status_due_at(&self, status: &NodeStatus) -> Duration {
        let Some(tried_at) = self.status_tried_at else { return Duration::ZERO };
        let gap = self.options.poll.min(STATUS_GAP);
        match &self.status_written {
            Some((_, written)) if is_same_state(written, status) => tried_at + self.status_every(),
            Some(_) | None if self.is_status_failing => tried_at + self.options.poll,
            _ => tried_at + gap,
        }
    }

    fn next_status(&mut self, now: Duration) -> Option<Action> {
        if !self.options.is_writable || self.is_writing_status {
            return None;
        }
        let status = self.status();
        if now < self.status_due_at(&status) {
            return None;
        }
        self.beat = self.beat.wrapping_add(1);
        (self.is_writing_status, self.status_tried_at) = (true, Some(now));
        let status = NodeStatus { beat: self.beat, ..status };
        self.status_written = Some((now, status.clone()));
        Some(Action::WriteStatus(status))
    }

    fn status_written(&mut self, result: Result<(), PublishError>) {
        self.is_writing_status = false;
        match result {
            Ok(()) => self.is_status_failing = false,
            Err(error) => {
                if !self.is_status_failing {
                    self.failures[error.kind() as usize] += 1;
                }
                self.is_status_failing = true;
                self.status_written = None;
            }
        }
    }
}

/// Returns whether two statuses differ at most in what changes all the time.
fn is_same_state(left: &NodeStatus, right: &NodeStatus) -> bool {
    NodeStatus { beat: right.beat, ..left.clone() } == *right
}

/// Returns the next number of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
