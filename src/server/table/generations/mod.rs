//! The generations of a table: the current one, the previous one, and the next.
//!
//! In: a path, and requests to check it. Out: the generation that each worker reads. The supervisor thread opens a new
//! file, checks it, brings it into memory as configured, looks canaries up in it, and only then replaces the current
//! generation. If a file fails a check, it is rejected, and the current generation stays. This folder does not depend
//! on connections.

mod candidate;
mod source;
mod supervisor;
mod watch;

use std::fs::File;
use std::sync::Arc;
use std::time::SystemTime;

use super::fields::Fields;
use crate::cluster::SlotSet;
use crate::store::{Store, Writers};
pub use candidate::OpenError;
pub(in crate::server) use candidate::Plan;
pub(in crate::server) use source::Source;
pub use supervisor::Control;
pub(in crate::server) use supervisor::{ControlChannel, PinnedGeneration, ServedTable, Supervised, Supervisor};
use watch::Identity;
pub(in crate::server) use watch::{FileVersion, FolderWatch};

/// A version of the table: one immutable file that is or was served.
pub(in crate::server) struct Generation {
    /// The number of the generation, counted from 1 since the server started. A rollback serves an earlier file again,
    /// under a new number.
    pub(in crate::server) number: u64,
    pub(in crate::server) store: Store,
    /// The fields of the rows as Redis hashes, if the table is typed.
    pub(in crate::server) fields: Option<Fields>,
    /// The schema as clients receive it, if the table is typed.
    pub(in crate::server) encoded_schema: Option<Arc<[u8]>>,
    /// The slots whose rows the file has: all slots, unless the server is a node of a cluster.
    pub(in crate::server) slots: Arc<SlotSet>,
    /// The file that direct clients map. `None` if direct clients cannot map the table.
    pub(in crate::server) shared: Option<File>,
    /// The table's file. It stays open for a rollback, even if the table was copied into memory.
    file: File,
    identity: Identity,
    /// Whether the server detects processes that write to the file: [`Writers::None`] if it does, or if the table is a
    /// private copy, and [`Writers::Unknown`] otherwise.
    pub(in crate::server) writers: Writers,
}

impl Generation {
    /// Returns the modification time that the file had when it was opened.
    pub(in crate::server) fn modified(&self) -> SystemTime {
        self.identity.modified
    }
}
