//! Statuses: what each node serves.
//!
//! In: the state of a node. Out: a document that the node overwrites, and that operators read. Before a node overwrites
//! it, it looks for the report of another process with its name ([`Namesakes`]).

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use futures_util::stream::{self, StreamExt};
use object_store::ObjectMeta;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::document::{decode, encode};
use super::error::{PublishError, StoreFault};
use super::limits::{
    self, NUMBER_MAX, RANGES_MAX, STATUS_LEN_MAX_BYTES, STATUSES_MAX, TEXT_LEN_MAX_BYTES, check_len, check_number,
    one_line,
};
use super::location::Location;
use super::transfer::random_bytes;
use crate::cluster::{SlotSet, node_id_problem};
use crate::slots::SlotRange;
use crate::sync::unpoisoned;

/// The number of concurrent reads of statuses. A reader that waits for nodes tolerates as many failed reads.
pub(super) const READS_MAX: usize = 64;
/// The number of statuses for which a store may return errors, after retries, until the store itself is considered
/// failed.
const FAILED_MAX: usize = 3;

/// The state of a node, as the node last reported it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The name of the node.
    pub node: String,
    /// The generation that the node serves, or 0 if it serves none.
    pub serving: u64,
    /// The digest of the table that the node serves.
    pub digest: String,
    /// The generation that the node has fetched and verified but does not serve yet, or 0.
    pub prepared: u64,
    /// The newest generation that the node knows.
    pub newest: u64,
    /// The pin that applies to the node, or 0.
    pub pin: u64,
    /// The number of seconds since the newest generation that the node should serve was published. 0 if the node serves
    /// that generation.
    pub lag_s: u64,
    /// Why the node does not serve the generation that it should. Empty if it does, or if it is fetching it.
    pub error: String,
    /// The generation that the error is about, or 0.
    pub failed: u64,
    /// The slots whose rows the node serves. Empty if the node is not part of a cluster.
    #[serde(default, deserialize_with = "limits::list::<_, _, RANGES_MAX>")]
    pub slots: Vec<SlotRange>,
    /// The number of the topology in effect, or 0 if the node is not part of a cluster.
    #[serde(default)]
    pub topology: u64,
    /// The number of the newest topology whose rows the node has, or 0 if the node is not part of a cluster. The node
    /// confirms that this topology may take effect.
    #[serde(default)]
    pub ready_topology: u64,
    /// The generation that the node is fetching, or 0.
    #[serde(default)]
    pub fetching: u64,
    /// The bytes of the file in progress that are fetched, and its length.
    #[serde(default)]
    pub fetched_bytes: u64,
    /// The length of this file, in bytes.
    #[serde(default)]
    pub fetch_bytes: u64,
    /// The mean rate of the fetch, in bytes per second.
    #[serde(default)]
    pub fetch_bytes_per_s: u64,
    /// The number of seconds since the fetch began.
    #[serde(default)]
    pub fetch_s: u64,
    /// The number of seconds since the node last read the store successfully.
    #[serde(default)]
    pub poll_age_s: u64,
    /// The maximum number of seconds until the next report of the node. 0 if an earlier version wrote the status.
    #[serde(default)]
    pub report_every_s: u64,
    /// A number that is different in each report of a node.
    #[serde(default)]
    pub beat: u64,
    /// When the node reported this status, as RFC 3339 text.
    pub updated: String,
    /// The program of the node, with its version.
    pub tool: String,
    /// The zone of the node, or empty.
    #[serde(default)]
    pub zone: String,
    /// A random text that is different for each process of the node. Empty if an earlier version wrote the status.
    #[serde(default)]
    pub instance: String,
    /// The instance of another process that reports under the name of the node, or empty.
    #[serde(default)]
    pub other_instance: String,
    /// The number of seconds since the store received the status, by the clock of the store and that of the reader. It
    /// is not part of the status. A node writes its status at least once per minute.
    #[serde(skip)]
    pub age_s: u64,
}

impl NodeStatus {
    /// Writes the status.
    pub(super) async fn write(&self, location: &Location) -> Result<(), PublishError> {
        let updated = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let tool = concat!("zero-kv ", env!("CARGO_PKG_VERSION")).to_owned();
        let json = encode(&NodeStatus { updated, tool, ..self.clone() });
        location.overwrite_bytes(&object(&self.node), json).await
    }

    /// Returns whether the node has stopped reporting: its status is older than a time, and two reports are missing. A
    /// node that fetches, or that waits for a store, reports at the usual rate.
    pub fn is_silent_for(&self, fail_after: Duration) -> bool {
        let missed_s = self.report_every_s.saturating_mul(2);
        self.age_s > fail_after.as_secs().max(missed_s)
    }

    /// Returns the problem if two processes report under the node's name.
    pub fn name_problem(&self) -> Option<String> {
        let (instance, other) = (one_line(&self.instance), one_line(&self.other_instance));
        (!other.is_empty()).then(|| {
            format!(
                "two processes report as node {}, instances {instance} and {other}: give each its own name and folder",
                one_line(&self.node)
            )
        })
    }

    pub(super) fn slot_set(&self) -> SlotSet {
        self.slots.iter().copied().filter(|range| range.is_valid()).collect()
    }

    /// Decodes the status of a node. The error states the problem.
    fn decode(json: &[u8], node: &str) -> Result<NodeStatus, String> {
        let mut status: NodeStatus = decode(json)?;
        if status.node != node {
            return Err(format!("is the status of node {:?}, expected {node:?}", one_line(&status.node)));
        }
        let NodeStatus { serving, prepared, newest, pin, failed, topology, ready_topology, fetching, .. } = status;
        for number in [serving, prepared, newest, pin, failed, topology, ready_topology, fetching] {
            check_number("a number", number, NUMBER_MAX)?;
        }
        let NodeStatus { digest, updated, tool, zone, instance, other_instance, .. } = &status;
        for text in [digest, updated, tool, zone, instance, other_instance] {
            check_len("a text", text, TEXT_LEN_MAX_BYTES)?;
        }
        if let Some(range) = status.slots.iter().find(|range| !range.is_valid()) {
            return Err(format!("the slots are {range}, expected slots from 0 to 16383 in order"));
        }
        // Earlier versions wrote the texts of stores unchanged.
        status.error = one_line(&status.error);
        Ok(status)
    }

    /// Reads the status of a node. Returns `None` if there is none, or if it cannot be read.
    pub(super) async fn read(location: &Location, node: &str) -> Result<Option<NodeStatus>, PublishError> {
        match location.read_bytes(&object(node), STATUS_LEN_MAX_BYTES).await {
            Ok(json) => Ok(json.and_then(|json| NodeStatus::decode(&json, node).ok())),
            Err(error) if error.is_of_one_object() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the statuses of all nodes, in the order of their names. Skips statuses that cannot be read, and passes a
    /// message about each of them to `skipped`.
    pub(super) async fn read_all(
        location: &Location,
        skipped: &mut (impl FnMut(String) + ?Sized),
    ) -> Result<Vec<NodeStatus>, PublishError> {
        let reports = NodeReports::read(location, FAILED_MAX).await?;
        reports.unreadable.iter().for_each(|unreadable| skipped(unreadable.message()));
        Ok(reports.statuses)
    }
}

/// The statuses of all nodes, as far as they can be read.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct NodeReports {
    /// The statuses, in the order of the names of their nodes.
    pub statuses: Vec<NodeStatus>,
    /// The statuses that cannot be read.
    pub unreadable: Vec<UnreadableStatus>,
}

/// A status that cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub struct UnreadableStatus {
    /// The node, or `None` if no status can be read.
    pub node: Option<String>,
    /// Why the status cannot be read.
    pub problem: String,
    /// Whether the store failed, so that a later read may succeed. Otherwise, the status itself is at fault.
    pub is_temporary: bool,
}

impl UnreadableStatus {
    fn new(node: Option<&str>, error: &PublishError) -> UnreadableStatus {
        let is_temporary = !error.is_of_one_object();
        UnreadableStatus { node: node.map(str::to_owned), problem: error.to_string(), is_temporary }
    }

    pub(super) fn message(&self) -> String {
        let skipped = if self.node.is_some() { "the status is skipped" } else { "no status is read" };
        format!("{}: {skipped}", self.problem)
    }
}

impl NodeReports {
    /// Reads the statuses of all nodes. Fails if the store fails for more than `failed_max` of them.
    pub(super) async fn read(location: &Location, failed_max: usize) -> Result<NodeReports, PublishError> {
        let mut reports = NodeReports::default();
        let listed = match location.list("status", None, STATUSES_MAX).await {
            // Other writers to the folder of a store can replace `status`. All statuses are then missing. If the store
            // itself is missing, nothing is known of nodes.
            Err(error @ PublishError::Store { cause: StoreFault::Folder { .. }, .. }) => {
                if let Some(folder) = &location.folder {
                    folder.check().await.map_err(location.fault("status"))?;
                }
                reports.unreadable.push(UnreadableStatus::new(None, &error));
                Vec::new()
            }
            listed => listed?,
        };
        let others = location.folder.as_ref().map(|folder| folder.names_of_no_objects(&location.path("status")));
        for name in others.and_then(Result::ok).unwrap_or_default() {
            if let Some(node) = node_of(&name) {
                let error = location.document_fault(&object(node), "is not a regular file");
                reports.unreadable.push(UnreadableStatus::new(Some(node), &error));
            }
        }
        let read = |listed: ObjectMeta| async move {
            let node = listed.location.filename().and_then(node_of)?.to_owned();
            let json = match location.read_bytes(&object(&node), STATUS_LEN_MAX_BYTES).await {
                Ok(json) => json?,
                Err(error) => return Some((node, Err(error))),
            };
            let age = SystemTime::now().duration_since(listed.last_modified.into()).unwrap_or_default();
            let status = match NodeStatus::decode(&json, &node) {
                Ok(status) => Ok(NodeStatus { age_s: age.as_secs(), ..status }),
                Err(problem) => Err(location.document_fault(&object(&node), problem)),
            };
            Some((node, status))
        };
        let mut reads = stream::iter(listed.into_iter().map(read)).buffer_unordered(READS_MAX);
        let mut failed = 0;
        while let Some(found) = reads.next().await {
            match found {
                None => {}
                Some((_, Ok(status))) => reports.statuses.push(status),
                Some((node, Err(error))) => {
                    failed += usize::from(!error.is_of_one_object());
                    if failed > failed_max {
                        return Err(error);
                    }
                    reports.unreadable.push(UnreadableStatus::new(Some(&node), &error));
                }
            }
        }
        reports.statuses.sort_by(|left, right| left.node.cmp(&right.node));
        reports.unreadable.sort_by(|left, right| left.node.cmp(&right.node));
        Ok(reports)
    }
}

/// Returns the node whose status has a name. Other programs may have put other objects there.
fn node_of(name: &str) -> Option<&str> {
    name.strip_suffix(".json").filter(|node| node_id_problem(node).is_none())
}

fn object(node: &str) -> String {
    format!("status/{node}.json")
}

/// How long another process is reported after its last report was found. A process reports at least once per minute.
const REMEMBERED_MAX: Duration = Duration::from_secs(180);

/// The instance of a process, and what it has found of others.
pub(super) struct Namesakes {
    instance: String,
    state: Mutex<NamesakeState>,
}

#[derive(Default)]
struct NamesakeState {
    /// Whether a report of this process has reached the store.
    has_reported: bool,
    /// The instance of another process, and when its report was found.
    found: Option<(String, Instant)>,
}

impl Namesakes {
    pub(super) fn new() -> Namesakes {
        let instance = format!("{:016x}", u64::from_le_bytes(random_bytes()));
        Namesakes { instance, state: Mutex::default() }
    }

    pub(super) fn instance(&self) -> &str {
        &self.instance
    }

    /// Returns the instance of another process that reports under the name, or an empty text.
    pub(super) fn other(&self) -> String {
        self.other_at(Instant::now())
    }

    fn other_at(&self, now: Instant) -> String {
        let state = unpoisoned(&self.state);
        let found = state.found.as_ref().filter(|(_, at)| now.saturating_duration_since(*at) < REMEMBERED_MAX);
        found.map(|(instance, _)| instance.clone()).unwrap_or_default()
    }

    /// Writes a status, after a look at the one that it replaces.
    pub(super) async fn report(&self, location: &Location, mut status: NodeStatus) -> Result<(), PublishError> {
        // A failed read is repeated before the next report.
        if let Ok(Some(found)) = NodeStatus::read(location, &status.node).await {
            self.found(&found.instance, Instant::now());
        }
        (status.instance, status.other_instance) = (self.instance.clone(), self.other());
        status.write(location).await?;
        unpoisoned(&self.state).has_reported = true;
        Ok(())
    }

    /// Records the instance of the status in the store, which is empty if an earlier version wrote it.
    fn found(&self, instance: &str, now: Instant) {
        let mut state = unpoisoned(&self.state);
        if state.has_reported && !instance.is_empty() && instance != self.instance {
            state.found = Some((instance.to_owned(), now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_is_reported_only_while_it_reports() {
        let (namesakes, start) = (Namesakes::new(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        // The process that ran before.
        namesakes.found("before", at(0));
        assert_eq!(namesakes.other_at(at(0)), "");
        unpoisoned(&namesakes.state).has_reported = true;
        for own in [namesakes.instance().to_owned(), String::new()] {
            namesakes.found(&own, at(1));
            assert_eq!(namesakes.other_at(at(1)), "");
        }
        namesakes.found("other", at(60));
        namesakes.found(namesakes.instance(), at(61));
        assert_eq!((namesakes.other_at(at(60)), namesakes.other_at(at(239))), ("other".into(), "other".into()));
        assert_eq!(namesakes.other_at(at(240)), "");
        assert_ne!(Namesakes::new().instance(), namesakes.instance());
    }
}
