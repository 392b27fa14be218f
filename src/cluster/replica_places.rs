//! Chooses a primary for each new replica.
//!
//! In: primaries, and the numbers of their replicas. Out: for the zone and the host of a replica, the primary with the
//! fewest replicas that is unlikely to fail together with the replica.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::TopologyNode;

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

/// The primaries of a zone.
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

    /// Returns the primary of a new replica: one with the fewest replicas, if possible in another zone, and then on another
    /// host. Returns `None` if there are no primaries.
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
        // The first zone decides, unless its first primary is on the host of the replica, which is rare: a host is in one
        // zone.
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
