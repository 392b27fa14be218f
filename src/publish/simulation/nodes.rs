//! A simulated node: the machine of a node, its folder, and the slots that it serves.

use std::sync::Arc;
use std::time::Duration;

use super::NODES;
use super::store::{GROUP_SLOTS, GROUPS};
use crate::cluster::{SlotSet, Topology};
use crate::publish::Record;
use crate::publish::change::Change;
use crate::publish::manifest::Manifest;
use crate::publish::node::{Goal, NodeMachine, NodeOptions};
use crate::slots::SlotRange;

/// The mean time between two polls, by the clock of the node.
pub(super) const POLL_MS: u64 = 10_000;
/// How long a node serves the slots that it has given away.
const RETAINED_MS: u64 = 4 * POLL_MS;

/// A file in the folder of a node.
#[derive(Clone)]
pub(super) struct SimulatedFile {
    pub(super) generation: u64,
    pub(super) slots: SlotSet,
    pub(super) is_damaged: bool,
}

/// What a node keeps after a crash.
#[derive(Default)]
pub(super) struct Disk {
    pub(super) record: Record,
    pub(super) topology: Option<Arc<Topology>>,
    pub(super) files: Vec<SimulatedFile>,
}

pub(super) struct SimulatedNode {
    pub(super) at: usize,
    /// `None` while the node is down.
    pub(super) machine: Option<NodeMachine>,
    /// The number of starts. Events of an earlier start are ignored.
    pub(super) incarnation: u64,
    pub(super) wake_token: u64,
    started_ms: u64,
    /// The rate of the node's clock, in thousandths.
    rate: u64,
    pub(super) disk: Disk,
    pub(super) topology: Option<Arc<Topology>>,
    /// The slots of the node by this topology, and the owner of each group of slots.
    own_slots: SlotSet,
    owners: [Option<usize>; GROUPS as usize],
    retained: SlotSet,
    retained_until_ms: u64,
    /// The generation that clients see, and the slots of its file.
    pub(super) served: Option<(u64, SlotSet)>,
    /// The file that is served is damaged.
    pub(super) serves_damaged: bool,
    /// The node has started with an empty folder, and does not have the rows of its topology yet.
    pub(super) is_recovering: bool,
    pub(super) transfer: Option<u64>,
    pub(super) record_before_swap: Option<Record>,
    /// The node cannot reach the store until then.
    pub(super) partitioned_until_ms: u64,
    /// The highest pin that the node has recorded.
    pub(super) pin: u64,
    /// The state of the store that the last read of a missing pin saw, and when the read was sent.
    pub(super) pin_view_ms: u64,
    pub(super) pin_sent_ms: u64,
    pub(super) ready_at_ms: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
}

impl SimulatedNode {
    pub(super) fn new(at: usize, rate: u64) -> SimulatedNode {
        SimulatedNode {
            at,
            machine: None,
            incarnation: 0,
            wake_token: 0,
            started_ms: 0,
            rate,
            disk: Disk::default(),
            topology: None,
            own_slots: SlotSet::NONE,
            owners: Default::default(),
            retained: SlotSet::NONE,
            retained_until_ms: 0,
            served: None,
            serves_damaged: false,
            is_recovering: true,
            transfer: None,
            record_before_swap: None,
            partitioned_until_ms: 0,
            pin: 0,
            pin_view_ms: 0,
            pin_sent_ms: 0,
            ready_at_ms: 0,
            reads: 0,
            writes: 0,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        NODES[self.at]
    }

    /// Returns the time that the node's clock shows at `now_ms`.
    pub(super) fn clock(&self, now_ms: u64) -> Duration {
        Duration::from_millis((now_ms - self.started_ms) * self.rate / 1000)
    }

    /// Returns when the node's clock shows a time.
    pub(super) fn at_clock(&self, clock: Duration) -> u64 {
        let ms = u64::try_from(clock.as_millis()).unwrap_or(u64::MAX).min(1 << 40);
        self.started_ms + ms * 1000 / self.rate + 1
    }

    pub(super) fn crash(&mut self) {
        (self.machine, self.served, self.transfer) = (None, None, None);
        self.follow(None);
        (self.retained, self.retained_until_ms, self.record_before_swap) = (SlotSet::NONE, 0, None);
        self.incarnation += 1;
    }

    /// Empties the folder of the node.
    pub(super) fn lose_folder(&mut self) {
        (self.disk, self.pin, self.is_recovering) = (Disk::default(), 0, true);
    }

    /// Notices that a node that has started with an empty folder has the rows of its topology.
    pub(super) fn recover(&mut self) {
        let has_rows = self.served.as_ref().is_some_and(|(_, slots)| self.own_slots.is_subset(slots));
        self.is_recovering &= self.topology.is_none() || !has_rows;
    }

    /// Starts the node with its folder, as `Follower::serve_from_cache` does.
    pub(super) fn start(&mut self, now_ms: u64, seed: u64, is_member: bool, manifests: Vec<Manifest>) {
        self.incarnation += 1;
        self.started_ms = now_ms;
        let options = NodeOptions {
            url: "http://store/users".to_owned(),
            name: self.name().to_owned(),
            poll: Duration::from_millis(POLL_MS),
            slots: (!is_member).then_some(SlotSet::ALL),
            is_writable: true,
            allow: vec![Change::Shrink, Change::Schema],
            seed,
        };
        let mut machine = NodeMachine::new(options, &self.disk.record, manifests.clone());
        if let Some(topology) = self.disk.topology.clone() {
            machine.follows(Arc::clone(&topology));
            self.follow(Some(topology));
        }
        let Record { generation: recorded, slots, .. } = &self.disk.record;
        let mut files = self.disk.files.clone();
        files.sort_by_key(|file| (file.generation == *recorded, file.slots.ranges() == *slots, file.generation));
        if let Some(file) = files.pop()
            && let Some(manifest) = manifests.iter().find(|manifest| manifest.number == file.generation)
        {
            machine.serves(manifest, file.slots.clone());
            (self.served, self.serves_damaged) = (Some((file.generation, file.slots)), file.is_damaged);
        }
        self.machine = Some(machine);
    }

    /// Returns the slots that the node serves by its topology, also those that it has given away a moment ago.
    pub(super) fn served_slots(&self, now_ms: u64) -> SlotSet {
        let mut slots = self.own_slots.clone();
        if now_ms < self.retained_until_ms {
            slots.insert_all(&self.retained);
        }
        if let Some(machine) = &self.machine {
            slots.insert_all(&machine.confirmed());
        }
        slots
    }

    pub(super) fn activate(&mut self, topology: Arc<Topology>, now_ms: u64) {
        (self.retained, self.retained_until_ms) = (self.served_slots(now_ms), now_ms + RETAINED_MS * 1000 / self.rate);
        self.disk.topology = Some(Arc::clone(&topology));
        self.follow(Some(topology));
    }

    fn follow(&mut self, topology: Option<Arc<Topology>>) {
        self.topology = topology;
        let Some(topology) = &self.topology else {
            (self.own_slots, self.owners) = (SlotSet::NONE, Default::default());
            return;
        };
        self.own_slots = topology.slots_of(self.name());
        let has = |group: usize, ranges: &[SlotRange]| ranges.iter().any(|range| range.has(group as u16 * GROUP_SLOTS));
        self.owners = std::array::from_fn(|group| topology.nodes.iter().position(|node| has(group, &node.slots)));
    }

    pub(super) fn file(&mut self, goal: &Goal) -> Option<&mut SimulatedFile> {
        self.disk.files.iter_mut().find(|file| file.generation == goal.manifest.number && file.slots == goal.slots)
    }

    /// Returns the groups of slots whose rows clients get from this node.
    pub(super) fn answered(&self, now_ms: u64) -> [bool; GROUPS as usize] {
        let (Some(machine), Some((_, rows))) = (&self.machine, &self.served) else { return Default::default() };
        let confirmed = machine.confirmed();
        std::array::from_fn(|group| {
            let group = group as u16;
            let slot = group * GROUP_SLOTS;
            let is_retained = now_ms < self.retained_until_ms && self.retained.has(slot);
            rows.has(slot) && (is_retained || confirmed.has(slot) || self.owner(group) == Some(self.at))
        })
    }

    /// Returns the node that this node names as the owner of a group of slots.
    pub(super) fn owner(&self, group: u16) -> Option<usize> {
        self.owners[usize::from(group)]
    }
}

/// All groups of slots.
pub(super) fn groups() -> impl Iterator<Item = u16> {
    0..GROUPS
}
