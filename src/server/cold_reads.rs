//! Threads that read the pages of lookups from the disk, so that workers do not wait for it.
//!
//! In: lookups in a table that does not fit into memory. Out: a wake-up of the connection that waits for them, once the
//! pages of all of them were read. The threads take a few lookups at a time from each waiting connection in turn, so a
//! connection with one lookup does not wait until all lookups of another connection are done. The number of threads,
//! and the number of lookups that a thread takes at a time, limit how many reads the disk has to do at the same time.
//!
//! Reasons and evidence: `docs/decisions/cold-reads.md`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};

use tracing::{error, warn};

use super::process::log_queue::LogLimit;
use super::process::panics;
use super::table::PinnedGeneration;
use crate::format::OwnedKey;
use crate::store::ColdLookup;
use crate::sync::unpoisoned;

/// The number of threads that read pages. With 16 threads, a disk does nearly as many random reads as it can.
const THREADS: usize = 16;
/// The maximum number of lookups whose pages a thread reads at the same time.
const CHUNK_LOOKUPS_MAX: usize = 8;
/// The length of a thread's stack. The signal handler for pages that cannot be read runs on this stack, too.
const STACK_LEN_BYTES: usize = 256 << 10;

struct Batch {
    generation: PinnedGeneration,
    lookups: Vec<ColdLookup<OwnedKey>>,
    /// The number of lookups whose pages are not read yet.
    left: AtomicUsize,
    is_canceled: AtomicBool,
    /// Wakes the connection once no lookup is left.
    waker: Mutex<Option<Waker>>,
}

impl Batch {
    fn read(&self, lookups: &[ColdLookup<OwnedKey>]) {
        if !self.is_canceled.load(Ordering::Relaxed) {
            self.generation.store.read_for(lookups);
        }
    }

    /// Counts lookups whose pages were read. Wakes the connection after the last one.
    fn finish(&self, count: usize) {
        if self.left.fetch_sub(count, Ordering::AcqRel) == count
            && let Some(waker) = unpoisoned(&self.waker).take()
        {
            waker.wake();
        }
    }
}

/// A connection's wait for the pages of its lookups. Dropping it cancels the reads that have not begun.
pub(super) struct ColdWait(Arc<Batch>);

impl ColdWait {
    pub(super) fn lookup_count(&self) -> usize {
        self.0.lookups.len()
    }

    /// Returns `Ready` once the pages of all lookups were read. Otherwise, wakes the task when they are.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        *unpoisoned(&self.0.waker) = Some(cx.waker().clone());
        // The waker is stored before the count is read. Otherwise, the last read could finish in between, and nobody
        // would wake the task.
        match self.0.left.load(Ordering::Acquire) {
            0 => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}

impl Drop for ColdWait {
    fn drop(&mut self) {
        self.0.is_canceled.store(true, Ordering::Relaxed);
    }
}

/// The batches that are not completely taken, each with the number of lookups that threads have taken.
#[derive(Default)]
struct Queue {
    batches: VecDeque<(Arc<Batch>, usize)>,
    /// The number of lookups that no thread has taken.
    lookup_count: usize,
    idle_threads: usize,
    is_stopping: bool,
}

impl Queue {
    fn add(&mut self, batch: Arc<Batch>) {
        self.lookup_count += batch.lookups.len();
        self.batches.push_back((batch, 0));
    }

    /// Takes lookups of the next batch.
    fn take(&mut self) -> Option<(Arc<Batch>, std::ops::Range<usize>)> {
        let (batch, start) = self.batches.pop_front()?;
        // If few lookups wait, each thread takes one, so that all of them are read at the same time.
        let share = self.lookup_count.div_ceil(THREADS).clamp(1, CHUNK_LOOKUPS_MAX);
        let end = batch.lookups.len().min(start + share);
        self.lookup_count -= end - start;
        // The rest waits behind the lookups of other connections.
        if end < batch.lookups.len() {
            self.batches.push_back((Arc::clone(&batch), end));
        }
        Some((batch, start..end))
    }
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Notified when a batch is added, and when the threads must end.
    changed: Condvar,
    panic_log: LogLimit,
    /// While a test holds this lock, the threads take lookups, but read nothing, like threads that wait for a slow
    /// disk.
    #[cfg(all(test, feature = "bake"))]
    slow_disk: Mutex<()>,
}

impl Shared {
    /// Reads pages until the threads must end.
    fn run(&self) {
        while let Some((batch, taken)) = self.next() {
            let lookups = &batch.lookups[taken];
            #[cfg(all(test, feature = "bake"))]
            drop(unpoisoned(&self.slow_disk));
            if let Err(panic) = panics::catch(|| batch.read(lookups))
                && let Some(left_out) = self.panic_log.line()
            {
                error!(left_out, "a bug in the server: panic while pages were read: {panic}");
            }
            // After a panic, the lookups read the pages themselves.
            batch.finish(lookups.len());
        }
    }

    /// Waits for lookups. Returns `None` if the threads must end.
    fn next(&self) -> Option<(Arc<Batch>, std::ops::Range<usize>)> {
        let mut queue = unpoisoned(&self.queue);
        while !queue.is_stopping {
            if let Some(taken) = queue.take() {
                return Some(taken);
            }
            queue.idle_threads += 1;
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle_threads -= 1;
        }
        None
    }
}

/// The threads that read pages for all workers of a server. They are started when the first lookup waits for the disk.
#[derive(Default)]
pub(super) struct ColdReads {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl ColdReads {
    /// Begins to read the pages of lookups in a generation.
    pub(super) fn begin(&self, generation: PinnedGeneration, lookups: Vec<ColdLookup<OwnedKey>>) -> ColdWait {
        let left = if self.start() { lookups.len() } else { 0 };
        let batch = Arc::new(Batch {
            generation,
            lookups,
            left: AtomicUsize::new(left),
            is_canceled: AtomicBool::new(false),
            waker: Mutex::default(),
        });
        if left > 0 {
            let mut queue = unpoisoned(&self.shared.queue);
            queue.add(Arc::clone(&batch));
            let woken = queue.idle_threads.min(left);
            drop(queue);
            (0..woken).for_each(|_| self.shared.changed.notify_one());
        }
        ColdWait(batch)
    }

    /// Starts the threads, unless they run. Returns whether at least one thread runs.
    fn start(&self) -> bool {
        let mut threads = unpoisoned(&self.threads);
        if threads.is_empty() && !unpoisoned(&self.shared.queue).is_stopping {
            let start = |number: usize| {
                let shared = Arc::clone(&self.shared);
                let thread = thread::Builder::new().name(format!("reader-{number}")).stack_size(STACK_LEN_BYTES);
                thread.spawn(move || shared.run())
            };
            threads.extend((0..THREADS).map_while(|number| {
                let cannot = |error: &_| {
                    warn!("a thread that reads pages cannot be started: {error}: lookups wait longer for the disk");
                };
                start(number).inspect_err(cannot).ok()
            }));
        }
        !threads.is_empty()
    }

    /// Makes all reads wait until the result is dropped.
    #[cfg(all(test, feature = "bake"))]
    pub(super) fn delay(&self) -> std::sync::MutexGuard<'_, ()> {
        unpoisoned(&self.shared.slow_disk)
    }

    /// Returns whether lookups wait for the threads, or threads read.
    #[cfg(all(test, feature = "bake"))]
    pub(super) fn is_reading(&self) -> bool {
        let queue = unpoisoned(&self.shared.queue);
        !queue.batches.is_empty() || queue.idle_threads < unpoisoned(&self.threads).len()
    }

    #[cfg(all(test, feature = "bake"))]
    pub(super) fn thread_count(&self) -> usize {
        Arc::strong_count(&self.shared) - 1
    }

    /// Ends the threads, and waits until they have ended. Later reads are left to the lookups.
    pub(super) fn stop(&self) {
        unpoisoned(&self.shared.queue).is_stopping = true;
        self.shared.changed.notify_all();
        for thread in std::mem::take(&mut *unpoisoned(&self.threads)) {
            // A panic outside of `panics::catch` was already printed.
            let _ = thread.join();
        }
    }
}
