//! Nodes of a cluster: one table, its rows by slot, and the servers of a topology.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use zero_kv::bake::{self, Column, Input, Keys, Options, TypedColumns, parse_types};
use zero_kv::slots::{SlotRange, slot_of};

use crate::helpers::ports::free_port;
use crate::helpers::redis_replies::Reply;
use crate::helpers::rows::bake_text;
use crate::helpers::servers::{Server, kv_store};

use super::redis_cluster::ask;

/// The number of rows of the table of most tests. The keys are the numbers below this one.
pub(crate) const ROWS: u64 = 2000;

/// A folder with a baked table, the sockets of nodes, and a topology file.
pub(crate) struct Cluster {
    pub(crate) folder: TempDir,
}

impl Cluster {
    /// Bakes a table with these rows of delimited text.
    pub(crate) fn new(keys: Keys, rows: impl Into<Vec<u8>>) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        bake_text(&folder.path().join("whole.db"), keys, rows.into());
        Cluster { folder }
    }

    /// Bakes a table whose values name their keys.
    pub(crate) fn of_numbers() -> Cluster {
        Cluster::new(Keys::U64, (0..ROWS).map(|key| format!("{key},value {key}\n")).collect::<String>())
    }

    /// Bakes a typed table. The columns of the rows are the key and those of `types`.
    pub(crate) fn typed(types: &str, rows: impl Into<Vec<u8>>) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let mut typed = TypedColumns::default();
        typed.types = parse_types(&format!("id:u64,{types}")).unwrap();
        let mut options = Options::default();
        (options.typed, options.key) = (Some(typed), Some(Column::Name("id".to_owned())));
        let rows = Input::reader("rows", std::io::Cursor::new(rows.into()));
        bake::bake(vec![rows], &folder.path().join("whole.db"), &options).unwrap();
        Cluster { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the topology file, as an operator does: by rename.
    pub(crate) fn write_topology(&self, json: &str) -> PathBuf {
        let path = self.path("topology.json");
        std::fs::write(self.path("topology.new"), json).unwrap();
        std::fs::rename(self.path("topology.new"), &path).unwrap();
        path
    }

    /// Bakes a file with only the rows of these slots.
    pub(crate) fn shard(&self, slots: SlotRange) -> PathBuf {
        let path = self.path(&format!("{slots}.db"));
        let mut options = Options::default();
        options.slots = Some(slots);
        options.replace = zero_kv::replace::ReplaceRules::any();
        bake::merge(&[self.path("whole.db")], &path, &options).unwrap();
        path
    }

    /// Returns the command that serves a file as a node of the topology file.
    pub(crate) fn command(&self, id: &str, db: &Path, port: u16, options: &[&str]) -> Command {
        let mut command = kv_store(db, &self.path(&format!("{id}.sock")));
        command.args(["--cluster", "--node", id, "--announce", &format!("127.0.0.1:{port}"), "--topology"]);
        command.arg(self.path("topology.json")).args(options);
        command
    }

    /// Serves a file as a node that clients reach only over its Unix socket.
    pub(crate) fn local(&self, id: &str, db: &Path, options: &[&str]) -> Server {
        Server::of(self.command(id, db, 1, options), &self.path(&format!("{id}.sock")))
    }
}

/// A node of a topology, and whether it is a replica.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) port: u16,
    pub(crate) slots: SlotRange,
    pub(crate) primary: Option<String>,
}

/// Returns `shards` primaries with `replicas` replicas each, on free ports.
pub(crate) fn members(shards: u16, replicas: u16) -> Vec<Member> {
    let mut members = Vec::new();
    for shard in 0..shards {
        let bound = |shard: u16| (u32::from(shard) * 16384 / u32::from(shards)) as u16;
        let slots = SlotRange { first_slot: bound(shard), last_slot: bound(shard + 1) - 1 };
        let primary = format!("p{shard}");
        members.push(Member { id: primary.clone(), port: free_port(), slots, primary: None });
        for replica in 0..replicas {
            let id = format!("r{shard}-{replica}");
            members.push(Member { id, port: free_port(), slots, primary: Some(primary.clone()) });
        }
    }
    members
}

/// Returns a topology document.
pub(crate) fn topology(number: u64, members: &[Member]) -> String {
    let node = |member: &Member| {
        let role = match &member.primary {
            None => format!(r#""role": "primary", "slots": ["{}"]"#, member.slots),
            Some(primary) => format!(r#""role": "replica", "primary": "{primary}""#),
        };
        format!(r#"{{"id": "{}", "host": "127.0.0.1", "port": {}, {role}}}"#, member.id, member.port)
    };
    let nodes: Vec<String> = members.iter().map(node).collect();
    format!(r#"{{"format": 1, "number": {number}, "nodes": [{}]}}"#, nodes.join(",\n"))
}

/// Returns the reply of a server to a command on a new connection.
pub(crate) fn reply(server: &Server, line: &str) -> Reply {
    ask(server.connect(), line)
}

/// Returns the number of the topology that a server follows.
pub(crate) fn topology_number(server: &Server) -> u64 {
    let info = reply(server, "CLUSTER INFO").text();
    crate::helpers::redis_server::line_of(&info, "cluster_current_epoch").unwrap().parse().unwrap()
}

/// Returns a key below [`ROWS`] whose slot is in a range.
pub(crate) fn key_in(slots: SlotRange) -> u64 {
    (0..ROWS).find(|key| slots.has_key((*key).into())).unwrap()
}

/// Returns the error that redirects the client of a key.
pub(crate) fn moved(key: u64, port: u16) -> Reply {
    Reply::Error(format!("MOVED {} 127.0.0.1:{port}", slot_of(key.into())))
}
