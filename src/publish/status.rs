//! Statuses: what each node serves.
//!
//! In: the state of a node. Out: a document that the node overwrites, and that operators read.

use std::time::SystemTime;

use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

use super::document::{decode, encode};
use super::error::PublishError;
use super::location::Location;
use crate::cluster::SlotSet;
use crate::slots::SlotRange;

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
    #[serde(default)]
    pub slots: Vec<SlotRange>,
    /// The number of the topology in effect, or 0 if the node is not part of a cluster.
    #[serde(default)]
    pub topology: u64,
    /// When the node reported this status, as RFC 3339 text.
    pub updated: String,
    /// The program of the node, with its version.
    pub tool: String,
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
        location.overwrite_bytes(&format!("status/{}.json", self.node), json).await
    }

    /// Returns the slots whose rows the node serves.
    pub(super) fn slot_set(&self) -> SlotSet {
        self.slots.iter().copied().filter(|range| range.is_valid()).collect()
    }

    /// Reads the status of a node. Returns `None` if there is none, or if it is damaged.
    pub(super) async fn read(location: &Location, node: &str) -> Result<Option<NodeStatus>, PublishError> {
        let json = location.read_bytes(&format!("status/{node}.json")).await?;
        Ok(json.and_then(|json| decode(&json).ok()))
    }

    /// Reads the statuses of all nodes, in the order of their names. Skips statuses that are damaged.
    pub(super) async fn read_all(location: &Location) -> Result<Vec<NodeStatus>, PublishError> {
        let folder = location.path("status");
        let mut objects = location.store.list(Some(&folder));
        let mut statuses = Vec::new();
        while let Some(object) = objects.next().await {
            let object = object.map_err(location.fault("status"))?;
            let Some(name) = object.location.filename() else { continue };
            let Some(json) = location.read_bytes(&format!("status/{name}")).await? else { continue };
            let age = SystemTime::now().duration_since(object.last_modified.into()).unwrap_or_default();
            statuses.extend(decode(&json).map(|status| NodeStatus { age_s: age.as_secs(), ..status }).ok());
        }
        statuses.sort_by(|left, right| left.node.cmp(&right.node));
        Ok(statuses)
    }
}
