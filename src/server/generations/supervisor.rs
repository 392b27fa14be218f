//! The thread that keeps the right generation in service.
//!
//! In: requests, and word that a folder or a file has changed. Out: workers that
//! answer from another generation, and a log of what was done and why not.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use super::candidate::Candidate;
use super::retained::Retained;
use super::watch::{FolderWatch, Identity, SETTLE, Tried};
use super::{Generation, OpenError, Source};
use crate::server::counters::Totals;
use crate::server::shared::Serving;
use crate::store::reopened;

/// How often to look without being asked: word of a change can be missed, and some
/// file systems send none.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the supervisor is asked for.
enum Ask {
    /// To look whether there is another file.
    Look,
    /// To look whether the file that is served is still believed.
    Changed,
    /// To serve what is at the path, whether or not it was refused before. The
    /// number is that of the attempt.
    Reload(u64),
    /// To serve the generation before.
    Rollback(u64),
    Stop,
}

/// Asks a running server for another generation. It may be cloned and sent to
/// other threads.
#[derive(Clone)]
pub struct Control {
    sender: Sender<Ask>,
    totals: Arc<Totals>,
}

impl Control {
    /// Has the file at the server's path opened, checked and served, on a thread of
    /// its own. Gives the number of the attempt, which Info tells of when it is over.
    pub fn reload(&self) -> u64 {
        self.ask(Ask::Reload)
    }

    /// Has the generation before this one checked and served again. Gives the
    /// number of the attempt.
    pub fn rollback(&self) -> u64 {
        self.ask(Ask::Rollback)
    }

    pub(in crate::server) fn totals(&self) -> Arc<Totals> {
        Arc::clone(&self.totals)
    }

    fn ask(&self, ask: impl FnOnce(u64) -> Ask) -> u64 {
        let number = 1 + self.totals.reload_requested.fetch_add(1, Ordering::AcqRel);
        // A server that is gone serves nothing.
        let _ = self.sender.send(ask(number));
        number
    }

    /// Tells that the file was found to have changed in place.
    #[cold]
    pub(in crate::server) fn file_has_changed(&self) {
        let _ = self.sender.send(Ask::Changed);
    }
}

/// What the supervisor is told, until it runs.
pub(in crate::server) struct Told {
    pub(in crate::server) control: Control,
    receiver: Receiver<Ask>,
}

impl Told {
    pub(in crate::server) fn new(totals: Arc<Totals>) -> Told {
        let (sender, receiver) = channel();
        Told { control: Control { sender, totals }, receiver }
    }
}

impl Source {
    /// The first generation.
    pub(in crate::server) fn open(&self) -> Result<Generation, OpenError> {
        let candidate = self.plan.open(&self.path)?;
        Ok(self.generation_of(candidate, 1))
    }

    fn generation_of(&self, candidate: Candidate, number: u64) -> Generation {
        let Candidate { store, file, identity } = candidate;
        let shared = if self.direct { store.share() } else { Ok(None) };
        let shared = shared.unwrap_or_else(|error| {
            warn!("clients cannot look up in generation {number} themselves: {error}");
            None
        });
        Generation { number, store, shared, file, identity }
    }
}

/// The running thread.
pub(in crate::server) struct Supervisor {
    control: Control,
    thread: JoinHandle<()>,
}

impl Supervisor {
    pub(in crate::server) fn start(source: Source, serving: Arc<Serving>, told: Told) -> io::Result<Supervisor> {
        let Told { control, receiver } = told;
        let current = serving.generation();
        let retained = Retained::new(serving.limits.generations_max);
        let mut state = State {
            source,
            current,
            serving,
            before: None,
            refused: None,
            left: None,
            wants: false,
            retained,
            is_asked_to_look: Arc::default(),
            unsettled: None,
            unverified: None,
        };
        state.unverified = state.first_unverified();
        let watch = state.source.watch.then(|| state.watch(control.sender.clone()));
        let thread = thread::Builder::new().name("supervisor".to_owned()).spawn(move || {
            let _watch = watch;
            state.run(&receiver);
        })?;
        Ok(Supervisor { control, thread })
    }

    pub(in crate::server) fn stop(self) {
        let _ = self.control.sender.send(Ask::Stop);
        // One that has panicked has said so.
        let _ = self.thread.join();
    }
}

struct State {
    source: Source,
    serving: Arc<Serving>,
    current: Arc<Generation>,
    /// The file of the generation before, which may have no name any more, and its digest.
    before: Option<(File, u128)>,
    /// Files at the path that are not to be tried again without being asked: the one
    /// that was refused, and the one that was returned from.
    refused: Option<Tried>,
    left: Option<Identity>,
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
    fn run(mut self, receiver: &Receiver<Ask>) {
        lower_priority();
        let mut looked = Instant::now();
        loop {
            match receiver.recv_timeout(self.patience(looked)) {
                Ok(Ask::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Ask::Reload(number)) => self.attempt(number, State::reload),
                Ok(Ask::Rollback(number)) => self.attempt(number, State::rollback),
                Ok(Ask::Look | Ask::Changed) => looked = self.look(),
                Err(RecvTimeoutError::Timeout) if looked.elapsed() >= self.look_after() => looked = self.look(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.verify_some();
            self.release();
        }
    }

    /// How long to wait for requests.
    fn patience(&self, looked: Instant) -> Duration {
        let until_look = self.look_after().saturating_sub(looked.elapsed());
        match self.retained.patience() {
            _ if self.unverified.is_some() => Duration::ZERO,
            Some(patience) => until_look.min(patience),
            None => until_look,
        }
    }

    fn look_after(&self) -> Duration {
        self.unsettled.unwrap_or(LOOK_EVERY)
    }

    fn watch(&self, sender: Sender<Ask>) -> Option<FolderWatch> {
        let path = &self.source.path;
        let is_asked = Arc::clone(&self.is_asked_to_look);
        let watch = FolderWatch::new(path, move || {
            // However much goes on in the folder, one look is asked for at a time.
            if !is_asked.swap(true, Ordering::AcqRel) {
                // A supervisor that is gone looks no more.
                let _ = sender.send(Ask::Look);
            }
        });
        watch
            .inspect_err(|error| {
                warn!("{}: cannot be watched: {error}: looking at it every {} s", path.display(), LOOK_EVERY.as_secs());
            })
            .ok()
    }

    /// Serves another file if there is one, and looks again at one that has changed
    /// in place. Gives the time.
    fn look(&mut self) -> Instant {
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
            self.tell_of_change();
        }
        if (self.source.watch || !is_trusted) && self.has_new_file() {
            let wants = self.wants;
            let outcome = self.reload();
            // One that is tried until the system has what it takes is told of once.
            if !(wants && self.wants) {
                let text = self.tell(outcome);
                self.serving.notifier.status(&text);
            }
        }
        if !self.current.store.is_trusted() {
            self.look_again();
        }
        Instant::now()
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
        if is_new && identity.is_same_file(&self.current.identity) && self.current.store.has_writer() {
            self.unsettled = Some(SETTLE);
        }
        is_new && self.unsettled.is_none()
    }

    fn tell_of_change(&self) {
        if self.serving.set_changed(true) {
            self.serving.totals.faults.fetch_add(1, Ordering::Relaxed);
            error!(
                generation = self.current.number,
                "{}: was changed in place: every request gets an error until it was looked at again; put new files in \
                 place by rename",
                self.source.path.display()
            );
        }
    }

    /// Believes a file again that was changed in place, if what was changed was
    /// not its index.
    fn look_again(&mut self) {
        let Ok(identity) = Identity::of_file(&self.current.file) else { return };
        if let Some(left) = identity.unsettled() {
            self.unsettled = Some(left);
            return;
        }
        if self.current.store.look_again().is_ok() && self.current.store.is_trusted() {
            self.unverified = self.first_unverified();
            self.serving.set_changed(false);
            warn!(
                generation = self.current.number,
                "{}: serving again: each block is held against its checksum anew",
                self.source.path.display()
            );
        }
    }

    /// Does what was asked for, and tells those who asked how it went.
    fn attempt(&mut self, number: u64, how: impl FnOnce(&mut State) -> Result<String, String>) {
        self.serving.notifier.reloading();
        let outcome = how(self);
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

    /// Serves the file at the path. Gives what was done, or why not.
    fn reload(&mut self) -> Result<String, String> {
        let path = self.source.path.clone();
        let started = Instant::now();
        let there = Identity::at(&path).ok();
        if there == Some(self.current.identity) && self.current.store.is_trusted() {
            return Ok(format!("{}: already served by generation {}", path.display(), self.current.number));
        }
        let tried = Tried::at(&path).ok();
        let opened = self.source.plan.open(&path);
        self.wants = opened.as_ref().is_err_and(OpenError::is_for_want);
        self.refused = tried.filter(|_| opened.is_err() && !self.wants);
        let candidate = opened.map_err(|error| error.to_string())?;
        self.left = None;
        Ok(self.swap(candidate, started))
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
        let candidate = self.source.plan.open_file(file, &path).map_err(|error| error.to_string())?;
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
        let is_over = (first..first + BLOCKS).any(|block| self.current.store.verify_block(block).is_none());
        if !is_over {
            self.unverified = Some(first + BLOCKS);
            return;
        }
        self.unverified = None;
        let (blocks, sound) = self.current.store.block_counts();
        info!(generation = self.current.number, "{sound} of {blocks} blocks are sound");
        self.look();
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
