//! The addresses of the nodes of a topology, and the nodes of each slot.
//!
//! In: a topology that a node sent. Out: for a slot, the nodes that have its rows, without a search of all nodes.

use super::ClusterOptions;
use crate::client::address::{Address, TcpAddress};
use crate::cluster::{Health, Role, Topology, TopologyError, TopologyNode};

/// A topology, and how to reach its nodes. A node is named by its position in the topology.
#[derive(Debug)]
pub(super) struct Routes {
    pub(super) topology: Topology,
    /// The primary of each slot.
    owners: Box<[u16]>,
    /// The address of each node.
    addresses: Box<[Address]>,
    /// For each primary, the nodes that clients may read from: the primary, and its replicas.
    readable: Box<[Vec<u16>]>,
}

impl Routes {
    /// Returns the routes before a topology is known.
    pub(super) fn unknown() -> Routes {
        let topology = Topology { format: 0, number: 0, nodes: Vec::new() };
        Routes { topology, owners: Box::default(), addresses: Box::default(), readable: Box::default() }
    }

    /// Parses a topology. The user and the encryption of the connections to all nodes are those of `seed`.
    pub(super) fn parse(json: &str, seed: Option<&TcpAddress>) -> Result<Routes, TopologyError> {
        let topology = Topology::parse(json.as_bytes())?;
        let address = |node: &TopologyNode| {
            Address::Tcp(TcpAddress {
                host: node.host.clone(),
                port: node.port,
                user: seed.and_then(|seed| seed.user.clone()),
                tls: seed.is_some_and(|seed| seed.tls),
            })
        };
        let index = topology.index();
        let mut readable = vec![Vec::new(); topology.nodes.len()];
        // A topology has at most 16,384 nodes. Primaries come first in their lists.
        let of_role = |role: Role| (0_u16..).zip(&topology.nodes).filter(move |(_, node)| node.role == role);
        for (position, _) in of_role(Role::Primary) {
            readable[usize::from(position)].push(position);
        }
        for (position, node) in of_role(Role::Replica) {
            let is_readable = matches!(node.health, Health::Online | Health::Fail);
            if let Some(primary) = node.primary.as_deref().and_then(|primary| index.position(primary))
                && is_readable
            {
                readable[primary].push(position);
            }
        }
        Ok(Routes {
            owners: topology.owners()?,
            addresses: topology.nodes.iter().map(address).collect(),
            readable: readable.into(),
            topology,
        })
    }

    /// Returns the primary of a slot.
    pub(super) fn owner(&self, slot: u16) -> u16 {
        self.owners[usize::from(slot)]
    }

    /// Returns the addresses of all nodes.
    pub(super) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    pub(super) fn address(&self, node: u16) -> &Address {
        &self.addresses[usize::from(node)]
    }

    /// Returns a primary, and its replicas that clients may read from.
    pub(super) fn readable(&self, primary: u16) -> impl Iterator<Item = u16> + '_ {
        self.readable[usize::from(primary)].iter().copied()
    }

    /// Returns the best node with the slots of a primary that `is_avoided` does not exclude, or the primary if all are
    /// excluded. Also returns whether other nodes are left.
    pub(super) fn best_node(
        &self,
        primary: u16,
        options: &ClusterOptions,
        is_avoided: impl Fn(&Address) -> bool,
    ) -> (u16, bool) {
        let is_preferred = |node: &TopologyNode| (node.role == Role::Replica) == options.reads_replicas;
        let badness = |position: &u16| {
            let node = &self.topology.nodes[usize::from(*position)];
            let is_far = options.zone.is_some() && node.zone != options.zone;
            (node.health == Health::Fail, !is_preferred(node), is_far)
        };
        let left = || self.readable(primary).filter(|node| !is_avoided(self.address(*node)));
        let best = left().min_by_key(badness).unwrap_or(primary);
        (best, left().nth(1).is_some())
    }
}
