//! The thread that decides which generation is served.
//!
//! In: requests, and notifications that a folder or a file has changed. Out: replacements of the current generation,
//! and a log of them and of rejected files.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use super::candidate::{Candidate, Replaces, summary};
use super::control::{Control, ControlChannel, Message};
use super::retained::Retained;
use super::served_table::ServedTable;
use super::watch::{FolderWatch, Identity, Tried};
use super::{Generation, OpenError, Source};
use crate::server::liveness::{Liveness, Thread};
use crate::server::service::Notifier;
use crate::server::statistics::Statistics;
use crate::store::{Mistrust, SETTLE, Writers, reopened};

/// How often to check the path without a notification: notifications can be lost, and some file systems send none.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The running supervisor thread.
pub(in crate::server) struct Supervisor {
    control: Control,
    is_stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Supervisor {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system cannot start the thread.
    pub(in crate::server) fn start(supervised: Supervised, channel: ControlChannel) -> io::Result<Supervisor> {
        let ControlChannel { control, receiver } = channel;
        let retained = Retained::new(supervised.generations_max);
        let thread = Arc::clone(&supervised.liveness.supervisor);
        let is_stopping = Arc::new(AtomicBool::new(false));
        let source = supervised.source.clone().paced(Arc::clone(&thread), Arc::clone(&is_stopping));
        let mut state = Supervision {
            source,
            server: supervised,
            thread: Arc::clone(&thread),
            looked: Instant::now(),
            main_observed: Instant::now(),
            before: None,
            refused: None,
            standing_refusal: None,
            left: None,
            wants: false,
            retained,
            is_asked_to_look: Arc::default(),
            unsettled: None,
            unverified: None,
        };
        state.unverified = state.first_unverified();
        let watch = state.source.watch.then(|| state.watch(control.sender.clone()));
        let run = move || {
            let _watch = watch;
            lower_priority();
            thread.started();
            state.run(&receiver);
        };
        let thread = thread::Builder::new().name("supervisor".to_owned()).spawn(run)?;
        Ok(Supervisor { control, is_stopping, thread })
    }

    /// Cancels the check of a file that is in progress, and ends the thread. Does not wait for it.
    pub(in crate::server) fn cancel(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let _ = self.control.sender.send(Message::Stop);
    }

    /// Waits for the end of the thread.
    pub(in crate::server) fn join(self) {
        // Its panics were logged.
        let _ = self.thread.join();
    }
}

/// The parts of the server that the supervisor uses.
pub(in crate::server) struct Supervised {
    pub(in crate::server) source: Source,
    /// The limit on replaced generations that connections hold.
    pub(in crate::server) generations_max: usize,
    pub(in crate::server) table: Arc<ServedTable>,
    pub(in crate::server) statistics: Arc<Statistics>,
    pub(in crate::server) notifier: Arc<Notifier>,
    pub(in crate::server) liveness: Arc<Liveness>,
    /// Disconnects connections that hold a generation older than this one between turns.
    pub(in crate::server) disconnect_before: Box<dyn Fn(u64) + Send>,
}

/// What the supervisor remembers from one turn to the next.
struct Supervision {
    source: Source,
    server: Supervised,
    thread: Arc<Thread>,
    looked: Instant,
    /// When the beats of the main thread were last checked.
    main_observed: Instant,
    /// The file of the previous generation, which may be unlinked, and its digest.
    before: Option<(File, u128)>,
    /// Files at the path that are not retried without a request: the one that was rejected, and the one that a rollback
    /// replaced.
    refused: Option<Tried>,
    left: Option<Identity>,
    /// The file at the path whose rejection is reported.
    standing_refusal: Option<Tried>,
    /// Whether the last file was rejected for a reason that can pass without a change of the file, and is therefore
    /// retried: see [`OpenError::is_for_want`].
    wants: bool,
    retained: Retained,
    /// Whether a check of the path is requested and has not begun.
    is_asked_to_look: Arc<AtomicBool>,
    /// The time from the last check of the path to the next one, if the file there was written to a moment ago.
    unsettled: Option<Duration>,
    /// The next block of the current generation to verify in the background. `None` if all blocks are verified, or if
    /// blocks are not verified in the background.
    unverified: Option<usize>,
}

impl Supervision {
    fn run(mut self, receiver: &Receiver<Message>) {
        let thread = Arc::clone(&self.thread);
        loop {
            let asked = receiver.recv_timeout(self.patience());
            thread.beat();
            if matches!(asked, Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected)) {
                return;
            }
            // A panic ends this turn. The current generation stays.
            let _ = thread.catch(|| self.turn(asked.ok()));
        }
    }

    fn current(&self) -> Arc<Generation> {
        self.server.table.current()
    }

    fn turn(&mut self, asked: Option<Message>) {
        if self.main_observed.elapsed() >= LOOK_EVERY {
            self.main_observed = Instant::now();
            self.server.liveness.second_passed_for_main();
        }
        match asked {
            Some(Message::Reload(number)) => self.attempt(number, Supervision::reload),
            Some(Message::Rollback(number)) => self.attempt(number, Supervision::rollback),
            Some(Message::Look | Message::Changed) => self.look(),
            Some(Message::Stop) => {}
            None if self.looked.elapsed() >= self.look_after() => self.look(),
            None => {}
        }
        self.verify_some();
        self.release();
    }

    /// Returns how long to wait for messages.
    fn patience(&self) -> Duration {
        let until_look = self.look_after().saturating_sub(self.looked.elapsed());
        let until_look = until_look.min(self.server.liveness.beat_every());
        match self.retained.patience() {
            _ if self.unverified.is_some() => Duration::ZERO,
            Some(patience) => until_look.min(patience),
            None => until_look,
        }
    }

    fn look_after(&self) -> Duration {
        self.unsettled.unwrap_or(LOOK_EVERY)
    }

    fn watch(&self, sender: Sender<Message>) -> Option<FolderWatch> {
        let path = &self.source.path;
        let is_asked = Arc::clone(&self.is_asked_to_look);
        let thread = Arc::clone(&self.server.liveness.folder_watch);
        let end = EndReport(Arc::clone(&thread));
        let call = move || {
            // One check at a time is requested, however many events there are in the folder.
            if !is_asked.swap(true, Ordering::AcqRel) {
                // Fails only if the supervisor has ended.
                let _ = sender.send(Message::Look);
            }
        };
        let watch = FolderWatch::new(path, move || {
            let _ = end.0.catch(&call);
        });
        watch
            .inspect(|_| thread.started())
            .inspect_err(|error| {
                warn!(
                    "{}: cannot be watched: {error}: it is checked every {} s instead",
                    path.display(),
                    LOOK_EVERY.as_secs()
                );
            })
            .ok()
    }

    /// Serves the file at the path if it is a new one, and checks the current file again if it was changed in place.
    fn look(&mut self) {
        // Set first, so that a check that panics is not repeated too early.
        self.looked = Instant::now();
        self.is_asked_to_look.store(false, Ordering::Release);
        self.unsettled = None;
        let current = self.current();
        let is_trusted = current.store.is_trusted();
        for block in current.store.take_damaged_blocks() {
            self.server.statistics.totals.faults.fetch_add(1, Ordering::Relaxed);
            error!(
                generation = current.number,
                "{}: block {block} of the records is damaged: lookups of its keys fail: bake or copy the file again",
                self.source.path.display()
            );
        }
        if is_trusted {
            current.store.lease();
        } else {
            self.report_change();
        }
        if self.standing_refusal.is_some() && self.standing_refusal != Tried::at(&self.source.path).ok() {
            self.report_standing_refusal(None, String::new());
        }
        if (self.source.watch || !is_trusted) && self.has_new_file() {
            let wants = self.wants;
            let outcome = self.reload();
            // A file that is retried until the reason of its rejection has passed is reported once.
            if !(wants && self.wants) {
                let text = self.tell(outcome);
                self.server.notifier.status(&text);
            }
        }
        if !self.current().store.is_trusted() {
            self.look_again();
        }
        self.looked = Instant::now();
    }

    /// Returns whether there is a file at the path that was not tried yet and that no process is writing to.
    fn has_new_file(&mut self) -> bool {
        // While a file is replaced, there may be none for a moment.
        let Ok(identity) = Identity::at(&self.source.path) else { return false };
        let is_refused = || self.refused.is_some() && self.refused == Tried::at(&self.source.path).ok();
        let is_new = identity != self.current().identity && Some(identity) != self.left && !is_refused();
        self.unsettled = if is_new { identity.unsettled() } else { None };
        // The process that writes to the file in place may not be finished.
        if is_new && identity.is_same_file(&self.current().identity) && self.current().store.writers() == Writers::Some
        {
            self.unsettled = Some(SETTLE);
        }
        is_new && self.unsettled.is_none()
    }

    fn report_change(&self) {
        if self.server.table.set_changed(true) {
            self.server.statistics.totals.faults.fetch_add(1, Ordering::Relaxed);
            error!(
                generation = self.current().number,
                "{}: was changed in place, or a process opened it for writing: every request gets an error until the file \
                 was checked again; put new files in place by rename",
                self.source.path.display()
            );
        }
    }

    /// Checks a file that was changed in place, and trusts it again if its index is intact. Otherwise serves the file
    /// at the path as a new generation, if it passes the checks.
    fn look_again(&mut self) {
        // Reports the change before the lease is taken again, because direct clients would otherwise trust the new
        // lease.
        self.report_change();
        let Ok(identity) = Identity::from_file(&self.current().file) else { return };
        if let Some(left) = identity.unsettled() {
            self.unsettled = Some(left);
            return;
        }
        match self.current().store.look_again_at(&self.source.plan.options.pace) {
            Ok(()) if self.current().store.is_trusted() => {
                self.unverified = self.first_unverified();
                self.server.table.set_changed(false);
                warn!(
                    generation = self.current().number,
                    "{}: serving again: each block is verified again",
                    self.source.path.display()
                );
            }
            // The system does not report the end of a write in progress.
            Ok(()) | Err(Mistrust::Changing) => self.unsettled = Some(SETTLE),
            Err(Mistrust::Canceled) => {}
            Err(_) if self.may_try_again() => {
                let outcome = self.reload();
                let text = self.tell(outcome);
                self.server.notifier.status(&text);
            }
            Err(_) => {}
        }
    }

    /// Returns whether the file at the path is the one that is served, and was not rejected since it last changed.
    fn may_try_again(&self) -> bool {
        let path = &self.source.path;
        Identity::at(path).is_ok_and(|identity| identity.is_same_file(&self.current().identity))
            && (self.refused.is_none() || self.refused != Tried::at(path).ok())
    }

    /// Performs a requested replacement, and reports the outcome to the clients that requested it.
    fn attempt(&mut self, number: u64, how: impl FnOnce(&mut Supervision) -> Result<String, String>) {
        self.server.notifier.reloading();
        let thread = Arc::clone(&self.thread);
        let outcome = thread.catch(|| how(self)).unwrap_or_else(|panic| Err(format!("a panic at {panic}")));
        let text = self.tell(outcome);
        self.server.notifier.ready(&text);
        let totals = &self.server.statistics.totals;
        *totals.reload_last.lock().unwrap_or_else(PoisonError::into_inner) = text;
        // Two requests that are sent at the same time may arrive in the other order.
        totals.reload_done.fetch_max(number, Ordering::Release);
    }

    fn tell(&self, outcome: Result<String, String>) -> String {
        match outcome {
            Ok(text) => text,
            Err(problem) => {
                self.server.statistics.totals.refused_files.fetch_add(1, Ordering::Relaxed);
                let problem = format!("refused: {problem}: generation {} serves on", self.current().number);
                error!(generation = self.current().number, "{problem}");
                problem
            }
        }
    }

    /// Reports why the file at the path is not served, until there is another file. `None` ends the report.
    fn report_standing_refusal(&mut self, refused: Option<Tried>, reason: String) {
        self.standing_refusal = refused;
        *self.server.statistics.totals.file_refused.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Serves the file at the path. Returns a description of the outcome.
    fn reload(&mut self) -> Result<String, String> {
        let path = self.source.path.clone();
        let started = Instant::now();
        let there = Identity::at(&path).ok();
        if there == Some(self.current().identity) && self.current().store.is_trusted() {
            return Ok(format!("{}: already served by generation {}", path.display(), self.current().number));
        }
        // Set first: if the check panics, the file is not retried without a request.
        let tried = Tried::at(&path).ok();
        self.refused = tried;
        match self.source.plan.open(&path, Replaces::Table(summary(&self.current().store))) {
            Ok(candidate) => {
                (self.refused, self.left, self.wants) = (None, None, false);
                Ok(self.swap(candidate, started))
            }
            Err(error) if error.is_canceled() => {
                info!("{error}: the server stops");
                Ok(format!("{error}: the server stops"))
            }
            Err(error) => {
                if let OpenError::Panic { panic, .. } = &error {
                    self.thread.panicked(panic);
                }
                self.wants = error.is_for_want();
                if self.wants {
                    self.refused = None;
                }
                // A missing file is not a rejected one.
                let reason = tried.map(|_| format!("refused: {error}")).unwrap_or_default();
                self.report_standing_refusal(tried, reason);
                Err(error.to_string())
            }
        }
    }

    /// Serves the previous generation.
    fn rollback(&mut self) -> Result<String, String> {
        let started = Instant::now();
        let path = self.source.path.clone();
        let Some((file, digest)) = &self.before else {
            // This is not counted as a rejected file.
            return Ok("refused: there is no generation before this one since the server was started".to_owned());
        };
        // The file is opened again, because a lease belongs to an open file description, and a generation that ends
        // releases its lease.
        let file = reopened(file).map_err(|error| format!("the file of the previous generation: {error}"))?;
        let candidate = match self.source.plan.open_file(file, &path, Replaces::Rollback) {
            Ok(candidate) => candidate,
            Err(error) if error.is_canceled() => return Ok(format!("{error}: the server stops")),
            Err(error) => return Err(error.to_string()),
        };
        if candidate.store.digest() != *digest {
            return Err("the file of the previous generation was overwritten in place: bake its table again".to_owned());
        }
        // If the current file is still at the path, it must not be served again without a request. Otherwise the file
        // there is new.
        if Identity::at(&path).ok() == Some(self.current().identity) {
            self.left = Some(self.current().identity);
        }
        self.server.statistics.totals.rollbacks.fetch_add(1, Ordering::Relaxed);
        Ok(self.swap(candidate, started))
    }

    /// Replaces the current generation.
    fn swap(&mut self, candidate: Candidate, started: Instant) -> String {
        let new = Arc::new(self.source.generation_of(candidate, self.current().number + 1));
        // The rejection of an older file is cleared first, so that no client sees it together with the new generation.
        self.report_standing_refusal(None, String::new());
        let old = self.server.table.replace(&new);
        self.server.table.set_changed(false);
        self.server.statistics.totals.swaps.fetch_add(1, Ordering::Relaxed);
        self.unverified = self.first_unverified();
        self.before = old.file.try_clone().ok().map(|file| (file, old.store.digest()));
        self.retained.add(old);
        let Generation { number, store, .. } = &*new;
        info!(
            generation = number,
            digest = format!("{:032x}", store.digest()),
            rows = store.len(),
            "serving generation {number}, opened in {:.3} s",
            started.elapsed().as_secs_f64()
        );
        format!("generation {number} serves")
    }

    /// Closes replaced generations that nothing refers to, and disconnects connections that hold generations beyond the
    /// limit.
    fn release(&mut self) {
        let retained = self.retained.release();
        self.server.statistics.totals.generations_retained.store(retained as u64, Ordering::Relaxed);
        if let Some(number) = self.retained.oldest_allowed() {
            (self.server.disconnect_before)(number);
        }
    }

    fn first_unverified(&self) -> Option<usize> {
        self.source.plan.background.then_some(0)
    }

    /// Verifies the next blocks, if all blocks are to be verified in the background.
    fn verify_some(&mut self) {
        const BLOCKS: usize = 256;
        let Some(first) = self.unverified else { return };
        // Set first: blocks whose verification panics are not verified again.
        self.unverified = Some(first + BLOCKS);
        let current = self.current();
        let is_over = (first..first + BLOCKS).any(|block| current.store.verify_block(block).is_none());
        if !is_over {
            return;
        }
        self.unverified = None;
        let (blocks, sound) = current.store.block_counts();
        info!(generation = current.number, "{sound} of {blocks} blocks are intact");
        self.look();
    }
}

/// Reports the end of the thread that owns it.
struct EndReport(Arc<Thread>);

impl Drop for EndReport {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// Lowers the priority of this thread below the workers'.
fn lower_priority() {
    const NICE: i32 = 10;
    // On Linux, this sets the priority of one thread. If it fails, the priority stays.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}
