//! A real Redis cluster: two primaries and a replica of the first one.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::helpers::ports::free_port;
use crate::helpers::redis_replies::Reply;
use crate::helpers::redis_server::{Redis, command, fill, line_of};
use crate::helpers::trials::Missing;
use crate::helpers::waiting::found_eventually;
use zero_kv::slots::{SlotRange, slot_of};

/// The slots of the primaries.
pub(crate) const SLOTS: [&[SlotRange]; 2] =
    [&[range(0, 5000), range(5002, 8191), range(16383, 16383)], &[range(5001, 5001), range(8192, 16382)]];

const fn range(first_slot: u16, last_slot: u16) -> SlotRange {
    SlotRange { first_slot, last_slot }
}

/// A node of a Redis cluster.
pub(crate) struct RedisNode {
    pub(crate) redis: Redis,
    pub(crate) port: u16,
    bus_port: u16,
    pub(crate) id: String,
}

impl RedisNode {
    pub(crate) fn start() -> Result<RedisNode, Missing> {
        let (port, bus_port) = (free_port(), free_port());
        let (port_text, bus_text) = (port.to_string(), bus_port.to_string());
        let redis = Redis::start_with(&[
            "--port",
            &port_text,
            "--cluster-enabled",
            "yes",
            "--cluster-port",
            &bus_text,
            "--cluster-announce-ip",
            "127.0.0.1",
        ])?;
        let id = ask(redis.connect(), "CLUSTER MYID").text();
        Ok(RedisNode { redis, port, bus_port, id })
    }

    pub(crate) fn ask(&self, line: &str) -> Reply {
        ask(self.redis.connect(), line)
    }
}

/// Returns the reply to a command.
pub(crate) fn ask(mut stream: UnixStream, line: &str) -> Reply {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    stream.write_all(&command(&words)).unwrap();
    stream.write_all(&command(&[b"QUIT"])).unwrap();
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).unwrap();
    Reply::all(&replies).swap_remove(0)
}

/// A Redis cluster whose nodes know each other: two primaries, and a replica of the first one.
pub(crate) struct RedisCluster {
    pub(crate) nodes: [RedisNode; 3],
}

impl RedisCluster {
    /// Starts a cluster with these rows.
    pub(crate) fn start(rows: &[(String, Vec<u8>)]) -> Result<RedisCluster, Missing> {
        let nodes = [RedisNode::start()?, RedisNode::start()?, RedisNode::start()?];
        let [first, second, replica] = &nodes;
        for other in [second, replica] {
            first.ask(&format!("CLUSTER MEET 127.0.0.1 {} {}", other.port, other.bus_port));
        }
        for (node, slots) in [first, second].into_iter().zip(SLOTS) {
            let ranges: Vec<String> =
                slots.iter().map(|range| format!("{} {}", range.first_slot, range.last_slot)).collect();
            assert_eq!(node.ask(&format!("CLUSTER ADDSLOTSRANGE {}", ranges.join(" "))).text(), "OK");
        }
        wait(|| matches!(replica.ask(&format!("CLUSTER REPLICATE {}", first.id)), Reply::Text(_)));
        wait(|| nodes.iter().all(|node| line_of(&node.ask("CLUSTER INFO").text(), "cluster_state") == Some("ok")));
        for (node, slots) in [first, second].into_iter().zip(SLOTS) {
            let is_here = |key: &str| slots.iter().any(|range| range.has(slot_of(key.into())));
            let rows = rows.iter().filter(|(key, _)| is_here(key));
            fill(node.redis.connect(), rows.map(|(key, value)| (key.as_bytes(), &value[..])));
        }
        // The replica is in CLUSTER SLOTS once it has replicated something and the other nodes know that.
        wait(|| {
            nodes.iter().all(|node| {
                let slots = node.ask("CLUSTER SLOTS");
                slots.list().len() == 5 && slots.list()[0].list().len() == 4
            })
        });
        let len = first.ask("DBSIZE");
        wait(|| replica.ask("DBSIZE") == len);
        Ok(RedisCluster { nodes })
    }

    /// Returns the topology document of this cluster.
    pub(crate) fn topology(&self) -> String {
        let [first, second, replica] = &self.nodes;
        let node = |node: &RedisNode, role: &str| {
            format!(r#"{{"id": "{}", "host": "127.0.0.1", "port": {}, {role}}}"#, node.id, node.port)
        };
        let slots = |slots: &[SlotRange]| {
            let texts: Vec<String> = slots.iter().map(|range| format!("\"{range}\"")).collect();
            format!(r#""role": "primary", "slots": [{}]"#, texts.join(", "))
        };
        format!(
            r#"{{"format": 1, "number": 1, "nodes": [{}, {}, {}]}}"#,
            node(first, &slots(SLOTS[0])),
            node(second, &slots(SLOTS[1])),
            node(replica, &format!(r#""role": "replica", "primary": "{}""#, first.id)),
        )
    }
}

#[track_caller]
fn wait(mut holds: impl FnMut() -> bool) {
    found_eventually("the nodes of the Redis cluster agree", || {
        std::thread::sleep(std::time::Duration::from_millis(10));
        holds().then_some(())
    });
}
