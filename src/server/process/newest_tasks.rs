//! Limits the number of tasks that serve connections of one kind: for a new task, the oldest one is aborted.
//!
//! In: tasks on current-thread runtimes. Out: at most a given number of them, the newest ones.
//!
//! Honest clients take milliseconds to send or receive what such a task waits for, so an old task most likely belongs
//! to a client that never does. If new tasks had to wait instead, these clients could block all others.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};

use tokio::task::AbortHandle;

use crate::sync::unpoisoned;

/// Tasks of one kind, of which at most `max` run at a time.
pub(in crate::server) struct NewestTasks {
    max: usize,
    running: Mutex<Running>,
}

/// The running tasks, from the oldest to the newest.
#[derive(Default)]
struct Running {
    last_number: u64,
    /// A task has a place before it is spawned, and `None` until then. Otherwise, threads that spawn at the same time
    /// would each find room for the last task.
    tasks: BTreeMap<u64, Option<AbortHandle>>,
}

/// The place of one task among the running tasks. Dropping this value removes the task from them.
pub(in crate::server) struct Place {
    tasks: Arc<NewestTasks>,
    number: u64,
}

impl NewestTasks {
    pub(in crate::server) fn new(max: usize) -> Arc<NewestTasks> {
        Arc::new(NewestTasks { max, running: Mutex::default() })
    }

    #[cfg(any(feature = "metrics", feature = "tls"))]
    pub(in crate::server) fn max(&self) -> usize {
        self.max
    }

    /// Spawns a task. The task must own its place until it ends. Returns whether the oldest task was aborted to make
    /// room.
    pub(in crate::server) fn spawn<F>(self: &Arc<Self>, task: impl FnOnce(Place) -> F) -> bool
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (number, is_aborted) = unpoisoned(&self.running).add(None, self.max);
        // Not under the lock: a runtime that is shutting down drops the task, and with it the place, at once.
        let task = tokio::spawn(task(Place { tasks: Arc::clone(self), number }));
        match unpoisoned(&self.running).tasks.get_mut(&number) {
            Some(handle) => *handle = Some(task.abort_handle()),
            // The task has ended, or has already been replaced by newer ones.
            None => task.abort(),
        }
        is_aborted
    }

    pub(in crate::server) fn abort_oldest(&self, max: usize) {
        let mut running = unpoisoned(&self.running);
        while running.tasks.len() > max {
            running.abort_oldest();
        }
    }
}

impl Running {
    /// Adds a new task. Returns its number, and whether the oldest task was aborted to make room.
    fn add(&mut self, task: Option<AbortHandle>, max: usize) -> (u64, bool) {
        let is_full = self.tasks.len() >= max;
        if is_full {
            self.abort_oldest();
        }
        self.last_number += 1;
        self.tasks.insert(self.last_number, task);
        (self.last_number, is_full)
    }

    fn abort_oldest(&mut self) {
        if let Some((_, Some(oldest))) = self.tasks.pop_first() {
            oldest.abort();
        }
    }
}

impl Place {
    /// Moves the task to the tasks of another kind, as the newest one. Returns whether the oldest of these tasks was
    /// aborted to make room.
    #[cfg(feature = "metrics")]
    pub(in crate::server) fn move_to(&mut self, tasks: &Arc<NewestTasks>) -> bool {
        let task = unpoisoned(&self.tasks.running).tasks.remove(&self.number);
        // Without a place, the task has been aborted, and ends the next time it waits.
        let Some(task) = task else { return false };
        let (number, is_aborted) = unpoisoned(&tasks.running).add(task, tasks.max);
        (self.tasks, self.number) = (Arc::clone(tasks), number);
        is_aborted
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        unpoisoned(&self.tasks.running).tasks.remove(&self.number);
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    fn running(tasks: &NewestTasks) -> Vec<u64> {
        unpoisoned(&tasks.running).tasks.keys().copied().collect()
    }

    /// Each thread has its own runtime, as the workers of a server do.
    #[test]
    fn threads_that_spawn_at_the_same_time_exceed_no_limit() {
        const THREADS: usize = 4;
        let (tasks, barrier) = (NewestTasks::new(5), std::sync::Barrier::new(THREADS));
        let most = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    runtime.block_on(async {
                        for _ in 0..2000 {
                            barrier.wait();
                            tasks.spawn(|place| async move {
                                std::future::pending::<()>().await;
                                drop(place);
                            });
                            barrier.wait();
                            most.fetch_max(running(&tasks).len(), Ordering::Relaxed);
                            tokio::task::yield_now().await;
                        }
                    });
                });
            }
        });
        assert_eq!((most.into_inner(), running(&tasks).len()), (5, 0));
    }

    #[tokio::test]
    async fn the_oldest_task_of_a_kind_is_aborted_for_a_new_one_and_moved_tasks_are_safe_from_it() {
        let (waiting, served) = (NewestTasks::new(3), NewestTasks::new(2));
        let finished = Arc::new(AtomicUsize::new(0));
        let begin = |moves: bool| {
            let (go, gone) = oneshot::channel::<()>();
            let (served, finished) = (Arc::clone(&served), Arc::clone(&finished));
            let is_aborted = waiting.spawn(move |mut place| async move {
                if moves {
                    place.move_to(&served);
                }
                let _ = gone.await;
                finished.fetch_add(1, Ordering::Relaxed);
                drop(place);
            });
            (go, is_aborted)
        };
        let moved = begin(true);
        tokio::task::yield_now().await;
        assert_eq!((running(&waiting), running(&served)), (vec![], vec![1]));
        let others: Vec<_> = (0..10).map(|_| begin(false)).collect();
        assert_eq!(others.iter().map(|(_, is_aborted)| usize::from(*is_aborted)).sum::<usize>(), 7);
        assert_eq!((running(&waiting), running(&served)), (vec![9, 10, 11], vec![1]));
        for (go, _) in others.into_iter().chain([moved]) {
            let _ = go.send(());
        }
        while !running(&waiting).is_empty() || !running(&served).is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(finished.load(Ordering::Relaxed), 4);
    }
}
