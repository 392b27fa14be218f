//! A simulated store and simulated nodes. The store has documents with the times of their creation, so that a read can
//! see an earlier state. A node has the real machine, a folder, and the slots that it serves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{NODES, damaged, unreachable};
use crate::cluster::{SlotSet, Topology};
use crate::publish::Record;
use crate::publish::change::Change;
use crate::publish::error::PublishError;
use crate::publish::location::Location;
use crate::publish::manifest::{Entry, Manifest};
use crate::publish::node::{Found, Goal, NodeMachine, NodeOptions, Read};
use crate::publish::pin::{Decision, Pin};
use crate::publish::status::NodeStatus;
use crate::slots::SlotRange;

/// The number of groups of slots, which move as a whole.
pub(super) const GROUPS: u16 = 8;
pub(super) const GROUP_SLOTS: u16 = 16384 / GROUPS;

/// The kind of a generation.
pub(super) enum PublicationKind {
    Ordinary,
    /// The publisher has allowed the other kind of keys, which later generations have, too.
    ChangesKeys,
    /// An earlier version has published the other kind of keys without a permission. Later generations do not have it.
    HasWrongKeys,
    /// The objects of its files are missing.
    IsIncomplete,
    /// Its manifest is damaged.
    IsDamaged,
}

/// A document, or `None` if it is damaged, and when it was created.
type Created<T> = (u64, Option<T>);

pub(super) struct SimulatedStore {
    location: Location,
    pub(super) manifests: BTreeMap<u64, Created<Manifest>>,
    /// The generations whose objects are missing.
    pub(super) gone: BTreeSet<u64>,
    key_kind: &'static str,
    /// All manifests that ever existed, which nodes keep in their folders.
    pub(super) published: BTreeMap<u64, Manifest>,
    pub(super) pins: BTreeMap<u64, Created<Pin>>,
    /// The decisions, by the numbers of their pins.
    pub(super) decisions: BTreeMap<u64, Created<Decision>>,
    pub(super) topologies: BTreeMap<u64, Created<Arc<Topology>>>,
    /// All reports of each node, each with the time of its arrival.
    statuses: BTreeMap<String, Vec<(u64, NodeStatus)>>,
}

pub(super) fn newest<T>(documents: &BTreeMap<u64, T>) -> u64 {
    documents.keys().next_back().copied().unwrap_or(0)
}

impl SimulatedStore {
    pub(super) fn new() -> SimulatedStore {
        SimulatedStore {
            location: Location::parse("file:///store/users").unwrap(),
            manifests: BTreeMap::new(),
            gone: BTreeSet::new(),
            key_kind: "u64",
            published: BTreeMap::new(),
            pins: BTreeMap::new(),
            decisions: BTreeMap::new(),
            topologies: BTreeMap::new(),
            statuses: BTreeMap::new(),
        }
    }

    pub(super) fn publish(&mut self, now_ms: u64, kind: PublicationKind) {
        let number = newest(&self.manifests) + 1;
        let other = if self.key_kind == "u64" { "bytes" } else { "u64" };
        let key_kind = match kind {
            PublicationKind::ChangesKeys | PublicationKind::HasWrongKeys => other,
            _ => self.key_kind,
        };
        let entry = format!(
            r#"{{"first_slot": 0, "last_slot": 16383, "object": "data/job/{number}", "bytes": 1, "rows": 7,
                "digest": "{number:032x}", "key_kind": "{key_kind}"}}"#
        );
        let mut manifest = Manifest::new(&self.location, "job", vec![Entry::from_json(&entry).unwrap()]);
        manifest.number = number;
        if let PublicationKind::ChangesKeys = kind {
            (self.key_kind, manifest.allowed) = (other, vec!["key-type".to_owned()]);
        }
        if let PublicationKind::IsIncomplete = kind {
            self.gone.insert(number);
        }
        let is_damaged = matches!(kind, PublicationKind::IsDamaged);
        self.published.insert(number, manifest.clone());
        self.manifests.insert(number, (now_ms, (!is_damaged).then_some(manifest)));
    }

    pub(super) fn create_pin(&mut self, now_ms: u64, pin: Option<Pin>) {
        self.pins.insert(newest(&self.pins) + 1, (now_ms, pin));
    }

    /// Creates the next topology, in which a node is the primary of each group of slots.
    pub(super) fn apply_topology(&mut self, now_ms: u64, owners: &[usize; GROUPS as usize]) {
        let number = newest(&self.topologies) + 1;
        let node = |(at, name): (usize, &&str)| {
            let groups = (0..GROUPS).filter(|group| owners[usize::from(*group)] == at);
            let ranges: Vec<String> =
                groups.map(|group| format!("\"{}-{}\"", group * GROUP_SLOTS, (group + 1) * GROUP_SLOTS - 1)).collect();
            format!(
                r#"{{"id": "{name}", "host": "h", "port": {}, "role": "primary", "slots": [{}]}}"#,
                at + 1,
                ranges.join(",")
            )
        };
        let nodes: Vec<String> = NODES.iter().enumerate().map(node).collect();
        let json = format!(r#"{{"format": 1, "number": {number}, "nodes": [{}]}}"#, nodes.join(","));
        let topology = Arc::new(Topology::parse(json.as_bytes()).unwrap());
        self.topologies.insert(number, (now_ms, Some(topology)));
    }

    pub(super) fn write_status(&mut self, now_ms: u64, status: NodeStatus) {
        self.statuses.entry(status.node.clone()).or_default().push((now_ms, status));
    }

    /// Returns the newest generation that nodes can serve, not counting the oldest ones that they do not try.
    pub(super) fn newest_usable(&self) -> Option<u64> {
        let good = |number: u64| self.manifests.get(&number).and_then(|(_, manifest)| manifest.as_ref());
        let newest = (1..=newest(&self.manifests)).rev().find(|number| good(*number).is_some())?;
        let oldest = newest.saturating_sub(8).max(1);
        (oldest..=newest).rev().find(|number| self.is_usable(*number))
    }

    /// Returns whether nodes can serve a generation, unless a pin selects an older one.
    pub(super) fn is_usable(&self, number: u64) -> bool {
        let (mut usual, oldest) = (None, number.saturating_sub(8).max(1));
        let mut is_confirmed = oldest == 1;
        for before in oldest..=number {
            // A node may remember a manifest that was deleted.
            let Some((_, manifest)) = self.manifests.get(&before) else { return false };
            let Some(manifest) = manifest else { continue };
            let is_usual = usual.is_none_or(|usual| usual == &manifest.key_kind) || !manifest.allowed.is_empty();
            if before == number {
                return is_usual && !self.gone.contains(&number);
            }
            is_confirmed |= is_usual && usual.is_some();
            if is_usual || !is_confirmed {
                usual = Some(&manifest.key_kind);
            }
        }
        false
    }

    /// Returns the result of a read in the state of the store at a time.
    pub(super) fn read(&self, read: &Read, view_ms: u64) -> Result<Found, PublishError> {
        Ok(match read {
            Read::NewestManifest(known) => Found::Newest(newest_at(&self.manifests, view_ms).max(*known)),
            Read::NewestPin(known) => Found::Newest(newest_at(&self.pins, view_ms).max(*known)),
            Read::NewestTopology(known) => Found::Newest(newest_at(&self.topologies, view_ms).max(*known)),
            Read::CheckManifest(number) => Found::Checked {
                exists: self.manifests.get(number).is_some_and(|(created, _)| *created <= view_ms),
                manifest: document(&self.manifests, *number, view_ms).ok().flatten().map(Box::new),
                newest: newest_at(&self.manifests, view_ms).max(*number),
            },
            Read::Manifest(number) | Read::PinnedManifest(number) | Read::OlderManifest(number) => {
                Found::Manifest(document(&self.manifests, *number, view_ms)?.map(Box::new))
            }
            Read::Pin(number) => Found::Pin(document(&self.pins, *number, view_ms)?),
            Read::Decision(pin) => Found::Decision(document(&self.decisions, *pin, view_ms)?),
            Read::Topology(number) | Read::ReportedTopology(number) => {
                Found::Topology(document(&self.topologies, *number, view_ms)?.map(|topology| (*topology).clone()))
            }
            Read::Statuses(nodes) => {
                Found::Statuses(nodes.iter().filter_map(|node| self.status(node, view_ms)).collect())
            }
            Read::AllStatuses => {
                Found::Statuses(self.statuses.keys().filter_map(|node| self.status(node, view_ms)).collect())
            }
        })
    }

    fn status(&self, node: &str, view_ms: u64) -> Option<NodeStatus> {
        let reports = self.statuses.get(node)?;
        let (at_ms, status) = reports.iter().rev().find(|(at_ms, _)| *at_ms <= view_ms)?;
        Some(NodeStatus { age_s: (view_ms - at_ms) / 1000, ..status.clone() })
    }
}

fn newest_at<T>(documents: &BTreeMap<u64, Created<T>>, view_ms: u64) -> u64 {
    let visible = documents.iter().filter(|(_, (created_ms, _))| *created_ms <= view_ms);
    visible.map(|(number, _)| *number).max().unwrap_or(0)
}

fn document<T: Clone>(
    documents: &BTreeMap<u64, Created<T>>,
    number: u64,
    view_ms: u64,
) -> Result<Option<T>, PublishError> {
    match documents.get(&number) {
        Some((created_ms, document)) if *created_ms <= view_ms => document.clone().map(Some).ok_or_else(damaged),
        _ => Ok(None),
    }
}

pub(super) fn failed() -> Result<Found, PublishError> {
    Err(unreachable())
}

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

/// The state of a node that survives a crash.
#[derive(Default)]
pub(super) struct Disk {
    pub(super) record: Record,
    pub(super) topology: Option<Arc<Topology>>,
    pub(super) files: Vec<SimulatedFile>,
}

#[derive(Default)]
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
    /// The served file is damaged.
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
        SimulatedNode { at, rate, is_recovering: true, ..SimulatedNode::default() }
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
            shrink_max_percent: None,
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

    /// Returns the slots that the node serves by its topology, including those that it has just given away.
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

pub(super) fn groups() -> impl Iterator<Item = u16> {
    0..GROUPS
}
