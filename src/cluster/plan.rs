//! Plans the next topology: for other nodes, or without nodes that have failed.
//!
//! In: the topology in effect, and the nodes of the next one. Out: the next topology, which moves as few slots as
//! possible.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use thiserror::Error;

use super::{Health, NodeIndex, Role, TOPOLOGY_FORMAT, Topology, TopologyError, TopologyNode};
use crate::counted::counted;
use crate::slots::{SLOT_COUNT, SlotRange, SlotSet};

/// The reason why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// There are too few nodes for one primary with its replicas, or too many for one slot each.
    #[error(
        "{} given, expected at least {} for one primary with {}, and at most one primary for each of the {SLOT_COUNT} \
         slots: name more nodes, or fewer replicas",
        counted(nodes, "node"),
        replicas + 1,
        counted(replicas, "replica")
    )]
    Nodes {
        /// The number of nodes.
        nodes: usize,
        /// The number of replicas of each primary.
        replicas: usize,
    },
    /// The planned topology is not valid, for example because two nodes have the same name.
    #[error("{0}")]
    Topology(#[from] TopologyError),
}

/// Returns the next topology, which consists of `nodes`. Only their ids, addresses, zones, and states matter. Each
/// primary gets at least `replicas` replicas, if possible in other zones and on other hosts. Slots and replicas stay
/// where they are as far as an even distribution of the slots allows.
///
/// # Errors
/// [`PlanError`].
pub fn plan(current: Option<&Topology>, nodes: &[TopologyNode], replicas: usize) -> Result<Topology, PlanError> {
    let primary_count = nodes.len() / (replicas + 1);
    if !(1..=usize::from(SLOT_COUNT)).contains(&primary_count) {
        return Err(PlanError::Nodes { nodes: nodes.len(), replicas });
    }
    let current_index = current.map(Topology::index);
    let current_node = |node: &TopologyNode| current_index.as_ref().and_then(|index| index.node(&node.id));
    let had = |node: &TopologyNode| match current_node(node) {
        Some(current) if current.role == Role::Primary => current.slots.iter().copied().collect(),
        _ => SlotSet::NONE,
    };
    let mut candidates: Vec<(&TopologyNode, SlotSet)> = nodes.iter().map(|node| (node, had(node))).collect();
    // The primaries with the most slots stay primaries. Other nodes become primaries in their given order, before those
    // that are replicas now.
    let is_replica = |node: &TopologyNode| current_node(node).is_some_and(|node| node.role == Role::Replica);
    candidates.sort_by_cached_key(|(node, slots)| (std::cmp::Reverse(slots.len()), is_replica(node)));
    let others = candidates.split_off(primary_count);
    let mut primaries = candidates;
    distribute(&mut primaries);
    let mut planned: Vec<TopologyNode> = Vec::new();
    for (node, slots) in &primaries {
        planned.push(TopologyNode { role: Role::Primary, primary: None, slots: slots.ranges(), ..(*node).clone() });
    }
    let others: Vec<&TopologyNode> = others.into_iter().map(|(node, _)| node).collect();
    planned.extend(assign_replicas(current_index.as_ref(), &planned, others));
    // The nodes have their given order, so that two documents are easy to compare.
    let positions: HashMap<&str, usize> =
        nodes.iter().enumerate().rev().map(|(position, node)| (node.id.as_str(), position)).collect();
    planned.sort_by_key(|planned| positions.get(planned.id.as_str()).copied());
    let number = current.map_or(0, |current| current.number) + 1;
    let topology = Topology { format: TOPOLOGY_FORMAT, number, nodes: planned };
    topology.check()?;
    Ok(topology)
}

/// Gives every primary an equal number of slots, or one more. Moves the fewest slots that this allows. If no primary
/// has slots yet, the primaries get the ranges of the shards that `baker --shards` writes.
fn distribute(primaries: &mut [(&TopologyNode, SlotSet)]) {
    // There are at most as many primaries as slots.
    let ranges = SlotRange::ALL.divide(primaries.len() as u16);
    if primaries.iter().all(|(_, slots)| slots.is_empty()) {
        primaries.iter_mut().zip(ranges).for_each(|((_, slots), range)| slots.insert_range(range));
        return;
    }
    let mut targets: Vec<usize> = ranges.into_iter().map(|range| range.slot_count().into()).collect();
    // The primaries are sorted by their number of slots, so those with the most slots keep one more.
    targets.sort_unstable_by_key(|target| std::cmp::Reverse(*target));
    let target = |position: usize| targets[position];
    let mut free = SlotSet::ALL;
    for (position, (_, slots)) in primaries.iter_mut().enumerate() {
        let surplus: Vec<u16> = slots.slots().skip(target(position)).collect();
        surplus.into_iter().for_each(|slot| slots.remove(slot));
        free.remove_all(slots);
    }
    let free: Vec<u16> = free.slots().collect();
    let mut free = free.into_iter();
    for (position, (_, slots)) in primaries.iter_mut().enumerate() {
        let missing = target(position) - slots.len();
        free.by_ref().take(missing).for_each(|slot| slots.insert(slot));
    }
}

/// Makes nodes replicas of primaries, evenly.
fn assign_replicas(
    current: Option<&NodeIndex<'_>>,
    primaries: &[TopologyNode],
    others: Vec<&TopologyNode>,
) -> Vec<TopologyNode> {
    let (share, more) = (others.len() / primaries.len(), others.len() % primaries.len());
    let positions: HashMap<&str, usize> =
        primaries.iter().enumerate().map(|(position, node)| (node.id.as_str(), position)).collect();
    let mut counts = vec![0; primaries.len()];
    let mut assigned = Vec::new();
    let replica = |node: &TopologyNode, primary: &TopologyNode| TopologyNode {
        role: Role::Replica,
        primary: Some(primary.id.clone()),
        slots: Vec::new(),
        ..node.clone()
    };
    let mut waiting = Vec::new();
    for node in others {
        let before = current.and_then(|current| current.node(&node.id)?.primary.as_deref());
        match before.and_then(|before| positions.get(before)) {
            Some(position) if counts[*position] < share + usize::from(more > 0) => {
                counts[*position] += 1;
                assigned.push(replica(node, &primaries[*position]));
            }
            _ => waiting.push(node),
        }
    }
    let mut places = ReplicaPlaces::new(primaries, &counts);
    assigned.extend(waiting.into_iter().filter_map(|node| Some(replica(node, places.take(node)?))));
    assigned
}

/// Returns the next topology after the nodes in `failed` have failed and all other nodes have not: they are marked, and
/// replicas take the place of failed primaries. Returns `None` if the topology describes this state already. A failed
/// primary without a replica that works keeps its slots.
pub fn without_failed(current: &Topology, failed: &HashSet<String>) -> Option<Topology> {
    let mut next = Topology { number: current.number + 1, ..current.clone() };
    for node in &mut next.nodes {
        match (failed.contains(&node.id), node.health) {
            (true, Health::Online | Health::Loading) => node.health = Health::Fail,
            (false, Health::Fail) => node.health = Health::Online,
            _ => {}
        }
    }
    let is_lost = |node: &&TopologyNode| node.role == Role::Primary && node.health == Health::Fail;
    let index = next.index();
    // The replicas that replace lost primaries, by the ids of the primaries, and the slots that the replicas get.
    let (mut successors, mut inherited) = (HashMap::new(), HashMap::new());
    for lost in next.nodes.iter().filter(is_lost) {
        let mut replicas = index.replicas_of(&lost.id).iter();
        if let Some(successor) = replicas.find(|node| node.health == Health::Online) {
            successors.insert(lost.id.clone(), successor.id.clone());
            inherited.insert(successor.id.clone(), lost.slots.clone());
        }
    }
    for node in &mut next.nodes {
        if let Some(slots) = inherited.remove(&node.id) {
            (node.role, node.primary, node.slots) = (Role::Primary, None, slots);
        } else if let Some(successor) = successors.get(node.primary.as_ref().unwrap_or(&node.id)) {
            (node.role, node.primary, node.slots) = (Role::Replica, Some(successor.clone()), Vec::new());
        }
    }
    (next.nodes != current.nodes).then_some(next)
}

/// Returns the number of slots whose primary differs between two topologies.
pub fn moved_slots(from: &Topology, to: &Topology) -> usize {
    let owners = |topology: &Topology| {
        let owners = topology.owners().unwrap_or_default();
        owners.iter().map(|owner| topology.nodes[usize::from(*owner)].id.clone()).collect::<Vec<_>>()
    };
    owners(from).iter().zip(owners(to)).filter(|(from, to)| *from != to).count()
}

/// The primaries by their numbers of replicas.
pub(super) struct ReplicaPlaces<'t> {
    primaries: &'t [TopologyNode],
    levels: BTreeMap<usize, Level<'t>>,
    /// The number of zones that were looked at, to test that a search does not look at all primaries.
    #[cfg(test)]
    steps: usize,
}

/// Primaries with equal numbers of replicas. A primary is named by its position.
#[derive(Default)]
struct Level<'t> {
    /// The zones, in the order of their first primaries.
    order: BTreeSet<(usize, Option<&'t str>)>,
    zones: HashMap<Option<&'t str>, Zone<'t>>,
}

#[derive(Default)]
struct Zone<'t> {
    /// The hosts, in the order of their first primaries.
    order: BTreeSet<(usize, &'t str)>,
    hosts: HashMap<&'t str, BTreeSet<usize>>,
}

impl<'t> ReplicaPlaces<'t> {
    /// `counts` has the number of replicas of each primary.
    pub(super) fn new(primaries: &'t [TopologyNode], counts: &[usize]) -> ReplicaPlaces<'t> {
        let mut levels: BTreeMap<usize, Level<'t>> = BTreeMap::new();
        for (position, (primary, count)) in primaries.iter().zip(counts).enumerate() {
            levels.entry(*count).or_default().insert(position, primary);
        }
        ReplicaPlaces {
            primaries,
            levels,
            #[cfg(test)]
            steps: 0,
        }
    }

    /// Returns the primary of a new replica: one with the fewest replicas, if possible in another zone, and then on
    /// another host. Returns `None` if there are no primaries.
    pub(super) fn take(&mut self, replica: &TopologyNode) -> Option<&'t TopologyNode> {
        let mut level = self.levels.first_entry()?;
        let (position, _steps) = level.get().best(replica)?;
        #[cfg(test)]
        {
            self.steps += _steps;
        }
        let (count, primary) = (*level.key(), &self.primaries[position]);
        level.get_mut().remove(position, primary);
        if level.get().order.is_empty() {
            level.remove();
        }
        self.levels.entry(count + 1).or_default().insert(position, primary);
        Some(primary)
    }
}

impl<'t> Level<'t> {
    /// Returns the best primary of this level for a replica, and the number of zones that were looked at.
    fn best(&self, replica: &TopologyNode) -> Option<(usize, usize)> {
        let (own, host) = (replica.zone.as_deref(), replica.host.as_str());
        // A primary or a replica without a zone counts as in another zone.
        let is_other = |zone: Option<&str>| own.is_none() || zone != own;
        let (mut best, mut steps): (Option<usize>, usize) = (None, 0);
        // The first zone decides, unless its first primary is on the host of the replica, which is rare: a host is in
        // one zone.
        for (first, zone) in self.order.iter().filter(|(_, zone)| is_other(*zone)) {
            steps += 1;
            if best.is_some_and(|best| best < *first) {
                break;
            }
            let candidate = self.zones[zone].first_on_another_host(host);
            best = [best, candidate].into_iter().flatten().min();
        }
        let best = best
            .or_else(|| self.order.iter().find(|(_, zone)| is_other(*zone)).map(|(first, _)| *first))
            .or_else(|| self.zones.get(&own)?.first_on_another_host(host))
            .or_else(|| self.order.first().map(|(first, _)| *first))?;
        Some((best, steps))
    }

    fn insert(&mut self, position: usize, primary: &'t TopologyNode) {
        self.change(primary, |zone| zone.insert(position, &primary.host));
    }

    fn remove(&mut self, position: usize, primary: &'t TopologyNode) {
        self.change(primary, |zone| zone.remove(position, &primary.host));
    }

    /// Changes the zone of a primary, and keeps the order of the zones.
    fn change(&mut self, primary: &'t TopologyNode, change: impl FnOnce(&mut Zone<'t>)) {
        let name = primary.zone.as_deref();
        let zone = self.zones.entry(name).or_default();
        if let Some(first) = zone.first() {
            self.order.remove(&(first, name));
        }
        change(zone);
        match zone.first() {
            Some(first) => {
                self.order.insert((first, name));
            }
            None => {
                self.zones.remove(&name);
            }
        }
    }
}

impl<'t> Zone<'t> {
    fn first(&self) -> Option<usize> {
        self.order.first().map(|(first, _)| *first)
    }

    fn first_on_another_host(&self, host: &str) -> Option<usize> {
        self.order.iter().find(|(_, other)| *other != host).map(|(first, _)| *first)
    }

    fn insert(&mut self, position: usize, host: &'t str) {
        self.change(host, |positions| {
            positions.insert(position);
        });
    }

    fn remove(&mut self, position: usize, host: &'t str) {
        self.change(host, |positions| {
            positions.remove(&position);
        });
    }

    fn change(&mut self, host: &'t str, change: impl FnOnce(&mut BTreeSet<usize>)) {
        let positions = self.hosts.entry(host).or_default();
        if let Some(first) = positions.first() {
            self.order.remove(&(*first, host));
        }
        change(positions);
        match positions.first() {
            Some(first) => {
                self.order.insert((*first, host));
            }
            None => {
                self.hosts.remove(host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str, zone: Option<&str>) -> TopologyNode {
        TopologyNode {
            id: id.to_owned(),
            host: format!("host-{id}"),
            port: 6380,
            role: Role::Primary,
            primary: None,
            slots: Vec::new(),
            zone: zone.map(str::to_owned),
            health: Health::Online,
        }
    }

    fn nodes(count: usize) -> Vec<TopologyNode> {
        (0..count).map(|number| node(&format!("n{number}"), None)).collect()
    }

    #[test]
    fn slots_are_divided_evenly_and_as_few_as_possible_move() {
        for replicas in 0..3 {
            let mut current: Option<Topology> = None;
            for count in [1, 2, 3, 4, 8, 7, 5, 16, 100, 99, 3, 1] {
                let nodes = nodes(count * (replicas + 1));
                let next = plan(current.as_ref(), &nodes, replicas).unwrap();
                assert_eq!(next.number, current.as_ref().map_or(1, |current| current.number + 1));
                let primaries: Vec<_> = next.nodes.iter().filter(|node| node.role == Role::Primary).collect();
                assert_eq!((primaries.len(), next.nodes.len()), (count, nodes.len()));
                let lens: Vec<usize> = primaries.iter().map(|node| next.slots_of(&node.id).len()).collect();
                assert!(lens.iter().max().unwrap() - lens.iter().min().unwrap() <= 1, "{lens:?}");
                for primary in &primaries {
                    assert_eq!(next.replicas_of(&primary.id).count(), replicas, "{count} {replicas}");
                }
                if let Some(current) = &current {
                    // Each primary loses or gains only the difference between its old share and its new one.
                    let gained: usize = primaries
                        .iter()
                        .map(|node| {
                            let mut gained = next.slots_of(&node.id);
                            let had = current.node(&node.id).is_some_and(|node| node.role == Role::Primary);
                            let before = if had { current.slots_of(&node.id) } else { SlotSet::NONE };
                            gained.remove_all(&before);
                            assert!(before.len() + gained.len() <= 16384 / count + 1 || gained.is_empty());
                            gained.len()
                        })
                        .sum();
                    assert_eq!(moved_slots(current, &next), gained);
                }
                current = Some(next);
            }
        }
    }

    #[test]
    fn a_new_cluster_has_the_slots_of_as_many_shards() {
        for count in (1..=64).chain([100, 255, 256]) {
            let planned = plan(None, &nodes(count), 0).unwrap();
            let of_nodes: Vec<_> = planned.nodes.iter().flat_map(|node| node.slots.clone()).collect();
            assert_eq!(of_nodes, SlotRange::ALL.divide(count as u16), "{count} nodes");
        }
        let names = |count| SlotRange::ALL.divide(count).iter().map(SlotRange::to_string).collect::<Vec<_>>();
        assert_eq!(names(3), ["0-5460", "5461-10921", "10922-16383"]);
        assert_eq!(names(5), ["0-3275", "3276-6552", "6553-9829", "9830-13106", "13107-16383"]);
    }

    #[test]
    fn a_plan_for_the_same_nodes_changes_only_the_number() {
        let nodes = nodes(7);
        let first = plan(None, &nodes, 1).unwrap();
        let second = plan(Some(&first), &nodes, 1).unwrap();
        assert_eq!((&second.nodes, second.number, moved_slots(&first, &second)), (&first.nodes, 2, 0));
    }

    #[test]
    fn replicas_are_in_other_zones_than_their_primaries() {
        let nodes: Vec<_> =
            (0..6).map(|number| node(&format!("n{number}"), Some(if number < 3 { "east" } else { "west" }))).collect();
        let topology = plan(None, &nodes, 1).unwrap();
        for replica in topology.nodes.iter().filter(|node| node.role == Role::Replica) {
            let primary = topology.node(replica.primary.as_deref().unwrap()).unwrap();
            assert_ne!(primary.zone, replica.zone);
        }
    }

    #[test]
    fn plans_that_are_not_possible_are_rejected() {
        assert_eq!(plan(None, &nodes(2), 2), Err(PlanError::Nodes { nodes: 2, replicas: 2 }));
        assert_eq!(plan(None, &[], 0), Err(PlanError::Nodes { nodes: 0, replicas: 0 }));
        let doubled = [nodes(1), nodes(1)].concat();
        assert!(matches!(plan(None, &doubled, 0), Err(PlanError::Topology(_))));
    }

    /// With quadratic work, this test would take minutes.
    #[test]
    fn the_largest_topologies_are_planned_changed_and_repaired() {
        for replicas in [0, 1, 16_383] {
            let mut nodes = nodes(16_384);
            let first = plan(None, &nodes, replicas).unwrap();
            nodes.rotate_left(5000);
            let second = plan(Some(&first), &nodes, replicas).unwrap();
            assert_eq!(moved_slots(&first, &second), 0);
            let is_failed = |node: &&TopologyNode| node.role == Role::Primary;
            let failed: HashSet<String> = second.nodes.iter().filter(is_failed).map(|node| node.id.clone()).collect();
            let repaired = without_failed(&second, &failed).unwrap();
            let primaries = repaired.nodes.iter().filter(is_failed).filter(|node| failed.contains(&node.id)).count();
            assert_eq!((repaired.check(), primaries), (Ok(()), if replicas == 0 { 16_384 } else { 0 }));
        }
    }

    #[test]
    fn a_replica_takes_the_place_of_a_failed_primary_and_failed_nodes_come_back_as_replicas() {
        let current = plan(None, &nodes(6), 1).unwrap();
        let replica = current.replicas_of("n0").next().unwrap().id.clone();
        assert_eq!(without_failed(&current, &HashSet::new()), None);
        let failed = HashSet::from(["n0".to_owned()]);
        let next = without_failed(&current, &failed).unwrap();
        assert_eq!(next.check(), Ok(()));
        assert_eq!((next.number, next.slots_of(&replica)), (2, current.slots_of("n0")));
        let n0 = next.node("n0").unwrap();
        assert_eq!((n0.role, n0.primary.as_deref(), n0.health), (Role::Replica, Some(replica.as_str()), Health::Fail));
        assert_eq!(without_failed(&next, &failed), None);
        let back = without_failed(&next, &HashSet::new()).unwrap();
        assert_eq!(back.node("n0").unwrap().health, Health::Online);
        assert_eq!(moved_slots(&next, &back), 0);
        // Without a replica that works, the slots stay with the failed primary.
        let both = HashSet::from(["n0".to_owned(), replica]);
        let lost = without_failed(&current, &both).unwrap();
        assert_eq!((moved_slots(&current, &lost), lost.node("n0").unwrap().health), (0, Health::Fail));
        assert_eq!(lost.check(), Ok(()));
    }
}

#[cfg(test)]
mod replica_places_tests {
    use super::*;
    use crate::cluster::{Health, Role};

    fn node(number: usize, zone: Option<usize>, host: usize) -> TopologyNode {
        TopologyNode {
            id: format!("n{number}"),
            host: format!("host-{host}"),
            port: 1,
            role: Role::Primary,
            primary: None,
            slots: Vec::new(),
            zone: zone.map(|zone| format!("zone-{zone}")),
            health: Health::Online,
        }
    }

    #[test]
    fn each_replica_gets_the_primary_that_a_search_of_all_primaries_finds() {
        let mut seed = 0x5EED_u64;
        let mut random = move |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        for round in 0..60 {
            let (zones, hosts) = (1 + random(4), 1 + random(6));
            let mut nodes = |count: usize| -> Vec<TopologyNode> {
                let zone = |random: &mut dyn FnMut(usize) -> usize| Some(random(zones)).filter(|_| random(4) > 0);
                (0..count)
                    .map(|number| {
                        let zone = zone(&mut random);
                        node(number, zone, random(hosts))
                    })
                    .collect()
            };
            let (primaries, replicas) = (nodes(1 + round % 23), nodes(40));
            let mut counts: Vec<usize> = primaries.iter().enumerate().map(|(number, _)| number % 3).collect();
            let mut places = ReplicaPlaces::new(&primaries, &counts);
            for replica in &replicas {
                let badness = |position: &usize| {
                    let primary = &primaries[*position];
                    let is_same_zone = primary.zone.is_some() && primary.zone == replica.zone;
                    (counts[*position], is_same_zone, primary.host == replica.host)
                };
                let expected = (0..primaries.len()).min_by_key(badness).unwrap();
                assert_eq!(places.take(replica).unwrap().id, primaries[expected].id, "round {round}");
                counts[expected] += 1;
            }
        }
        assert!(ReplicaPlaces::new(&[], &[]).take(&node(0, None, 0)).is_none());
    }

    #[test]
    fn a_search_looks_at_few_zones() {
        const COUNT: usize = 8192;
        /// Returns the zone and the host of the node with a number.
        type Layout = fn(usize) -> (Option<usize>, usize);
        let layouts: [Layout; 5] = [
            |number| (None, number),
            |number| (Some(number % 3), number),
            |number| (Some(number), number),
            |number| (Some(0), number),
            |_| (None, 0),
        ];
        for layout in layouts {
            let nodes = |from: usize| -> Vec<TopologyNode> {
                (from..from + COUNT)
                    .map(|number| {
                        let (zone, host) = layout(number);
                        node(number, zone, host)
                    })
                    .collect()
            };
            let (primaries, replicas) = (nodes(0), nodes(COUNT));
            let mut places = ReplicaPlaces::new(&primaries, &vec![0; COUNT]);
            assert!(replicas.iter().all(|replica| places.take(replica).is_some()));
            assert!(places.steps <= 4 * COUNT, "{} steps", places.steps);
            assert_eq!(places.levels.keys().copied().collect::<Vec<_>>(), [1]);
        }
    }
}
