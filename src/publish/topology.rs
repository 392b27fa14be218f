//! Topologies in the store: which nodes of a cluster serve which slots of a table.
//!
//! In: topology documents. Out: numbered documents, each of which is created only once.

use super::document::{Series, decode, encode};
use super::error::PublishError;
use super::location::Location;
use super::publication::Publication;
use crate::cluster::Topology;

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
            read(location, number).await
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
            true => read(location, number).await?.is_some_and(|newest| encode(&newest) == json),
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

/// Reads the topology with a number. Returns `None` if there is none.
pub(super) async fn read(location: &Location, number: u64) -> Result<Option<Topology>, PublishError> {
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
