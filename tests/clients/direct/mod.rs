//! Direct mode: lookups in the file that a server passes to a client.

mod changes;
mod hostile;
mod killed;
mod lookups;
mod servers;
mod swaps;
mod wire;

use std::path::Path;

use zero_kv::Lookup;
use zero_kv::client::{Client, Direct, DirectOptions};
use zero_kv::store::Memory;

use crate::helpers::generations::Shape;
use crate::helpers::scenes::Scene;
use crate::helpers::servers::Server;

const SHAPE: Shape = Shape { rows: 2000, len_max_bytes: 300 };

/// Serves a table of generation 1 and opens it in direct mode.
fn direct(options: &[&str]) -> (Scene, Server, Direct) {
    direct_in(Scene::new(), options)
}

fn direct_in(scene: Scene, options: &[&str]) -> (Scene, Server, Direct) {
    SHAPE.bake(1, &scene.db());
    let served = scene.serve(options);
    let direct = open(served.socket());
    (scene, served, direct)
}

fn open(socket: &Path) -> Direct {
    Client::connect(socket).unwrap().direct().unwrap()
}

/// Returns options with which the client copies the table, so that no change of the file affects it.
fn copy_options() -> DirectOptions {
    DirectOptions { memory: Memory::Copy, ..DirectOptions::default() }
}

/// Replaces the served file with another generation by renaming.
fn put(scene: &Scene, generation: u64) {
    let new = scene.path("new.db");
    SHAPE.bake(generation, &new);
    std::fs::rename(new, scene.db()).unwrap();
}

/// Asserts that every key has its value of a generation.
#[track_caller]
fn assert_all(direct: &Direct, generation: u64) {
    let keys: Vec<u64> = (0..SHAPE.rows + 3).collect();
    let values = direct.get_many(&keys).unwrap();
    assert_eq!(values.len(), keys.len());
    for (key, value) in keys.iter().zip(values) {
        assert_eq!(value, SHAPE.value(generation, *key), "key {key} of generation {generation}");
    }
}

/// Returns whether this process has mapped the file with this inode, which is or was the served file of a scene.
fn is_mapped(scene: &Scene, inode: u64) -> bool {
    let (maps, db) = (std::fs::read_to_string("/proc/self/maps").unwrap(), scene.db());
    let is_of_table = |line: &&str| line.contains(db.to_str().unwrap()) || line.contains("memfd:zero-kv ");
    let of_table = maps.lines().filter(is_of_table);
    of_table.into_iter().any(|line| line.split_whitespace().nth(4) == Some(&inode.to_string()))
}
