//! A node: follows a published table, and has new generations served.
//!
//! In: the documents of a table, and requests to look for new ones. Out: verified files in a folder, calls of a
//! function that serves them, and the node's status. [`NodeMachine`] decides what to do next. This file does it: reads
//! run on the thread of the follower, and transfers and swaps on threads of their own, because they block.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, FuturesUnordered, StreamExt, TryStreamExt};
use object_store::ObjectStoreExt;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::Record;
use super::cache::{Cache, Kept, Wanted};
use super::change::Change;
use super::document::Series;
use super::error::{FailureKind, PublishError};
use super::follow_control::{
    ClusterMember, FollowControl, FollowFacts, FollowOptions, activate_topology, age_s, restore_topology,
};
use super::instructions::read_topology;
use super::location::Location;
use super::manifest::Manifest;
use super::node::{Action, Event, Found, Goal, NodeMachine, NodeOptions, Polled, Read, SwapFailure, valid_slots};
use super::pin::{Decision, Pin};
use super::status::{Namesakes, NodeStatus};
use super::transfer::{Bandwidth, TransferProgress, random_bytes, until_canceled};
use crate::bake::Cancel;
use crate::cluster::{SlotSet, Topology, node_id_problem};
use crate::sync::unpoisoned;

/// The number of concurrent reads of other nodes' statuses.
const STATUSES_AT_ONCE: usize = 16;
/// How long a follower that stops waits for a transfer and a swap in progress, which it cancels.
const STOP_MAX: Duration = Duration::from_secs(10);

/// Serves the file at a path, which has the rows of a generation. The error states why the file is rejected.
type Serve = Box<dyn FnMut(&std::path::Path, &Manifest) -> Result<(), String> + Send>;

/// Observes the downloads of a follower.
type Observe = Box<dyn FnMut(TransferProgress) + Send>;

/// Receives messages for the log.
type Notice = Box<dyn FnMut(&str) + Send>;

/// Actions in progress.
type Jobs = FuturesUnordered<BoxFuture<'static, Event>>;

/// A node's copy of a published table.
pub struct Follower {
    location: Location,
    options: FollowOptions,
    control: FollowControl,
    folder: Arc<Folder>,
    /// The machine of the node. `None` before it starts.
    machine: Option<NodeMachine>,
    /// The served generation and its slots, which outlive a restart of the machine.
    served: Option<(Manifest, SlotSet)>,
    /// The slots that the program serves before their topology takes effect.
    confirmed: SlotSet,
    started: Instant,
    /// Cancels the transfer in progress.
    transfer: Cancel,
    transfer_started: Instant,
    transferred_bytes: Option<u64>,
    /// The generation whose damaged file is being fetched again.
    repaired: Option<u64>,
    /// The number of generations in the folder that were rejected when the node started.
    rejected_at_start: u64,
    /// Other processes with the name of the node.
    namesakes: Arc<Namesakes>,
    observe: Option<Observe>,
    notice: Notice,
    /// Why the folder cannot be opened again after it was deleted or replaced, or empty.
    folder_problem: String,
}

/// The state that transfers and swaps share.
struct Folder {
    cache: Mutex<Arc<Cache>>,
    location: Location,
    keep: usize,
    bandwidth: Bandwidth,
    serve: Mutex<Serve>,
    /// The cluster that the node is part of.
    member: Mutex<Option<Box<dyn ClusterMember>>>,
    stop: Cancel,
}

impl Follower {
    /// Opens the folder of a node. Sends no request to the store.
    ///
    /// # Errors
    /// [`PublishError::Url`], [`PublishError::Io`].
    pub fn open(url: &str, options: FollowOptions) -> Result<Follower, PublishError> {
        if let Some(problem) = node_id_problem(&options.node) {
            let problem = format!("the name of the node is {:?}, {problem}", options.node);
            return Err(PublishError::Url { url: url.to_owned(), problem });
        }
        if let Some(problem) = node_id_problem(&options.zone).filter(|_| !options.zone.is_empty()) {
            let problem = format!("the zone of the node is {:?}, {problem}", options.zone);
            return Err(PublishError::Url { url: url.to_owned(), problem });
        }
        let location = Location::parse(url)?;
        location.check_cache(&options.cache)?;
        let control = FollowControl::default();
        let folder = Folder {
            cache: Mutex::new(Arc::new(Cache::open(&options.cache)?)),
            location: location.clone(),
            keep: options.keep,
            bandwidth: Bandwidth::new(options.bandwidth_bytes_per_s),
            serve: Mutex::new(Box::new(|_, _| Err("no function serves the table".to_owned()))),
            member: Mutex::default(),
            stop: control.cancel.clone(),
        };
        let follower = Follower {
            location,
            control,
            folder: Arc::new(folder),
            machine: None,
            served: None,
            confirmed: SlotSet::NONE,
            started: Instant::now(),
            transfer: Cancel::default(),
            transfer_started: Instant::now(),
            transferred_bytes: None,
            repaired: None,
            rejected_at_start: 0,
            namesakes: Arc::new(Namesakes::new()),
            observe: None,
            notice: Box::new(|_| ()),
            folder_problem: String::new(),
            options,
        };
        follower.change(|facts| {
            facts.status.node = follower.options.node.clone();
            facts.polled_at = Some(follower.started.into_std());
        });
        Ok(follower)
    }

    /// Returns a handle to the follower.
    pub fn control(&self) -> FollowControl {
        self.control.clone()
    }

    /// Sets the function that serves generations: it receives the path of a verified file and its manifest, and rejects
    /// the file with an error that states the reason. The manifest's list of allowed changes has all changes from the
    /// served generation that publishers have allowed. The function may block: the node continues to follow the table
    /// meanwhile.
    pub fn serve_with(
        &mut self,
        serve: impl FnMut(&std::path::Path, &Manifest) -> Result<(), String> + Send + 'static,
    ) {
        *unpoisoned(&self.folder.serve) = Box::new(serve);
    }

    /// Sets a function that observes the progress of downloads. It runs between the actions of the follower, so it must
    /// return soon.
    pub fn observe(&mut self, progress: impl FnMut(TransferProgress) + Send + 'static) {
        self.observe = Some(Box::new(progress));
    }

    /// Sets a function that receives messages about damage that the node repairs, which therefore may be in no result
    /// of a poll: the file or the folder was damaged, deleted, or replaced.
    pub fn notice_with(&mut self, notice: impl FnMut(&str) + Send + 'static) {
        self.notice = Box::new(notice);
    }

    /// Makes the node a part of a cluster: it follows the topologies of the table, and has the slots that they assign
    /// to it.
    pub fn join(&mut self, member: Box<dyn ClusterMember>) {
        *unpoisoned(&self.folder.member) = Some(member);
    }

    /// Returns the path of the served file.
    pub fn serving_path(&self) -> PathBuf {
        self.folder.cache().serving_path()
    }

    /// Starts the machine, if it has not started, and puts the topology into effect that the folder has.
    fn machine(&mut self) -> &mut NodeMachine {
        if self.machine.is_none() {
            let topology = match &mut *unpoisoned(&self.folder.member) {
                Some(member) => Some(restore_topology(&mut **member, self.folder.cache().folder())),
                None => None,
            };
            let record = self.folder.cache().record();
            let options = NodeOptions {
                url: self.location.url().to_owned(),
                name: self.options.node.clone(),
                poll: self.options.poll,
                slots: topology.is_none().then(|| SlotSet::from_iter([self.options.slots])),
                is_writable: self.location.is_writable,
                allow: self.options.allow.clone(),
                shrink_max_percent: self.options.shrink_max_percent,
                seed: u64::from_le_bytes(random_bytes()),
            };
            let recorded = valid_slots(&record.slots);
            let earlier = record.earlier_slots.iter().map(|ranges| valid_slots(ranges));
            let known: Vec<SlotSet> =
                [recorded, SlotSet::from_iter([self.options.slots])].into_iter().chain(earlier).collect();
            let mut machine = NodeMachine::new(options, &record, self.folder.cache().complete(&known));
            if let Some(topology) = topology.flatten() {
                machine.follows(Arc::new(topology));
            }
            if let Some((manifest, slots)) = &self.served {
                machine.serves(manifest, slots.clone());
            }
            self.machine = Some(machine);
        }
        self.machine.as_mut().expect("the machine was started")
    }

    /// Serves the generation that the node served last, or otherwise the newest one that is complete in the folder.
    /// Returns its manifest, or `None` if no generation is complete or can be served. Sends no request to the store.
    pub fn serve_from_cache(&mut self) -> Option<Manifest> {
        let served = self.folder.served_slots();
        let machine = self.machine();
        machine.set_served_slots(served);
        let needed = machine.needed();
        let last = self.folder.cache().record();
        let mut sets = vec![needed.clone()];
        if unpoisoned(&self.folder.member).is_some() {
            // The last served file, and files of older generations, may have more slots than the node needs.
            let known = [&last.slots].into_iter().chain(&last.earlier_slots).map(|ranges| valid_slots(ranges));
            sets = known.filter(|known| needed.is_subset(known)).chain(sets).collect();
        }
        let mut complete = self.folder.cache().complete(&sets);
        // The last served generation is tried first, because a pin may have selected it.
        complete.sort_by_key(|manifest| (manifest.number == last.generation, manifest.number));
        for manifest in complete.into_iter().rev() {
            let Some(slots) = sets.iter().find(|slots| self.folder.cache().has(&manifest, slots)).cloned() else {
                continue;
            };
            let goal = Goal {
                manifest: Arc::new(manifest.clone()),
                slots: slots.clone(),
                repairs: false,
                allowed: Change::ALL.to_vec(),
            };
            match self.folder.swap(&goal, None, None) {
                Ok(()) => {
                    self.machine().serves(&manifest, slots.clone());
                    self.served = Some((manifest.clone(), slots));
                    self.change(|facts| facts.started_from_cache = true);
                    self.synchronize();
                    return Some(manifest);
                }
                Err(SwapFailure { error, .. }) => {
                    self.rejected_at_start += 1;
                    self.change(|facts| {
                        facts.status.error = error.to_string();
                        facts.status.failed = manifest.number;
                        facts.failures[FailureKind::Rejected as usize] += 1;
                    });
                }
            }
        }
        None
    }

    /// Follows the table until the follower is stopped. `polled` observes the result of each poll, when everything that
    /// the poll started has ended.
    pub async fn run(&mut self, mut polled: impl FnMut(&Result<Polled, PublishError>)) {
        // After a panic, nothing is known about the actions that were in progress.
        if self.machine.as_ref().is_some_and(|machine| machine.polls() > 0) {
            self.machine = None;
        }
        self.machine();
        let (mut jobs, (sender, mut progress)) = (Jobs::new(), unbounded_channel());
        while !self.control.is_stopped() {
            self.check_folder();
            self.act(&jobs, &sender);
            self.synchronize();
            if let Some(report) = self.machine().take_report() {
                polled(&report);
            }
            let now = self.started.elapsed();
            let wait = self.machine().wait_until(now).saturating_sub(now).min(Duration::from_secs(3600));
            let event = tokio::select! {
                Some(event) = jobs.next(), if !jobs.is_empty() => event,
                Some(report) = progress.recv() => {
                    self.progress(report);
                    continue;
                }
                () = self.control.wake.notified() => {
                    if self.control.is_poll_requested.swap(false, Ordering::AcqRel) {
                        self.apply(Event::Woken);
                    }
                    if self.control.is_damaged.swap(false, Ordering::AcqRel) {
                        self.apply(Event::Damaged("lookups found damaged blocks in the file in the cache"));
                    }
                    continue;
                }
                () = tokio::time::sleep(wait) => continue,
            };
            if let Event::Transferred(_) = event {
                self.drain(&mut progress);
                self.repaired = None;
            }
            self.apply(event);
        }
        self.transfer.set();
        polled(&Err(PublishError::Canceled));
        // Threads that use the folder must end before it is unlocked. Reads are dropped.
        let _ = tokio::time::timeout(STOP_MAX, async {
            while self.machine().is_folder_in_use() {
                let Some(event) = jobs.next().await else { return };
                self.apply(event);
            }
        })
        .await;
    }

    /// Opens the folder again if it was deleted or replaced.
    fn check_folder(&mut self) {
        // The result of a swap in progress would hide that its file is lost.
        if self.machine().swapping().is_some() {
            return;
        }
        let problem = match self.folder.reopen_if_replaced() {
            Some(Err(error)) => error.to_string(),
            Some(Ok(())) => {
                self.apply(Event::Damaged("the folder of the cache was deleted or replaced"));
                String::new()
            }
            None => String::new(),
        };
        if !problem.is_empty() && problem != self.folder_problem {
            (self.notice)(&format!("{problem}: the served generation stays"));
        }
        self.folder_problem = problem;
    }

    fn apply(&mut self, event: Event) {
        let now = self.started.elapsed();
        if let Event::Swapped(Ok(())) = &event {
            let goal = self.machine().swapping().cloned();
            self.served = goal.map(|goal| ((*goal.manifest).clone(), goal.slots));
        }
        self.machine().apply(event, now);
        for notice in self.machine().take_notices() {
            (self.notice)(&notice);
        }
    }

    fn drain(&mut self, progress: &mut UnboundedReceiver<TransferProgress>) {
        while let Ok(report) = progress.try_recv() {
            self.progress(report);
        }
    }

    fn progress(&mut self, progress: TransferProgress) {
        if let Some(observe) = &mut self.observe {
            observe(progress);
        }
        let more = self.transferred_bytes.map_or(0, |last| progress.done_bytes.saturating_sub(last));
        self.transferred_bytes = Some(progress.done_bytes);
        self.change(|facts| {
            facts.fetched_bytes += more;
            facts.fetching = Some((progress.done_bytes, progress.total_bytes));
        });
    }

    fn act(&mut self, jobs: &Jobs, progress: &UnboundedSender<TransferProgress>) {
        loop {
            let served = self.folder.served_slots();
            let now = self.started.elapsed();
            let machine = self.machine();
            machine.set_served_slots(served);
            let next = machine.next(now);
            self.confirm();
            let Some(action) = next else { return };
            let job = match action {
                Action::Read(read) => {
                    let location = self.location.clone();
                    async move {
                        let found = find(&location, &read).await;
                        Event::Read(read, found)
                    }
                    .boxed()
                }
                Action::Activate(topology) => {
                    let activated = self.activate(&topology);
                    self.apply(Event::Activated(topology, activated));
                    continue;
                }
                Action::Transfer(goal) => self.transfer(goal, progress.clone()),
                Action::CancelTransfer => {
                    self.transfer.set();
                    continue;
                }
                Action::Swap(goal, record) => {
                    let (folder, served) = (Arc::clone(&self.folder), self.served.clone());
                    let swap = move || folder.swap(&goal, Some(&record), served.as_ref());
                    blocking(swap, |result| {
                        Event::Swapped(result.unwrap_or_else(|error| Err(SwapFailure::new(error, false))))
                    })
                }
                Action::Settle(record, needed) => {
                    let needed_slots = self.machine().needed();
                    let (kept, folder) = (self.kept(needed_slots), Arc::clone(&self.folder));
                    let settle = move || folder.settle(&record, &needed, &kept);
                    blocking(settle, |result| Event::Settled(result.and_then(|result| result)))
                }
                Action::WriteStatus(status) => {
                    let (location, status) = (self.location.clone(), self.extended(status));
                    let namesakes = Arc::clone(&self.namesakes);
                    async move { Event::StatusWritten(namesakes.report(&location, status).await) }.boxed()
                }
            };
            jobs.push(job);
        }
    }

    /// Serves the slots that the node confirms in its next status.
    fn confirm(&mut self) {
        let confirmed = self.machine().confirmed();
        if confirmed != self.confirmed {
            if let Some(member) = &mut *unpoisoned(&self.folder.member) {
                member.confirm(&confirmed);
            }
            self.confirmed = confirmed;
        }
    }

    fn activate(&self, topology: &Topology) -> Result<(), PublishError> {
        match &mut *unpoisoned(&self.folder.member) {
            Some(member) => activate_topology(&mut **member, topology, self.folder.cache().folder()),
            None => Ok(()),
        }
    }

    /// Returns which files the folder keeps if the node needs these slots.
    fn kept(&mut self, needed: SlotSet) -> Kept {
        let repaired = self.repaired;
        let machine = self.machine();
        Kept { slots: vec![needed, machine.held().clone()], earlier_slots: machine.earlier_slots().to_vec(), repaired }
    }

    /// Starts a transfer on a thread of its own, because it verifies and merges files.
    fn transfer(&mut self, goal: Goal, progress: UnboundedSender<TransferProgress>) -> BoxFuture<'static, Event> {
        (self.transfer, self.transferred_bytes) = (Cancel::default(), None);
        self.transfer_started = Instant::now();
        let needed =
            self.served.iter().map(|(manifest, _)| Arc::new(manifest.clone())).chain([Arc::clone(&goal.manifest)]);
        let needed: Vec<Arc<Manifest>> = needed.collect();
        self.repaired = goal.repairs.then_some(goal.manifest.number);
        let kept = self.kept(goal.slots.clone());
        let (folder, location) = (Arc::clone(&self.folder), self.location.clone());
        let (cancel, handle) = (self.transfer.clone(), Handle::current());
        let run = move || {
            let mut report = move |report: TransferProgress| {
                // Fails only if the follower has ended.
                let _ = progress.send(report);
            };
            let fetch = async {
                let Goal { manifest, slots: wanted, repairs, .. } = &goal;
                let is_damaged = *repairs && folder.cache().salvage_if_damaged(&location, manifest, wanted, &cancel)?;
                let mut complete = kept.slots.iter().chain(&kept.earlier_slots);
                let complete =
                    complete.find(|slots| wanted.is_subset(slots) && folder.cache().has(manifest, slots)).cloned();
                match complete {
                    Some(slots) if !is_damaged => return Ok(Box::new(slots)),
                    Some(_) => {}
                    None => folder.cache().trim(folder.keep, &needed, &kept)?,
                }
                let wanted = Wanted { manifest, slots: wanted, replaces: is_damaged };
                folder.cache().fetch(&location, wanted, &folder.bandwidth, &cancel, &mut report).await?;
                Ok(Box::new(goal.slots.clone()))
            };
            handle.block_on(until_canceled(&cancel, fetch))
        };
        blocking(run, |result| Event::Transferred(result.and_then(|result| result)))
    }

    /// Updates the facts that other threads read.
    fn synchronize(&mut self) {
        let status = self.machine().status();
        let status = self.extended(status);
        let machine = self.machine();
        let (polls, mut failures, is_fetching) = (machine.polls(), machine.failures(), machine.fetching().is_some());
        let (slots, has_started) = (machine.held().summary(), machine.serving() > 0 || machine.polls() > 0);
        failures[FailureKind::Rejected as usize] += self.rejected_at_start;
        if !has_started {
            return;
        }
        let polled_at = (self.started + self.machine().polled_at().unwrap_or_default()).into_std();
        let created = self.served.as_ref().map(|(manifest, _)| manifest.created.clone()).unwrap_or_default();
        self.change(|facts| {
            (facts.polls, facts.failures) = (polls, failures);
            (facts.polled_at, facts.serving_created) = (Some(polled_at), created);
            if !is_fetching {
                facts.fetching = None;
            }
            if status.serving > 0 {
                facts.slots = slots;
            }
            facts.status = status;
        });
    }

    /// Adds the clock's and the transfer's part of a status.
    fn extended(&mut self, status: NodeStatus) -> NodeStatus {
        let now = self.started.elapsed();
        let machine = self.machine();
        let lag_s = machine.missing().map_or(0, |manifest| age_s(&manifest.created));
        let poll_age_s = (now - machine.polled_at().unwrap_or_default()).as_secs();
        let fetch = machine.fetching().and(self.control.facts().fetching);
        let fetch_s = if status.fetching > 0 { self.transfer_started.elapsed() } else { Duration::ZERO };
        let (fetched_bytes, fetch_bytes) = fetch.unwrap_or_default();
        let rate = fetched_bytes as f64 / fetch_s.as_secs_f64().max(1.0);
        let fetch_bytes_per_s = if fetch_bytes > 0 { rate as u64 } else { 0 };
        NodeStatus {
            lag_s,
            poll_age_s,
            fetched_bytes,
            fetch_bytes,
            fetch_bytes_per_s,
            fetch_s: fetch_s.as_secs(),
            zone: self.options.zone.clone(),
            instance: self.namesakes.instance().to_owned(),
            other_instance: self.namesakes.other(),
            error: if self.folder_problem.is_empty() { status.error } else { self.folder_problem.clone() },
            ..status
        }
    }

    fn change(&self, change: impl FnOnce(&mut FollowFacts)) {
        change(&mut unpoisoned(&self.control.facts));
    }
}

impl Folder {
    fn cache(&self) -> Arc<Cache> {
        Arc::clone(&unpoisoned(&self.cache))
    }

    /// Opens the folder again if it was deleted or replaced. Returns `None` if it was not.
    fn reopen_if_replaced(&self) -> Option<Result<(), PublishError>> {
        let mut cache = unpoisoned(&self.cache);
        let reopened = cache.reopen_if_replaced()?;
        Some(reopened.map(|reopened| *cache = Arc::new(reopened)))
    }

    /// Returns the slots that the program serves, as a node of a cluster.
    fn served_slots(&self) -> SlotSet {
        unpoisoned(&self.member).as_ref().map_or(SlotSet::NONE, |member| member.served_slots())
    }

    fn announce(&self, slots: &SlotSet) {
        if let Some(member) = &mut *unpoisoned(&self.member) {
            member.set_file_slots(slots);
        }
    }

    /// Serves a generation whose file is complete. The record is written first: a node that is killed before the end
    /// starts with the generation that its clients may have seen. If the generation is rejected, restores what was
    /// served.
    fn swap(
        &self,
        goal: &Goal,
        record: Option<&Record>,
        served: Option<&(Manifest, SlotSet)>,
    ) -> Result<(), SwapFailure> {
        let failed = |error| SwapFailure::new(error, false);
        let (manifest, before) = (&goal.manifest, self.cache().record());
        let allowed = goal.allowed.iter().map(|change| change.name().to_owned()).collect();
        let offered = Manifest { allowed, ..(**manifest).clone() };
        record.map_or(Ok(()), |record| self.cache().write_record(record)).map_err(failed)?;
        self.announce(&goal.slots);
        let placed = self.cache().place(manifest, &goal.slots);
        let rejected = |problem| PublishError::Rejected { generation: manifest.number, problem };
        let served_now =
            placed.and_then(|()| (unpoisoned(&self.serve))(&self.cache().serving_path(), &offered).map_err(rejected));
        let Err(error) = served_now else { return Ok(()) };
        if let Some(record) = record {
            let _ = self.cache().write_record(&record.after_failure(before));
        }
        if let Some((manifest, slots)) = served {
            self.announce(slots);
            if self.cache().has(manifest, slots) {
                let _ = self.cache().place(manifest, slots);
            }
        }
        // Files in the cache were intact once. The store may be unreachable, so only a damaged one is deleted.
        let is_damaged =
            self.cache().discard_if_damaged(&self.location, manifest, &goal.slots, &self.stop).unwrap_or(false);
        let error = match error {
            PublishError::Rejected { generation, problem } if is_damaged => PublishError::Corrupt {
                object: format!("generation {generation} in the cache"),
                problem: format!("{problem}: it is fetched again"),
            },
            error => error,
        };
        Err(SwapFailure::new(error, is_damaged))
    }

    fn settle(&self, record: &Record, needed: &[Arc<Manifest>], kept: &Kept) -> Result<(), PublishError> {
        self.cache().write_record(record)?;
        self.cache().trim(self.keep, needed, kept)
    }
}

fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
    event: impl FnOnce(Result<T, PublishError>) -> Event + Send + 'static,
) -> BoxFuture<'static, Event> {
    let thread = spawn_blocking(run);
    let panicked = |error: tokio::task::JoinError| PublishError::Rejected {
        generation: 0,
        problem: format!("a thread panicked, please report this: {error}"),
    };
    async move { event(thread.await.map_err(panicked)) }.boxed()
}

async fn find(location: &Location, read: &Read) -> Result<Found, PublishError> {
    Ok(match read {
        Read::NewestManifest(known) => Found::Newest(location.highest_if_listed(Series::Manifests, *known).await?),
        Read::NewestPin(known) => Found::Newest(location.highest_if_listed(Series::Pins, *known).await?),
        Read::NewestTopology(known) => Found::Newest(location.highest_if_listed(Series::Topologies, *known).await?),
        Read::CheckManifest(number) => {
            let (exists, manifest) = match Manifest::read(location, *number).await {
                Ok(manifest) => (manifest.is_some(), manifest.map(Box::new)),
                Err(PublishError::Document { .. }) => (true, None),
                Err(error) => return Err(error),
            };
            let newest = match location.is_writable {
                true => location.highest_if_listed(Series::Manifests, *number).await?,
                false => *number,
            };
            Found::Checked { exists, manifest, newest }
        }
        Read::Manifest(number) | Read::PinnedManifest(number) | Read::OlderManifest(number) => {
            Found::Manifest(Manifest::read(location, *number).await?.map(Box::new))
        }
        Read::Pin(number) => Found::Pin(Pin::read(location, *number).await?),
        Read::Decision(pin) => Found::Decision(Decision::read(location, *pin).await?),
        Read::Topology(number) | Read::ReportedTopology(number) => {
            Found::Topology(read_topology(location, *number).await?)
        }
        Read::Statuses(nodes) => {
            let read = |node: &String| {
                let node = node.clone();
                async move { read_status(location, &node).await }
            };
            let read: Vec<_> =
                stream::iter(nodes.iter().map(read)).buffer_unordered(STATUSES_AT_ONCE).try_collect().await?;
            Found::Statuses(read.into_iter().flatten().collect())
        }
        // An unreadable status counts as no report.
        Read::AllStatuses => Found::Statuses(NodeStatus::read_all(location, &mut |_| ()).await?),
    })
}

/// Reads the status of a node with its age.
async fn read_status(location: &Location, node: &str) -> Result<Option<NodeStatus>, PublishError> {
    let Some(mut status) = NodeStatus::read(location, node).await? else { return Ok(None) };
    let object = format!("status/{node}.json");
    match location.store.head(&location.path(&object)).await {
        Ok(meta) => {
            let age = SystemTime::now().duration_since(meta.last_modified.into()).unwrap_or_default();
            status.age_s = age.as_secs();
            Ok(Some(status))
        }
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(location.fault(&object)(error)),
    }
}
