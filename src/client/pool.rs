//! Pools of connections, for threads and for tasks.
//!
//! In: threads or tasks that need a connection. Out: a connection for each of them in order of arrival, or a time-out.
//!
//! Both pools share one design, [`SharedPool`]: a list of idle clients and a queue of waiters, each with its own
//! channel. A returned client is sent to the first waiter in the queue while the pool is locked, so a thread or task
//! that arrives later cannot overtake the waiter. The common crates for pools do not suffice: r2d2 wakes a waiter and
//! lets it race with new arrivals, and deadpool serves only tasks.
//!
//! Reasons and evidence: `docs/decisions/pools.md`.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

#[cfg(feature = "tokio")]
use tokio::sync::oneshot;
#[cfg(feature = "tokio")]
use tokio::time::timeout;

#[cfg(feature = "tokio")]
use super::AsyncClient;
use super::Client;
use super::error::{ClientError, Phase};
use super::options::PoolOptions;
use super::target::Target;
use crate::sync::unpoisoned;

/// A pool of connections to one server, for threads. Clones share the pool.
///
/// The pool replaces connections that were closed by the server, or because of an error. [`ClientError`] lists the
/// errors after which a connection remains open.
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
    shared: Arc<SharedPool<Client>>,
}

/// A pool of connections to one server, for tasks on tokio. Clones share the pool.
///
/// The pool replaces connections that were closed by the server, because of an error, or because a future was dropped.
/// [`ClientError`] lists the errors after which a connection remains open.
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
#[cfg(feature = "tokio")]
#[derive(Clone, Debug)]
pub struct AsyncPool {
    shared: Arc<SharedPool<AsyncClient>>,
}

/// Implements one pool. `$channel` creates a waiter and the end of its channel, from which `$receive` takes the client.
/// `$async` and `$await` stand for nothing, or for `async` and `.await`.
macro_rules! impl_pool {
    ($Pool:ident, $Client:ident, $channel:expr, $receive:expr, [$($async:tt)?], [$($await:tt)*]) => {
        impl $Pool {
            /// Creates a pool for the server at an [`Address`](super::Address), with one connection.
            ///
            /// # Errors
            /// [`ClientError`]. Connecting is not retried.
            pub $($async)? fn connect(address: impl AsRef<OsStr>) -> Result<Self, ClientError> {
                Self::connect_with(address, &PoolOptions::default())$($await)*
            }

            /// Creates a pool like [`Self::connect`], with options.
            ///
            /// # Errors
            /// [`ClientError`].
            pub $($async)? fn connect_with(
                address: impl AsRef<OsStr>,
                options: &PoolOptions,
            ) -> Result<Self, ClientError> {
                let first = $Client::connect_with(address, &options.client)$($await)*?;
                Ok($Pool { shared: SharedPool::new(options, first) })
            }

            /// Returns a client, which goes back to the pool when it is dropped. Waits while all clients are in use.
            ///
            /// A new client connects when it sends its first request. A failed attempt to connect is retried like a
            /// failed call.
            ///
            /// # Errors
            /// [`ClientError::TimedOut`] after [`PoolOptions::wait_timeout`].
            pub $($async)? fn get(&self) -> Result<Pooled<$Client>, ClientError> {
                let started = Instant::now();
                // `_queued` leaves the queue when it is dropped, also if the future is dropped.
                let mut client = match self.shared.lend_or_enqueue($channel) {
                    Lent::Now(client) => client,
                    Lent::Later(_queued, receiver) => {
                        let received = $receive(receiver, self.shared.wait_timeout)$($await)*;
                        received.ok_or_else(|| self.shared.timed_out(started))?
                    }
                };
                client.drop_unless_idle();
                Ok(client)
            }
        }
    };
}

impl_pool!(Pool, Client, thread_channel, receive, [], []);
#[cfg(feature = "tokio")]
impl_pool!(AsyncPool, AsyncClient, task_channel, receive_in_task, [async], [.await]);

fn thread_channel() -> (Waiter<Client>, Receiver<Pooled<Client>>) {
    let (sender, receiver) = sync_channel(1);
    (Waiter::Thread(sender), receiver)
}

fn receive(receiver: Receiver<Pooled<Client>>, timeout: Duration) -> Option<Pooled<Client>> {
    receiver.recv_timeout(timeout).ok()
}

#[cfg(feature = "tokio")]
fn task_channel() -> (Waiter<AsyncClient>, oneshot::Receiver<Pooled<AsyncClient>>) {
    let (sender, receiver) = oneshot::channel();
    (Waiter::Task(sender), receiver)
}

#[cfg(feature = "tokio")]
async fn receive_in_task(
    receiver: oneshot::Receiver<Pooled<AsyncClient>>,
    wait_timeout: Duration,
) -> Option<Pooled<AsyncClient>> {
    timeout(wait_timeout, receiver).await.ok()?.ok()
}

/// A client that a pool can lend: [`Client`] or [`AsyncClient`].
pub trait PoolMember: Sized {
    /// Creates a client that connects when it sends its first request.
    fn unconnected(target: &Arc<Target>) -> Self;

    /// Returns the server's address and the options, which all clients of a pool share.
    fn target(&self) -> &Arc<Target>;

    /// Returns whether the client has a connection without pending responses.
    fn is_connected(&self) -> bool;

    /// Makes the client expect keys of no type.
    fn forget_key_type(&mut self);

    /// Closes the client's connection if the server has closed it, or if unexpected bytes have arrived.
    fn drop_unless_idle(&mut self);
}

/// The implementation of both [`Pool`] and `AsyncPool`, except for the wait until a client is returned.
struct SharedPool<C: PoolMember> {
    target: Arc<Target>,
    wait_timeout: Duration,
    state: Mutex<PoolState<C>>,
}

struct PoolState<C: PoolMember> {
    /// The unused clients. The most recently returned client is lent first.
    idle: Vec<C>,
    /// The number of clients that the pool may still create.
    vacant: usize,
    /// The threads or tasks that wait for a client, in order of arrival, each with a number that identifies it. Empty
    /// unless all clients are lent.
    waiters: VecDeque<(u64, Waiter<C>)>,
    next_waiter: u64,
}

/// The channel through which a waiter receives its client.
///
/// If the waiter has given up, the channel drops the [`Pooled`] that was sent, and the client returns to the pool.
enum Waiter<C: PoolMember> {
    Thread(SyncSender<Pooled<C>>),
    #[cfg(feature = "tokio")]
    Task(oneshot::Sender<Pooled<C>>),
}

/// The result of a request for a client: a lent client, or a position in the queue and the channel that will deliver a
/// client.
enum Lent<C: PoolMember, R> {
    Now(Pooled<C>),
    Later(Queued<C>, R),
}

/// A waiter's position in the queue. Dropping the position removes the waiter from the queue.
struct Queued<C: PoolMember> {
    shared: Arc<SharedPool<C>>,
    waiter: u64,
}

impl<C: PoolMember> SharedPool<C> {
    fn new(options: &PoolOptions, first: C) -> Arc<Self> {
        let vacant = options.connections_max.get() - 1;
        let target = Arc::clone(first.target());
        let state = PoolState { idle: vec![first], vacant, waiters: VecDeque::new(), next_waiter: 0 };
        Arc::new(SharedPool { target, wait_timeout: options.wait_timeout, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, PoolState<C>> {
        unpoisoned(&self.state)
    }

    /// Lends an idle or a new client. If all clients are lent, enqueues a waiter with a new channel.
    fn lend_or_enqueue<R>(self: &Arc<Self>, channel: impl FnOnce() -> (Waiter<C>, R)) -> Lent<C, R> {
        let mut state = self.lock();
        let idle = state.idle.pop();
        if idle.is_some() || state.vacant > 0 {
            // A new client connects with its first request, outside the lock.
            let client = idle.unwrap_or_else(|| {
                state.vacant -= 1;
                C::unconnected(&self.target)
            });
            return Lent::Now(Pooled { client: Some(client), shared: Arc::clone(self) });
        }
        let (sender, receiver) = channel();
        let waiter = state.next_waiter;
        state.next_waiter += 1;
        state.waiters.push_back((waiter, sender));
        Lent::Later(Queued { shared: Arc::clone(self), waiter }, receiver)
    }

    /// Gives a returned client to the first waiter in the queue, or keeps the client if nobody waits.
    fn take_back(self: &Arc<Self>, mut client: C) {
        client.forget_key_type();
        let mut pooled = Pooled { client: Some(client), shared: Arc::clone(self) };
        // The client is sent under the lock, so that a thread or task that arrives now cannot overtake the waiter.
        let mut state = self.lock();
        while let Some((_, waiter)) = state.waiters.pop_front() {
            match waiter.send(pooled) {
                Ok(()) => return,
                Err(returned) => pooled = returned,
            }
        }
        match pooled.client.take() {
            Some(client) if client.is_connected() => state.idle.push(client),
            // An error closed the client's connection, or the client was never used.
            _ => state.vacant += 1,
        }
    }

    fn timed_out(&self, started: Instant) -> ClientError {
        ClientError::TimedOut { server: self.target.address.clone(), phase: Phase::PoolWait, after: started.elapsed() }
    }
}

impl<C: PoolMember> Waiter<C> {
    /// Sends a client to the waiter. The error is the client if the waiter has given up.
    fn send(self, client: Pooled<C>) -> Result<(), Pooled<C>> {
        match self {
            Waiter::Thread(sender) => sender.send(client).map_err(|error| error.0),
            #[cfg(feature = "tokio")]
            Waiter::Task(sender) => sender.send(client),
        }
    }
}

impl<C: PoolMember> Drop for Queued<C> {
    fn drop(&mut self) {
        self.shared.lock().waiters.retain(|(waiter, _)| *waiter != self.waiter);
    }
}

impl<C: PoolMember> fmt::Debug for SharedPool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("address", &self.target.address).finish_non_exhaustive()
    }
}

/// A client that a [`Pool`] or an `AsyncPool` lends. When the `Pooled` is dropped, the client goes back to the pool.
pub struct Pooled<C: PoolMember> {
    /// `None` only while the `Pooled` is being dropped.
    client: Option<C>,
    shared: Arc<SharedPool<C>>,
}

impl<C: PoolMember> Deref for Pooled<C> {
    type Target = C;

    fn deref(&self) -> &C {
        self.client.as_ref().expect("a connection that is lent")
    }
}

impl<C: PoolMember> DerefMut for Pooled<C> {
    fn deref_mut(&mut self) -> &mut C {
        self.client.as_mut().expect("a connection that is lent")
    }
}

impl<C: PoolMember> Drop for Pooled<C> {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            self.shared.take_back(client);
        }
    }
}

impl<C: PoolMember + fmt::Debug> fmt::Debug for Pooled<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pooled").field(&self.client).finish()
    }
}
