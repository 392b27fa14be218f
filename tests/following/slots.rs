//! Nodes that serve some slots of a table.

use std::fs;
use std::path::Path;

use zero_kv::bake::{Cancel, Keys, MEMORY_MIN_BYTES, Options, Shards, merge, merge_shards};
use zero_kv::publish::{Canary, CommitOptions, ShardFile};
use zero_kv::server::value_digest;
use zero_kv::slots::SlotRange;

use crate::helpers::published::{Published, start_node};
use crate::helpers::rows::bake_text;
use crate::helpers::servers::Server;

const LOW: SlotRange = SlotRange { first_slot: 0, last_slot: 6000 };
const HIGH: SlotRange = SlotRange { first_slot: 6001, last_slot: 16383 };

fn node(published: &Published, name: &str, slots: SlotRange) -> Server {
    let mut command = published.node_command(name, published.publication.url());
    command.args(["--slots", &slots.to_string()]);
    start_node(command, &published.socket(name))
}

/// Bakes a table whose values name the generation.
fn bake(published: &Published, generation: u64) -> std::path::PathBuf {
    let db = published.folder.path().join("whole.db");
    let text: String = (0..3000).map(|key| format!("{key},{generation} {key}\n")).collect();
    bake_text(&db, Keys::U64, text);
    db
}

/// Publishes a table in this number of shards.
fn publish(published: &Published, generation: u64, shards: u16, options: &CommitOptions) {
    let (db, folder) = (bake(published, generation), tempfile::tempdir().unwrap());
    let mut bake_options = Options::default();
    bake_options.memory_bytes = Some(MEMORY_MIN_BYTES);
    let divided = merge_shards(&[db], &folder.path().join("shards"), Shards::Count(shards), &bake_options);
    let upload = |shard: &zero_kv::bake::ShardReport| {
        let file = ShardFile { path: shard.path.clone(), slots: shard.slots };
        published.publication.upload(&file, &Cancel::default()).unwrap()
    };
    let entries = divided.unwrap().iter().map(upload).collect();
    assert_eq!(published.publication.commit(entries, options).unwrap().number, generation);
}

/// Checks that a node serves the file that a bake of its slots would give.
fn assert_serves(published: &Published, name: &str, node: &Server, slots: SlotRange, generation: u64) {
    let (db, expected) = (bake(published, generation), published.folder.path().join("expected.db"));
    let mut options = Options::default();
    options.slots = Some(slots);
    options.replace = zero_kv::replace::ReplaceRules::any();
    merge(&[db], &expected, &options).unwrap();
    let served = |path: &Path| fs::read(path).unwrap();
    assert!(served(&published.cache(name).join("serving.db")) == served(&expected), "generation {generation}");
    let mut client = node.client();
    for key in (0..3000_u64).step_by(7) {
        let expected = slots.has_key(key.into()).then(|| format!("{generation} {key}").into_bytes());
        assert_eq!(client.get(key).unwrap(), expected, "key {key}");
    }
}

#[test]
fn nodes_fetch_and_serve_only_the_rows_of_their_slots() {
    let published = Published::new();
    publish(&published, 1, 3, &CommitOptions::default());
    let (low, high) = (node(&published, "low", LOW), node(&published, "high", HIGH));
    assert_eq!(low.info().get("published_slots"), Some("0-6000"));
    assert_serves(&published, "low", &low, LOW, 1);
    assert_serves(&published, "high", &high, HIGH, 1);
    // The number of shards may change: shards of one node, a shard of both nodes, and one file for all.
    for (generation, shards) in [(2, 7), (3, 1), (4, 2)] {
        let fetched = low.number("published_fetched_bytes");
        // The slot of 7 is 1716, so only one node looks it up.
        let digest = format!("{:032x}", value_digest(format!("{generation} 7").as_bytes()));
        let canaries = vec![Canary { key: "7".to_owned(), digest }];
        publish(&published, generation, shards, &CommitOptions { canaries, ..CommitOptions::default() });
        for (name, node, slots) in [("low", &low, LOW), ("high", &high, HIGH)] {
            node.wait_for("published_generation", generation);
            assert_serves(&published, name, node, slots, generation);
        }
        let (fetched, whole) = (low.number("published_fetched_bytes") - fetched, bake(&published, generation));
        let whole_bytes = fs::metadata(whole).unwrap().len();
        assert!(shards == 1 || fetched < whole_bytes * 2 / 3, "{fetched} of {whole_bytes} bytes were fetched");
    }
}

#[test]
fn a_node_with_other_slots_than_before_fetches_their_rows() {
    let published = Published::new();
    publish(&published, 1, 4, &CommitOptions::default());
    drop(node(&published, "a", LOW));
    let a = node(&published, "a", HIGH);
    assert_serves(&published, "a", &a, HIGH, 1);
    drop(a);
    // The node starts from its cache.
    fs::rename(published.store(), published.folder.path().join("away")).unwrap();
    fs::create_dir_all(published.table()).unwrap();
    let a = node(&published, "a", HIGH);
    assert_eq!(a.client().get(7).unwrap().is_some(), HIGH.has_key(7.into()));
}
