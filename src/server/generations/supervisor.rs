//! The thread that keeps the right generation in service.
//!
//! In: requests, and word that a folder or a file has changed. Out: workers that
//! answer from another generation, and a log of what was done and why not.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use super::candidate::{Candidate, Replaces, summary};
use super::control::{Control, Message, Told};
use super::retained::Retained;
use super::watch::{FolderWatch, Identity, SETTLE, Tried};
use super::{Generation, OpenError, Source};
use crate::server::liveness::Thread;
use crate::server::shared::Serving;
use crate::store::{Mistrust, Pace, Writers, reopened};

/// How often to look without being asked: word of a change can be missed, and some
/// file systems send none.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long a server that starts waits for processes that have its file open for writing.
const WRITERS_PATIENCE: Duration = Duration::from_secs(2);

impl Source {
    /// The first generation.
    pub(in crate::server) fn open(&self) -> Result<Generation, OpenError> {
        let (started, mut is_waiting) = (Instant::now(), false);
        let candidate = loop {
            match self.plan.open(&self.path, Replaces::Nothing) {
                Err(OpenError::Writer { path }) if started.elapsed() < WRITERS_PATIENCE => {
                    if !std::mem::replace(&mut is_waiting, true) {
                        let patience_s = WRITERS_PATIENCE.as_secs();
                        info!(
                            "{}: waiting {patience_s} s for the processes that have it open for writing",
                            path.display()
                        );
                    }
                }
                opened => break opened?,
            }
        };
        if candidate.store.is_empty() {
            warn!(
                "{}: the table has no rows: check its input, or pass --min-rows to reject such a table",
                self.path.display()
            );
        }
        Ok(self.generation_of(candidate, 1))
    }

    /// Beats with each window of work on a file, and cancels the work when the server stops.
    fn paced(mut self, thread: Arc<Thread>, is_stopping: Arc<AtomicBool>) -> Source {
        let configured = std::mem::take(&mut self.plan.options.pace);
        self.plan.options.pace = Pace::new(move || {
            thread.beat();
            !is_stopping.load(Ordering::Relaxed) && configured.goes_on()
        });
        self
    }

    fn generation_of(&self, candidate: Candidate, number: u64) -> Generation {
        let Candidate { store, file, identity, writers } = candidate;
        let shared = if self.direct { store.share() } else { Ok(None) };
        let shared = shared.unwrap_or_else(|error| {
            warn!("clients cannot look up in generation {number} themselves: {error}");
            None
        });
        Generation { number, store, shared, file, identity, writers }
    }
}

/// The running thread.
pub(in crate::server) struct Supervisor {
    control: Control,
    is_stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Supervisor {
    pub(in crate::server) fn start(source: Source, serving: Arc<Serving>, told: Told) -> io::Result<Supervisor> {
        let Told { control, receiver } = told;
        let current = serving.generation();
        let retained = Retained::new(serving.limits.generations_max);
        let thread = Arc::clone(&serving.liveness.supervisor);
        let is_stopping = Arc::new(AtomicBool::new(false));
        let source = source.paced(Arc::clone(&thread), Arc::clone(&is_stopping));
        let mut state = State {
            source,
            current,
            serving,
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

struct State {
    source: Source,
    serving: Arc<Serving>,
    current: Arc<Generation>,
    thread: Arc<Thread>,
    looked: Instant,
    /// When it was last counted whether the main thread beats.
    main_observed: Instant,
    /// The file of the generation before, which may have no name any more, and its digest.
    before: Option<(File, u128)>,
    /// Files at the path that are not to be tried again without being asked: the one
    /// that was refused, and the one that was returned from.
    refused: Option<Tried>,
    left: Option<Identity>,
    /// The file at the path whose refusal is reported.
    standing_refusal: Option<Tried>,
    /// Whether the last one was refused for want of something that the system may have
    /// later. It is tried again then.
    wants: bool,
    retained: Retained,
    /// Whether a look is asked for that has not begun.
    is_asked_to_look: Arc<AtomicBool>,
    /// If a file at the path was written to a moment ago: when to look again.
    unsettled: Option<Duration>,
    /// The block of the current generation that a background pass looks at next;
    /// `None` when it has looked at all, or there is none.
    unverified: Option<usize>,
}

impl State {
    fn run(mut self, receiver: &Receiver<Message>) {
        let thread = Arc::clone(&self.thread);
        loop {
            let asked = receiver.recv_timeout(self.patience());
            thread.beat();
            if matches!(asked, Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected)) {
                return;
            }
            // A panic ends this turn. The generation that is served stays.
            let _ = thread.catch(|| self.turn(asked.ok()));
        }
    }

    fn turn(&mut self, asked: Option<Message>) {
        if self.main_observed.elapsed() >= LOOK_EVERY {
            self.main_observed = Instant::now();
            self.serving.liveness.second_passed_for_main();
        }
        match asked {
            Some(Message::Reload(number)) => self.attempt(number, State::reload),
            Some(Message::Rollback(number)) => self.attempt(number, State::rollback),
            Some(Message::Look | Message::Changed) => self.look(),
            Some(Message::Stop) => {}
            None if self.looked.elapsed() >= self.look_after() => self.look(),
            None => {}
        }
        self.verify_some();
        self.release();
    }

    /// How long to wait for requests.
    fn patience(&self) -> Duration {
        let until_look = self.look_after().saturating_sub(self.looked.elapsed());
        let until_look = until_look.min(self.serving.liveness.beat_every());
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
        let thread = Arc::clone(&self.serving.liveness.folder_watch);
        let end = EndReport(Arc::clone(&thread));
        let call = move || {
            // However much goes on in the folder, one look is asked for at a time.
            if !is_asked.swap(true, Ordering::AcqRel) {
                // A supervisor that has ended looks no more.
                let _ = sender.send(Message::Look);
            }
        };
        let watch = FolderWatch::new(path, move || {
            let _ = end.0.catch(&call);
        });
        watch
            .inspect(|_| thread.started())
            .inspect_err(|error| {
                warn!("{}: cannot be watched: {error}: looking at it every {} s", path.display(), LOOK_EVERY.as_secs());
            })
            .ok()
    }

    /// Serves another file if there is one, and looks again at one that has changed
    /// in place.
    fn look(&mut self) {
        // First of all: a look that panics is not repeated before its time.
        self.looked = Instant::now();
        self.is_asked_to_look.store(false, Ordering::Release);
        self.unsettled = None;
        let is_trusted = self.current.store.is_trusted();
        for block in self.current.store.take_damaged_blocks() {
            self.serving.totals.faults.fetch_add(1, Ordering::Relaxed);
            error!(
                generation = self.current.number,
                "{}: block {block} of the records is damaged: keys in it get an error; bake the file anew, or copy it anew",
                self.source.path.display()
            );
        }
        if is_trusted {
            self.current.store.lease();
        } else {
            self.report_change();
        }
        if self.standing_refusal.is_some() && self.standing_refusal != Tried::at(&self.source.path).ok() {
            self.report_standing_refusal(None, String::new());
        }
        if (self.source.watch || !is_trusted) && self.has_new_file() {
            let wants = self.wants;
            let outcome = self.reload();
            // A file that is retried until the system has the resources is reported once.
            if !(wants && self.wants) {
                let text = self.tell(outcome);
                self.serving.notifier.status(&text);
            }
        }
        if !self.current.store.is_trusted() {
            self.look_again();
        }
        self.looked = Instant::now();
    }

    /// Whether there is a file at the path that was not tried, and that nobody
    /// writes to.
    fn has_new_file(&mut self) -> bool {
        // One that is put in place is none for a moment.
        let Ok(identity) = Identity::at(&self.source.path) else { return false };
        let is_refused = || self.refused.is_some() && self.refused == Tried::at(&self.source.path).ok();
        let is_new = identity != self.current.identity && Some(identity) != self.left && !is_refused();
        self.unsettled = if is_new { identity.unsettled() } else { None };
        // Written to in place: there may be more to come.
        if is_new && identity.is_same_file(&self.current.identity) && self.current.store.writers() == Writers::Some {
            self.unsettled = Some(SETTLE);
        }
        is_new && self.unsettled.is_none()
    }

    fn report_change(&self) {
        if self.serving.set_changed(true) {
            self.serving.totals.faults.fetch_add(1, Ordering::Relaxed);
            error!(
                generation = self.current.number,
                "{}: was changed in place, or a process opened it for writing: every request gets an error until the file \
                 was checked again; put new files in place by rename",
                self.source.path.display()
            );
        }
    }

    /// Trusts a file again that was changed in place, if its index is intact. Otherwise serves the file at the path as a
    /// new generation, if it passes the checks.
    fn look_again(&mut self) {
        // Before a lease is taken again, which direct clients would otherwise trust.
        self.report_change();
        let Ok(identity) = Identity::of_file(&self.current.file) else { return };
        if let Some(left) = identity.unsettled() {
            self.unsettled = Some(left);
            return;
        }
        match self.current.store.look_again_at(&self.source.plan.options.pace) {
            Ok(()) if self.current.store.is_trusted() => {
                self.unverified = self.first_unverified();
                self.serving.set_changed(false);
                warn!(
                    generation = self.current.number,
                    "{}: serving again: each block is verified again",
                    self.source.path.display()
                );
            }
            // The end of a write in progress is not reported.
            Ok(()) | Err(Mistrust::Changing) => self.unsettled = Some(SETTLE),
            Err(Mistrust::Canceled) => {}
            Err(_) if self.may_try_again() => {
                let outcome = self.reload();
                let text = self.tell(outcome);
                self.serving.notifier.status(&text);
            }
            Err(_) => {}
        }
    }

    /// Returns whether the file at the path is the one that is served, and was not refused since it last changed.
    fn may_try_again(&self) -> bool {
        let path = &self.source.path;
        Identity::at(path).is_ok_and(|identity| identity.is_same_file(&self.current.identity))
            && (self.refused.is_none() || self.refused != Tried::at(path).ok())
    }

    /// Does what was asked for, and reports the outcome to those who asked.
    fn attempt(&mut self, number: u64, how: impl FnOnce(&mut State) -> Result<String, String>) {
        self.serving.notifier.reloading();
        let thread = Arc::clone(&self.thread);
        let outcome = thread.catch(|| how(self)).unwrap_or_else(|panic| Err(format!("a panic at {panic}")));
        let text = self.tell(outcome);
        self.serving.notifier.ready(&text);
        let totals = &self.serving.totals;
        *totals.reload_last.lock().unwrap_or_else(PoisonError::into_inner) = text;
        // Two who ask at the same time may be heard in the other order.
        totals.reload_done.fetch_max(number, Ordering::Release);
    }

    fn tell(&self, outcome: Result<String, String>) -> String {
        match outcome {
            Ok(text) => text,
            Err(problem) => {
                self.serving.totals.refused_files.fetch_add(1, Ordering::Relaxed);
                let problem = format!("refused: {problem}: generation {} serves on", self.current.number);
                error!(generation = self.current.number, "{problem}");
                problem
            }
        }
    }

    /// Reports why the file at the path is not served, until another one is there. `None` ends that.
    fn report_standing_refusal(&mut self, refused: Option<Tried>, reason: String) {
        self.standing_refusal = refused;
        *self.serving.totals.file_refused.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Serves the file at the path. Returns what was done, or why not.
    fn reload(&mut self) -> Result<String, String> {
        let path = self.source.path.clone();
        let started = Instant::now();
        let there = Identity::at(&path).ok();
        if there == Some(self.current.identity) && self.current.store.is_trusted() {
            return Ok(format!("{}: already served by generation {}", path.display(), self.current.number));
        }
        // Should this panic, the file is not tried again before somebody asks for it.
        let tried = Tried::at(&path).ok();
        self.refused = tried;
        match self.source.plan.open(&path, Replaces::Table(summary(&self.current.store))) {
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
                // A file that is absent is not refused.
                let reason = tried.map(|_| format!("refused: {error}")).unwrap_or_default();
                self.report_standing_refusal(tried, reason);
                Err(error.to_string())
            }
        }
    }

    /// Serves the generation before.
    fn rollback(&mut self) -> Result<String, String> {
        let started = Instant::now();
        let path = self.source.path.clone();
        let Some((file, digest)) = &self.before else {
            // No file was refused.
            return Ok("refused: there is no generation before this one since the server was started".to_owned());
        };
        // By itself: a lease is that of one opening, and goes when a generation does.
        let file = reopened(file).map_err(|error| format!("the file of the generation before: {error}"))?;
        let candidate = match self.source.plan.open_file(file, &path, Replaces::Rollback) {
            Ok(candidate) => candidate,
            Err(error) if error.is_canceled() => return Ok(format!("{error}: the server stops")),
            Err(error) => return Err(error.to_string()),
        };
        if candidate.store.digest() != *digest {
            return Err(
                "the file of the generation before was overwritten in place: put its table in place anew".to_owned()
            );
        }
        // If it is still at the path, it was returned from; if not, what is there is new.
        if Identity::at(&path).ok() == Some(self.current.identity) {
            self.left = Some(self.current.identity);
        }
        self.serving.totals.rollbacks.fetch_add(1, Ordering::Relaxed);
        Ok(self.swap(candidate, started))
    }

    /// Hands a new generation to the workers.
    fn swap(&mut self, candidate: Candidate, started: Instant) -> String {
        let new = Arc::new(self.source.generation_of(candidate, self.current.number + 1));
        let old = std::mem::replace(&mut self.current, new);
        // First, so that no client sees the new generation beside the refusal of an older file.
        self.report_standing_refusal(None, String::new());
        self.serving.serve(&self.current);
        self.serving.set_changed(false);
        self.serving.totals.swaps.fetch_add(1, Ordering::Relaxed);
        self.unverified = self.first_unverified();
        self.before = old.file.try_clone().ok().map(|file| (file, old.store.digest()));
        self.retained.add(old);
        let Generation { number, store, .. } = &*self.current;
        info!(
            generation = number,
            digest = format!("{:032x}", store.digest()),
            rows = store.len(),
            "serving generation {number}, opened in {:.3} s",
            started.elapsed().as_secs_f64()
        );
        format!("generation {number} serves")
    }

    /// Closes replaced generations that nobody holds, and has connections release those beyond the limit.
    fn release(&mut self) {
        let retained = self.retained.release();
        self.serving.totals.generations_retained.store(retained as u64, Ordering::Relaxed);
        if let Some(number) = self.retained.oldest_allowed() {
            self.serving.disconnect_generations_before(number);
        }
    }

    fn first_unverified(&self) -> Option<usize> {
        self.source.plan.background.then_some(0)
    }

    /// Looks at a few blocks, if all are to be looked at in the background.
    fn verify_some(&mut self) {
        const BLOCKS: usize = 256;
        let Some(first) = self.unverified else { return };
        // First of all: blocks at which this panics are not tried again.
        self.unverified = Some(first + BLOCKS);
        let is_over = (first..first + BLOCKS).any(|block| self.current.store.verify_block(block).is_none());
        if !is_over {
            return;
        }
        self.unverified = None;
        let (blocks, sound) = self.current.store.block_counts();
        info!(generation = self.current.number, "{sound} of {blocks} blocks are sound");
        self.look();
    }
}

/// Reports the end of the thread that holds it.
struct EndReport(Arc<Thread>);

impl Drop for EndReport {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// Workers come first.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    {
        const NICE: i32 = 10;
        // A thread's own priority, on Linux. One that cannot be lowered stays as it is.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
    }
}
