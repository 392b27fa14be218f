//! One version of a table.

use std::ops::Deref;
use std::sync::Arc;

use zero_kv::MappedStore;
use zero_kv::client::DirectSnapshot;

/// One version of a table, which stays in memory while any object refers to it.
#[derive(Clone)]
pub(crate) enum TableVersion {
    /// A file that this process opened.
    File(Arc<MappedStore>),
    /// A table that a server transferred.
    Served(DirectSnapshot),
}

impl Deref for TableVersion {
    type Target = MappedStore;

    #[inline]
    fn deref(&self) -> &MappedStore {
        match self {
            TableVersion::File(table) => table,
            TableVersion::Served(table) => table,
        }
    }
}
