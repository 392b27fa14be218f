//! Pools of connections, for threads and for tasks.

use std::future::Future;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use zero_kv::client::{AsyncClient, AsyncPool, Client, ClientError, Options, Phase, Pool, PoolOptions, Pooled};

use super::both::CallResult;
use crate::helpers::repeating::while_threads_repeat;
use crate::helpers::scripted_server::{NOT_FOUND, Script, ScriptedServer, found, response_header};
use crate::helpers::servers::Server;
use crate::helpers::tables::Table;
use crate::helpers::waiting::{PATIENCE, eventually};

/// A pool of either kind. Threads also use the pool for tasks, each with its own `block_on`.
trait AnyPool: Clone + Send + Sync + 'static {
    type Connection: Send;
    fn connect(socket: &Path, options: &PoolOptions) -> CallResult<Self>;
    fn take(&self) -> CallResult<Self::Connection>;
    fn get(&self, connection: &mut Self::Connection, key: u64) -> CallResult<Option<Vec<u8>>>;
}

impl AnyPool for Pool {
    type Connection = Pooled<Client>;

    fn connect(socket: &Path, options: &PoolOptions) -> CallResult<Self> {
        Pool::connect_with(socket, options)
    }

    fn take(&self) -> CallResult<Pooled<Client>> {
        Pool::get(self)
    }

    fn get(&self, connection: &mut Pooled<Client>, key: u64) -> CallResult<Option<Vec<u8>>> {
        connection.get(key)
    }
}

#[derive(Clone)]
struct OnTokio {
    runtime: Arc<Runtime>,
    pool: AsyncPool,
}

impl OnTokio {
    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

impl AnyPool for OnTokio {
    type Connection = Pooled<AsyncClient>;

    fn connect(socket: &Path, options: &PoolOptions) -> CallResult<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let pool = runtime.block_on(AsyncPool::connect_with(socket, options))?;
        Ok(OnTokio { runtime: Arc::new(runtime), pool })
    }

    fn take(&self) -> CallResult<Pooled<AsyncClient>> {
        self.run(self.pool.get())
    }

    fn get(&self, connection: &mut Pooled<AsyncClient>, key: u64) -> CallResult<Option<Vec<u8>>> {
        self.run(connection.get(key))
    }
}

macro_rules! with_both {
    ($($test:ident),* $(,)?) => {
        mod of_threads {
            $(#[test] fn $test() { super::$test::<zero_kv::client::Pool>(); })*
        }

        mod of_tasks {
            $(#[test] fn $test() { super::$test::<super::OnTokio>(); })*
        }
    };
}

with_both!(
    waiters_get_connections_in_turn,
    the_number_of_connections_is_limited,
    waiting_too_long_is_an_error,
    a_failed_connection_is_not_reused,
    a_connection_closed_while_idle_is_not_reused,
    a_pool_without_a_server_fails_at_once,
);

fn options(connections_max: usize) -> PoolOptions {
    PoolOptions {
        connections_max: connections_max.try_into().unwrap(),
        wait_timeout: PATIENCE,
        client: Options { retries: 0, ..Options::default() },
    }
}

fn waiters_get_connections_in_turn<P: AnyPool>() {
    const TURNS: usize = 300;
    let table = Table::of_rows(10);
    let _server = table.serve();
    let pool = P::connect(&table.socket(), &options(2)).unwrap();
    // The number of connections that each thread has had.
    let turns: [AtomicUsize; 8] = Default::default();
    let start = |number: usize| {
        let (pool, turns) = (pool.clone(), &turns[number]);
        move || {
            let mut connection = pool.take().unwrap();
            assert!(pool.get(&mut connection, 1 + number as u64).unwrap().is_some());
            turns.fetch_add(1, Ordering::Relaxed);
        }
    };
    let since = while_threads_repeat(turns.len(), start, || {
        let counts = || turns.each_ref().map(|turns| turns.load(Ordering::Relaxed));
        eventually("every thread has had a connection", || counts().iter().all(|turns| *turns > 0));
        let before = counts();
        let since = || counts().iter().zip(before).map(|(now, before)| now - before).collect::<Vec<_>>();
        eventually("one thread has had many connections", || since().into_iter().max() >= Some(TURNS));
        since()
    });
    let (least, most) = (since.iter().min().unwrap(), since.iter().max().unwrap());
    assert!(2 * least >= *most, "turns of each: {since:?}");
}

fn the_number_of_connections_is_limited<P: AnyPool>() {
    let table = Table::of_rows(10);
    let server = table.serve();
    let before = server.descriptors();
    let pool = P::connect(&table.socket(), &options(3)).unwrap();
    let threads: Vec<_> = (0..10)
        .map(|_| {
            let pool = pool.clone();
            thread::spawn(move || {
                for key in 1..=50 {
                    assert!(pool.get(&mut pool.take().unwrap(), key % 10 + 1).unwrap().is_some());
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut held = [pool.take().unwrap(), pool.take().unwrap(), pool.take().unwrap()];
    held.iter_mut().for_each(|connection| assert!(pool.get(connection, 1).unwrap().is_some()));
    assert_eq!(server.descriptors() - before, 3);
}

fn waiting_too_long_is_an_error<P: AnyPool>() {
    let peer = ScriptedServer::answering(&[NOT_FOUND, NOT_FOUND]);
    let impatient = PoolOptions { wait_timeout: Duration::from_millis(20), ..options(1) };
    let pool = P::connect(&peer.socket(), &impatient).unwrap();
    let mut held = pool.take().unwrap();
    let error = pool.take().map(drop).unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { phase: Phase::PoolWait, .. }), "{error:?}");
    assert!(error.to_string().ends_with("waiting for a connection of the pool, all of which were in use"), "{error}");
    assert_eq!(pool.get(&mut held, 7).unwrap(), None);
    drop(held);
    assert_eq!(pool.get(&mut pool.take().unwrap(), 7).unwrap(), None, "a waiter that gave up gets no connection");
}

fn a_failed_connection_is_not_reused<P: AnyPool>() {
    let peer = ScriptedServer::with_scripts(vec![
        Script::answering(&[&response_header(9, 0)]),
        Script::answering(&[&found(b"eight")]),
    ]);
    let pool = P::connect(&peer.socket(), &options(1)).unwrap();
    let mut held = pool.take().unwrap();
    let waiting = pool.clone();
    let waiting = thread::spawn(move || waiting.get(&mut waiting.take()?, 8));
    assert!(matches!(pool.get(&mut held, 7), Err(ClientError::Protocol { .. })));
    drop(held);
    assert_eq!(waiting.join().unwrap().unwrap().as_deref(), Some(&b"eight"[..]));
}

fn a_connection_closed_while_idle_is_not_reused<P: AnyPool>() {
    // The client does not retry, so only a new connection can succeed.
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("peer.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let pool = P::connect(&socket, &options(1)).unwrap();
    drop(listener.accept().unwrap());
    drop(listener);
    std::fs::remove_file(&socket).unwrap();
    let table = Table::of_rows(10);
    let _server = Server::start(&table.db(), &socket);
    assert_eq!(pool.get(&mut pool.take().unwrap(), 7).unwrap().as_ref(), table.model.get(&7));
}

fn a_pool_without_a_server_fails_at_once<P: AnyPool>() {
    let folder = tempfile::tempdir().unwrap();
    let none = P::connect(&folder.path().join("none.sock"), &options(1)).map(drop).unwrap_err();
    assert!(matches!(none, ClientError::NotRunning { .. }), "{none:?}");
}
