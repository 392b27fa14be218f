//! Connections that threads share.
//!
//! In: threads that want a connection. Out: each gets one in the order in which
//! they came, or none in time. What is asked on it is their own business.
//!
//! Who waits is handed a connection by the one that gives it back, under the lock:
//! nobody who comes later can be faster. The crate r2d2 wakes a waiting thread and
//! lets it race with all others for what lies there.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Client;
use super::error::{ClientError, Phase};
use super::options::{Options, PoolOptions};
use super::retry::Deadline;

/// Connections to one server, for threads to share: at most so many, each in one
/// thread's hands at a time. Clones are the same pool.
///
/// A connection is looked at before it is handed out: one that was closed while it
/// lay there is dropped. One whose call failed does not come back.
///
/// # Example
/// ```no_run
/// use zero_kv::client::Pool;
///
/// let pool = Pool::connect("/tmp/zero-kv.sock")?;
/// std::thread::scope(|scope| {
///     for key in 0..100_u64 {
///         let pool = &pool;
///         scope.spawn(move || pool.get()?.get(key));
///     }
/// });
/// # Ok::<(), zero_kv::client::ClientError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    client: Options,
    wait_timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Those that lie there. The one that came last is handed out first.
    idle: Vec<Client>,
    /// How many more there may be.
    room: usize,
    /// Who waits, in the order in which they came: only if none lies there and there is no room.
    waiting: VecDeque<(u64, SyncSender<Client>)>,
    /// The number of the next who waits.
    next: u64,
}

impl Pool {
    /// A pool of connections to the socket at `path`, with one.
    ///
    /// # Errors
    /// Those of [`Client::connect`].
    pub fn connect(path: impl AsRef<Path>) -> Result<Pool, ClientError> {
        Pool::connect_with(path, &PoolOptions::default())
    }

    /// The same, with other limits.
    ///
    /// # Errors
    /// Those of [`Client::connect`].
    pub fn connect_with(path: impl AsRef<Path>, options: &PoolOptions) -> Result<Pool, ClientError> {
        let path = path.as_ref().to_path_buf();
        let first = Client::connect_with(&path, &options.client)?;
        let room = options.connections_max.get() - 1;
        let state = State { idle: vec![first], room, waiting: VecDeque::new(), next: 0 };
        let (client, wait_timeout) = (options.client.clone(), options.wait_timeout);
        Ok(Pool { shared: Arc::new(Shared { path, client, wait_timeout, state: Mutex::new(state) }) })
    }

    /// A connection, when it is this thread's turn. It goes back when it is dropped.
    ///
    /// A new one connects when it is first asked, and waits for a server that restarts as each call does.
    ///
    /// # Errors
    /// [`ClientError::TimedOut`].
    pub fn get(&self) -> Result<Pooled, ClientError> {
        let mut client = self.shared.take()?;
        client.drop_if_closed();
        Ok(Pooled { client: Some(client), shared: Arc::clone(&self.shared) })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Result<Client, ClientError> {
        let mut state = self.lock();
        if let Some(client) = state.idle.pop() {
            return Ok(client);
        }
        if state.room > 0 {
            state.room -= 1;
            return Ok(Client::unconnected(&self.path, &self.client));
        }
        let (sender, turn) = sync_channel(1);
        let number = state.next;
        state.next += 1;
        state.waiting.push_back((number, sender));
        drop(state);

        let wait = Deadline::after(Some(self.wait_timeout));
        match turn.recv_timeout(self.wait_timeout) {
            Ok(client) => Ok(client),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                self.lock().waiting.retain(|(waiting, _)| *waiting != number);
                // It may have been handed over just before.
                let (path, phase) = (self.path.clone(), Phase::Turn);
                turn.try_recv().map_err(|_| ClientError::TimedOut { path, phase, after: wait.started.elapsed() })
            }
        }
    }

    fn give_back(&self, client: Client) {
        let client = match client.is_connected() {
            true => client,
            // It has failed, or was never asked.
            false => Client::unconnected(&self.path, &self.client),
        };
        let mut state = self.lock();
        match state.waiting.pop_front() {
            // Who waits has room for one, and leaves only under the lock.
            Some((_, waiting)) => drop(waiting.send(client)),
            None if client.is_connected() => state.idle.push(client),
            None => state.room += 1,
        }
    }
}

/// A connection of a [`Pool`]'s, with all of a [`Client`]'s questions. It goes back
/// when this is dropped.
#[derive(Debug)]
pub struct Pooled {
    /// There until it is dropped.
    client: Option<Client>,
    shared: Arc<Shared>,
}

impl Deref for Pooled {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client.as_ref().expect("a connection that was not given back")
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut Client {
        self.client.as_mut().expect("a connection that was not given back")
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            self.shared.give_back(client);
        }
    }
}
