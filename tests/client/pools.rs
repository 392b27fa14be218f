//! Connections that threads and tasks share.

use std::future::Future;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use zero_kv::client::{AsyncPool, AsyncPooled, ClientError, Options, Phase, Pool, PoolOptions, Pooled};

use super::both::Asked;
use super::common::{PATIENCE, Table, eventually};
use super::peer::{NOT_FOUND, Peer, Script, announced, found};

/// What both pools do; the one for tasks is asked by threads, each of which drives
/// its own.
trait Pools: Clone + Send + Sync + 'static {
    type Connection: Send;
    fn connect(socket: &Path, options: &PoolOptions) -> Asked<Self>;
    fn take(&self) -> Asked<Self::Connection>;
    fn get(&self, connection: &mut Self::Connection, key: u64) -> Asked<Option<Vec<u8>>>;
}

impl Pools for Pool {
    type Connection = Pooled;

    fn connect(socket: &Path, options: &PoolOptions) -> Asked<Self> {
        Pool::connect_with(socket, options)
    }

    fn take(&self) -> Asked<Pooled> {
        Pool::get(self)
    }

    fn get(&self, connection: &mut Pooled, key: u64) -> Asked<Option<Vec<u8>>> {
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

impl Pools for OnTokio {
    type Connection = AsyncPooled;

    fn connect(socket: &Path, options: &PoolOptions) -> Asked<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let pool = runtime.block_on(AsyncPool::connect_with(socket, options))?;
        Ok(OnTokio { runtime: Arc::new(runtime), pool })
    }

    fn take(&self) -> Asked<AsyncPooled> {
        self.run(self.pool.get())
    }

    fn get(&self, connection: &mut AsyncPooled, key: u64) -> Asked<Option<Vec<u8>>> {
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
    all_get_their_turns,
    there_are_no_more_connections_than_may_be,
    who_waits_too_long_is_told,
    a_connection_that_failed_does_not_come_back,
    a_connection_that_was_closed_meanwhile_is_not_handed_out,
    a_pool_without_a_server_is_told_at_once,
);

fn options(connections_max: usize) -> PoolOptions {
    PoolOptions {
        connections_max: connections_max.try_into().unwrap(),
        wait_timeout: PATIENCE,
        client: Options { retries: 0, ..Options::default() },
    }
}

fn all_get_their_turns<P: Pools>() {
    const THREADS: usize = 8;
    const TURNS: usize = 300;
    let table = Table::of_rows(10);
    let _server = table.serve();
    let pool = P::connect(&table.socket(), &options(2)).unwrap();
    let turns: Arc<[AtomicUsize]> = (0..THREADS).map(|_| AtomicUsize::new(0)).collect();
    let ended = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (pool, turns, ended) = (pool.clone(), Arc::clone(&turns), Arc::clone(&ended));
            thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let mut connection = pool.take().unwrap();
                    assert!(pool.get(&mut connection, 1 + number as u64).unwrap().is_some());
                    turns[number].fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let counts = || turns.iter().map(|turns| turns.load(Ordering::Relaxed)).collect::<Vec<_>>();
    eventually("every thread has had a turn", || counts().iter().all(|turns| *turns > 0));
    let before = counts();
    let since = || counts().iter().zip(&before).map(|(now, before)| now - before).collect::<Vec<_>>();
    eventually("one thread has had many", || since().into_iter().max() >= Some(TURNS));
    let since = since();
    ended.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let (least, most) = (since.iter().min().unwrap(), since.iter().max().unwrap());
    assert!(2 * least >= *most, "turns of each: {since:?}");
}

fn there_are_no_more_connections_than_may_be<P: Pools>() {
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

fn who_waits_too_long_is_told<P: Pools>() {
    let peer = Peer::answering(&[NOT_FOUND, NOT_FOUND]);
    let impatient = PoolOptions { wait_timeout: Duration::from_millis(20), ..options(1) };
    let pool = P::connect(&peer.socket(), &impatient).unwrap();
    let mut held = pool.take().unwrap();
    let error = pool.take().map(drop).unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { phase: Phase::Turn, .. }), "{error:?}");
    assert!(error.to_string().ends_with("waiting for a connection of the pool, all of which were in use"), "{error}");
    assert_eq!(pool.get(&mut held, 7).unwrap(), None);
    drop(held);
    assert_eq!(pool.get(&mut pool.take().unwrap(), 7).unwrap(), None, "who gave up is not waited for");
}

fn a_connection_that_failed_does_not_come_back<P: Pools>() {
    let peer = Peer::of(vec![Script::answering(&[&announced(9, 0)]), Script::answering(&[&found(b"eight")])]);
    let pool = P::connect(&peer.socket(), &options(1)).unwrap();
    let mut held = pool.take().unwrap();
    let waiting = pool.clone();
    let waiting = thread::spawn(move || waiting.get(&mut waiting.take()?, 8));
    assert!(matches!(pool.get(&mut held, 7), Err(ClientError::Protocol { .. })));
    drop(held);
    assert_eq!(waiting.join().unwrap().unwrap().as_deref(), Some(&b"eight"[..]));
}

fn a_connection_that_was_closed_meanwhile_is_not_handed_out<P: Pools>() {
    // Nothing is asked twice here, so only a new connection can answer.
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("peer.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let pool = P::connect(&socket, &options(1)).unwrap();
    drop(listener.accept().unwrap());
    drop(listener);
    std::fs::remove_file(&socket).unwrap();
    let table = Table::of_rows(10);
    let _server = super::common::Server::start(&table.db(), &socket);
    assert_eq!(pool.get(&mut pool.take().unwrap(), 7).unwrap().as_ref(), table.model.get(&7));
}

fn a_pool_without_a_server_is_told_at_once<P: Pools>() {
    let folder = tempfile::tempdir().unwrap();
    let none = P::connect(&folder.path().join("none.sock"), &options(1)).map(drop).unwrap_err();
    assert!(matches!(none, ClientError::NotRunning { .. }), "{none:?}");
}
