//! The cluster that this server is a node of.
//!
//! In: topology documents. Out: the [`View`] that connections read: which slots this node serves, and the address of
//! the node that serves any other slot. A view replaces the preceding one as a whole. This folder does not depend on
//! connections.
//!
//! Reasons and evidence: `docs/decisions/cluster.md`.

mod view;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use thiserror::Error;
use tokio::sync::watch;
use tracing::{info, warn};
use twox_hash::XxHash3_128;

use super::watchers::Watchers;
use crate::cluster::{NodeAddress, SlotSet, TOPOLOGY_LEN_MAX_BYTES, Topology, TopologyError, node_id_problem};
use crate::config_file;
use crate::setting::Setting;
use crate::sync::unpoisoned;
use view::ServedSlots;
pub(super) use view::View;

/// How long a node still serves the slots that a new topology assigns to other nodes, by default. In this time, the
/// other nodes read the new topology. Otherwise, two nodes that follow different topologies could redirect a client to
/// each other.
const RETAINED_FOR: Duration = Duration::from_secs(5);

/// The reason why a node rejects a topology.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The id of this node is not valid.
    #[error("the id of this node is {id:?}, {expected}")]
    Id {
        /// The id.
        id: String,
        /// What is expected.
        expected: &'static str,
    },
    /// The topology file cannot be read.
    #[error("{}: {error}", path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        error: std::io::Error,
    },
    /// The document is not valid.
    #[error("{document}: {error}")]
    Document {
        /// The path or the URL of the document.
        document: String,
        /// What is wrong with it.
        #[source]
        error: TopologyError,
    },
    /// The document is older than the topology in effect.
    #[error(
        "the topology has number {found}, expected more than {current}, which is in effect: give the new topology a \
         higher number"
    )]
    Older {
        /// The number of the rejected topology.
        found: u64,
        /// The number of the topology in effect.
        current: u64,
    },
    /// The document has the number of the topology in effect, but other nodes.
    #[error(
        "the topology differs from the one in effect, but both have number {number}: give the new topology a higher \
         number"
    )]
    Changed {
        /// The number of both topologies.
        number: u64,
    },
}

/// This server as a node of a cluster: its id, its address, and the topology that it follows. Handles may be used by
/// several threads.
pub struct ClusterNode {
    id: String,
    announced: NodeAddress,
    /// The topology file. `None` if another part of the program applies topologies.
    path: Option<PathBuf>,
    /// The slots whose rows the served file has.
    file_slots: Mutex<Arc<SlotSet>>,
    retained_for: Duration,
    view: ArcSwap<View>,
    /// The version of `view`, so that a connection notices a new view with one load.
    version: AtomicU64,
    /// What was read from the file last.
    last_read: Mutex<LastRead>,
    /// When the topology was replaced. Holding the lock serializes changes of the view.
    changed: Mutex<Option<Instant>>,
    /// The slots of a coming topology that the node serves already.
    confirmed: Mutex<SlotSet>,
    /// Whether the server has started, and has reported the topology that is in effect.
    is_followed: AtomicBool,
    /// The connections that are woken when the view is replaced.
    watchers: Watchers,
}

impl ClusterNode {
    /// Creates a node that has no topology yet. Until [`ClusterNode::apply`] is called, it serves no slots.
    ///
    /// # Errors
    /// [`ClusterError::Id`].
    pub fn new(id: &str, announced: NodeAddress) -> Result<ClusterNode, ClusterError> {
        if let Some(expected) = node_id_problem(id) {
            return Err(ClusterError::Id { id: id.to_owned(), expected });
        }
        let view = View::unknown(id, &announced);
        let version = AtomicU64::new(view.version);
        Ok(ClusterNode {
            id: id.to_owned(),
            announced,
            path: None,
            file_slots: Mutex::new(Arc::new(SlotSet::ALL)),
            retained_for: RETAINED_FOR,
            view: ArcSwap::from_pointee(view),
            version,
            last_read: Mutex::default(),
            changed: Mutex::default(),
            confirmed: Mutex::new(SlotSet::NONE),
            is_followed: AtomicBool::new(false),
            watchers: Watchers::default(),
        })
    }

    /// Makes the node follow the topology in a file. The server reads the file again when it changes and on a reload.
    ///
    /// # Errors
    /// [`ClusterError::Io`], [`ClusterError::Document`], [`ClusterError::Older`], [`ClusterError::Changed`].
    pub fn follow_file(&mut self, path: &Path) -> Result<(), ClusterError> {
        self.path = Some(path.to_path_buf());
        self.read_file().map(drop)
    }

    /// Returns why the topology in the file is not in effect. Empty if it is, or if the node follows no file.
    pub(super) fn refused(&self) -> String {
        unpoisoned(&self.last_read).refused.clone()
    }

    /// Sets the slots whose rows the served file has. The default is all slots. For a slot that the topology assigns to
    /// this node but that the file lacks, clients get an error instead of a missing row.
    /// If the file is replaced, the call applies to the file that is served next.
    pub fn set_file_slots(&self, slots: SlotSet) {
        *unpoisoned(&self.file_slots) = Arc::new(slots);
    }

    /// Sets how long the node still serves the slots that a new topology assigns to other nodes: at least the time that
    /// all nodes need to read the new topology. The default is 5 seconds.
    pub fn set_retained_for(&mut self, retained_for: Duration) {
        self.retained_for = retained_for;
    }

    /// Returns the slots whose rows the file has that is served next.
    pub fn file_slots(&self) -> Arc<SlotSet> {
        Arc::clone(&unpoisoned(&self.file_slots))
    }

    /// Returns the slots whose rows every served file must have. `None` if the node follows a store, which fetches the
    /// rows of the slots that the topology assigns to the node.
    pub(super) fn fixed_file_slots(&self) -> Option<Arc<SlotSet>> {
        self.path.as_ref().map(|_| self.file_slots())
    }

    /// Returns the slots that this node serves, as a primary or as a replica, including those that it still serves
    /// after a change of the topology.
    pub fn served_slots(&self) -> SlotSet {
        self.view().served_slots(true).clone()
    }

    /// Returns the id of this node.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the address that this node announces to clients.
    pub fn announced(&self) -> &NodeAddress {
        &self.announced
    }

    /// Returns the number of the topology in effect, or 0 if there is none.
    pub fn topology_number(&self) -> u64 {
        self.view().number()
    }

    pub(super) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Returns the version of the current view. Each view has a higher version than the preceding one.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Reads the topology file and applies the topology if it is new. Returns whether it is.
    pub(super) fn read_file(&self) -> Result<bool, ClusterError> {
        let Some(path) = &self.path else { return Ok(false) };
        let json = config_file::read(path, TOPOLOGY_LEN_MAX_BYTES)
            .map_err(|error| ClusterError::Io { path: path.clone(), error });
        // The file is read once per second, but a long document is parsed only if it has changed.
        let digest = json.as_ref().ok().map(|json| XxHash3_128::oneshot(json));
        if digest.is_some() && unpoisoned(&self.last_read).digest == digest {
            return Ok(false);
        }
        let document = || path.display().to_string();
        let parsed = json.and_then(|json| {
            Topology::parse(&json).map_err(|error| ClusterError::Document { document: document(), error })
        });
        let applied = parsed.and_then(|topology| self.apply(topology));
        let refused = applied.as_ref().err().map(ClusterError::to_string).unwrap_or_default();
        *unpoisoned(&self.last_read) = LastRead { digest, refused };
        applied
    }

    /// Makes the next call of [`ClusterNode::read_file`] parse the file even if it is unchanged.
    pub(super) fn forget_file(&self) {
        unpoisoned(&self.last_read).digest = None;
    }

    /// Replaces the topology in effect. Connections use the new topology from their next turn on. Returns false if the
    /// topology is already in effect.
    ///
    /// # Errors
    /// [`ClusterError::Document`], [`ClusterError::Older`], [`ClusterError::Changed`]. The topology in effect then
    /// stays.
    pub fn apply(&self, topology: Topology) -> Result<bool, ClusterError> {
        let mut changed = unpoisoned(&self.changed);
        let current = self.view();
        let number = topology.number;
        if number < current.number() {
            return Err(ClusterError::Older { found: number, current: current.number() });
        }
        if number == current.number() {
            return if current.topology() == Some(&topology) {
                Ok(false)
            } else {
                Err(ClusterError::Changed { number })
            };
        }
        let document = || format!("topology {number}");
        topology.check().map_err(|error| ClusterError::Document { document: document(), error })?;
        if self.is_followed.load(Ordering::Relaxed) {
            self.report(&topology);
        }
        let view = View::new(topology, &self.id, current.version + 1, current.served().clone())
            .map_err(|error| ClusterError::Document { document: document(), error })?;
        *changed = Some(Instant::now());
        self.replace(view);
        Ok(true)
    }

    /// Sets the slots of a coming topology that the node serves already, because other nodes may put that topology into
    /// effect first, and redirect clients to this node.
    pub fn confirm(&self, slots: SlotSet) {
        let _changed = unpoisoned(&self.changed);
        let before = std::mem::replace(&mut *unpoisoned(&self.confirmed), slots.clone());
        let current = self.view();
        let Some(topology) = current.topology().filter(|_| before != slots) else { return };
        let mut retained = current.retained().clone();
        retained.remove_all(&ServedSlots::as_primary(before));
        retained.insert_all(&ServedSlots::as_primary(slots));
        self.replace_served(topology, retained, current.version);
    }

    /// Stops serving the slots that the topology assigns to other nodes, if the topology has been in effect long
    /// enough.
    pub(super) fn release_retained(&self) {
        let changed = unpoisoned(&self.changed);
        let current = self.view();
        let Some(topology) = current.topology() else { return };
        let mut confirmed = ServedSlots::as_primary(unpoisoned(&self.confirmed).clone());
        confirmed.remove_all(&ServedSlots::as_primary(topology.slots_of(&self.id)));
        if *current.retained() == confirmed || changed.is_none_or(|changed| changed.elapsed() < self.retained_for) {
            return;
        }
        self.replace_served(topology, confirmed, current.version);
    }

    fn replace_served(&self, topology: &Topology, retained: ServedSlots, version: u64) {
        // The topology was valid before.
        if let Ok(view) = View::new(topology.clone(), &self.id, version + 1, retained) {
            self.replace(view);
        }
    }

    fn replace(&self, view: View) {
        let version = view.version;
        self.view.store(Arc::new(view));
        self.version.store(version, Ordering::Release);
        self.watchers.wake();
    }

    pub(super) fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    fn report(&self, topology: &Topology) {
        let (id, number, announced) = (&self.id, topology.number, &self.announced);
        let index = topology.index();
        let Some(node) = index.node(id) else {
            warn!(topology = number, "topology {number} has no node {id:?}: this server redirects all clients");
            return;
        };
        if (node.host.as_str(), node.port) != (announced.host.as_str(), announced.port) {
            warn!(
                topology = number,
                "topology {number} has the address {}:{} for this node, but the node announces {announced}: clients \
                 use the address of the topology",
                node.host,
                node.port
            );
        }
        let mut lacking = index.slots_of(id);
        info!(topology = number, "topology {number}: this node has slots {}", lacking.summary());
        lacking.remove_all(&self.file_slots());
        // A node that follows a store fetches the rows that it lacks.
        if self.path.is_some() && !lacking.is_empty() {
            warn!(
                topology = number,
                "topology {number} assigns slots {} to this node, but its file has only rows of slots {} ({}): clients \
                 that request keys of the other slots get the error LOADING: serve a file with these slots, or correct \
                 the topology",
                lacking.summary(),
                self.file_slots().summary(),
                Setting::Slots
            );
        }
    }
}

/// What was read from a topology file last.
#[derive(Default)]
struct LastRead {
    /// The digest of the file. `None` if the file could not be read.
    digest: Option<u128>,
    /// Why the document is not in effect. Empty if it is.
    refused: String,
}

impl fmt::Debug for ClusterNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterNode").field("id", &self.id).field("announced", &self.announced).finish_non_exhaustive()
    }
}

/// The time between two checks of the file.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Follows the topology file of a node, if it has one, until the runtime ends. Reads the file when `reloads` announces
/// a request, and once per second. A topology that is rejected is logged once, and the one in effect stays.
pub(super) async fn follow(node: Arc<ClusterNode>, mut reloads: watch::Receiver<()>) {
    // The first topology was applied before the log was set up.
    if !node.is_followed.swap(true, Ordering::Relaxed)
        && let Some(topology) = node.view().topology()
    {
        node.report(topology);
    }
    let mut last_problem = String::new();
    loop {
        tokio::select! {
            request = reloads.changed() => match request {
                Ok(()) => {
                    last_problem.clear();
                    node.forget_file();
                }
                Err(_) => return,
            },
            () = tokio::time::sleep(CHECK_EVERY) => {}
        }
        node.release_retained();
        let reading = Arc::clone(&node);
        // A slow file system must not delay new connections.
        match tokio::task::spawn_blocking(move || reading.read_file()).await {
            // A rejected document that has not changed is not logged again.
            Ok(Ok(_)) if node.refused().is_empty() => last_problem.clear(),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                let problem = error.to_string();
                if problem != last_problem {
                    warn!("{problem}: topology {} stays in effect", node.topology_number());
                }
                last_problem = problem;
            }
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(number: u64, port: u16) -> Topology {
        let json = format!(
            r#"{{"format": 1, "number": {number}, "nodes": [
                {{"id": "a", "host": "h", "port": {port}, "role": "primary", "slots": ["0-16383"]}}]}}"#
        );
        Topology::parse(json.as_bytes()).unwrap()
    }

    fn node() -> ClusterNode {
        ClusterNode::new("a", "h:1".parse().unwrap()).unwrap()
    }

    #[test]
    fn only_a_topology_with_a_higher_number_replaces_the_one_in_effect() {
        let node = node();
        assert_eq!((node.topology_number(), node.view().is_primary_of(7)), (0, false));
        assert!(node.apply(topology(5, 1)).unwrap());
        assert!(node.view().is_primary_of(7));
        let version = node.version();
        assert!(!node.apply(topology(5, 1)).unwrap());
        assert!(matches!(node.apply(topology(5, 2)), Err(ClusterError::Changed { number: 5 })));
        assert!(matches!(node.apply(topology(4, 1)), Err(ClusterError::Older { found: 4, current: 5 })));
        assert_eq!((node.topology_number(), node.version()), (5, version));
        assert!(node.apply(topology(9, 2)).unwrap());
        assert!(node.version() > version && node.version() == node.view().version);
    }
}
