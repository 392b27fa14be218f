//! Liveness of the server's threads and long-running tasks.
//!
//! In: beats (reports of progress), panics, and ends of threads. Out: descriptions of the threads that have a problem,
//! for Info, the metrics, and the service manager's watchdog. A panic ends one unit of a thread's work, not the thread.

use std::fmt::Write;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use tracing::{error, warn};

use super::log_queue::LogLimit;
use super::{Notifier, panics};
use crate::counted::counted;
use crate::sync::unpoisoned;

/// The time between two beats (reports of progress) of a thread, unless the watchdog requires more frequent beats.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// The number of beats (reports of progress) within the watchdog's time-out.
const BEATS_PER_WATCHDOG: u32 = 8;
/// The number of seconds without progress after which a thread is reported as stuck. No unit of work takes this long,
/// even on a slow disk.
const STUCK_AFTER_S: u32 = 30;
/// The number of panics after which a thread is reported as failing. Each minute without a panic subtracts one panic.
const PANICS_MAX: u32 = 3;
const PANIC_FORGIVEN_AFTER_S: u32 = 60;
/// How long a task that panicked waits before it runs again.
const RESTART_AFTER: Duration = Duration::from_millis(100);

/// The thread that renews and releases leases. It belongs to the process and not to one server.
pub(in crate::server) static LEASES: LazyLock<Arc<Thread>> = LazyLock::new(|| Arc::new(Thread::new("leases", true)));

/// Returns the time between two beats (reports of progress) of a thread. `watchdog` is the time-out after which the
/// service manager considers the server hung.
pub(in crate::server) fn beat_every(watchdog: Option<Duration>) -> Duration {
    let timeout = watchdog.filter(|timeout| !timeout.is_zero());
    timeout.map_or(BEAT_EVERY, |timeout| BEAT_EVERY.min(timeout / BEATS_PER_WATCHDOG))
}

/// The liveness of one thread, or of one task that runs as long as the server.
pub(in crate::server) struct Thread {
    name: String,
    /// Whether the thread must record beats (reports of progress). A task need not record beats, because the thread
    /// that runs the task does.
    beats_expected: bool,
    is_running: AtomicBool,
    has_ended: AtomicBool,
    beats: AtomicU64,
    beats_observed: AtomicU64,
    silent_s: AtomicU32,
    panics: AtomicU64,
    panics_recent: AtomicU32,
    seconds_since_panic: AtomicU32,
    last_panic: Mutex<String>,
    panics_logged: LogLimit,
}

impl Thread {
    fn new(name: impl Into<String>, beats_expected: bool) -> Thread {
        Thread {
            name: name.into(),
            beats_expected,
            is_running: AtomicBool::default(),
            has_ended: AtomicBool::default(),
            beats: AtomicU64::default(),
            beats_observed: AtomicU64::default(),
            silent_s: AtomicU32::default(),
            panics: AtomicU64::default(),
            panics_recent: AtomicU32::default(),
            seconds_since_panic: AtomicU32::default(),
            last_panic: Mutex::default(),
            panics_logged: LogLimit::default(),
        }
    }

    pub(in crate::server) fn name(&self) -> &str {
        &self.name
    }

    /// Records that the thread runs. After this call, the thread is reported as stuck if it must report progress but
    /// does not.
    pub(in crate::server) fn started(&self) {
        self.is_running.store(true, Ordering::Relaxed);
    }

    /// Records that the thread ended although the server continues. Has no effect on a thread that was not started.
    pub(in crate::server) fn ended(&self) {
        if self.is_running.swap(false, Ordering::Relaxed) {
            self.has_ended.store(true, Ordering::Relaxed);
        }
    }

    /// Records that the thread makes progress.
    pub(in crate::server) fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Records progress at regular intervals as long as the runtime polls its tasks. Never returns.
    pub(in crate::server) async fn keep_beating(&self, beat_every: Duration) {
        loop {
            self.beat();
            tokio::time::sleep(beat_every).await;
        }
    }

    /// Runs one unit of the thread's work.
    ///
    /// # Errors
    /// The location and the message of a panic, which is logged and counted.
    pub(in crate::server) fn catch<T>(&self, work: impl FnOnce() -> T) -> Result<T, String> {
        panics::catch(work).inspect_err(|panic| self.panicked(panic))
    }

    /// Runs a task, and restarts it after each panic.
    pub(in crate::server) async fn keep<T, F: Future<Output = T>>(&self, task: impl Fn() -> F) -> T {
        loop {
            match self.catch_in(task()).await {
                Ok(done) => return done,
                Err(_) => tokio::time::sleep(RESTART_AFTER).await,
            }
        }
    }

    /// Polls a future until it is ready or panics.
    ///
    /// # Errors
    /// The location and the message of a panic: see [`Thread::catch`].
    pub(in crate::server) async fn catch_in<T>(&self, future: impl Future<Output = T>) -> Result<T, String> {
        panics::catch_in(future).await.inspect_err(|panic| self.panicked(panic))
    }

    /// Logs and counts a panic that was caught elsewhere.
    pub(in crate::server) fn panicked(&self, panic: &str) {
        self.panics.fetch_add(1, Ordering::Relaxed);
        self.panics_recent.fetch_add(1, Ordering::Relaxed);
        self.seconds_since_panic.store(0, Ordering::Relaxed);
        *unpoisoned(&self.last_panic) = panic.to_owned();
        if let Some(left_out) = self.panics_logged.line() {
            error!(thread = self.name, left_out, "panic in the {} thread, which continues: {panic}", self.name);
        }
    }

    pub(in crate::server) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Records that a second has passed. Time is measured by counting these calls, not with a clock, so that no thread
    /// is reported as stuck after the whole process was suspended.
    fn second_passed(&self) {
        let beats = self.beats.load(Ordering::Relaxed);
        let is_silent = self.beats_observed.swap(beats, Ordering::Relaxed) == beats;
        let silent_s = if is_silent { self.silent_s.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        self.silent_s.store(silent_s, Ordering::Relaxed);
        if self.seconds_since_panic.fetch_add(1, Ordering::Relaxed) + 1 >= PANIC_FORGIVEN_AFTER_S {
            self.seconds_since_panic.store(0, Ordering::Relaxed);
            let forgiven = |recent: u32| recent.checked_sub(1);
            let _ = self.panics_recent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, forgiven);
        }
    }

    /// Returns a description of the thread's problem, or `None` if it has none.
    pub(in crate::server) fn problem(&self) -> Option<String> {
        let (name, silent_s) = (&self.name, self.silent_s.load(Ordering::Relaxed));
        let mut problem = if self.has_ended.load(Ordering::Relaxed) {
            format!("the {name} thread has ended")
        } else if self.is_running.load(Ordering::Relaxed) && self.beats_expected && silent_s >= STUCK_AFTER_S {
            format!("the {name} thread has made no progress for {silent_s} s")
        } else if self.panics_recent.load(Ordering::Relaxed) >= PANICS_MAX {
            format!("the {name} thread has panicked {}", counted(self.panics(), "time"))
        } else {
            return None;
        };
        let last_panic = unpoisoned(&self.last_panic);
        if !last_panic.is_empty() {
            let _ = write!(problem, ", most recently at {last_panic}");
        }
        Some(problem)
    }
}

pub(in crate::server) struct Liveness {
    /// The main thread, which accepts connections and runs the tasks `residency` and `metrics`.
    pub(in crate::server) main: Arc<Thread>,
    pub(in crate::server) supervisor: Arc<Thread>,
    pub(in crate::server) folder_watch: Arc<Thread>,
    pub(in crate::server) residency: Arc<Thread>,
    pub(in crate::server) metrics: Arc<Thread>,
    pub(in crate::server) handshakes: Arc<Thread>,
    leases: Arc<Thread>,
    workers: Box<[Arc<Thread>]>,
    /// The time-out after which the service manager considers the server hung.
    watchdog: Option<Duration>,
}

impl Liveness {
    /// Creates the liveness records of a server's threads. `notifies` states whether the server notifies the service
    /// manager. If it does not, the watchdog is ignored.
    pub(in crate::server) fn new(workers: usize, notifies: bool) -> Liveness {
        let thread = |name, beats_expected| Arc::new(Thread::new(name, beats_expected));
        Liveness {
            main: thread("main", true),
            supervisor: thread("supervisor", true),
            folder_watch: thread("folder watch", false),
            residency: thread("residency", false),
            metrics: thread("metrics", false),
            handshakes: thread("handshakes", true),
            leases: Arc::clone(&LEASES),
            workers: (0..workers).map(|number| Arc::new(Thread::new(format!("worker-{number}"), true))).collect(),
            watchdog: sd_notify::watchdog_enabled().filter(|timeout| notifies && !timeout.is_zero()),
        }
    }

    pub(in crate::server) fn worker(&self, number: usize) -> &Arc<Thread> {
        &self.workers[number]
    }

    pub(in crate::server) fn threads(&self) -> impl Iterator<Item = &Arc<Thread>> {
        let Liveness { main, supervisor, folder_watch, residency, metrics, handshakes, leases, workers, watchdog: _ } =
            self;
        [main, supervisor, folder_watch, residency, metrics, handshakes, leases].into_iter().chain(workers)
    }

    pub(in crate::server) fn beat_every(&self) -> Duration {
        beat_every(self.watchdog)
    }

    /// Returns a description of each problem of the server's threads.
    pub(in crate::server) fn problems(&self) -> Vec<String> {
        self.threads().filter_map(|thread| thread.problem()).collect()
    }

    /// Records for the main thread that a second has passed. Another thread must call this method once a second.
    pub(in crate::server) fn second_passed_for_main(&self) {
        self.main.second_passed();
    }

    /// Once per second, records for every thread except the main thread that a second has passed. Never returns.
    pub(in crate::server) async fn count_seconds(&self) {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let others = self.threads().filter(|thread| !Arc::ptr_eq(thread, &self.main));
            others.for_each(|thread| thread.second_passed());
        }
    }

    /// Notifies the service manager twice per watchdog time-out that the server is alive, unless a thread has made no
    /// progress since the last check. Never returns.
    pub(in crate::server) async fn notify_watchdog(&self, notifier: &Notifier) {
        let Some(timeout) = self.watchdog else { return std::future::pending().await };
        let mut beats_seen = vec![0; self.threads().count()];
        loop {
            tokio::time::sleep(timeout / 2).await;
            match self.silent_since(&mut beats_seen) {
                Some(thread) => warn!(
                    thread = thread.name,
                    "the {} thread makes no progress: the service manager gets no watchdog notification", thread.name
                ),
                None => notifier.alive(),
            }
        }
    }

    /// Returns a thread that should have made progress since the last call but has not, if there is one. `beats_seen`
    /// stores each thread's number of beats (reports of progress) at the last call.
    fn silent_since(&self, beats_seen: &mut [u64]) -> Option<&Thread> {
        let mut silent = None;
        for (thread, seen) in self.threads().zip(beats_seen) {
            let beats = thread.beats.load(Ordering::Relaxed);
            let is_running = thread.is_running.load(Ordering::Relaxed);
            let must_beat = thread.beats_expected && (is_running || thread.has_ended.load(Ordering::Relaxed));
            if must_beat && beats == std::mem::replace(seen, beats) {
                silent = Some(&**thread);
            }
        }
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass_seconds(thread: &Thread, count: u32) {
        (0..count).for_each(|_| thread.second_passed());
    }

    #[test]
    fn a_thread_without_a_beat_is_stuck_until_it_beats_again() {
        let thread = Thread::new("t", true);
        pass_seconds(&thread, STUCK_AFTER_S);
        assert_eq!(thread.problem(), None, "it was not started");
        thread.started();
        thread.beat();
        pass_seconds(&thread, STUCK_AFTER_S);
        assert_eq!(thread.problem(), None);
        pass_seconds(&thread, 1);
        let problem = thread.problem().unwrap();
        assert_eq!(problem, format!("the t thread has made no progress for {STUCK_AFTER_S} s"));
        thread.beat();
        pass_seconds(&thread, 1);
        assert_eq!(thread.problem(), None);
    }

    #[test]
    fn repeated_panics_are_a_problem_until_a_minute_without_one_has_passed() {
        panics::install_hook();
        let thread = Thread::new("t", false);
        thread.started();
        for count in 1..=PANICS_MAX {
            assert_eq!(thread.problem(), None, "{} panics", count - 1);
            let caught: Result<(), String> = thread.catch(|| panic!("number {count}"));
            assert!(caught.unwrap_err().ends_with(&format!(": number {count}")));
        }
        let problem = thread.problem().unwrap();
        assert!(problem.starts_with("the t thread has panicked 3 times, most recently at src/"), "{problem}");
        pass_seconds(&thread, PANIC_FORGIVEN_AFTER_S - 1);
        assert!(thread.problem().is_some());
        pass_seconds(&thread, 1);
        assert_eq!((thread.problem(), thread.panics()), (None, u64::from(PANICS_MAX)));
    }

    #[test]
    fn a_thread_that_has_ended_is_a_problem() {
        let thread = Thread::new("t", false);
        thread.ended();
        assert_eq!(thread.problem(), None, "it was not started");
        thread.started();
        thread.ended();
        assert_eq!(thread.problem().unwrap(), "the t thread has ended");
    }

    #[test]
    fn a_task_that_panics_runs_again() {
        panics::install_hook();
        let (thread, runs) = (Thread::new("t", false), AtomicU32::default());
        let task = || async {
            tokio::task::yield_now().await;
            let run = runs.fetch_add(1, Ordering::Relaxed);
            assert!(run == 2, "run {run}");
            run
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        assert_eq!((runtime.block_on(thread.keep(task)), thread.panics()), (2, 2));
    }

    #[test]
    fn the_watchdog_is_not_notified_while_a_thread_is_silent_or_has_ended() {
        let liveness = Liveness::new(1, false);
        let beating = [&liveness.main, &liveness.supervisor, liveness.worker(0)];
        beating.iter().for_each(|thread| thread.started());
        liveness.metrics.started();
        let mut seen = vec![0; liveness.threads().count()];
        let mut silent = || liveness.silent_since(&mut seen).map(|thread| thread.name.clone());
        for silent_thread in beating {
            beating.iter().for_each(|thread| thread.beat());
            assert_eq!(silent(), None);
            beating.iter().filter(|thread| !Arc::ptr_eq(thread, silent_thread)).for_each(|thread| thread.beat());
            assert_eq!(silent().as_deref(), Some(silent_thread.name()));
        }
        liveness.supervisor.ended();
        beating.iter().filter(|thread| thread.name() != "supervisor").for_each(|thread| thread.beat());
        assert_eq!(silent().as_deref(), Some("supervisor"));
    }
}
