//! Third-party clients of a cluster, unmodified.

use std::ffi::OsString;
use std::process::Command;

use zero_kv::bake::Keys;

use super::nodes::{Cluster, Member, ROWS, members, topology};
use crate::helpers::client_programs;
use crate::helpers::redis_py::any_python;
use crate::helpers::servers::Server;
use crate::helpers::trials::{Missing, require};

/// Starts a server for each member.
pub(crate) fn start(cluster: &Cluster, members: &[Member]) -> Vec<Server> {
    cluster.write_topology(&topology(1, members));
    members.iter().map(|member| start_one(cluster, member)).collect()
}

/// Starts the server of a member, with a file that has only the rows of its slots.
pub(crate) fn start_one(cluster: &Cluster, member: &Member) -> Server {
    let address = format!("127.0.0.1:{}", member.port);
    let slots = member.slots.to_string();
    let db = cluster.shard(member.slots);
    let command = cluster.command(&member.id, &db, member.port, &["--tcp", &address, "--slots", &slots]);
    Server::of(command, &cluster.path(&format!("{}.sock", member.id)))
}

pub(crate) fn redis_cli_follows_redirections() -> Result<(), Missing> {
    require("redis-cli", "--version")?;
    let (cluster, members) = (Cluster::of_numbers(), members(3, 1));
    let _servers = start(&cluster, &members);
    let port = members[0].port.to_string();
    let run = |args: &[&str]| {
        let output = Command::new("redis-cli").args(["-p", &port]).args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for key in 0..50 {
        assert_eq!(run(&["-c", "GET", &key.to_string()]), format!("value {key}\n"));
    }
    assert_eq!(run(&["-c", "GET", &ROWS.to_string()]), "\n");
    let checked = run(&["--cluster", "check", &format!("127.0.0.1:{port}")]);
    assert!(checked.contains("[OK] All 16384 slots covered."), "{checked}");
    assert!(checked.contains(&format!("[OK] {ROWS} keys in 3 masters.")), "{checked}");
    Ok(())
}

pub(crate) fn redis_benchmark_finds_all_nodes() -> Result<(), Missing> {
    require("redis-benchmark", "--version")?;
    let rows: String = (0..ROWS).map(|key| format!("user:{key},value {key}\n")).collect();
    let (cluster, members) = (Cluster::new(Keys::BYTES, rows), members(3, 1));
    let servers = start(&cluster, &members);
    let port = members[2].port.to_string();
    let mut command = Command::new("redis-benchmark");
    command.args(["--cluster", "-h", "127.0.0.1", "-p", &port, "-t", "get", "-n", "6000", "-P", "16", "-q"]);
    let output = command.output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && text.contains("Cluster has 3 master nodes"), "{text}");
    assert!(text.contains("requests per second") && !text.contains("rror"), "{text}");
    for (member, server) in members.iter().zip(&servers).filter(|(member, _)| member.primary.is_none()) {
        assert!(server.number("misses") > 0, "{} got no requests: {text}", member.id);
    }
    Ok(())
}

pub(crate) fn redis_py_routes_and_reads_from_replicas() -> Result<(), Missing> {
    let python = any_python()?;
    let (cluster, members) = (Cluster::of_numbers(), members(4, 1));
    let servers = start(&cluster, &members);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/client.py");
    let output =
        Command::new(python).arg("-B").arg(script).args([members[0].port.to_string(), ROWS.to_string()]).output();
    let output = output.unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
    // The replicas have answered reads.
    for (member, server) in members.iter().zip(&servers).filter(|(member, _)| member.primary.is_some()) {
        assert!(server.number("hits") > 0, "{} has answered no reads", member.id);
    }
    Ok(())
}

/// Runs one of the programs in `tests/redis/clients/` with a cluster that serves the rows that it expects.
fn check(program: &[OsString], client: Option<&str>) {
    let value = |key: usize| {
        let start = format!("{key}:");
        let letters = char::from(b'a' + (key % 26) as u8).to_string().repeat(20 + key * 7919 % 981 - start.len());
        start + &letters
    };
    let rows: String = (0..10_000).map(|key| format!("{key},{}\n", value(key))).collect();
    let (cluster, members) = (Cluster::new(Keys::U64, rows), members(3, 1));
    let _servers = start(&cluster, &members);
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).arg(client.unwrap_or("cluster")).arg(members[2].port.to_string());
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}

pub(crate) fn go_redis() -> Result<(), Missing> {
    check(&client_programs::go()?, None);
    Ok(())
}

pub(crate) fn ioredis() -> Result<(), Missing> {
    check(&client_programs::node("cluster.mjs")?, Some("ioredis"));
    Ok(())
}

pub(crate) fn jedis() -> Result<(), Missing> {
    check(&client_programs::java("ClusterClients")?, Some("jedis"));
    Ok(())
}

pub(crate) fn lettuce() -> Result<(), Missing> {
    check(&client_programs::java("ClusterClients")?, Some("lettuce"));
    Ok(())
}

pub(crate) fn node_redis() -> Result<(), Missing> {
    check(&client_programs::node("cluster.mjs")?, Some("node-redis"));
    Ok(())
}

pub(crate) fn redis_rs() -> Result<(), Missing> {
    check(&client_programs::rust()?, None);
    Ok(())
}
