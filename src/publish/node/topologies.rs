//! The topologies that a node of a cluster knows, and when the next one takes effect.
//!
//! In: topology documents, and the statuses of other nodes. Out: the topology to put into effect. A topology takes effect
//! when each primary that gets slots has confirmed it: its status names this topology as one whose rows the node has, and
//! the node still reports. If another node has put it into effect, it takes effect at once, because two nodes that follow
//! different topologies could redirect a client to each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::series::{SeriesRead, SeriesReader};
use super::{Found, NodeOptions, Read, STATUS_EVERY, STATUS_POLLS};
use crate::cluster::{Health, NodeIndex, Role, SlotSet, TOPOLOGY_NODES_MAX, Topology};
use crate::publish::error::PublishError;
use crate::publish::status::NodeStatus;

/// The number of times that a node can fail to report before its confirmation no longer counts, and the minimum of the
/// time that this takes.
const REPORTS_MISSED: u32 = 3;
const CONFIRMED_FOR_MIN: Duration = Duration::from_secs(5);
/// The number of reports of a node that are recognized as old if the store returns one of them again.
const BEATS_MAX: usize = 16;
/// The maximum number of topologies in memory that are not in effect yet. Older ones are forgotten.
const PENDING_MAX: usize = 16;

pub(super) struct Topologies {
    /// The name of this node.
    name: String,
    pub(super) series: SeriesReader,
    current: Option<KnownTopology>,
    /// Whether the topology in effect is the one before the newest, which a node without a topology assumes to be in
    /// effect.
    is_assumed: bool,
    /// Newer topologies that are not in effect yet, in ascending order.
    pending: Vec<KnownTopology>,
    /// The topology before the newest one, if the node had none.
    before: Option<KnownTopology>,
    has_read_before: bool,
    /// The other primaries whose slots change, or may have changed, between the topology in effect and the newest one.
    others: Vec<String>,
    observed: BTreeMap<String, Observed>,
    /// Whether something has changed since it was last decided whether a pending topology takes effect. With thousands
    /// of nodes, each step would otherwise take milliseconds.
    has_changed: bool,
    /// Whether a topology could not be put into effect. It is tried again after the next read.
    is_rejected: bool,
    pub(super) error: Option<PublishError>,
}

/// A topology, and the slots that it assigns to this node.
struct KnownTopology {
    topology: Arc<Topology>,
    own: SlotSet,
}

impl KnownTopology {
    fn number(&self) -> u64 {
        self.topology.number
    }
}

/// The reports of a node, as this node has observed them. Clocks of other machines matter only for the first one.
struct Observed {
    status: NodeStatus,
    /// The last beats.
    beats: Vec<u64>,
    /// When a new report arrived, by the clock of this node.
    reported_at: Option<Duration>,
}

impl Topologies {
    /// Creates the state of a node with a name that knows no topology.
    pub(super) fn new(name: &str) -> Topologies {
        Topologies {
            name: name.to_owned(),
            series: SeriesReader::default(),
            current: None,
            is_assumed: false,
            pending: Vec::new(),
            before: None,
            has_read_before: false,
            others: Vec::new(),
            observed: BTreeMap::new(),
            has_changed: false,
            is_rejected: false,
            error: None,
        }
    }

    #[cfg(test)]
    pub(super) fn state(&self) -> (bool, bool) {
        (!self.pending.is_empty(), self.is_assumed)
    }

    fn known(&self, topology: Arc<Topology>) -> KnownTopology {
        KnownTopology { own: topology.slots_of(&self.name), topology }
    }

    /// Returns the number of the topology in effect, or 0 if there is none, or if the node only assumes it.
    pub(super) fn number(&self) -> u64 {
        self.current.as_ref().filter(|_| !self.is_assumed).map_or(0, KnownTopology::number)
    }

    /// Returns the slots that the topology in effect and the pending ones assign to the node. Any pending topology may be
    /// in effect on other nodes.
    pub(super) fn slots(&self) -> SlotSet {
        let mut slots = SlotSet::NONE;
        let topologies = self.before.iter().chain(&self.current).chain(&self.pending);
        topologies.for_each(|topology| slots.insert_all(&topology.own));
        slots
    }

    /// Returns the number of the newest known topology whose slots the node has, or 0.
    pub(super) fn ready(&self, held: &SlotSet) -> u64 {
        let mut known = self.pending.iter().rev().chain(&self.current);
        known.find(|topology| topology.own.is_subset(held)).map_or(0, KnownTopology::number)
    }

    /// Returns the slots of the pending topologies whose rows the node has. It serves them before the topologies take
    /// effect, because other nodes may put them into effect first.
    pub(super) fn confirmed(&self, held: &SlotSet) -> SlotSet {
        let mut slots = SlotSet::NONE;
        let confirmed = self.pending.iter().filter(|pending| pending.own.is_subset(held));
        confirmed.for_each(|pending| slots.insert_all(&pending.own));
        slots
    }

    /// Records that the rows that the node has have changed.
    pub(super) fn held_changed(&mut self) {
        self.has_changed = true;
    }

    pub(super) fn activated(&mut self, topology: Arc<Topology>) {
        self.is_assumed = self.before.take().is_some();
        self.pending.retain(|pending| pending.number() > topology.number);
        if self.series.number() < topology.number {
            self.series = SeriesReader::new(topology.number);
        }
        self.current = Some(self.known(topology));
        self.topologies_changed();
    }

    pub(super) fn rejected(&mut self, error: PublishError) {
        (self.is_rejected, self.before, self.error) = (true, None, Some(error));
    }

    fn topologies_changed(&mut self) {
        self.has_changed = true;
        self.others = self.changed_primaries();
    }

    /// Returns the next read of a round, or `None` after the last one.
    pub(super) fn next_read(&self, has_read_statuses: bool, options: &NodeOptions) -> Option<Read> {
        match self.series.next_read() {
            Some(SeriesRead::Search(known)) => return Some(Read::NewestTopology(known)),
            // A node that starts serves the preceding topology until the primaries of the newest one have their rows.
            Some(SeriesRead::Number(number)) if self.current.is_none() && !self.has_read_before && number > 1 => {
                return Some(Read::TopologyBefore(number - 1));
            }
            Some(SeriesRead::Number(number)) => return Some(Read::Topology(number)),
            None => {}
        }
        let needs_statuses = options.is_writable && !has_read_statuses && !self.others.is_empty();
        needs_statuses.then(|| Read::Statuses(self.others.clone()))
    }

    pub(super) fn apply_read(&mut self, read: &Read, found: Option<Found>, is_damaged: bool, now: Duration) {
        (self.is_rejected, self.has_changed) = (false, true);
        match (read, found) {
            (Read::NewestTopology(_), Some(Found::Newest(newest))) => self.series.searched(newest),
            (Read::TopologyBefore(_), Some(Found::Topology(before))) => {
                self.has_read_before = true;
                self.before = before.map(|before| self.known(Arc::new(before)));
            }
            (Read::TopologyBefore(_), _) if is_damaged => self.has_read_before = true,
            (Read::Topology(number), Some(Found::Topology(Some(topology)))) => {
                if self.series.found(*number) {
                    let topology = self.known(Arc::new(topology));
                    self.pending.push(topology);
                    if self.pending.len() > PENDING_MAX {
                        // A topology that is missing between two others delays the later one, and nothing else.
                        self.pending.remove(0);
                    }
                    self.topologies_changed();
                }
            }
            (Read::Topology(number), Some(_)) => self.series.missing(*number),
            (Read::Topology(number), None) if is_damaged => self.series.damaged(*number),
            (Read::Statuses(_), Some(Found::Statuses(statuses))) => {
                statuses.into_iter().for_each(|status| self.observe(status, now));
            }
            (Read::Statuses(_), _) => {}
            _ => self.series.failed(),
        }
    }

    fn observe(&mut self, status: NodeStatus, now: Duration) {
        match self.observed.get_mut(&status.node) {
            Some(observed) => {
                if !observed.beats.contains(&status.beat) {
                    observed.beats.push(status.beat);
                    if observed.beats.len() > BEATS_MAX {
                        observed.beats.remove(0);
                    }
                    (observed.reported_at, observed.status) = (Some(now), status);
                }
            }
            None => {
                let is_recent = status.age_s <= CONFIRMED_FOR_MIN.as_secs();
                let (node, beats) = (status.node.clone(), vec![status.beat]);
                if self.observed.len() >= TOPOLOGY_NODES_MAX {
                    self.observed.clear();
                }
                self.observed.insert(node, Observed { status, beats, reported_at: is_recent.then_some(now) });
            }
        }
    }

    /// Returns the topology that takes effect now, or `None` if there is none.
    pub(super) fn next_activation(
        &mut self,
        now: Duration,
        options: &NodeOptions,
        held: &SlotSet,
    ) -> Option<Arc<Topology>> {
        if let Some(before) = &self.before {
            return Some(Arc::clone(&before.topology));
        }
        if !std::mem::take(&mut self.has_changed) {
            return None;
        }
        let newest = self.pending.last().filter(|_| !self.is_rejected)?;
        // Nobody expects this node to serve slots before its first topology. If the store can only be read, there are no
        // reports.
        let Some(current) = self.current.as_ref().filter(|_| options.is_writable) else {
            return Some(Arc::clone(&newest.topology));
        };
        let in_effect = self.observed.values().map(|observed| observed.status.topology).max().unwrap_or(0);
        let indexes: Vec<NodeIndex<'_>> = self.pending.iter().map(|pending| pending.topology.index()).collect();
        let current = (current.number(), current.topology.index());
        let is_due = |at: &usize| {
            self.pending[*at].number() <= in_effect || self.are_ready(&current, &indexes[..=*at], now, options, held)
        };
        (0..self.pending.len()).rev().find(is_due).map(|at| Arc::clone(&self.pending[at].topology))
    }

    /// Returns whether all primaries that get slots have confirmed the last one of the first pending topologies.
    fn are_ready(
        &self,
        (current_number, current): &(u64, NodeIndex<'_>),
        indexes: &[NodeIndex<'_>],
        now: Duration,
        options: &NodeOptions,
        held: &SlotSet,
    ) -> bool {
        let Some((index, between)) = indexes.split_last() else { return false };
        let next = &self.pending[between.len()].topology;
        let report_every = STATUS_EVERY.min(options.poll.saturating_mul(STATUS_POLLS));
        let confirmed_for = report_every.saturating_mul(REPORTS_MISSED).max(CONFIRMED_FOR_MIN);
        // A primary may have dropped rows that a topology between them assigned to another node.
        let knows_all = next.number == current_number + indexes.len() as u64;
        next.nodes.iter().filter(|node| node.role == Role::Primary && node.health != Health::Fail).all(|primary| {
            let needed = index.slots_of(&primary.id);
            let had = |index: &NodeIndex<'_>| needed.is_subset(&index.slots_of(&primary.id));
            // A replica that is promoted has the rows already.
            if knows_all && had(current) && between.iter().all(had) || needed.is_empty() {
                return true;
            }
            if primary.id == self.name {
                return needed.is_subset(held);
            }
            self.observed.get(&primary.id).is_some_and(|observed| {
                let is_reporting = observed.reported_at.is_some_and(|at| now < at + confirmed_for);
                is_reporting
                    && observed.status.ready_topology >= next.number
                    && needed.is_subset(&observed.status.slot_set())
            })
        })
    }

    fn changed_primaries(&self) -> Vec<String> {
        let (Some(current), Some(next)) = (&self.current, self.pending.last()) else { return Vec::new() };
        let knows_all = next.number() == current.number() + self.pending.len() as u64;
        let indexes: Vec<NodeIndex<'_>> = self.pending.iter().map(|pending| pending.topology.index()).collect();
        let current_index = current.topology.index();
        let nodes = self.pending.iter().chain([current]).flat_map(|known| &known.topology.nodes);
        let nodes = nodes.filter(|node| node.role == Role::Primary && node.id != self.name);
        let ids: BTreeSet<&str> = nodes.map(|node| node.id.as_str()).collect();
        let changes = |id: &&&str| {
            let slots = current_index.slots_of(id);
            !knows_all || indexes.iter().any(|index| index.slots_of(id) != slots)
        };
        ids.iter().filter(changes).map(|id| (*id).to_owned()).collect()
    }
}
