//! The memory that all connections hold together, and its limit.
//!
//! In: the capacity of each connection's buffers, whenever that changes. Out: evictions of the connections that hold
//! the most, once the sum exceeds the limit. A request that does not change the size of its connection's buffers costs
//! nothing here.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tracing::warn;

use super::activity::Activity;
use super::log_limit::LogLimit;
use super::registry::Registry;
use super::statistics::Totals;
use crate::setting::Setting;

/// Evictions go on until this share of the limit is free, so that the search for victims is rare.
const FREED_SHARE: u64 = 8;

/// The sum of the memory of all connections, and its limit.
pub(super) struct ClientMemory {
    pub(super) max_bytes: u64,
    held_bytes: AtomicU64,
    /// The part of `held_bytes` that belongs to evicted connections that have not ended yet.
    evicted_bytes: AtomicU64,
    /// Locked while connections to evict are chosen.
    choosing: Mutex<()>,
    logged: LogLimit,
}

impl ClientMemory {
    pub(super) fn new(max_bytes: u64) -> ClientMemory {
        ClientMemory {
            max_bytes,
            held_bytes: AtomicU64::new(0),
            evicted_bytes: AtomicU64::new(0),
            choosing: Mutex::default(),
            logged: LogLimit::default(),
        }
    }

    /// Returns the memory that connections hold now.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Records the memory that a connection holds.
    pub(super) fn record(&self, activity: &Activity, held_bytes: u64) {
        let (held_bytes, before_bytes) = activity.replace_held_bytes(held_bytes);
        if held_bytes >= before_bytes {
            self.held_bytes.fetch_add(held_bytes - before_bytes, Ordering::Relaxed);
        } else {
            self.held_bytes.fetch_sub(before_bytes - held_bytes, Ordering::Relaxed);
        }
    }

    /// Subtracts the memory of a connection that ends. Its registry must have removed it already.
    pub(super) fn release(&self, activity: &Activity) {
        let held_bytes = activity.held_bytes();
        self.held_bytes.fetch_sub(held_bytes, Ordering::Relaxed);
        if activity.is_evicted() {
            self.evicted_bytes.fetch_sub(held_bytes, Ordering::Relaxed);
        }
    }

    /// Returns whether the connections that are not evicted hold more than the limit.
    pub(super) fn is_over_limit(&self) -> bool {
        self.held_bytes().saturating_sub(self.evicted_bytes.load(Ordering::Relaxed)) > self.max_bytes
    }

    /// Evicts the connections that hold the most.
    #[cold]
    pub(super) fn evict_largest(&self, registries: &[Arc<Registry>], totals: &Totals) {
        // One worker at a time, because two would choose the same connections.
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
        let (held_bytes, goal_bytes, mut count) = (kept_bytes, self.max_bytes - self.max_bytes / FREED_SHARE, 0);
        for (held_bytes, activity, registry) in &holders {
            if kept_bytes <= goal_bytes {
                break;
            }
            let evicted_bytes = registry.evict(activity, &self.evicted_bytes);
            count += u64::from(evicted_bytes.is_some());
            // A connection that has ended meanwhile holds nothing.
            kept_bytes = kept_bytes.saturating_sub(evicted_bytes.unwrap_or(*held_bytes));
        }
        totals.cut_memory.fetch_add(count, Ordering::Relaxed);
        let largest = holders.first().map(|(held_bytes, activity, _)| (held_bytes, activity.peer));
        if let (Some((largest_bytes, peer)), Some(left_out)) = (largest, self.logged.line()) {
            warn!(
                %peer,
                left_out,
                "disconnected: {count} connections that held the most memory, this one {largest_bytes} bytes: all \
                 held {held_bytes} bytes, where {} are the maximum ({})",
                self.max_bytes,
                Setting::ClientMemoryMax
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;
    use crate::server::limits::Limits;
    use crate::server::peer::Peer;

    /// Returns a registry with connections that hold these numbers of bytes, and their activities. `runtime` has their
    /// tasks.
    fn registry(
        runtime: &tokio::runtime::Runtime,
        memory: &ClientMemory,
        held: &[u64],
    ) -> (Arc<Registry>, Vec<Arc<Activity>>) {
        let registry = Arc::new(Registry::new(&Limits::default()));
        let connection = |held_bytes: &u64| {
            let activity = registry.activity(Peer::default());
            registry.add(Arc::clone(&activity), runtime.spawn(std::future::pending::<()>()).abort_handle());
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
    fn those_that_hold_the_most_are_evicted_whatever_worker_they_belong_to() {
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
        // Until the evicted connection ends, its memory counts as held, and no other connection is evicted for it.
        assert_eq!(memory.held_bytes(), 1001);
        memory.evict_largest(&registries, &totals);
        assert_eq!(totals.cut_memory.load(Ordering::Relaxed), 1);

        registries[1].remove(&of_second[0]);
        memory.release(&of_second[0]);
        assert_eq!(memory.held_bytes(), 501);
        for activity in [&of_first[0], &of_first[2], &of_first[3]] {
            memory.record(activity, 300);
        }
        // 1360 bytes, of which at most 875 are to stay.
        memory.evict_largest(&registries, &totals);
        assert_eq!(evicted(&of_first).len(), 2);
        assert!(of_first[1].is_evicted(), "it holds the most");
        assert!(!memory.is_over_limit());
    }

    /// Ends a connection, as its task does, when another one is woken.
    struct EndsOnWake {
        registry: Arc<Registry>,
        memory: Arc<ClientMemory>,
        ends: Arc<Activity>,
        /// The sum over the evicted connections right after this one has ended.
        evicted_bytes: AtomicU64,
    }

    impl Wake for EndsOnWake {
        fn wake(self: Arc<Self>) {
            self.wake_by_ref();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            self.registry.remove(&self.ends);
            self.memory.release(&self.ends);
            self.evicted_bytes.store(self.memory.evicted_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Evicts among connections of 600, 500, and 400 bytes where 1000 are the maximum. When the first one is woken,
    /// connection number `ends` ends at once. Returns which connections are evicted, the sum over the evicted
    /// connections at that moment, and the sum over all connections afterwards.
    fn evict_while_one_ends(ends: usize) -> (Vec<usize>, u64, u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (memory, totals) = (Arc::new(ClientMemory::new(1000)), Totals::default());
        let (registry, activities) = registry(&runtime, &memory, &[600, 500, 400]);
        let woken = Arc::new(EndsOnWake {
            registry: Arc::clone(&registry),
            memory: Arc::clone(&memory),
            ends: Arc::clone(&activities[ends]),
            evicted_bytes: AtomicU64::new(u64::MAX),
        });
        activities[0].set_waker(&Arc::clone(&woken).into());
        memory.evict_largest(&[registry], &totals);
        assert!(!memory.is_over_limit());
        assert_eq!(totals.cut_memory.load(Ordering::Relaxed), evicted(&activities).len() as u64);
        (evicted(&activities), woken.evicted_bytes.load(Ordering::Relaxed), memory.held_bytes())
    }

    #[test]
    fn a_connection_that_ends_as_soon_as_it_is_evicted_is_subtracted_after_it_was_added() {
        assert_eq!(evict_while_one_ends(0), (vec![0, 1], 0, 900));
    }

    #[test]
    fn nothing_is_evicted_for_a_connection_that_ends_meanwhile() {
        assert_eq!(evict_while_one_ends(1), (vec![0], 600, 1000));
    }

    #[test]
    fn an_evicted_connection_that_grew_meanwhile_leaves_nothing_behind() {
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
