//! The topologies that a node of a cluster knows, and when the next one takes effect.
//!
//! In: topology documents, and the statuses of other nodes. Out: the topology to put into effect. A topology takes
//! effect when each primary that gets slots has confirmed it: its status names this topology as one whose rows the node
//! has, and the node still reports. If another node has put it into effect, it takes effect at once, because two nodes
//! that follow different topologies could redirect a client to each other. For the same reason, a node that starts
//! without a topology follows the one that other nodes report, and not the newest one, which may wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::reads::{SeriesRead, SeriesReader};
use super::{Found, NodeOptions, Read, Round, STATUS_EVERY, STATUS_POLLS};
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

#[derive(Default)]
pub(super) struct Topologies {
    /// The name of this node.
    name: String,
    pub(super) series: SeriesReader,
    current: Option<KnownTopology>,
    /// Newer topologies that are not in effect yet, in ascending order.
    pending: Vec<KnownTopology>,
    /// When the node, which has no topology, first read the reports of all nodes.
    has_reports_since: Option<Duration>,
    /// Whether the last attempt to list the reports failed, for example because the node may not list objects.
    has_failed_list: bool,
    /// The other primaries whose slots change, or may have changed, between the topology in effect and the newest one.
    /// All primaries of the newest one if the node has no topology.
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
        Topologies { name: name.to_owned(), ..Topologies::default() }
    }

    #[cfg(test)]
    pub(super) fn are_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn known(&self, topology: Arc<Topology>) -> KnownTopology {
        KnownTopology { own: topology.slots_of(&self.name), topology }
    }

    /// Returns the number of the topology in effect, or 0 if there is none.
    pub(super) fn number(&self) -> u64 {
        self.current.as_ref().map_or(0, KnownTopology::number)
    }

    /// Returns the highest number of a topology that another node has put into effect, or 0.
    fn reported(&self) -> u64 {
        self.observed.values().map(|observed| observed.status.topology).max().unwrap_or(0)
    }

    /// Returns the slots that the topology in effect and the pending ones assign to the node. Any pending topology may
    /// be in effect on other nodes.
    pub(super) fn slots(&self) -> SlotSet {
        let mut slots = SlotSet::NONE;
        let topologies = self.current.iter().chain(&self.pending);
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
        self.pending.retain(|pending| pending.number() > topology.number);
        if self.series.number() < topology.number {
            self.series = SeriesReader::new(topology.number);
        }
        self.current = Some(self.known(topology));
        self.topologies_changed();
    }

    pub(super) fn rejected(&mut self, error: PublishError) {
        (self.is_rejected, self.error) = (true, Some(error));
    }

    fn topologies_changed(&mut self) {
        self.has_changed = true;
        self.others = self.changed_primaries();
    }

    /// Returns the next read of a round, or `None` after the last one.
    pub(super) fn next_read(&self, round: &Round, options: &NodeOptions) -> Option<Read> {
        match self.series.next_read() {
            Some(SeriesRead::Search(known)) => return Some(Read::NewestTopology(known)),
            Some(SeriesRead::Number(number)) => return Some(Read::Topology(number)),
            None => {}
        }
        if !options.is_writable {
            return None;
        }
        // A topology that waits may have none of the nodes that serve.
        let needs_all = self.current.is_none() && self.series.exists() > 1;
        if !round.has_read_statuses && needs_all && !self.has_failed_list {
            return Some(Read::AllStatuses);
        }
        if !round.has_read_statuses && !self.others.is_empty() {
            return Some(Read::Statuses(self.others.clone()));
        }
        let reported = self.reported();
        let is_known = |known: &KnownTopology| known.number() == reported;
        let is_unread = (self.number() + 1..=self.series.exists()).contains(&reported);
        (is_unread && !round.has_read_reported && !self.pending.iter().any(is_known))
            .then_some(Read::ReportedTopology(reported))
    }

    pub(super) fn apply_read(&mut self, read: &Read, found: Option<Found>, is_damaged: bool, now: Duration) {
        (self.is_rejected, self.has_changed) = (false, true);
        match (read, found) {
            (Read::NewestTopology(_), Some(Found::Newest(newest))) => self.series.searched(newest),
            (Read::ReportedTopology(_), Some(Found::Topology(Some(topology)))) => {
                let at = self.pending.partition_point(|pending| pending.number() < topology.number);
                let topology = self.known(Arc::new(topology));
                self.pending.insert(at, topology);
                self.topologies_changed();
            }
            (Read::ReportedTopology(_), _) => {}
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
            (Read::Statuses(_) | Read::AllStatuses, Some(Found::Statuses(statuses))) => {
                self.has_failed_list = false;
                if self.current.is_none() {
                    self.has_reports_since.get_or_insert(now);
                }
                statuses.into_iter().for_each(|status| self.observe(status, now));
            }
            (Read::AllStatuses, _) => self.has_failed_list = true,
            (Read::Statuses(_), _) => {}
            _ => self.series.failed(),
        }
    }

    fn observe(&mut self, status: NodeStatus, now: Duration) {
        if status.node == self.name {
            return;
        }
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
        if !std::mem::take(&mut self.has_changed) {
            return None;
        }
        let newest = self.pending.last().filter(|_| !self.is_rejected)?;
        // If the store can only be read, there are no reports.
        if !options.is_writable {
            return Some(Arc::clone(&newest.topology));
        }
        let indexes: Vec<NodeIndex<'_>> = self.pending.iter().map(|pending| pending.topology.index()).collect();
        let current = self.current.as_ref().map(|current| (current.number(), current.topology.index()));
        let reported = self.reported();
        let is_due = |at: &usize| match (self.pending[*at].number(), &current) {
            (number, Some(current)) => {
                number <= reported || self.are_ready(Some(current), &indexes[..=*at], now, options, held)
            }
            (number, None) if reported > 0 && reported <= self.series.exists() => number == reported,
            (number, None) if number <= reported || number == 1 => true,
            (_, None) => self.are_ready(None, &indexes[..=*at], now, options, held),
        };
        let due = (0..self.pending.len()).rev().find(is_due).map(|at| &self.pending[at]);
        // All nodes have lost their topology, or the one in effect cannot be read.
        let is_alone =
            current.is_none() && self.has_reports_since.is_some_and(|since| now >= since + confirmed_for(options));
        due.or_else(|| is_alone.then_some(newest)).map(|due| Arc::clone(&due.topology))
    }

    /// Returns whether all primaries that get slots have confirmed the last one of the first pending topologies.
    fn are_ready(
        &self,
        current: Option<&(u64, NodeIndex<'_>)>,
        indexes: &[NodeIndex<'_>],
        now: Duration,
        options: &NodeOptions,
        held: &SlotSet,
    ) -> bool {
        let Some((index, between)) = indexes.split_last() else { return false };
        let next = &self.pending[between.len()].topology;
        let confirmed_for = confirmed_for(options);
        // A primary may have dropped rows that a topology between them assigned to another node.
        let before = current.filter(|(number, _)| next.number == number + indexes.len() as u64);
        next.nodes.iter().filter(|node| node.role == Role::Primary && node.health != Health::Fail).all(|primary| {
            let needed = index.slots_of(&primary.id);
            let had = |index: &NodeIndex<'_>| needed.is_subset(&index.slots_of(&primary.id));
            // A replica that is promoted has the rows already.
            if before.is_some_and(|(_, current)| had(current) && between.iter().all(had)) || needed.is_empty() {
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
        let Some(next) = self.pending.last() else { return Vec::new() };
        let Some(current) = &self.current else {
            let primaries =
                next.topology.nodes.iter().filter(|node| node.role == Role::Primary && node.id != self.name);
            return primaries.map(|node| node.id.clone()).collect();
        };
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

/// Returns how long a confirmation counts after the last report.
fn confirmed_for(options: &NodeOptions) -> Duration {
    let report_every = STATUS_EVERY.min(options.poll.saturating_mul(STATUS_POLLS));
    report_every.saturating_mul(REPORTS_MISSED).max(CONFIRMED_FOR_MIN)
}
