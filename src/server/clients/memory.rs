//! The memory that all connections hold together, and its limit.
//!
//! In: the capacity of each connection's buffers, whenever it changes, and the memory that the kernel holds for its
//! socket, whenever it is measured. Out: evictions (disconnections) of the connections that hold the most memory, once
//! all connections together exceed the limit. A request that does not change the size of its connection's buffers costs
//! nothing here.
//!
//! Reasons and evidence: `docs/decisions/client-memory.md`.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tracing::warn;

use super::Activity;
use super::registry::Registry;
use crate::server::process::log_queue::LogLimit;
use crate::server::sockets::memory::SocketMemory;
use crate::server::stats::Totals;
use crate::setting::Setting;
use crate::sync::unpoisoned;

/// When connections exceed the memory limit, the server evicts (disconnects) the largest ones until 1/`FREED_SHARE` of
/// the limit is free, so that evictions are less frequent.
const FREED_SHARE: u64 = 8;

/// A user may connect to the Unix socket while its ended connections hold less than this share of the limit, even if
/// all ended connections together hold the limit.
const LINGERING_SHARE: u64 = 8;

/// The sum of the memory of all connections, and its limit.
pub(in crate::server) struct ClientMemory {
    pub(in crate::server) max_bytes: u64,
    /// The memory of all connections that have not ended, including their sockets.
    held_bytes: AtomicU64,
    /// The memory of sockets, including those of ended connections.
    pub(in crate::server) sockets: SocketBudget,
    /// The memory of the sockets of ended connections: see `connection/closing.rs`.
    lingering_bytes: AtomicU64,
    /// How many of the `lingering_bytes` belong to which users of the Unix socket.
    lingering_users: Mutex<HashMap<u32, u64>>,
    /// How many of the `held_bytes` belong to evicted connections that have not ended yet.
    evicted_bytes: AtomicU64,
    /// The lock that a worker holds while it chooses the connections to evict.
    choosing: Mutex<()>,
    eviction_log: LogLimit,
}

impl ClientMemory {
    pub(in crate::server) fn new(max_bytes: u64) -> ClientMemory {
        ClientMemory {
            max_bytes,
            held_bytes: AtomicU64::new(0),
            sockets: SocketBudget::new(max_bytes),
            lingering_bytes: AtomicU64::new(0),
            lingering_users: Mutex::default(),
            evicted_bytes: AtomicU64::new(0),
            choosing: Mutex::default(),
            eviction_log: LogLimit::default(),
        }
    }

    /// Returns the number of bytes that all connections hold together, including ended connections whose clients have
    /// not received all responses.
    pub(in crate::server) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed) + self.lingering_bytes.load(Ordering::Relaxed)
    }

    /// Replaces the last measurement of the socket of an ended connection, which a user of the Unix socket has opened.
    pub(in crate::server) fn replace_lingering(&self, user: Option<u32>, before_bytes: u64, held_bytes: u64) {
        self.lingering_bytes.fetch_add(held_bytes.wrapping_sub(before_bytes), Ordering::Relaxed);
        self.sockets.replace(before_bytes, held_bytes);
        let Some(user) = user else { return };
        let mut users = unpoisoned(&self.lingering_users);
        let user_bytes = users.entry(user).or_default();
        *user_bytes = (*user_bytes + held_bytes).saturating_sub(before_bytes);
        if *user_bytes == 0 {
            users.remove(&user);
        }
    }

    /// Returns whether ended connections hold so much memory that some users may not open others. The kernel keeps the
    /// responses that a client of a Unix socket has not received, whatever the server does. The server can limit this
    /// memory only by refusing connections.
    #[inline]
    pub(in crate::server) fn is_lingering_full(&self) -> bool {
        self.lingering_bytes.load(Ordering::Relaxed) >= self.max_bytes
    }

    /// Returns the memory of a user's ended connections, if it is more than a small part of the limit.
    pub(in crate::server) fn lingering_of(&self, user: u32) -> Option<u64> {
        let user_bytes = unpoisoned(&self.lingering_users).get(&user).copied();
        user_bytes.filter(|user_bytes| *user_bytes >= self.max_bytes / LINGERING_SHARE)
    }

    /// Records the measured memory of a connection's socket.
    pub(in crate::server) fn record_socket(&self, activity: &Activity, socket: SocketMemory) {
        let socket_bytes = socket.total_bytes();
        self.sockets.replace(activity.replace_socket_bytes(socket_bytes), socket_bytes);
    }

    /// Measures the sockets of a worker's connections that may have changed since the last measurement. Must be called
    /// on the worker's thread.
    pub(in crate::server) async fn measure(&self, registry: &Registry) {
        registry
            .for_each_active_socket(|activity, socket| {
                // The recorded memory of an evicted connection does not change.
                if activity.is_evicted() {
                    return;
                }
                let before_bytes = activity.socket_bytes();
                // A descriptor in the registry is open.
                self.record_socket(activity, SocketMemory::of_number(socket).unwrap_or_default());
                let held_bytes = activity.held_bytes() - before_bytes + activity.socket_bytes();
                self.record(activity, held_bytes);
            })
            .await;
    }

    /// Records the number of bytes that a connection holds.
    pub(in crate::server) fn record(&self, activity: &Activity, held_bytes: u64) {
        let (held_bytes, before_bytes) = activity.replace_held_bytes(held_bytes);
        if held_bytes >= before_bytes {
            self.held_bytes.fetch_add(held_bytes - before_bytes, Ordering::Relaxed);
        } else {
            self.held_bytes.fetch_sub(before_bytes - held_bytes, Ordering::Relaxed);
        }
    }

    /// Subtracts the memory of an ended connection from the sum. The caller must already have removed the connection
    /// from its registry.
    pub(in crate::server) fn release(&self, activity: &Activity) {
        let held_bytes = activity.held_bytes();
        self.sockets.replace(activity.replace_socket_bytes(0), 0);
        self.held_bytes.fetch_sub(held_bytes, Ordering::Relaxed);
        if activity.is_evicted() {
            self.evicted_bytes.fetch_sub(held_bytes, Ordering::Relaxed);
        }
    }

    /// Returns whether the connections that are not evicted hold more than the limit.
    pub(in crate::server) fn is_over_limit(&self) -> bool {
        let held_bytes = self.held_bytes.load(Ordering::Relaxed);
        held_bytes.saturating_sub(self.evicted_bytes.load(Ordering::Relaxed)) > self.max_bytes
    }

    /// Evicts the connections that hold the most memory, until an eighth of the limit is free.
    #[cold]
    pub(in crate::server) fn evict_largest(&self, registries: &[Arc<Registry>], totals: &Totals) {
        // Only one worker at a time chooses connections to evict. Otherwise, two workers would choose the same
        // connections.
        let Ok(_choosing) = self.choosing.try_lock() else { return };
        let holders_of = |registry: &Arc<Registry>| {
            let registry = Arc::clone(registry);
            registry
                .holders()
                .into_iter()
                .map(move |(held_bytes, activity)| (held_bytes, activity, Arc::clone(&registry)))
        };
        let mut holders: Vec<_> = registries.iter().flat_map(holders_of).collect();
        holders.sort_unstable_by_key(|(held_bytes, _, _)| Reverse(*held_bytes));
        let mut kept_bytes: u64 = holders.iter().map(|(held_bytes, _, _)| held_bytes).sum();
        if kept_bytes <= self.max_bytes {
            return;
        }
        // More is freed than needed. Otherwise, the next response could lead to the next eviction.
        let (held_bytes, goal_bytes, mut count) = (kept_bytes, self.max_bytes - self.max_bytes / FREED_SHARE, 0);
        for (held_bytes, activity, registry) in &holders {
            if kept_bytes <= goal_bytes {
                break;
            }
            let evicted_bytes = registry.evict(activity, &self.evicted_bytes);
            count += u64::from(evicted_bytes.is_some());
            // A connection that has ended in the meantime holds no memory, so its bytes are subtracted, too.
            kept_bytes = kept_bytes.saturating_sub(evicted_bytes.unwrap_or(*held_bytes));
        }
        totals.cut_memory.fetch_add(count, Ordering::Relaxed);
        let largest = holders.first().map(|(held_bytes, activity, _)| (held_bytes, activity.peer));
        if let (Some((largest_bytes, peer)), Some(left_out)) = (largest, self.eviction_log.line()) {
            warn!(
                %peer,
                left_out,
                "disconnected: the {count} connections that held the most memory (the connection of this peer held \
                 {largest_bytes} bytes): all connections held {held_bytes} bytes, where at most {} were expected ({})",
                self.max_bytes,
                Setting::ClientMemoryMax
            );
        }
    }
}

const CLIENT_MEMORY_SHARE: u64 = 2;
/// One socket may hold 1/`FREE_SHARE` of the memory that sockets may still use.
const FREE_SHARE: u64 = 8;
/// Buffers of this size are not limited: it is the kernel's default maximum for TCP, and more than a Unix socket has.
const UNLIMITED_MIN_BYTES: u64 = 4 << 20;
/// The size below which the kernel does not reduce a send buffer.
pub(in crate::server) const BUFFER_MIN_BYTES: u64 = 4608;
/// Sockets that are not measured yet may hold 1/`UNMEASURED_SHARE` of the limit on client memory.
const UNMEASURED_SHARE: u64 = 16;
/// A connection is measured at least each time its socket may have taken this much memory since the last measurement.
/// A measurement costs a system call of about 200 ns.
const UNMEASURED_MAX_BYTES: u64 = 256 << 10;
/// An upper bound of the kernel's overhead for one write.
const WRITE_OVERHEAD_BYTES: u64 = 1024;

/// Returns the maximum memory that the kernel allocates for one write to a socket. Short writes round up to a power of
/// two.
#[inline]
pub(in crate::server) fn written_bytes(len_bytes: usize) -> u64 {
    2 * len_bytes as u64 + WRITE_OVERHEAD_BYTES
}

/// The memory that the kernel holds for sockets, as last measured, and its limits.
pub(in crate::server) struct SocketBudget {
    client_memory_max_bytes: u64,
    held_bytes: AtomicU64,
    connections: AtomicU64,
    buffer_max_bytes: AtomicU64,
    unmeasured_max_bytes: AtomicU64,
}

impl SocketBudget {
    pub(in crate::server) fn new(client_memory_max_bytes: u64) -> SocketBudget {
        let budget = SocketBudget {
            client_memory_max_bytes,
            held_bytes: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            buffer_max_bytes: AtomicU64::new(0),
            unmeasured_max_bytes: AtomicU64::new(0),
        };
        budget.set_buffer_max(0);
        budget.set_unmeasured_max(0);
        budget
    }

    /// Returns the memory that the kernel holds for all sockets, as last measured.
    pub(in crate::server) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Returns the maximum size of a socket's buffers, or `u64::MAX` if they are not limited. It is a power of two or
    /// [`BUFFER_MIN_BYTES`], so it changes rarely.
    #[inline]
    pub(in crate::server) fn buffer_max_bytes(&self) -> u64 {
        self.buffer_max_bytes.load(Ordering::Relaxed)
    }

    /// Returns how much memory a socket may take before it must be measured.
    #[inline]
    pub(in crate::server) fn unmeasured_max_bytes(&self) -> u64 {
        self.unmeasured_max_bytes.load(Ordering::Relaxed)
    }

    /// Replaces the last measurement of a socket.
    pub(in crate::server) fn replace(&self, before_bytes: u64, held_bytes: u64) {
        if before_bytes != held_bytes {
            let change_bytes = held_bytes.wrapping_sub(before_bytes);
            let total_bytes = self.held_bytes.fetch_add(change_bytes, Ordering::Relaxed).wrapping_add(change_bytes);
            self.set_buffer_max(total_bytes);
        }
    }

    pub(in crate::server) fn connection_opened(&self) {
        self.set_unmeasured_max(self.connections.fetch_add(1, Ordering::Relaxed) + 1);
    }

    pub(in crate::server) fn connection_closed(&self) {
        self.set_unmeasured_max(self.connections.fetch_sub(1, Ordering::Relaxed) - 1);
    }

    fn set_buffer_max(&self, held_bytes: u64) {
        let free_bytes = (self.client_memory_max_bytes / CLIENT_MEMORY_SHARE).saturating_sub(held_bytes);
        let share_bytes = free_bytes / FREE_SHARE;
        store_changed(
            &self.buffer_max_bytes,
            match share_bytes {
                UNLIMITED_MIN_BYTES.. => u64::MAX,
                _ => (1 << share_bytes.max(1).ilog2()).max(BUFFER_MIN_BYTES),
            },
        );
    }

    fn set_unmeasured_max(&self, connections: u64) {
        let share_bytes = self.client_memory_max_bytes / UNMEASURED_SHARE / connections.max(1);
        store_changed(&self.unmeasured_max_bytes, share_bytes.min(UNMEASURED_MAX_BYTES));
    }
}

/// Stores a number that all workers often read, without invalidating their caches if it is the same.
fn store_changed(number: &AtomicU64, value: u64) {
    if number.load(Ordering::Relaxed) != value {
        number.store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;
    use crate::server::limits::Limits;
    use crate::server::sockets::Peer;
    use crate::server::users::Users;

    /// Returns a registry with one connection for each number of bytes in `held`, and the activities of these
    /// connections. The connections' tasks run on `runtime`.
    fn registry(
        runtime: &tokio::runtime::Runtime,
        memory: &ClientMemory,
        held: &[u64],
    ) -> (Arc<Registry>, Vec<Arc<Activity>>) {
        let registry = Arc::new(Registry::new(&Limits::default(), &Arc::new(Users::new(None).unwrap())));
        let connection = |held_bytes: &u64| {
            let activity = registry.activity(Peer::default());
            registry.add(Arc::clone(&activity), runtime.spawn(std::future::pending::<()>()).abort_handle(), None);
            memory.record(&activity, *held_bytes);
            activity
        };
        let activities = held.iter().map(connection).collect();
        (registry, activities)
    }

    fn evicted(activities: &[Arc<Activity>]) -> Vec<usize> {
        (0..activities.len()).filter(|at| activities[*at].is_evicted()).collect()
    }

    #[test]
    fn the_connections_that_hold_the_most_memory_are_evicted_on_every_worker() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (memory, totals) = (ClientMemory::new(1000), Totals::default());
        let (first, of_first) = registry(&runtime, &memory, &[10, 400, 0, 30]);
        let (second, of_second) = registry(&runtime, &memory, &[500, 60]);
        let registries = [Arc::clone(&first), second];
        assert!(!memory.is_over_limit());
        memory.evict_largest(&registries, &totals);
        assert!(evicted(&of_first).is_empty() && evicted(&of_second).is_empty());

        memory.record(&of_first[3], 31);
        assert!(memory.is_over_limit());
        memory.evict_largest(&registries, &totals);
        assert_eq!((evicted(&of_first), evicted(&of_second)), (vec![], vec![0]));
        assert!(!memory.is_over_limit());
        // The memory of an evicted connection counts as held until the connection ends. No other connection is evicted
        // in its place.
        assert_eq!(memory.held_bytes(), 1001);
        memory.evict_largest(&registries, &totals);
        assert_eq!(totals.cut_memory.load(Ordering::Relaxed), 1);

        registries[1].remove(&of_second[0]);
        memory.release(&of_second[0]);
        assert_eq!(memory.held_bytes(), 501);
        for activity in [&of_first[0], &of_first[2], &of_first[3]] {
            memory.record(activity, 300);
        }
        // The connections hold 1360 bytes together. Evictions continue until the remaining connections hold at most 875
        // bytes.
        memory.evict_largest(&registries, &totals);
        assert_eq!(evicted(&of_first).len(), 2);
        assert!(of_first[1].is_evicted(), "connection 1 holds the most memory");
        assert!(!memory.is_over_limit());
    }

    /// A waker for tests. When woken, it removes the connection in its field `ending` from the registry, and releases
    /// the connection's memory.
    struct EndsOnWake {
        registry: Arc<Registry>,
        memory: Arc<ClientMemory>,
        ending: Arc<Activity>,
        /// The number of bytes that evicted connections hold right after the connection `ending` has ended.
        evicted_bytes: AtomicU64,
    }

    impl Wake for EndsOnWake {
        fn wake(self: Arc<Self>) {
            self.wake_by_ref();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            self.registry.remove(&self.ending);
            self.memory.release(&self.ending);
            self.evicted_bytes.store(self.memory.evicted_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Creates connections 0, 1, and 2, which hold 600, 500, and 400 bytes, and evicts connections because of a limit
    /// of 1000 bytes. As soon as the eviction wakes connection 0, the connection with the index `ending` ends.
    ///
    /// Returns the indexes of the evicted connections, the number of bytes that evicted connections hold right after
    /// connection `ending` has ended, and the number of bytes that all connections hold after the evictions.
    fn evict_while_one_ends(ending: usize) -> (Vec<usize>, u64, u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (memory, totals) = (Arc::new(ClientMemory::new(1000)), Totals::default());
        let (registry, activities) = registry(&runtime, &memory, &[600, 500, 400]);
        let woken = Arc::new(EndsOnWake {
            registry: Arc::clone(&registry),
            memory: Arc::clone(&memory),
            ending: Arc::clone(&activities[ending]),
            evicted_bytes: AtomicU64::new(u64::MAX),
        });
        activities[0].set_waker(&Arc::clone(&woken).into());
        memory.evict_largest(&[registry], &totals);
        assert!(!memory.is_over_limit());
        assert_eq!(totals.cut_memory.load(Ordering::Relaxed), evicted(&activities).len() as u64);
        (evicted(&activities), woken.evicted_bytes.load(Ordering::Relaxed), memory.held_bytes())
    }

    #[test]
    fn the_memory_of_an_evicted_connection_is_counted_as_evicted_before_the_connection_can_end() {
        assert_eq!(evict_while_one_ends(0), (vec![0, 1], 0, 900));
    }

    #[test]
    fn no_connection_is_evicted_in_place_of_one_that_ends_by_itself() {
        assert_eq!(evict_while_one_ends(1), (vec![0], 600, 1000));
    }

    #[test]
    fn an_evicted_connection_that_allocated_more_before_its_end_leaves_no_counted_memory() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (memory, totals) = (ClientMemory::new(100), Totals::default());
        let (registry, activities) = registry(&runtime, &memory, &[101]);
        memory.evict_largest(&[Arc::clone(&registry)], &totals);
        assert_eq!(evicted(&activities), [0]);
        memory.record(&activities[0], 150);
        registry.remove(&activities[0]);
        memory.release(&activities[0]);
        assert_eq!((memory.held_bytes(), memory.evicted_bytes.load(Ordering::Relaxed)), (0, 0));
    }
}

#[cfg(test)]
mod socket_budget_tests {
    use super::*;

    #[test]
    fn sockets_that_fill_their_buffers_hold_no_more_than_the_maximum_and_their_smallest_buffers() {
        for (client_memory_max_bytes, sockets) in [(16 << 20, 16_384), (64 << 20, 6000), (3 << 30, 16_384)] {
            let budget = SocketBudget::new(client_memory_max_bytes);
            for socket in 0..sockets {
                budget.replace(0, budget.buffer_max_bytes().min(UNLIMITED_MIN_BYTES));
                assert!(
                    budget.held_bytes() <= client_memory_max_bytes / CLIENT_MEMORY_SHARE + socket * BUFFER_MIN_BYTES
                );
            }
            assert!(budget.held_bytes() > client_memory_max_bytes / 4);
        }
    }

    #[test]
    fn buffers_are_not_limited_while_there_is_memory() {
        let budget = SocketBudget::new(1 << 30);
        assert_eq!(budget.buffer_max_bytes(), u64::MAX);
        budget.replace(0, 500 << 20);
        assert_eq!(budget.buffer_max_bytes(), 1 << 20);
        budget.replace(500 << 20, 600 << 20);
        assert_eq!(budget.buffer_max_bytes(), BUFFER_MIN_BYTES);
        budget.replace(600 << 20, 0);
        assert_eq!((budget.held_bytes(), budget.buffer_max_bytes()), (0, u64::MAX));
    }

    #[test]
    fn unmeasured_memory_of_all_connections_stays_below_its_share() {
        let budget = SocketBudget::new(64 << 20);
        assert_eq!(budget.unmeasured_max_bytes(), UNMEASURED_MAX_BYTES);
        for connections in 1..=20_000 {
            budget.connection_opened();
            assert!(connections * budget.unmeasured_max_bytes() <= 4 << 20);
        }
        for _ in 0..20_000 {
            budget.connection_closed();
        }
        assert_eq!(budget.unmeasured_max_bytes(), UNMEASURED_MAX_BYTES);
    }
}
