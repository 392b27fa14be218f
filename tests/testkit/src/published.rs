//! A published table and the servers that follow it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use zero_kv::bake::Cancel;
use zero_kv::publish::{CommitOptions, Pin, Publication, ShardFile};

use super::generations::Shape;
use super::programs::program;
use super::servers::Server;
use super::waiting::eventually;

pub const SHAPE: Shape = Shape { rows: 2000, len_max_bytes: 300 };

/// A table that is published to a folder.
pub struct Published {
    pub folder: TempDir,
    pub publication: Publication,
}

impl Published {
    /// Creates a table without generations.
    pub fn new() -> Published {
        let folder = tempfile::tempdir().unwrap();
        let publication = Publication::create(&format!("file://{}/store/users", folder.path().display())).unwrap();
        Published { folder, publication }
    }

    /// Returns the folder of the store.
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Returns the folder of the table in the store.
    pub fn table(&self) -> PathBuf {
        self.store().join("users")
    }

    /// Publishes a generation whose rows name it.
    pub fn publish(&self, number: u64) {
        let db = self.folder.path().join("next.db");
        SHAPE.bake(number, &db);
        assert_eq!(self.publish_file(&db, &CommitOptions::default()), number);
    }

    /// Publishes a file. Returns the number of the generation.
    pub fn publish_file(&self, db: &Path, options: &CommitOptions) -> u64 {
        let entry = self.publication.upload(&ShardFile::whole(db), &Cancel::default()).unwrap();
        self.publication.commit(vec![entry], options).unwrap().number
    }

    pub fn pin(&self, generation: Option<u64>) -> u64 {
        self.publication.create_pin(&Pin::new(generation)).unwrap()
    }

    /// Makes all nodes prepare a generation and wait for a decision. Returns the number of the pin.
    pub fn hold(&self, generation: u64) -> u64 {
        let mut pin = Pin::new(Some(generation));
        pin.hold = true;
        self.publication.create_pin(&pin).unwrap()
    }

    /// Returns the command that starts a node, which reads the store at a URL.
    pub fn node_command(&self, name: &str, url: &str) -> Command {
        let mut command = Command::new(program("kv_store"));
        command.args(["--from", url, "--node", name, "--cache"]).arg(self.cache(name));
        command.arg("--socket").arg(self.socket(name)).env("RUST_LOG", "info").env("KV_STORE_POLL", "50ms");
        command
    }

    pub fn cache(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("cache-{name}"))
    }

    pub fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.sock"))
    }

    /// Starts a node that reads the store at a URL, and waits until it is ready.
    pub fn node_of(&self, name: &str, url: &str) -> Server {
        start_node(self.node_command(name, url), &self.socket(name))
    }

    /// Starts a node that reads the folder of the store, and waits until it is ready.
    pub fn node(&self, name: &str) -> Server {
        self.node_of(name, self.publication.url())
    }

    /// Returns the generation that a node serves, as its status in the store states.
    pub fn status_serving(&self, name: &str) -> Option<u64> {
        let statuses = self.publication.statuses().unwrap();
        statuses.into_iter().find(|status| status.node == name).map(|status| status.serving)
    }

    /// Returns the names of the generations that the folder of a node keeps, and the names of files that should not be
    /// there or that are missing.
    pub fn kept_and_garbage(&self, node: &str) -> (Vec<String>, Vec<String>) {
        let cache = self.cache(node);
        let mut found = names(&cache);
        found.extend(names(&cache.join("data")));
        let mut expected = ["data", "lock", "manifests", "serving.db", "serving.json"].map(str::to_owned).to_vec();
        let kept = names(&cache.join("manifests"));
        for name in &kept {
            match name.strip_suffix(".json").and_then(|number| number.parse().ok()) {
                Some(number) => {
                    let digest = self.publication.manifest(Some(number)).unwrap().digest();
                    expected.push(format!("{digest}.zkv"));
                }
                None => found.push(name.clone()),
            }
        }
        let is_wrong = |name: &String| found.contains(name) != expected.contains(name);
        let garbage = found.iter().chain(&expected).filter(|name| is_wrong(name)).cloned().collect();
        (kept, garbage)
    }

    /// Waits until the folder of a node has nothing that should not be there. A node that serves a generation still writes
    /// its record, and deletes what it does not need.
    pub fn wait_until_tidy(&self, node: &str) {
        eventually("the folder has no garbage", || self.kept_and_garbage(node).1.is_empty());
    }

    /// Creates or replaces a manifest that has the files of generation 1. `change` forges its body.
    pub fn forge_manifest(&self, number: u64, change: impl FnOnce(&mut serde_json::Value)) {
        let manifest = |number: u64| self.table().join(format!("manifests/{number:020}.json"));
        let mut document: serde_json::Value = serde_json::from_slice(&fs::read(manifest(1)).unwrap()).unwrap();
        let body = &mut document["body"];
        (body["number"], body["parent"]) = (number.into(), (number - 1).into());
        change(body);
        // A node must not read a part of it.
        let new = self.folder.path().join("forged.json");
        fs::write(&new, sealed(&body.to_string())).unwrap();
        fs::rename(new, manifest(number)).unwrap();
    }

    /// Returns the file of a generation in the store.
    pub fn data_file(&self, number: u64) -> PathBuf {
        let manifest = self.publication.manifest(Some(number)).unwrap();
        self.table().join(&manifest.entries[0].object)
    }
}

/// Returns a document with a valid checksum.
pub fn sealed(body: &str) -> Vec<u8> {
    let checksum = twox_hash::XxHash3_128::oneshot(body.as_bytes());
    format!("{{\"body\":{body},\"xxh3_128\":\"{checksum:032x}\"}}\n").into_bytes()
}

/// Starts a node, and waits until it is ready and reports what it serves, which it does just after it is ready.
pub fn start_node(command: Command, socket: &Path) -> Server {
    let node = Server::of(command, socket);
    eventually("the node reports its generation", || node.number("published_generation") > 0);
    node
}

/// Waits until a node serves a generation.
pub fn wait_until_served(node: &Server, generation: u64) {
    eventually(&format!("generation {generation} is served"), || node.number("published_generation") == generation);
    assert!(node.client().get(1).unwrap().unwrap().starts_with(format!("{generation}:1:").as_bytes()));
}

/// Waits until a node has begun and ended some more polls.
pub fn wait_for_polls(node: &Server) {
    let polls = node.number("published_polls");
    node.wait_for("published_polls", polls + 3);
}

/// Waits until a node reports an error with a text.
pub fn wait_for_error(node: &Server, text: &str) {
    eventually(&format!("the error contains {text:?}"), || {
        node.info().get("published_error").unwrap_or_default().contains(text)
    });
}

/// Runs `zkv health`, and returns its exit status and its lines. The store may have been unreadable for any time.
pub fn health(node: &Server) -> (Option<i32>, String) {
    health_within(node, "86400")
}

/// Runs `zkv health` with a limit on the age of the last successful poll.
pub fn health_within(node: &Server, stale_after_s: &str) -> (Option<i32>, String) {
    let mut command = Command::new(program("zkv"));
    command.args(["health", "--stale-after", stale_after_s, "--socket"]).arg(node.socket());
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Returns the names of the files in a folder, in order.
pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
