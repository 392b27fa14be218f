//! Nodes that follow a published table, as threads of the test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use zero_kv::publish::{FollowControl, FollowOptions, Follower};

use super::stores::Store;
use crate::helpers::waiting::eventually;

/// A node. Dropping it ends the node.
pub(crate) struct Node {
    pub(crate) name: &'static str,
    control: FollowControl,
    /// Whether the node rejects every new generation.
    rejects: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    /// Starts a node in a zone.
    fn start(store: &Store, zone: &str, name: &'static str) -> Node {
        let mut options = FollowOptions::new(store.path(name), name);
        options.zone = zone.to_owned();
        options.poll = Duration::from_millis(20);
        let mut follower = Follower::open(store.url(), options).unwrap();
        let (control, rejects) = (follower.control(), Arc::new(AtomicBool::new(false)));
        let is_rejecting = Arc::clone(&rejects);
        let thread = thread::spawn(move || {
            follower.serve_with(move |_, _| match is_rejecting.load(Ordering::Relaxed) {
                true => Err("the canary failed".to_owned()),
                false => Ok(()),
            });
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(follower.run(|_| ()));
        });
        Node { name, control, rejects, thread: Some(thread) }
    }

    pub(crate) fn reject(&self) {
        self.rejects.store(true, Ordering::Relaxed);
    }

    pub(crate) fn serving(&self) -> u64 {
        self.control.facts().status.serving
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.control.stop();
        let _ = self.thread.take().unwrap().join();
    }
}

/// Starts nodes, and waits until they report that they serve a generation.
pub(crate) fn start<const N: usize>(store: &Store, names: [&'static str; N], generation: u64) -> [Node; N] {
    start_in_zones(store, names.map(|name| ("", name)), generation)
}

/// Starts nodes in zones, and waits until they report that they serve a generation.
pub(crate) fn start_in_zones<const N: usize>(
    store: &Store,
    nodes: [(&str, &'static str); N],
    generation: u64,
) -> [Node; N] {
    let nodes = nodes.map(|(zone, name)| Node::start(store, zone, name));
    let reported = || store.zkv(&["generations", "URL", "--json"]).json();
    eventually("all nodes serve the generation", || {
        let generations = reported();
        let generations = generations["generations"].as_array().unwrap();
        let found = generations.iter().find(|found| found["number"] == generation).unwrap();
        found["nodes"].as_array().unwrap().len() == N
    });
    nodes
}
