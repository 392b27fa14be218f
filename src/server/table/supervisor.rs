//! The thread that decides which generation is served.
//!
//! In: requests, and notifications that a folder or a file has changed. Out: replacements of the current generation,
//! and log lines about replacements and rejected files.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::{debug, error, info, warn};

use super::candidate::{Candidate, Replaces, summary};
use super::control::{Control, ControlChannel, Message};
use super::served::ServedTable;
use super::watch::{FileVersion, FolderWatch, Identity, is_stale_mount};
use super::{Generation, OpenError, PAUSE, Source, pause};
use crate::Lookup;
use crate::cluster::SlotSet;
use crate::format::checksum::BLOCK_LEN_BYTES;
use crate::replace::ReplaceRules;
use crate::server::process::liveness::{Liveness, Thread};
use crate::server::process::{Notifier, lower_priority};
use crate::server::stats::Statistics;
use crate::store::{Mistrust, SETTLE, Writers, header_digest, open_file, reopened};
use crate::sync::{Pending, unpoisoned};

/// The time after which the path is checked again if no notification arrives. Notifications can be lost, and some file
/// systems send none.
const CHECK_EVERY: Duration = Duration::from_secs(1);

pub(in crate::server) struct Supervisor {
    control: Control,
    is_stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Supervisor {
    pub(in crate::server) fn start(supervised: Supervised, channel: ControlChannel) -> io::Result<Supervisor> {
        let ControlChannel { control, receiver } = channel;
        let retained = Retained::new(supervised.generations_max);
        let thread = Arc::clone(&supervised.liveness.supervisor);
        let is_stopping = Arc::new(AtomicBool::new(false));
        let source = supervised.source.clone().paced(Arc::clone(&thread), Arc::clone(&is_stopping));
        let state = Supervision {
            source,
            control: control.clone(),
            server: supervised,
            thread: Arc::clone(&thread),
            path_checked: Instant::now(),
            main_observed: Instant::now(),
            previous: None,
            refused: None,
            standing_refusal: None,
            unsaved: None,
            retries: false,
            retained,
            is_check_requested: Arc::default(),
            unsettled: None,
            verified_in_background: Some(0),
        };
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

    /// Cancels the file check in progress, if there is one, and makes the thread end. Does not wait for the thread.
    pub(in crate::server) fn cancel(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let _ = self.control.sender.send(Message::Stop);
    }

    pub(in crate::server) fn join(self) {
        // If the thread panicked, the panic was already logged.
        let _ = self.thread.join();
    }
}

/// The parts of the server that the supervisor uses.
pub(in crate::server) struct Supervised {
    pub(in crate::server) source: Source,
    /// The maximum number of replaced generations that connections may hold.
    pub(in crate::server) generations_max: usize,
    pub(in crate::server) table: Arc<ServedTable>,
    pub(in crate::server) statistics: Arc<Statistics>,
    pub(in crate::server) notifier: Arc<Notifier>,
    pub(in crate::server) liveness: Arc<Liveness>,
    /// Disconnects the connections that, between their turns, hold a generation whose number is lower than the
    /// argument.
    pub(in crate::server) disconnect_before: Box<dyn Fn(u64) + Send>,
    /// Reads TLS certificates again if they have changed, or if the argument is true.
    pub(in crate::server) check_certificates: Box<dyn Fn(bool) + Send>,
}

/// The state of the supervisor's thread.
struct Supervision {
    source: Source,
    control: Control,
    server: Supervised,
    thread: Arc<Thread>,
    /// When the path was last checked.
    path_checked: Instant,
    /// When the supervisor last checked whether the main thread makes progress.
    main_observed: Instant,
    /// The file of the previous generation, the digest of its table, and the slots whose rows it has. The file may have
    /// been unlinked.
    previous: Option<(File, u128, Arc<SlotSet>)>,
    /// The rejected file at the path, if there is one, or the file whose table a rollback replaced. Without a reload
    /// request, the file is not checked again until it changes.
    refused: Option<FileVersion>,
    /// The digest of the table that the last rollback replaced, if the table that it serves could not be saved for a
    /// restart, and why.
    unsaved: Option<(u128, io::Error)>,
    /// The file at the path, if Info and the metrics report that it was rejected.
    standing_refusal: Option<FileVersion>,
    /// Whether the file that was checked last was rejected for a temporary reason, so that it is checked again even if
    /// it does not change: see [`OpenError::may_pass_later`].
    retries: bool,
    retained: Retained,
    /// Whether a check of the path has been requested but has not begun.
    is_check_requested: Arc<Pending>,
    /// The time until the next check of the path, if the file at the path was written to a moment ago.
    unsettled: Option<Duration>,
    /// The number of blocks of the current generation that were verified in the background: first the blocks of the
    /// index, then, if configured, the blocks of the records. `None` if there is nothing left to verify.
    verified_in_background: Option<usize>,
}

impl Supervision {
    fn run(mut self, receiver: &Receiver<Message>) {
        let thread = Arc::clone(&self.thread);
        loop {
            let received = receiver.recv_timeout(self.wait_max());
            thread.beat();
            if matches!(received, Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected)) {
                return;
            }
            // A panic ends only this iteration. The current generation stays.
            let _ = thread.catch(|| self.run_once(received.ok()));
        }
    }

    fn current(&self) -> Arc<Generation> {
        self.server.table.current()
    }

    fn run_once(&mut self, message: Option<Message>) {
        if self.main_observed.elapsed() >= CHECK_EVERY {
            self.main_observed = Instant::now();
            self.server.liveness.second_passed_for_main();
        }
        match message {
            Some(Message::Reload(number)) => self.attempt(number, |state| state.reload()),
            Some(Message::Rollback(number)) => self.attempt(number, Supervision::rollback),
            Some(Message::Serve { rules, outcome }) => {
                // Fails only if nobody waits for the outcome.
                let _ = outcome.send(self.reload_by(&rules));
            }
            Some(Message::Attempted { number, outcome }) => self.attempt(number, |_| outcome),
            Some(Message::CheckPath | Message::Changed) => self.check_path(),
            Some(Message::Stop) => {}
            None if self.path_checked.elapsed() >= self.check_after() => self.check_path(),
            None => {}
        }
        self.verify_some();
        self.release();
    }

    /// Returns how long to wait for messages.
    fn wait_max(&self) -> Duration {
        let until_check = self.check_after().saturating_sub(self.path_checked.elapsed());
        let until_check = until_check.min(self.server.liveness.beat_every());
        match self.retained.release_after() {
            _ if self.verified_in_background.is_some() => PAUSE,
            Some(release_after) => until_check.min(release_after),
            None => until_check,
        }
    }

    fn check_after(&self) -> Duration {
        self.unsettled.unwrap_or(CHECK_EVERY)
    }

    fn watch(&self, sender: Sender<Message>) -> Option<FolderWatch> {
        let path = &self.source.path;
        let is_requested = Arc::clone(&self.is_check_requested);
        let call = move || {
            // At most one check is requested at a time, however many events there are in the folder.
            if is_requested.request() {
                // Fails only if the supervisor has ended.
                let _ = sender.send(Message::CheckPath);
            }
        };
        FolderWatch::new(path, &self.server.liveness.folder_watch, call)
            .inspect_err(|error| {
                warn!(
                    "{}: cannot be watched: {error}: it is checked every {} s instead",
                    path.display(),
                    CHECK_EVERY.as_secs()
                );
            })
            .ok()
    }

    /// Serves the file at the path if it is new. Checks the current file again if it was changed in place.
    fn check_path(&mut self) {
        // The time is set first, so that a check that panics is not repeated too early.
        self.path_checked = Instant::now();
        self.is_check_requested.take();
        self.unsettled = None;
        (self.server.check_certificates)(false);
        let current = self.current();
        let is_trusted = current.store.is_trusted();
        let damaged = current.store.take_damaged_blocks();
        let remedy = match !damaged.is_empty() && self.control.has_damaged_blocks() {
            true => "the file is fetched again",
            false => "bake or copy the file again",
        };
        for block in damaged {
            self.server.statistics.totals.faults.fetch_add(1, Ordering::Relaxed);
            let Some((section, block)) = current.store.section_of_block(block) else { continue };
            error!(
                generation = current.number,
                "{}: block {block} of the {section} is damaged: lookups of its keys fail: {remedy}",
                self.source.path.display()
            );
        }
        if is_trusted {
            if let Some(file) = current.store.watched_file() {
                file.lease();
            }
        } else {
            self.report_change();
        }
        if self.standing_refusal.is_some() && self.standing_refusal != FileVersion::at(&self.source.path).ok() {
            self.report_standing_refusal(None, String::new());
        }
        self.report_stale_mount();
        if (self.source.watch || !is_trusted) && self.has_new_file() {
            let retried = self.retries;
            let outcome = self.reload();
            // If a file is rejected repeatedly for temporary reasons, only the first rejection is reported.
            if !(retried && self.retries) {
                let text = self.log_outcome(outcome);
                self.server.notifier.status(&text);
            }
        }
        if !self.current().store.is_trusted() {
            self.recheck_current();
        }
        self.path_checked = Instant::now();
    }

    /// Reports once that a file that is served from a mount of this file was replaced elsewhere.
    fn report_stale_mount(&mut self) {
        if self.standing_refusal.is_none()
            && let Some(problem) = self.stale_mount()
        {
            warn!(generation = self.current().number, "{problem}");
            self.report_standing_refusal(FileVersion::at(&self.source.path).ok(), format!("out of date: {problem}"));
        }
    }

    /// Returns what to do if the path is a stale mount: see [`is_stale_mount`].
    fn stale_mount(&self) -> Option<String> {
        let path = &self.source.path;
        is_stale_mount(path).then(|| {
            format!(
                "{}: this mount of a file still shows the old file, which was replaced or removed elsewhere: mount the \
                 folder of the file instead, and start the server again",
                path.display()
            )
        })
    }

    /// Returns true if the file at the path has not been checked yet, and no process seems to be writing to it. If a
    /// process may be writing to it, sets the time until the next check.
    fn has_new_file(&mut self) -> bool {
        // While a file is being replaced, the path may not exist for a moment.
        let Ok(identity) = Identity::at(&self.source.path) else { return false };
        let is_refused = || self.refused.is_some() && self.refused == FileVersion::at(&self.source.path).ok();
        let is_new = identity != self.current().identity && !is_refused();
        self.unsettled = if is_new { identity.unsettled() } else { None };
        // A process that is changing the served file in place may not have finished.
        let served_has_writers =
            || self.current().store.watched_file().is_some_and(|file| file.writers() == Writers::Some);
        if is_new && identity.is_same_file(&self.current().identity) && served_has_writers() {
            self.unsettled = Some(SETTLE);
        }
        is_new && self.unsettled.is_none()
    }

    fn report_change(&self) {
        if self.server.table.set_changed(true) {
            self.server.statistics.totals.faults.fetch_add(1, Ordering::Relaxed);
            error!(
                generation = self.current().number,
                "{}: was changed in place, or a process opened it for writing: every request fails until the file has \
                 been checked again: put new files in place by rename",
                self.source.path.display()
            );
        }
    }

    /// Rechecks the current file after a change in place, and trusts it again if its index is intact. Otherwise, if the
    /// file is still at the path, reloads it as a new generation.
    fn recheck_current(&mut self) {
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
                self.verified_in_background = Some(0);
                self.server.table.set_changed(false);
                warn!(
                    generation = self.current().number,
                    "{}: serving again: each block is verified again on first access",
                    self.source.path.display()
                );
            }
            // The file is checked again later, because the system does not report when a write in progress ends.
            Ok(()) | Err(Mistrust::Changing) => self.unsettled = Some(SETTLE),
            Err(Mistrust::Canceled) => {}
            Err(_) if self.may_reopen_current() => {
                let outcome = self.reload();
                let text = self.log_outcome(outcome);
                self.server.notifier.status(&text);
            }
            Err(_) => {}
        }
    }

    /// Returns whether the file at the path is the served file, and was not rejected since its last change.
    fn may_reopen_current(&self) -> bool {
        let path = &self.source.path;
        Identity::at(path).is_ok_and(|identity| identity.is_same_file(&self.current().identity))
            && (self.refused.is_none() || self.refused != FileVersion::at(path).ok())
    }

    /// Performs a requested reload or rollback, and publishes the outcome for Info requests and the service manager.
    fn attempt(&mut self, number: u64, how: impl FnOnce(&mut Supervision) -> Result<String, String>) {
        self.server.notifier.reloading();
        let thread = Arc::clone(&self.thread);
        let outcome = thread.catch(|| {
            (self.server.check_certificates)(true);
            how(self)
        });
        let outcome = outcome.unwrap_or_else(|panic| Err(format!("a panic at {panic}")));
        let text = self.log_outcome(outcome);
        self.server.notifier.ready(&text);
        let statistics = &self.server.statistics;
        // The outcome is stored first, and Info reads it last, so it belongs to this attempt or a later one.
        *unpoisoned(&statistics.outcomes.reload_last) = text;
        // Two requests that are sent at the same time may arrive in the opposite order of their numbers.
        statistics.totals.reload_done.fetch_max(number, Ordering::Relaxed);
    }

    fn log_outcome(&self, outcome: Result<String, String>) -> String {
        match outcome {
            Ok(text) => text,
            Err(problem) => {
                self.server.statistics.totals.refused_files.fetch_add(1, Ordering::Relaxed);
                let problem = format!("refused: {problem}: generation {} is still served", self.current().number);
                error!(generation = self.current().number, "{problem}");
                problem
            }
        }
    }

    /// Publishes why the file at the path is not served. The reason stays published until the file at the path changes
    /// or the server swaps generations. To remove the published reason, pass `None` and an empty `reason`.
    fn report_standing_refusal(&mut self, refused: Option<FileVersion>, reason: String) {
        self.standing_refusal = refused;
        *unpoisoned(&self.server.statistics.outcomes.file_refused) = reason;
    }

    /// Serves the file at the path by the rules of the configuration: see [`Supervision::reload_by`].
    fn reload(&mut self) -> Result<String, String> {
        let rules = self.source.plan.replace.clone();
        self.reload_by(&rules)
    }

    /// Serves the file at the path, if these rules allow it. Returns a description of the outcome.
    fn reload_by(&mut self, rules: &ReplaceRules) -> Result<String, String> {
        let path = self.source.path.clone();
        let started = Instant::now();
        let found = Identity::at(&path).ok();
        if found == Some(self.current().identity) && self.current().store.is_trusted() {
            if let Some(problem) = self.stale_mount() {
                return Err(problem);
            }
            return Ok(format!("{}: already served by generation {}", path.display(), self.current().number));
        }
        // The field is set before the check: if the check panics, the file is not retried without a request.
        let tried = FileVersion::at(&path).ok();
        self.refused = tried;
        let replaces = Replaces::Table(summary(&self.current().store), rules);
        let opened = open_file(&path).map_err(OpenError::from).and_then(|file| {
            self.check_rolled_back(&file)?;
            self.source.plan.open_file(file, &path, replaces)
        });
        match opened {
            Ok(candidate) => {
                (self.refused, self.unsaved, self.retries) = (None, None, false);
                let generation = self.next_generation(candidate, self.source.file_slots());
                let outcome = self.swap(generation, started);
                self.source.saved.remove();
                Ok(outcome)
            }
            Err(error) if error.is_canceled() => {
                info!("{error}: the server stops");
                Ok(format!("{error}: the server stops"))
            }
            Err(error) => {
                if let OpenError::Panic { panic, .. } = &error {
                    self.thread.panicked(panic);
                }
                self.retries = error.may_pass_later();
                if self.retries {
                    self.refused = None;
                }
                // If there was no file at the path, Info reports no reason.
                let reason = tried.map(|_| format!("refused: {error}")).unwrap_or_default();
                self.report_standing_refusal(tried, reason);
                Err(error.to_string())
            }
        }
    }

    /// Rejects a table that a rollback has replaced.
    fn check_rolled_back(&self, file: &File) -> Result<(), OpenError> {
        let unsaved = self.unsaved.as_ref().map(|(digest, _)| *digest);
        let is_unsaved = |digest: &u128| header_digest(file, &self.source.path).is_ok_and(|found| found == *digest);
        let unsaved = unsaved.filter(is_unsaved);
        self.source.rolled_back(file).or(unsaved).map_or(Ok(()), |digest| Err(self.rolled_back_error(digest)))
    }

    /// Returns the reason why a table is refused after a rollback.
    fn rolled_back_error(&self, digest: u128) -> OpenError {
        let saved = self.source.saved.path(digest);
        let saved = saved.display();
        let hint = match &self.unsaved {
            Some((_, error)) => {
                format!(" before the server restarts, because a restart would serve this one again ({saved}: {error})")
            }
            None => format!(", or remove {saved} and run `zkv reload` to serve this one again"),
        };
        OpenError::RolledBack { path: self.source.path.clone(), digest, hint }
    }

    /// Serves the previous generation. Returns a description of the outcome.
    fn rollback(&mut self) -> Result<String, String> {
        let started = Instant::now();
        let path = self.source.path.clone();
        let Some((file, digest, slots)) = &self.previous else {
            // The result is `Ok`, so that this case is not counted as a rejected file.
            return Ok(match self.current() {
                current if current.is_rollback => format!(
                    "refused: generation {} already serves the previous table, after a rollback, and no earlier one \
                     is kept: put another table at {} by rename",
                    current.number,
                    path.display()
                ),
                _ => "refused: the server has no earlier generation with another table".to_owned(),
            });
        };
        // The file is opened again, because a lease belongs to an open file description, and a generation releases its
        // lease when it is closed.
        let slots = Arc::clone(slots);
        let file = reopened(file)
            .map_err(|error| format!("the file of the previous generation cannot be opened again: {error}"))?;
        let candidate = match self.source.plan.open_file(file, &path, Replaces::Rollback) {
            Ok(candidate) => candidate,
            Err(error) if error.is_canceled() => return Ok(format!("{error}: the server stops")),
            Err(error) => return Err(error.to_string()),
        };
        if candidate.store.digest() != *digest {
            return Err("the file of the previous generation was overwritten in place: bake its table again".to_owned());
        }
        let replaced = self.current().store.digest();
        // If the file at the path is another one, it is checked like every new file.
        let left = FileVersion::at(&path).ok().filter(|left| left.is_of(&self.current().identity));
        self.refused = left;
        self.server.statistics.totals.rollbacks.fetch_add(1, Ordering::Relaxed);
        let new = Generation { is_rollback: true, ..self.next_generation(candidate, slots) };
        let outcome = self.swap(new, started);
        self.previous = None;
        let saved = self.source.saved.save(&self.current().file, replaced, &self.source.plan.options.pace);
        self.unsaved = saved.err().map(|error| (replaced, error));
        let refusal = self.rolled_back_error(replaced);
        warn!(generation = self.current().number, "{refusal}");
        if left.is_some() {
            self.report_standing_refusal(left, format!("refused: {refusal}"));
        }
        Ok(format!("{outcome}: the previous table; {refusal}"))
    }

    /// Creates the generation that follows the current one.
    fn next_generation(&self, candidate: Candidate, slots: Arc<SlotSet>) -> Generation {
        self.source.generation_of(candidate, self.current().number + 1, slots)
    }

    /// Replaces the current generation. Returns a description of the outcome.
    fn swap(&mut self, new: Generation, started: Instant) -> String {
        let new = Arc::new(new);
        // The rejection of an older file is cleared and the swap is counted first, so that a client that sees the new
        // generation also sees these changes.
        self.report_standing_refusal(None, String::new());
        self.server.statistics.totals.swaps.fetch_add(1, Ordering::Relaxed);
        let old = self.server.table.replace(&new);
        self.server.table.set_changed(false);
        self.verified_in_background = Some(0);
        // A rollback to the same rows would be of no use.
        if old.store.digest() != new.store.digest() {
            self.previous = old.file.try_clone().ok().map(|file| (file, old.store.digest(), Arc::clone(&old.slots)));
        }
        self.retained.add(old);
        let Generation { number, store, .. } = &*new;
        info!(
            generation = number,
            digest = format!("{:032x}", store.digest()),
            rows = store.len(),
            "serving generation {number}, opened in {:.3} s",
            started.elapsed().as_secs_f64()
        );
        format!("generation {number} is served")
    }

    /// Closes replaced generations that nothing else refers to. If more replaced generations are left than the limit
    /// allows, disconnects the connections that hold the oldest ones.
    fn release(&mut self) {
        let retained = self.retained.release();
        self.server.statistics.totals.generations_retained.store(retained as u64, Ordering::Relaxed);
        if let Some(number) = self.retained.oldest_allowed() {
            (self.server.disconnect_before)(number);
        }
    }

    /// Verifies the next blocks in the background. When all blocks of the index are verified, also builds the search
    /// tree over the fences.
    fn verify_some(&mut self) {
        const BLOCKS: usize = 256;
        let Some(first) = self.verified_in_background else { return };
        // The field is set before the verification: if it panics, these blocks are not verified again.
        self.verified_in_background = Some(first + BLOCKS);
        let current = self.current();
        let index = current.store.index_blocks();
        let count = if self.source.plan.background { index.end } else { index.len() };
        if current.store.may_be_cold() && first >= index.len() {
            let start = (first - index.len()) * BLOCK_LEN_BYTES;
            current.store.begin_read(start..start + BLOCKS * BLOCK_LEN_BYTES);
        }
        for number in first..count.min(first + BLOCKS) {
            // The blocks of the records precede the blocks of the index.
            let block = if number < index.len() { index.start + number } else { number - index.len() };
            current.store.verify_block(block);
        }
        if first + BLOCKS <= count {
            return;
        }
        self.verified_in_background = None;
        if self.source.plan.background {
            let (blocks, intact) = current.store.block_counts();
            info!(generation = current.number, "{intact} of {blocks} blocks are intact");
        }
        self.check_path();
    }
}

/// The minimum time between two checks of whether replaced generations are still in use. The checks become less
/// frequent with the time since the last replacement.
const RELEASE_AFTER: Duration = Duration::from_millis(2);
/// The maximum time between two checks of whether replaced generations are still in use.
const RELEASE_EVERY: Duration = Duration::from_millis(250);

/// The replaced generations that are still in use.
struct Retained {
    max: usize,
    /// The generations, oldest first, each with the time at which it was replaced.
    generations: Vec<(Arc<Generation>, Instant)>,
}

impl Retained {
    /// Creates an empty list. Whenever the list has more than `max` generations, connections must release the oldest
    /// ones.
    fn new(max: usize) -> Retained {
        Retained { max, generations: Vec::new() }
    }

    fn add(&mut self, generation: Arc<Generation>) {
        self.generations.push((generation, Instant::now()));
    }

    /// Closes the generations that nothing else refers to. Returns the number of generations that are left.
    fn release(&mut self) -> usize {
        // This list has the last reference to a generation, because unmapping gigabytes would delay a worker.
        self.generations.retain(|(generation, since)| {
            let is_held = Arc::strong_count(generation) > 1;
            if !is_held {
                debug!("generation {} is closed {:?} after it was replaced", generation.number, since.elapsed());
                generation.store.release_pages(pause);
            }
            is_held
        });
        self.generations.len()
    }

    /// Returns the lowest generation number that connections may still hold. Returns `None` if the number of replaced
    /// generations does not exceed the limit.
    fn oldest_allowed(&self) -> Option<u64> {
        let exceeding = self.generations.len().checked_sub(self.max).filter(|exceeding| *exceeding > 0)?;
        let (newest_exceeding, _) = &self.generations[exceeding - 1];
        Some(newest_exceeding.number + 1)
    }

    /// Returns how long to wait before the next call of [`Retained::release`]. `None` if no replaced generation is
    /// left.
    fn release_after(&self) -> Option<Duration> {
        let (_, since) = self.generations.last()?;
        Some(since.elapsed().clamp(RELEASE_AFTER, RELEASE_EVERY))
    }
}
