//! Topologies and policies: what operators state about a whole table, besides pins.
//!
//! In: the nodes of a cluster with their slots, and quotas. Out: two series of documents, of which the newest document
//! applies. Nodes put a topology into effect. Publishers reject a generation that exceeds a quota, so that a job with
//! too many rows does not fill the disks of all nodes.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::document::{Series, decode, encode, pause_after_race};
use super::error::PublishError;
use super::limits::{NUMBER_MAX, TEXT_LEN_MAX_BYTES, check_len, check_number};
use super::location::Location;
use super::publication::Publication;
use crate::cluster::Topology;

/// How often the creation of a policy is repeated when another operator was first.
const CREATIONS_MAX: u32 = 100;

/// The quotas of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Policy {
    /// The number of the policy. It is set when the policy is created.
    #[serde(default)]
    pub number: u64,
    /// The maximum length of all files of a generation, in bytes. `None` for no limit.
    #[serde(default)]
    pub max_bytes: Option<u64>,
    /// The maximum number of rows of a generation. `None` for no limit.
    #[serde(default)]
    pub max_rows: Option<u64>,
    /// When the policy was created, as RFC 3339 text.
    pub created: String,
}

impl Policy {
    /// Checks a generation. The error states the exceeded quota.
    fn check(&self, rows: u64, bytes: u64) -> Result<(), String> {
        for (name, found, max) in [("rows", rows, self.max_rows), ("bytes", bytes, self.max_bytes)] {
            if let Some(max) = max.filter(|max| found > *max) {
                return Err(format!("it has {found} {name}, expected at most {max}"));
            }
        }
        Ok(())
    }

    async fn read(location: &Location, number: u64) -> Result<Option<Policy>, PublishError> {
        let decode = |json: &[u8]| {
            let policy: Policy = decode(json)?;
            check_number("the number", policy.number, NUMBER_MAX)?;
            check_len("the time", &policy.created, TEXT_LEN_MAX_BYTES)?;
            match policy.number == number {
                true => Ok(policy),
                false => Err(format!("is policy {}, expected {number}: create another policy", policy.number)),
            }
        };
        location.read_document(Series::Policies, number, decode).await
    }

    async fn newest(location: &Location) -> Result<Option<Policy>, PublishError> {
        match location.highest(Series::Policies, 0).await? {
            0 => Ok(None),
            number => Policy::read(location, number).await,
        }
    }
}

impl Publication {
    /// Returns the newest policy, or `None` if there is none.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn policy(&self) -> Result<Option<Policy>, PublishError> {
        self.block_on(Policy::newest)
    }

    /// Creates a policy with quotas. Returns it with its number.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn create_policy(&self, max_bytes: Option<u64>, max_rows: Option<u64>) -> Result<Policy, PublishError> {
        let created = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let mut policy = Policy { number: 0, max_bytes, max_rows, created };
        self.block_on(async |location| {
            location.check_writable()?;
            for attempt in 0..CREATIONS_MAX {
                policy.number = location.highest(Series::Policies, policy.number).await? + 1;
                if location.create_document(Series::Policies, policy.number, &encode(&policy)).await? {
                    return Ok(());
                }
                // Another operator was first.
                pause_after_race(attempt).await;
            }
            let problem = format!("{CREATIONS_MAX} other operators were first: create the policy again");
            Err(location.document_fault("policies", problem))
        })?;
        Ok(policy)
    }

    pub(super) async fn check_policy(&self, rows: u64, bytes: u64) -> Result<(), PublishError> {
        let Some(policy) = Policy::newest(&self.location).await? else { return Ok(()) };
        let number = policy.number;
        policy.check(rows, bytes).map_err(|problem| PublishError::Quota { url: self.url().to_owned(), number, problem })
    }
}

impl Publication {
    /// Returns the newest topology, or the one with a number. Returns `None` if there is none.
    ///
    /// # Errors
    /// [`PublishError::Document`], [`PublishError::Store`].
    pub fn topology(&self, number: Option<u64>) -> Result<Option<Topology>, PublishError> {
        self.block_on(async |location| {
            let number = match number {
                Some(number) => number,
                None => location.highest(Series::Topologies, 0).await?,
            };
            read_topology(location, number).await
        })
    }

    /// Creates a topology. Its number must follow the number of the newest one. Nodes put it into effect when the
    /// primaries of all slots have their rows.
    ///
    /// # Errors
    /// [`PublishError::Topology`] if the topology is not valid, or if another one has its number;
    /// [`PublishError::Store`].
    pub fn create_topology(&self, topology: &Topology) -> Result<(), PublishError> {
        self.block_on(async |_| self.create_topology_async(topology).await)
    }

    pub(super) async fn create_topology_async(&self, topology: &Topology) -> Result<(), PublishError> {
        let (location, number) = (&self.location, topology.number);
        let rejected = |problem: String| PublishError::Topology { url: self.url().to_owned(), problem };
        topology.check().map_err(|error| rejected(error.to_string()))?;
        location.check_writable()?;
        let (last, json) = (self.last_used(Series::Topologies).await?, encode(topology));
        let is_created = match number == last {
            // The creation of the newest topology may be repeated, because its first outcome may be unknown.
            true => read_topology(location, number).await?.is_some_and(|newest| encode(&newest) == json),
            false => number == last + 1 && location.create_document(Series::Topologies, number, &json).await?,
        };
        if !is_created {
            let last = last.max(location.highest(Series::Topologies, 0).await?);
            return Err(rejected(format!(
                "the topology has number {number}, expected {}: another topology was created first: read it, and apply \
                 the change to it",
                last + 1
            )));
        }
        Ok(())
    }
}

/// Reads a topology by its number. Returns `None` if there is none.
pub(super) async fn read_topology(location: &Location, number: u64) -> Result<Option<Topology>, PublishError> {
    let decode = |json: &[u8]| {
        let topology: Topology = decode(json)?;
        match topology.check() {
            Ok(()) if topology.number == number => Ok(topology),
            Ok(()) => Err(format!("is topology {}, expected {number}: create the next topology", topology.number)),
            Err(error) => Err(format!("{error}: create the next topology")),
        }
    };
    location.read_document(Series::Topologies, number, decode).await
}
