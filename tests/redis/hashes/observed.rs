//! What an operator observes of hash commands: MONITOR, and the counters of INFO.

use std::path::Path;

use super::{MISSING, redis, rows, schema, serve};
use crate::helpers::redis_replies::Reply;
use crate::helpers::trials::Missing;
use crate::redis::administration::monitored;
use crate::redis::served::{ask, line};

const LINES: &[&str] = &[
    "HGET 1 name",
    "HGET 1 nothing",
    "HMGET 2 name u32 nothing",
    "HGETALL 3",
    "HKEYS 3",
    "HVALS 3",
    "HLEN 4",
    "HEXISTS 5 name",
    "HSTRLEN 5 name",
    "HRANDFIELD 6",
    "HSCAN 7 0",
    "HGET 1",
    "GET 1",
    "STRLEN 1",
];

/// Returns lines about rows that exist and about a row that does not.
fn lines() -> Vec<String> {
    let missing = LINES.iter().map(|text| {
        let (command, rest) = text.split_once(' ').unwrap();
        let args = rest.split_once(' ').map_or(String::new(), |(_, args)| format!(" {args}"));
        format!("{command} {MISSING}{args}")
    });
    LINES.iter().map(|text| (*text).to_owned()).chain(missing).collect()
}

fn counters(socket: &Path) -> [u64; 2] {
    let replies = Reply::all(&ask(socket, &["INFO stats"]));
    let stats = replies[0].text();
    ["keyspace_hits:", "keyspace_misses:"].map(|name| {
        let value = stats.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap_or_else(|| panic!("{name} in {stats}")).trim().parse().unwrap()
    })
}

pub(crate) fn monitors_and_counters_of_hash_commands_are_equal() -> Result<(), Missing> {
    let (schema, rows) = (schema(), rows());
    let redis = redis(&schema, &rows)?;
    let (_scene, served) = serve(&schema, &rows, &[]);
    let all: Vec<u8> = lines().iter().flat_map(|text| line(text)).collect();
    let transaction = [line("MULTI"), all.clone(), line("EXEC")].concat();
    for bytes in [&all, &transaction] {
        let [expected, found] = [redis.socket(), served.socket()].map(|socket| monitored(socket, bytes));
        assert_eq!(found, expected);
    }
    for text in lines() {
        let [expected, found] = [redis.socket(), served.socket()].map(|socket| {
            let before = counters(socket);
            ask(socket, &[&text]);
            let after = counters(socket);
            [after[0] - before[0], after[1] - before[1]]
        });
        assert_eq!(found, expected, "{text}: hits and misses");
    }
    Ok(())
}
