//! Lookups in the served file itself, in this process.
//!
//! In: keys. Out: answers, from a mapping that the server has handed over, without
//! asking it. A thread, in `watcher`, has the next generation handed over when there
//! is one, which `handover` asks for, and finds the next server when this one is
//! gone; lookups go on meanwhile, and never wait. A word of shared memory tells them
//! whether what they found is what is served.

mod generation;
mod handover;
mod options;
mod watcher;

use std::fmt;
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use self::generation::Generation;
use self::watcher::Shared;
use super::{Client, ClientError, Row};
use crate::format::key::Key;
use crate::store::{LookupError, MappedStore};

pub use options::DirectOptions;

/// The table that a server serves, looked up in this process at the speed of
/// memory.
///
/// The server hands over the file, read-only, and with it a page of memory by which
/// each lookup sees whether that is still what is served. When another generation is,
/// the server hands that over to a thread; until it has, some tenths of a millisecond
/// later, lookups go on in the old one. If the server ends, they go on in what is
/// there, and the thread connects again as soon as there is a server.
///
/// Clones share the mapping and the thread; any number of threads may look up at the
/// same time. A process that forks does not take the thread along: open another in
/// the child.
///
/// # What others can do to the file
/// If the server holds the table in sealed memory (`kv_store --memory sealed`), or
/// [`DirectOptions::memory`] asks for a copy, nobody can change or truncate the table.
/// Otherwise lookups read the file itself, which whoever may write to it can change:
/// then lookups return [`LookupError::Damaged`] until the server has a good file.
/// `docs/OPERATIONS.md` lists the changes that go unnoticed. See also
/// [`DirectOptions::survive_bus_errors`].
///
/// # Example
/// ```no_run
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

/// When the last of these goes, the thread ends.
struct Handle {
    shared: Arc<Shared>,
    /// Wakes the thread. Closed, it ends it.
    bell: UnixStream,
}

impl Client {
    /// Has the server hand over its file, to look up in it without asking: see
    /// [`Direct`]. This client can be used as before, or dropped.
    ///
    /// # Errors
    /// [`ClientError::Direct`] if the server does not hand it over or what it hands
    /// over cannot be looked up in, and those of [`Client::get`].
    pub fn direct(&self) -> Result<Direct, ClientError> {
        self.direct_with(&DirectOptions { client: self.options().clone(), ..DirectOptions::default() })
    }

    /// Returns the same with other options, [`DirectOptions::client`] included: this client's own do not apply.
    ///
    /// # Errors
    /// Those of [`Client::direct`].
    pub fn direct_with(&self, options: &DirectOptions) -> Result<Direct, ClientError> {
        Direct::open(self.path(), options)
    }
}

impl Direct {
    fn open(path: &Path, options: &DirectOptions) -> Result<Direct, ClientError> {
        let (shared, bell) = Shared::start(path, options)?;
        Ok(Direct(Arc::new(Handle { shared, bell })))
    }

    /// The value of a key, or `None` if the key is not in the table.
    ///
    /// # Errors
    /// [`LookupError::KeyKind`] if the table's keys are of the other kind,
    /// [`LookupError::Damaged`] if the file was changed in place, or is damaged.
    #[inline]
    pub fn get<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<Vec<u8>>, LookupError> {
        let key = key.into();
        self.look_up(|table| table.get(key))
    }

    /// Passes the value of a key to `answer`: see [`MappedStore::get_with`].
    ///
    /// # Errors
    /// Those of [`Direct::get`]. `answer` is not called then.
    #[inline]
    pub fn get_with<'k, T>(
        &self,
        key: impl Into<Key<'k>>,
        answer: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Result<T, LookupError> {
        let key = key.into();
        self.look_up(|table| table.get_with(key, answer))
    }

    /// Whether a key is in the table.
    ///
    /// # Errors
    /// Those of [`Direct::get`].
    #[inline]
    pub fn exists<'k>(&self, key: impl Into<Key<'k>>) -> Result<bool, LookupError> {
        let key = key.into();
        self.look_up(|table| table.contains(key))
    }

    /// The values of many keys, in their order, all of one generation.
    ///
    /// # Errors
    /// Those of [`Direct::get`].
    pub fn get_many<'k, K>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, LookupError>
    where
        K: Into<Key<'k>> + Copy,
    {
        self.look_up(|table| table.get_many(keys))
    }

    /// Passes the values of many keys to `answer`, in order, each with the position of its key, all of one generation:
    /// see [`MappedStore::get_many_with`].
    ///
    /// # Errors
    /// Those of [`Direct::get`]. Every value that was passed on before is correct.
    #[inline]
    pub fn get_many_with<'k, K>(&self, keys: &[K], answer: impl FnMut(usize, Option<&[u8]>)) -> Result<(), LookupError>
    where
        K: Into<Key<'k>> + Copy,
    {
        self.look_up(|table| table.get_many_with(keys, answer))
    }

    /// The row with the largest key that is not above `key`.
    ///
    /// # Errors
    /// Those of [`Direct::get`].
    pub fn floor<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<Row>, LookupError> {
        let key = key.into();
        self.look_up(|table| table.floor(key))
    }

    /// The row with the smallest key that is not below `key`.
    ///
    /// # Errors
    /// Those of [`Direct::get`].
    pub fn ceiling<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<Row>, LookupError> {
        let key = key.into();
        self.look_up(|table| table.ceiling(key))
    }

    /// Returns the generation that is mapped now, for several lookups in the same one.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.0.shared.current.load_full())
    }

    /// The number of the generation that is mapped.
    pub fn generation(&self) -> u64 {
        self.0.shared.current.load().number
    }

    /// Has what the server serves now handed over, if that is not what is mapped, and
    /// waits for it.
    ///
    /// # Errors
    /// Those of [`Client::direct`]. What was mapped still is.
    pub fn refresh(&self) -> Result<(), ClientError> {
        self.0.shared.refresh()
    }

    /// Whether there is a server behind it that runs.
    pub fn is_connected(&self) -> bool {
        self.0.shared.is_connected()
    }

    #[inline]
    fn look_up<T>(&self, ask: impl FnOnce(&MappedStore) -> Result<T, LookupError>) -> Result<T, LookupError> {
        let generation = self.0.shared.current.load();
        let epoch = generation.table.unverified().epoch();
        let answer = ask(&generation.table);
        // A block that is damaged is no news: a file that has changed is, and begins a new epoch.
        if let Err(LookupError::Damaged) = answer
            && generation.table.unverified().epoch() != epoch
        {
            self.0.shared.ring(&self.0.bell);
        }
        answer
    }
}

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").field("generation", &self.generation()).finish_non_exhaustive()
    }
}

/// One generation of a table, which stays as it is, and mapped, for as long as this or
/// a clone of it is held.
///
/// It is a [`MappedStore`]: values are copied and verified. Sealed memory and copies also lend values
/// ([`MappedStore::as_private`]).
#[derive(Clone)]
pub struct Snapshot(Arc<Generation>);

impl Snapshot {
    /// The server's number for it.
    pub fn generation(&self) -> u64 {
        self.0.number
    }

    /// Whether it is what the server serves now.
    pub fn is_current(&self) -> bool {
        self.0.is_current()
    }

    /// Returns whether nobody has changed it.
    pub fn is_unchanged(&self) -> bool {
        let epoch = self.0.table.unverified().epoch();
        self.0.table.is_unchanged_since(epoch) && self.0.table.is_trusted()
    }
}

impl Deref for Snapshot {
    type Target = MappedStore;

    fn deref(&self) -> &MappedStore {
        &self.0.table
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("generation", &self.generation()).finish_non_exhaustive()
    }
}
