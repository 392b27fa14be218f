//! Nodes and topologies that change while clients read.

use zero_kv::slots::SlotRange;

use super::clients::{start, start_one};
use super::load::under_load;
use super::nodes::{Cluster, Member, members, topology, topology_number};
use crate::helpers::servers::Server;
use crate::helpers::waiting::eventually;

pub(crate) fn a_primary_and_a_replica_are_killed_and_restarted_under_load() {
    let (cluster, members) = (Cluster::of_numbers(), members(4, 1));
    let mut servers = start(&cluster, &members);
    let seeds: Vec<u16> = members.iter().map(|member| member.port).collect();
    under_load(&seeds, |more| {
        more();
        for (position, member) in members.iter().enumerate() {
            servers[position].kill();
            more();
            servers[position] = start_one(&cluster, member);
            more();
        }
        // A topology without the primary promotes its replica.
        servers[0].kill();
        let mut promoted = members.clone();
        promoted.remove(0);
        promoted[0].primary = None;
        cluster.write_topology(&topology(2, &promoted));
        for server in &servers[1..] {
            eventually("the new topology is in effect", || topology_number(server) == 2);
        }
        more();
    });
}

pub(crate) fn no_reply_is_wrong_while_topologies_change_under_load() {
    let cluster = Cluster::of_numbers();
    let members = members(8, 0);
    let seeds: Vec<u16> = members.iter().map(|member| member.port).collect();
    // Every node has the whole table, so the slots of nodes can change without new files.
    let serve = |member: &Member| {
        let address = format!("127.0.0.1:{}", member.port);
        let command = cluster.command(&member.id, &cluster.path("whole.db"), member.port, &["--tcp", &address]);
        Server::of(command, &cluster.path(&format!("{}.sock", member.id)))
    };
    let four: Vec<Member> = members
        .iter()
        .step_by(2)
        .enumerate()
        .map(|(shard, member)| {
            let first_slot = shard as u16 * 4096;
            Member { slots: SlotRange { first_slot, last_slot: first_slot + 4095 }, ..member.clone() }
        })
        .collect();
    cluster.write_topology(&topology(1, &four));
    let servers: Vec<Server> = members.iter().map(serve).collect();
    under_load(&seeds[..1], |more| {
        // Twice as many nodes, half as many, and the slots of all nodes rotated.
        let rotated: Vec<Member> =
            (0..8).map(|at| Member { slots: members[(at + 3) % 8].slots, ..members[at].clone() }).collect();
        for (number, members) in (2..).zip([&members, &four, &rotated, &members]) {
            more();
            cluster.write_topology(&topology(number, members));
            for server in &servers {
                eventually("the new topology is in effect", || topology_number(server) == number);
            }
        }
        more();
    });
}
