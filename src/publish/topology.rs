//! Topologies in the store: which nodes of a cluster serve which slots of a table.
//!
//! In: topology documents. Out: numbered documents, each of which is created only once.

use super::document::{Series, encode};
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
                None => location.newest(Series::Topologies, 0).await?,
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
        let rejected = |problem: String| PublishError::Topology { url: self.url().to_owned(), problem };
        topology.check().map_err(|error| rejected(error.to_string()))?;
        self.block_on(async |location| {
            location.check_writable()?;
            let (newest, number) = (location.newest(Series::Topologies, 0).await?, topology.number);
            let object = Series::Topologies.object(number);
            if number != newest + 1 || !location.create_bytes(&object, &encode(topology)).await? {
                let newest = location.newest(Series::Topologies, newest).await?;
                return Err(rejected(format!(
                    "the topology has number {number}, expected {}: another topology was created first: read it, and \
                     apply the change to it",
                    newest + 1
                )));
            }
            Ok(())
        })
    }
}

/// Reads the topology with a number. Returns `None` if there is none.
pub(super) async fn read(location: &Location, number: u64) -> Result<Option<Topology>, PublishError> {
    let object = Series::Topologies.object(number);
    let Some(topology) = location.read::<Topology>(&object).await? else { return Ok(None) };
    let problem = match topology.check() {
        Ok(()) if topology.number == number => return Ok(Some(topology)),
        Ok(()) => format!("is topology {}, expected {number}: create the next topology", topology.number),
        Err(error) => format!("{error}: create the next topology"),
    };
    Err(PublishError::Document { object: location.object_url(&object), problem })
}
