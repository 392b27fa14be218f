//! Nodes that fetch generations and topologies from an S3 server. While nodes end, topologies change, and nodes lose their
//! connections to the store, clients check that every value belongs to a published generation.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::Signal;
use zero_kv::client::ClusterClient;
use zero_kv::slots::SlotRange;

use super::fleet::{Check, Cluster, Passage, SHAPE};
use super::load::{Answer, Client, Effort, under_load_of};
use super::nodes::{Member, ROWS, members, topology_number};
use crate::helpers::redis_replies::Reply;
use crate::helpers::trials::Missing;
use crate::helpers::waiting::eventually;

/// Returns as many pairs of a primary and a replica as there are ranges of slots, which are equally long.
fn pairs(members: &[Member], shards: u16, rotated_by: u16) -> Vec<Member> {
    let slots = |shard: u16| {
        let first_slot = shard * (16384 / shards);
        SlotRange { first_slot, last_slot: first_slot + (16384 / shards - 1) }
    };
    let pair = |shard: u16| {
        let pair = &members[usize::from(2 * shard)..usize::from(2 * shard + 2)];
        pair.iter().map(move |member| Member { slots: slots((shard + rotated_by) % shards), ..member.clone() })
    };
    (0..shards).flat_map(pair).collect()
}

pub(crate) fn every_value_is_of_a_published_generation_while_everything_fails() -> Result<(), Missing> {
    let mut cluster = Cluster::new()?;
    let all = members(8, 1);
    let four = pairs(&all, 4, 0);
    cluster.publish();
    cluster.apply(1, &four);
    four.iter().for_each(|member| cluster.start(member));
    cluster.wait_for(1, &[]);
    let check = Check::of(&cluster);
    let seeds: Vec<u16> = four.iter().map(|member| member.port).collect();
    let is_right = |key, answer: &Answer| check.is_right(key, answer);
    let mut while_clients_read = |what: &str, changes: &mut dyn FnMut(&mut Cluster, &dyn Fn())| {
        let Effort { repeated, longest_wait_ms } = under_load_of(&seeds, &is_right, |more| {
            more();
            changes(&mut cluster, more);
        });
        println!(
            "{what}: {repeated} requests were sent again, and the longest wait for an answer was {longest_wait_ms} ms"
        );
    };
    while_clients_read("nodes end", &mut |cluster, more| nodes_are_killed_and_restarted(cluster, &four, more));
    while_clients_read("topologies change", &mut |cluster, more| a_node_misses_topologies(cluster, &all, more));
    while_clients_read("no store", &mut |cluster, more| the_store_is_out_of_reach(cluster, &four, more));
    without_a_node_only_its_slots_fail(&mut cluster, &four, &seeds);
    Ok(())
}

/// Kills a primary and a replica, and restarts all nodes, one after the other.
fn nodes_are_killed_and_restarted(cluster: &mut Cluster, four: &[Member], more: &dyn Fn()) {
    for member in [&four[0], &four[3]] {
        cluster.kill(member);
        cluster.publish();
        more();
        cluster.start(member);
        cluster.wait_for(1, &[]);
    }
    for (position, member) in four.iter().enumerate() {
        let server = cluster.servers.get_mut(&member.id).unwrap();
        server.signal(Signal::TERM);
        assert!(server.wait().success());
        if position % 4 == 0 {
            cluster.publish();
        }
        cluster.start(member);
        more();
    }
    cluster.wait_for(1, &[]);
}

/// Changes to twice as many nodes, moves their slots, and changes back, while one node is down.
fn a_node_misses_topologies(cluster: &mut Cluster, all: &[Member], more: &dyn Fn()) {
    let (four, eight) = (pairs(all, 4, 0), pairs(all, 8, 0));
    cluster.apply(2, &eight);
    all[four.len()..].iter().for_each(|member| cluster.start(member));
    cluster.publish();
    cluster.wait_for(2, &[]);
    more();
    let stale = &all[5];
    cluster.kill(stale);
    for (number, members) in (3..).zip([pairs(all, 8, 1), pairs(all, 8, 3), four.clone()]) {
        cluster.apply(number, &members);
        cluster.publish();
        // A node without slots needs no further generation.
        let has_slots = |member: &&Member| members.iter().any(|other| other.id == member.id);
        let mut except: Vec<&str> = all.iter().filter(|member| !has_slots(member)).map(|member| &*member.id).collect();
        except.push(&stale.id);
        cluster.wait_for(number, &except);
        more();
    }
    // The nodes that have no slots anymore are not needed.
    for member in &all[four.len()..] {
        cluster.kill(member);
        cluster.servers.remove(&member.id);
    }
    more();
    cluster.start(stale);
    cluster.wait_for(5, &[]);
    more();
}

/// Cuts one node and then all nodes off from the store, while generations and topologies change.
fn the_store_is_out_of_reach(cluster: &mut Cluster, four: &[Member], more: &dyn Fn()) {
    let cut_off = &four[4];
    cluster.gates[&cut_off.id].set(Passage::Closed);
    let before = cluster.published.load(Ordering::Relaxed);
    cluster.publish();
    cluster.publish();
    let mut changed = four.to_vec();
    // The replica of another shard becomes its primary.
    changed[0].primary = Some(changed[1].id.clone());
    changed[1].primary = None;
    cluster.apply(6, &changed);
    cluster.wait_for(6, &[&cut_off.id]);
    more();
    let server = &cluster.servers[&cut_off.id];
    eventually("the node reports that it cannot reach the store", || {
        !server.info().get("published_error").unwrap_or_default().is_empty()
    });
    assert_eq!((server.number("published_generation"), topology_number(server)), (before, 5));
    cluster.gates[&cut_off.id].set(Passage::Open);
    cluster.wait_for(6, &[]);
    cluster.gates.values().for_each(|gate| gate.set(Passage::Closed));
    cluster.publish();
    more();
    cluster.gates.values().for_each(|gate| gate.set(Passage::Open));
    cluster.apply(7, four);
    cluster.wait_for(7, &[]);
    more();
    let seeds: Vec<String> = four.iter().map(|member| format!("zkv://127.0.0.1:{}", member.port)).collect();
    let rows = ClusterClient::connect(&seeds).unwrap().count(..).unwrap();
    let generation = cluster.published.load(Ordering::Relaxed);
    assert_eq!(rows, ROWS + u64::from(generation.is_multiple_of(2)));
}

/// Without the primary and the replica of a shard, requests for its keys fail, and all others are answered.
fn without_a_node_only_its_slots_fail(cluster: &mut Cluster, four: &[Member], seeds: &[u16]) {
    let generation = cluster.published.load(Ordering::Relaxed);
    four[..2].iter().for_each(|member| cluster.kill(member));
    let mut client = Client::new(seeds);
    client.attempts = 2;
    let mut answered = |key: u64| client.get(key, &AtomicU64::new(0)).map(|answer| answer.reply);
    for key in 1..=ROWS {
        let expected = SHAPE.value(generation, key).filter(|_| !four[0].slots.has_key(key.into()));
        assert_eq!(answered(key), expected.map(Reply::Bytes), "key {key}");
    }
    cluster.start(&four[1]);
    for key in 1..=ROWS {
        assert_eq!(answered(key), SHAPE.value(generation, key).map(Reply::Bytes), "key {key}");
    }
}
