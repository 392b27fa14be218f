//! Direct mode: lookups in the server's table, in this process.
//!
//! In: keys. Out: values from a table that the server transferred. Lookups send no requests. The module `transfer`
//! requests and receives tables. A thread (`watcher`) receives each new generation, and reconnects when the server
//! restarts. Lookups never wait for this thread. Each lookup reads from the shared page whether the server still serves
//! the table, and whether the table's file is unchanged.

mod generation;
mod lookup;
mod options;
mod transfer;
mod watcher;

use std::fmt;
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use self::generation::Generation;
use self::watcher::DirectState;
use super::{Client, ClientError};
use crate::store::{LookupError, MappedStore};

pub use options::DirectOptions;

/// Looks keys up in a server's table directly in memory, without sending requests.
///
/// The server transfers its table (read-only) and a page of shared memory. The page shows whether the server still
/// serves the table, and whether the table's file is unchanged; each lookup checks both. When the server replaces the
/// table, a thread receives the new generation within a few tenths of a millisecond. Until then, lookups use the old
/// generation. If the server ends, lookups continue in the last table, and the thread tries to reconnect until a server
/// runs.
///
/// Clones share the table and the thread. Any number of threads may look keys up at the same time. A fork does not copy
/// the thread: open another `Direct` in the child process.
///
/// # Changes of the file
/// If the server holds the table in sealed memory (`kv_store --memory sealed`), or [`DirectOptions::memory`] selects a
/// copy, nobody can change or truncate the table. Otherwise lookups read a file that any process with write permission
/// can change. After a change, lookups return [`LookupError::Damaged`] until the server serves an intact file.
/// `docs/operations/serve.md` lists the changes that are not detected. See also [`DirectOptions::survive_bus_errors`].
///
/// # Example
/// ```no_run
/// use zero_kv::Lookup;
/// use zero_kv::client::Client;
///
/// let direct = Client::connect("/tmp/zero-kv.sock")?.direct()?;
/// match direct.get(7)? {
///     Some(value) => println!("{} bytes", value.len()),
///     None => println!("not in the table"),
/// }
/// // Many lookups in one generation.
/// let table = direct.snapshot();
/// for row in table.range(1000_u64..2000)? {
///     let (key, value) = row?;
///     println!("{key}: {} bytes", value.len());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Direct(Arc<Handle>);

/// The state that the clones of a [`Direct`] share. Dropping the handle ends the thread that receives new generations.
struct Handle {
    state: Arc<DirectState>,
    /// Wakes the thread that receives new generations. The thread ends when this socket is closed.
    wake_sender: UnixStream,
}

impl Client {
    /// Returns the server's table for lookups in this process: see [`Direct`]. The client remains usable, and may be
    /// dropped.
    ///
    /// # Errors
    /// [`ClientError::Direct`] if the server does not transfer its table or this process cannot use it, and the errors
    /// of [`Client::get`].
    pub fn direct(&self) -> Result<Direct, ClientError> {
        self.direct_with(&DirectOptions { client: self.target.options.clone(), ..DirectOptions::default() })
    }

    /// Returns the server's table like [`Client::direct`], with options. [`DirectOptions::client`] replaces the options
    /// of this client.
    ///
    /// # Errors
    /// The errors of [`Client::direct`].
    pub fn direct_with(&self, options: &DirectOptions) -> Result<Direct, ClientError> {
        let Some(path) = self.address().path() else {
            return Err(ClientError::Direct {
                server: self.address().clone(),
                problem: "a server transfers its table only over its Unix socket: connect to the path of the socket"
                    .to_owned(),
            });
        };
        Direct::open(path, options)
    }
}

impl Direct {
    fn open(path: &Path, options: &DirectOptions) -> Result<Direct, ClientError> {
        let (state, wake_sender) = DirectState::start(path, options)?;
        Ok(Direct(Arc::new(Handle { state, wake_sender })))
    }

    /// Returns the table of the current generation, for an iterator: see [`Lookup`](crate::Lookup).
    pub(crate) fn handle(&self) -> DirectSnapshot {
        self.snapshot()
    }

    /// Returns the current generation. Lookups in the snapshot use this generation even after the server replaces it.
    pub fn snapshot(&self) -> DirectSnapshot {
        DirectSnapshot(self.0.state.current.load_full())
    }

    /// Returns the number of the current generation.
    pub fn generation(&self) -> u64 {
        self.0.state.current.load().number
    }

    /// Receives the generation that the server serves now, unless lookups already use it.
    ///
    /// # Errors
    /// The errors of [`Client::direct`]. After an error, lookups continue in the current generation.
    pub fn refresh(&self) -> Result<(), ClientError> {
        self.0.state.refresh()
    }

    /// Returns whether this process is connected to a running server.
    pub fn is_connected(&self) -> bool {
        self.0.state.is_connected()
    }

    /// Passes the current generation's table to a function. Use this method for several lookups in one generation, if
    /// the function does not keep the table, and otherwise [`Direct::snapshot`].
    ///
    /// # Errors
    /// The errors of `read`.
    #[inline]
    pub fn with_table<T, E>(&self, read: impl FnOnce(&MappedStore) -> Result<T, E>) -> Result<T, E>
    where
        E: From<LookupError> + PartialEq,
    {
        let generation = self.0.state.current.load();
        let epoch = generation.table.unverified().epoch();
        let result = read(&generation.table);
        // A change of the file ends the epoch and requires a new transfer. A damaged block does neither.
        if let Err(error) = &result
            && *error == LookupError::Damaged.into()
            && generation.table.unverified().epoch() != epoch
        {
            self.0.state.wake_thread(&self.0.wake_sender);
        }
        result
    }
}

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").field("generation", &self.generation()).finish_non_exhaustive()
    }
}

/// One generation of a table, which stays in memory as long as the snapshot or a clone of it exists.
///
/// A snapshot dereferences to a [`MappedStore`], which returns verified copies of values. If the table is in sealed
/// memory or is a copy, [`MappedStore::as_private`] also lends values.
#[derive(Clone)]
pub struct DirectSnapshot(Arc<Generation>);

impl DirectSnapshot {
    /// Returns the table, for an iterator: see [`Lookup`](crate::Lookup).
    pub(crate) fn handle(&self) -> DirectSnapshot {
        self.clone()
    }

    #[inline(always)]
    pub(crate) fn with_table<T>(&self, read: impl FnOnce(&MappedStore) -> T) -> T {
        read(self)
    }

    /// Returns the number that the server gave this generation.
    pub fn generation(&self) -> u64 {
        self.0.number
    }

    /// Returns true if the server serves this generation, or served this generation until the server ended.
    pub fn is_current(&self) -> bool {
        self.0.is_current()
    }

    /// Returns false if a change of the table's file was detected or cannot be ruled out. `docs/operations/serve.md`
    /// lists the changes that are not detected. If the file's names or permissions have just changed, waits until every
    /// further change can be detected, usually for up to 50 ms.
    pub fn is_unchanged(&self) -> bool {
        self.0.table.has_unchanged_file()
    }
}

impl Deref for DirectSnapshot {
    type Target = MappedStore;

    fn deref(&self) -> &MappedStore {
        &self.0.table
    }
}

impl fmt::Debug for DirectSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectSnapshot").field("generation", &self.generation()).finish_non_exhaustive()
    }
}
