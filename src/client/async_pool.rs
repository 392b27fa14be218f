//! Connections that tasks share.
//!
//! In: tasks that want a connection. Out: each gets one in the order in which they
//! came, or none in time. The crate deadpool keeps them, and its semaphore, which
//! is tokio's, the order.

use std::convert::Infallible;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::time::Instant;

use deadpool::Runtime;
use deadpool::managed::{self, Metrics, Object, QueueMode, RecycleError, RecycleResult};

use super::AsyncClient;
use super::error::{ClientError, Phase};
use super::options::{Options, PoolOptions};

/// Connections to one server, for tasks to share: at most so many, each in one
/// task's hands at a time. Clones are the same pool.
///
/// A connection is looked at before it is handed out: one that was closed while it
/// lay there is dropped. One whose call failed, or was given up, does not come back.
///
/// # Example
/// ```no_run
/// # async fn example() -> Result<(), zero_kv::client::ClientError> {
/// use zero_kv::client::AsyncPool;
///
/// let pool = AsyncPool::connect("/tmp/zero-kv.sock").await?;
/// let value = pool.get().await?.get(7).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AsyncPool {
    pool: managed::Pool<Manager>,
}

/// What deadpool makes connections with.
#[derive(Debug)]
struct Manager {
    path: PathBuf,
    client: Options,
}

impl managed::Manager for Manager {
    type Type = AsyncClient;
    type Error = Infallible;

    async fn create(&self) -> Result<AsyncClient, Infallible> {
        Ok(AsyncClient::unconnected(&self.path, &self.client))
    }

    async fn recycle(&self, client: &mut AsyncClient, _: &Metrics) -> RecycleResult<Infallible> {
        client.drop_if_closed();
        match client.is_connected() {
            true => Ok(()),
            false => Err(RecycleError::message("closed")),
        }
    }
}

impl AsyncPool {
    /// A pool of connections to the socket at `path`, with one.
    ///
    /// # Errors
    /// Those of [`AsyncClient::connect`].
    pub async fn connect(path: impl AsRef<Path>) -> Result<AsyncPool, ClientError> {
        AsyncPool::connect_with(path, &PoolOptions::default()).await
    }

    /// The same, with other limits.
    ///
    /// # Errors
    /// Those of [`AsyncClient::connect`].
    pub async fn connect_with(path: impl AsRef<Path>, options: &PoolOptions) -> Result<AsyncPool, ClientError> {
        let manager = Manager { path: path.as_ref().to_path_buf(), client: options.client.clone() };
        let pool = managed::Pool::builder(manager)
            .max_size(options.connections_max.get())
            .wait_timeout(Some(options.wait_timeout))
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .build();
        let pool = AsyncPool { pool: pool.expect("a runtime for its time-outs") };
        pool.get().await?.connect_now().await?;
        Ok(pool)
    }

    /// A connection, when it is this task's turn. It goes back when it is dropped.
    ///
    /// A new one connects when it is first asked, and waits for a server that restarts as each call does.
    ///
    /// # Errors
    /// [`ClientError::TimedOut`].
    pub async fn get(&self) -> Result<AsyncPooled, ClientError> {
        let started = Instant::now();
        match self.pool.get().await {
            Ok(client) => Ok(AsyncPooled { client: Some(client) }),
            // Nothing else can fail: making one does not, and nobody closes the pool.
            Err(_) => {
                let path = self.pool.manager().path.clone();
                Err(ClientError::TimedOut { path, phase: Phase::Turn, after: started.elapsed() })
            }
        }
    }
}

/// A connection of an [`AsyncPool`]'s, with all of an [`AsyncClient`]'s questions. It
/// goes back when this is dropped.
#[derive(Debug)]
pub struct AsyncPooled {
    /// There until it is dropped.
    client: Option<Object<Manager>>,
}

impl Deref for AsyncPooled {
    type Target = AsyncClient;

    fn deref(&self) -> &AsyncClient {
        self.client.as_ref().expect("a connection that was not given back")
    }
}

impl DerefMut for AsyncPooled {
    fn deref_mut(&mut self) -> &mut AsyncClient {
        self.client.as_mut().expect("a connection that was not given back")
    }
}

impl Drop for AsyncPooled {
    fn drop(&mut self) {
        // One that has failed, or was never asked, is none.
        if let Some(client) = self.client.take().filter(|client| !client.is_connected()) {
            drop(Object::take(client));
        }
    }
}
