//! The connections of one worker, and the rules by which they are disconnected.
//!
//! In: connections as they begin and end, and the activity that each connection reports. Out: disconnections. A
//! connection is disconnected, logged, and counted if it breaks a rule of [`Timeouts`], holds a generation that is too
//! old, or holds too much memory. As long as there are connections, one task per worker checks them once a second. This
//! module does not depend on a protocol or a socket.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::Activity;
use super::timeouts::{Observed, Reason, TICK, Timeouts};
use crate::server::limits::Limits;
use crate::server::sockets::Peer;
use crate::server::sockets::memory::disconnect_number;
use crate::server::stats::Totals;
use crate::server::users::Users;
use crate::sync::unpoisoned;

/// The maximum number of disconnections that are logged individually per check. If there are more, one further line
/// reports how many were not logged individually.
const LINES_MAX: usize = 5;

/// The maximum number of connections that are visited before the worker serves its connections again.
const VISITED_MAX: usize = 256;

/// The connections of one worker. Other threads only list the connections, evict or disconnect individual ones, and
/// notify the worker when it must disconnect connections because of their generation or user.
pub(in crate::server) struct Registry {
    timeouts: Timeouts,
    now_tick: AtomicU32,
    last_number: AtomicU64,
    connections: Mutex<BTreeMap<u64, Registered>>,
    connection_added: Notify,
    /// The oldest generation that connections may hold between their turns.
    oldest_generation: AtomicU64,
    generations_exceeded: Notify,
    users: Arc<Users>,
    users_changed: Notify,
}

struct Registered {
    activity: Arc<Activity>,
    /// Aborts the connection's task. `None` once the connection was disconnected, even if its task has not ended yet.
    abort: Option<AbortHandle>,
    /// The descriptor of the connection's socket. It is open while the connection is registered.
    socket: Option<RawFd>,
    /// [`Activity::progress_bytes`] when the socket was last visited by [`Registry::for_each_active_socket`].
    visited_progress_bytes: u64,
    observed: Observed,
}

struct Due {
    reason: Reason,
    peer: Peer,
    abort: AbortHandle,
}

impl Registry {
    pub(in crate::server) fn new(limits: &Limits, users: &Arc<Users>) -> Registry {
        Registry {
            timeouts: Timeouts::new(limits),
            now_tick: AtomicU32::default(),
            last_number: AtomicU64::default(),
            connections: Mutex::default(),
            connection_added: Notify::new(),
            oldest_generation: AtomicU64::default(),
            generations_exceeded: Notify::new(),
            users: Arc::clone(users),
            users_changed: Notify::new(),
        }
    }

    pub(in crate::server) fn activity(&self, peer: Peer) -> Arc<Activity> {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed);
        Arc::new(Activity::new(number, peer, self.now_tick.load(Ordering::Relaxed)))
    }

    /// Records that a byte arrived from the client, or that responses became pending.
    #[inline]
    pub(in crate::server) fn moved(&self, activity: &Activity) {
        activity.set_moved_tick(self.now_tick.load(Ordering::Relaxed));
    }

    /// Adds a connection. `abort` ends its task. `socket` must stay open until the connection is removed.
    pub(in crate::server) fn add(&self, activity: Arc<Activity>, abort: AbortHandle, socket: Option<RawFd>) {
        let registered = Registered {
            activity: Arc::clone(&activity),
            abort: Some(abort),
            socket,
            visited_progress_bytes: 0,
            observed: Observed::default(),
        };
        self.connections().insert(activity.number, registered);
        self.connection_added.notify_one();
    }

    pub(in crate::server) fn remove(&self, activity: &Activity) {
        self.connections().remove(&activity.number);
    }

    /// Calls `visit` for the socket of each connection that has sent or received bytes since the last call, or for
    /// which the kernel held memory at the last measurement.
    pub(in crate::server) async fn for_each_active_socket(&self, visit: impl Fn(&Activity, RawFd)) {
        let mut next_number = Some(0);
        while let Some(first) = next_number.take() {
            for (number, registered) in self.connections().range_mut(first..).take(VISITED_MAX) {
                next_number = Some(number + 1);
                let Registered { activity, socket: Some(socket), visited_progress_bytes, .. } = registered else {
                    continue;
                };
                let progress_bytes = activity.progress_bytes();
                if activity.socket_bytes() > 0 || progress_bytes != *visited_progress_bytes {
                    *visited_progress_bytes = progress_bytes;
                    visit(activity, *socket);
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Returns the connections that hold memory and were not evicted, each with the number of bytes that it holds.
    pub(in crate::server) fn holders(&self) -> Vec<(u64, Arc<Activity>)> {
        let connections = self.connections();
        let held = connections.values().map(|Registered { activity, .. }| (activity.held_bytes(), activity));
        let holders = held.filter(|(held_bytes, activity)| *held_bytes > 0 && !activity.is_evicted());
        holders.map(|(held_bytes, activity)| (held_bytes, Arc::clone(activity))).collect()
    }

    /// Evicts a connection (marks it to be closed), and adds the number of bytes that it holds to `evicted_bytes`.
    /// Returns this number, or `None` if the connection has ended.
    pub(in crate::server) fn evict(&self, activity: &Activity, evicted_bytes: &AtomicU64) -> Option<u64> {
        // `evicted_bytes` is increased under this lock. A connection that ends takes the lock before it subtracts its
        // memory from `evicted_bytes`, so the sum is never less than zero.
        let connections = self.connections();
        let socket = connections.get(&activity.number)?.socket;
        if let Some(socket) = socket.filter(|_| activity.peer.address().is_some() && activity.socket_bytes() > 0) {
            // The connection ends only after the turns of other connections, which may take memory themselves. If the
            // socket cannot be disconnected, its memory is released when the connection ends.
            let _ = disconnect_number(socket);
        }
        let held_bytes = activity.evict();
        evicted_bytes.fetch_add(held_bytes, Ordering::Relaxed);
        drop(connections);
        if !activity.wake() {
            // A connection whose task has not set its waker holds only memory of its socket.
            self.disconnect_one(activity);
        }
        Some(held_bytes)
    }

    /// Disconnects one connection. Returns false if it has ended or is already being disconnected.
    pub(in crate::server) fn disconnect_one(&self, activity: &Activity) -> bool {
        let mut connections = self.connections();
        let abort = connections.get_mut(&activity.number).and_then(|registered| registered.abort.take());
        // A connection that ends locks the map to remove itself.
        drop(connections);
        abort.as_ref().map(AbortHandle::abort).is_some()
    }

    /// Makes the worker disconnect each connection that, between its turns, holds a generation older than `number`. The
    /// worker does this at once, without waiting for the next tick.
    pub(in crate::server) fn disconnect_generations_before(&self, number: u64) {
        if self.oldest_generation.fetch_max(number, Ordering::Relaxed) < number {
            self.generations_exceeded.notify_one();
        }
    }

    /// Makes the worker disconnect the connections whose users are no longer enabled.
    pub(in crate::server) fn disconnect_users(&self) {
        self.users_changed.notify_one();
    }

    fn connections(&self) -> MutexGuard<'_, BTreeMap<u64, Registered>> {
        unpoisoned(&self.connections)
    }

    /// Disconnects connections that break a rule, and runs `on_tick` every [`TICK`] while there are connections. Never
    /// returns.
    pub(in crate::server) async fn run<F: Future<Output = ()>>(&self, totals: &Totals, on_tick: impl Fn() -> F) {
        loop {
            while self.connections().is_empty() {
                self.connection_added.notified().await;
            }
            let tick = Instant::now() + TICK;
            loop {
                tokio::select! {
                    () = sleep_until(tick) => break,
                    () = self.generations_exceeded.notified() => self.disconnect_old_generations(totals),
                    () = self.users_changed.notified() => self.disconnect_old_users(totals),
                }
            }
            self.tick(totals);
            on_tick().await;
        }
    }

    fn tick(&self, totals: &Totals) {
        // One task checks all connections, so a connection needs no timer, and a request costs only relaxed stores.
        let now_tick = self.now_tick.load(Ordering::Relaxed).wrapping_add(1);
        self.now_tick.store(now_tick, Ordering::Relaxed);
        self.disconnect(totals, |Registered { activity, observed, .. }| {
            self.timeouts.due(now_tick, activity, observed).or_else(|| self.exceeded_generation(activity))
        });
    }

    fn disconnect_old_generations(&self, totals: &Totals) {
        self.disconnect(totals, |registered| self.exceeded_generation(&registered.activity));
    }

    fn disconnect_old_users(&self, totals: &Totals) {
        let enabled = self.users.enabled();
        let is_old = |user: u64| user != 0 && !enabled.contains(&user);
        self.disconnect(totals, |registered| is_old(registered.activity.user()).then_some(Reason::User));
    }

    fn exceeded_generation(&self, activity: &Activity) -> Option<Reason> {
        let (number, oldest) = (activity.generation(), self.oldest_generation.load(Ordering::Relaxed));
        (1..oldest).contains(&number).then_some(Reason::Generation { number })
    }

    fn disconnect(&self, totals: &Totals, mut reason: impl FnMut(&mut Registered) -> Option<Reason>) {
        // A connection that ends locks the map to remove itself. To avoid a deadlock, this code only collects the
        // connections while it holds the lock, and aborts them afterward.
        let due: Vec<Due> =
            self.connections().values_mut().filter_map(|registered| due(registered, &mut reason)).collect();
        // All connections are aborted and counted before the first log line, because a panic could interrupt the
        // logging.
        for Due { reason, abort, .. } in &due {
            abort.abort();
            reason.counter(totals).fetch_add(1, Ordering::Relaxed);
        }
        for (at, Due { reason, peer, .. }) in due.iter().enumerate() {
            match reason {
                _ if at >= LINES_MAX => {}
                Reason::Idle { .. } => info!(%peer, "disconnected: {reason}"),
                _ => warn!(%peer, "disconnected: {reason}"),
            }
        }
        if let Some(more @ 1..) = due.len().checked_sub(LINES_MAX) {
            warn!("disconnected: {more} more connections, which are not logged individually");
        }
    }
}

fn due(registered: &mut Registered, reason: &mut impl FnMut(&mut Registered) -> Option<Reason>) -> Option<Due> {
    registered.abort.as_ref()?;
    let reason = reason(registered)?;
    Some(Due { reason, peer: registered.activity.peer, abort: registered.abort.take()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::clients::Waits;

    /// A registry with connections whose tasks wait forever, and the runtime of the tasks.
    struct TestRegistry {
        runtime: tokio::runtime::Runtime,
        registry: Registry,
        totals: Totals,
        connections: Vec<(tokio::task::JoinHandle<()>, Arc<Activity>)>,
    }

    impl TestRegistry {
        fn new(limits: &Limits, connections: usize) -> TestRegistry {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let registry = Registry::new(limits, &Arc::new(Users::new(None).unwrap()));
            let connections = (0..connections).map(|_| {
                let task = runtime.spawn(std::future::pending::<()>());
                let activity = registry.activity(Peer::default());
                registry.add(Arc::clone(&activity), task.abort_handle(), None);
                (task, activity)
            });
            let connections = connections.collect();
            TestRegistry { runtime, registry, totals: Totals::default(), connections }
        }

        /// Returns the positions of the connections that have ended.
        fn ended(&self) -> Vec<usize> {
            self.runtime.block_on(tokio::task::yield_now());
            let ended = self.connections.iter().enumerate().filter(|(_, (task, _))| task.is_finished());
            ended.map(|(at, _)| at).collect()
        }
    }

    #[test]
    fn stalled_connections_are_disconnected_and_counted() {
        let scene = TestRegistry::new(&Limits { stall_timeout: TICK, ..Limits::default() }, 3);
        scene.connections[1].1.set_waits(Waits::Client(9));
        scene.registry.tick(&scene.totals);
        assert!(scene.ended().is_empty());
        scene.registry.tick(&scene.totals);
        assert_eq!(scene.ended(), [1]);
        assert_eq!(scene.totals.cut_stalled.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn holders_of_generations_beyond_the_limit_are_disconnected() {
        let scene = TestRegistry::new(&Limits::default(), 5);
        // The first connection gets generation 0, which means that the connection holds no generation.
        for (generation, (_, activity)) in scene.connections.iter().enumerate() {
            activity.set_waits(Waits::Client(1));
            activity.set_generation(generation as u64);
        }
        scene.registry.disconnect_generations_before(3);
        scene.registry.disconnect_old_generations(&scene.totals);
        // Each connection is counted once, even if it is checked again before its task has ended.
        scene.registry.disconnect_old_generations(&scene.totals);
        scene.registry.tick(&scene.totals);
        assert_eq!(scene.ended(), [1, 2]);
        assert_eq!(scene.totals.cut_generation.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn one_connection_is_disconnected_once() {
        let scene = TestRegistry::new(&Limits::default(), 3);
        assert!(scene.registry.disconnect_one(&scene.connections[1].1));
        assert!(!scene.registry.disconnect_one(&scene.connections[1].1));
        assert_eq!(scene.ended(), [1]);
        scene.registry.remove(&scene.connections[2].1);
        assert!(!scene.registry.disconnect_one(&scene.connections[2].1));
    }

    #[test]
    fn a_connection_that_has_ended_is_not_evicted() {
        let scene = TestRegistry::new(&Limits::default(), 2);
        for (_, activity) in &scene.connections {
            activity.replace_held_bytes(100);
        }
        let (first, second) = (&scene.connections[0].1, &scene.connections[1].1);
        scene.registry.remove(first);
        let evicted_bytes = AtomicU64::new(0);
        assert_eq!(scene.registry.evict(first, &evicted_bytes), None);
        assert_eq!(scene.registry.evict(second, &evicted_bytes), Some(100));
        assert_eq!(evicted_bytes.into_inner(), 100);
        assert!(scene.registry.holders().is_empty());
    }
}
