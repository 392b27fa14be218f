//! A simulated store: documents with the times of their creation, so that a read can see an earlier state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{NODES, damaged, unreachable};
use crate::cluster::Topology;
use crate::publish::error::PublishError;
use crate::publish::location::Location;
use crate::publish::manifest::{Entry, Manifest};
use crate::publish::node::{Found, Read};
use crate::publish::pin::{Decision, Pin};
use crate::publish::status::NodeStatus;

/// The number of groups of slots, which move as a whole.
pub(super) const GROUPS: u16 = 8;
pub(super) const GROUP_SLOTS: u16 = 16384 / GROUPS;

/// What is special about a generation.
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

    /// Creates the next manifest.
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
            (self.key_kind, manifest.allowed) = (other, vec!["key-kind".to_owned()]);
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

    /// Returns what a read finds in the state of the store at a time.
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
                Found::Manifest(document(&self.manifests, *number, view_ms)?)
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

/// Returns what a read that fails returns.
pub(super) fn failed() -> Result<Found, PublishError> {
    Err(unreachable())
}
