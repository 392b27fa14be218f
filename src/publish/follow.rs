//! A node: follows a published table, and has new generations served.
//!
//! In: the documents of a table, and requests to look for new ones. Out: verified files in a folder, calls of a
//! function that serves them, and the node's status. Each poll reads only the next manifest and the next pin, so it
//! costs two requests and lists nothing. Failures are reported, and the generation that is served stays.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::bandwidth::Bandwidth;
use super::cache::{Cache, Serving};
use super::document::Series;
use super::error::{FailureKind, PublishError};
use super::follow_control::{FollowControl, FollowFacts, FollowOptions};
use super::foreign_text::one_line;
use super::limits::DOCUMENTS_PER_POLL_MAX;
use super::location::Location;
use super::manifest::Manifest;
use super::membership::{ClusterMember, Membership};
use super::pin::{Decision, Pin};
use super::status::NodeStatus;
use super::transfer::{Progress, random_below, until_canceled};
use crate::cluster::{SlotSet, node_id_problem};
use crate::folder::Folder;
use crate::sync::unpoisoned;

/// The maximum time between two attempts to serve a generation that failed.
const RETRY_MAX: Duration = Duration::from_secs(300);
/// The maximum time after which a status is written again although it did not change.
const STATUS_EVERY: Duration = Duration::from_secs(60);
/// The number of polls after which a node of a cluster writes its status again, so that its failure is noticed soon.
const STATUS_POLLS: u32 = 3;

/// Serves the file at a path, which has the rows of a generation. Returns why the file is not served as the error.
pub type Serve = Box<dyn FnMut(&Path, &Manifest) -> Result<(), String> + Send>;

/// A node's copy of a published table.
pub struct Follower {
    location: Location,
    cache: Cache,
    options: FollowOptions,
    bandwidth: Bandwidth,
    control: FollowControl,
    serving: Serving,
    /// The slots of the file that is served.
    held: SlotSet,
    /// The cluster that the node is part of.
    membership: Option<Membership>,
    /// The newest manifest.
    newest: Option<Manifest>,
    /// The newest pin. Its number is in `serving`.
    pin: Option<Pin>,
    /// Whether the newest pin was read since the follower was opened.
    are_pins_known: bool,
    failure: Option<Failure>,
    /// Whether the folder has the record of the served generation, and nothing that is not needed.
    is_settled: bool,
    /// When the status was written last, and the status without its time.
    status_written: Option<(Instant, NodeStatus)>,
    is_status_failing: bool,
    observe: Option<Observe>,
}

/// Observes the downloads of a follower.
type Observe = Box<dyn FnMut(Progress) + Send>;

/// A generation that the node cannot serve.
struct Failure {
    generation: u64,
    attempts: u32,
    retry_at: Instant,
}

/// What a poll changed.
#[derive(Debug, PartialEq, Eq)]
pub enum Polled {
    /// The node serves the generation that it should, which has this number.
    Current(u64),
    /// The node has begun to serve a generation.
    Served(u64),
    /// The node has prepared a generation, and waits for the decision of a rollout.
    Holding(u64),
    /// The generation with this number failed, and is tried again later.
    Waiting(u64),
    /// The table has no generation.
    Empty,
    /// The topology of the cluster assigns no slots to the node.
    Unassigned,
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
        let location = Location::parse(url)?;
        let cache = Cache::open(&options.cache, SlotSet::from_iter([options.slots]))?;
        let bandwidth = Bandwidth::new(options.bandwidth_bytes_per_s);
        let follower = Follower {
            location,
            cache,
            bandwidth,
            control: FollowControl::default(),
            serving: Serving::default(),
            held: SlotSet::NONE,
            membership: None,
            newest: None,
            pin: None,
            are_pins_known: false,
            failure: None,
            is_settled: false,
            status_written: None,
            is_status_failing: false,
            observe: None,
            options,
        };
        follower.change(|facts| facts.status.node = follower.options.node.clone());
        Ok(follower)
    }

    /// Returns a handle to the follower.
    pub fn control(&self) -> FollowControl {
        self.control.clone()
    }

    /// Sets a function that observes the progress of downloads. It runs between the requests of a download, so it must
    /// return soon.
    pub fn observe(&mut self, progress: impl FnMut(Progress) + Send + 'static) {
        self.observe = Some(Box::new(progress));
    }

    /// Makes the node a part of a cluster: it follows the topologies of the table, and has the slots that they assign to
    /// it.
    ///
    /// # Errors
    /// [`PublishError::Io`].
    pub fn join(&mut self, member: Box<dyn ClusterMember>) -> Result<(), PublishError> {
        let folder = self.cache.folder().try_clone().map_err(PublishError::io(&self.options.cache))?;
        let membership = Membership::open(member, &self.options.node, folder);
        let recorded: SlotSet = self.cache.serving().slots.into_iter().filter(|range| range.is_valid()).collect();
        // The file that was served last may have more slots than the node needs.
        let needed = membership.slots_needed();
        self.cache.set_slots(if needed.is_subset(&recorded) { recorded } else { needed });
        self.cache.serves_slots();
        self.membership = Some(membership);
        Ok(())
    }

    /// Opens the folder of the node, for further files of its program.
    ///
    /// # Errors
    /// [`PublishError::Io`].
    #[doc(hidden)]
    pub fn folder(&self) -> Result<Folder, PublishError> {
        self.cache.folder().try_clone().map_err(PublishError::io(&self.options.cache))
    }

    /// Returns the path of the file that is served.
    pub fn serving_path(&self) -> PathBuf {
        self.cache.serving_path()
    }

    /// Serves the generation that the node served last, or otherwise the newest one that is complete in the folder.
    /// Returns its manifest, or `None` if no generation is complete or can be served. Sends no request to the store.
    pub fn serve_from_cache(&mut self, serve: &mut Serve) -> Option<Manifest> {
        let (last, mut complete) = (self.cache.serving(), self.cache.complete());
        // The generation that was served last is tried first, because a pin may have selected it.
        complete.sort_by_key(|manifest| (manifest.number == last.generation, manifest.number));
        for manifest in complete.into_iter().rev() {
            if let Some(membership) = &mut self.membership {
                membership.set_file_slots(self.cache.slots());
            }
            let served = self.cache.place(&manifest).map_err(|error| error.to_string());
            match served.and_then(|()| serve(&self.cache.serving_path(), &manifest)) {
                Ok(()) => {
                    self.held = self.cache.slots().clone();
                    self.serving = Serving { generation: manifest.number, pin: last.pin, slots: self.held.ranges() };
                    self.report_serving(&manifest);
                    self.change(|facts| facts.started_from_cache = true);
                    return Some(manifest);
                }
                Err(problem) => {
                    self.change(|facts| {
                        facts.status.error =
                            one_line(&format!("generation {} in the cache: {problem}", manifest.number));
                        facts.status.failed = manifest.number;
                        facts.failures[FailureKind::Rejected as usize] += 1;
                    });
                    // The store may be unreachable, so a file that is not damaged stays.
                    let _ = self.cache.discard_if_damaged(&manifest, &self.control.cancel);
                }
            }
        }
        None
    }

    /// Polls until the follower is stopped. `polled` observes the result of each poll.
    pub async fn run(&mut self, serve: &mut Serve, mut polled: impl FnMut(&Result<Polled, PublishError>)) {
        while !self.control.is_stopped() {
            let (cancel, poll) = (self.control.cancel.clone(), self.poll(serve));
            polled(&until_canceled(&cancel, poll).await);
            // A follower that is stopped does not wait for a store that cannot be reached.
            let write = async {
                self.write_status().await;
                Ok(())
            };
            let _ = until_canceled(&cancel, write).await;
            let poll_ms = self.options.poll.as_millis() as u64;
            let wait = Duration::from_millis(poll_ms / 2 + random_below(poll_ms.saturating_add(1)));
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.control.wake.notified() => {
                    self.failure = None;
                }
            }
        }
    }

    /// Reads the next manifest and the next pin, and serves another generation if the node should.
    ///
    /// # Errors
    /// [`PublishError`], after which the node continues to serve what it serves.
    pub async fn poll(&mut self, serve: &mut Serve) -> Result<Polled, PublishError> {
        self.change(|facts| facts.polls += 1);
        let result = self.poll_once(serve).await;
        if let Err(error) = &result {
            let (text, kind) = (error.to_string(), error.kind());
            self.change(|facts| {
                facts.fetching = None;
                facts.status.error = text;
                facts.failures[kind as usize] += 1;
            });
        }
        result
    }

    async fn poll_once(&mut self, serve: &mut Serve) -> Result<Polled, PublishError> {
        // A topology that cannot be read does not keep the node from serving new generations.
        let topology = match &mut self.membership {
            Some(membership) => membership.read(&self.location).await,
            None => Ok(()),
        };
        let polled = self.poll_table(serve).await?;
        topology?;
        if let Some(membership) = &mut self.membership {
            membership.advance(&self.location, &self.held).await?;
            let number = membership.number();
            self.change(|facts| facts.status.topology = number);
        }
        Ok(polled)
    }

    async fn poll_table(&mut self, serve: &mut Serve) -> Result<Polled, PublishError> {
        self.read_manifests().await?;
        self.read_pins().await?;
        let (newest, pin) = (self.newest.as_ref().map_or(0, |newest| newest.number), self.serving.pin);
        self.change(|facts| (facts.status.newest, facts.status.pin) = (newest, pin));
        let Some((target, hold)) = self.target().await? else { return Ok(Polled::Empty) };
        let needed = self.membership.as_ref().map(Membership::slots_needed);
        if needed.as_ref().is_some_and(SlotSet::is_empty) {
            return Ok(Polled::Unassigned);
        }
        let has_slots = needed.as_ref().is_none_or(|needed| needed.is_subset(&self.held));
        if target.number == self.serving.generation && has_slots {
            self.failure = None;
            if !self.is_settled {
                self.settle(&target, &[target.number])?;
            }
            self.change(|facts| (facts.status.error, facts.status.failed, facts.status.lag_s) = (String::new(), 0, 0));
            return Ok(Polled::Current(target.number));
        }
        let lag_s = age_s(&target.created);
        self.change(|facts| facts.status.lag_s = lag_s);
        let is_waiting = |failure: &Failure| failure.generation == target.number && Instant::now() < failure.retry_at;
        if self.failure.as_ref().is_some_and(is_waiting) {
            return Ok(Polled::Waiting(target.number));
        }
        if let Some(needed) = needed {
            self.cache.set_slots(needed);
        }
        let prepared = self.prepare(&target).await;
        if let Err(error) = prepared {
            self.fail(target.number);
            return Err(error);
        }
        self.change(|facts| facts.status.prepared = target.number);
        if hold {
            self.write_status().await;
            return Ok(Polled::Holding(target.number));
        }
        self.serve(&target, serve)
    }

    /// Reads the manifests that follow the newest known one.
    async fn read_manifests(&mut self) -> Result<(), PublishError> {
        let known = self.newest.as_ref().map(|newest| newest.number);
        // A node that starts does not know how many generations there are, so it searches for the newest one.
        let mut next = match known {
            Some(known) => known + 1,
            None => self.location.newest(Series::Manifests, 0).await?.max(1),
        };
        let end = next.saturating_add(DOCUMENTS_PER_POLL_MAX);
        while next < end
            && let Some(manifest) = Manifest::read(&self.location, next).await?
        {
            self.newest = Some(manifest);
            next += 1;
        }
        Ok(())
    }

    /// Reads the pins that follow the newest known one.
    async fn read_pins(&mut self) -> Result<(), PublishError> {
        let mut next = match self.are_pins_known {
            true => self.serving.pin + 1,
            false => self.location.newest(Series::Pins, 0).await?.max(1),
        };
        let end = next.saturating_add(DOCUMENTS_PER_POLL_MAX);
        while next < end
            && let Some(pin) = Pin::read(&self.location, next).await?
        {
            (self.pin, self.serving.pin) = (Some(pin), next);
            next += 1;
        }
        self.are_pins_known = true;
        Ok(())
    }

    /// Returns the manifest of the generation that the node should prepare, and whether it waits for the decision of a
    /// rollout before it serves the generation. Returns `None` if the table has no generation.
    async fn target(&mut self) -> Result<Option<(Manifest, bool)>, PublishError> {
        let node = self.options.node.as_str();
        let pin = self.pin.as_ref().map(|pin| (pin.generation_for(Some(node)), pin.hold && pin.applies_to(node)));
        let Some((Some(number), hold)) = pin else { return self.newest_target() };
        let mut hold = hold && number != self.serving.generation;
        if hold {
            match Decision::read(&self.location, number).await? {
                Some(Decision::Activate) => hold = false,
                Some(Decision::Abort) => return self.current().await,
                None => {}
            }
        }
        Ok(Some((self.manifest(number).await?, hold)))
    }

    /// Returns the newest manifest, unless it is older than the one that is served: only a pin makes a node go back.
    fn newest_target(&self) -> Result<Option<(Manifest, bool)>, PublishError> {
        let (newest, serving) = (self.newest.as_ref().map_or(0, |newest| newest.number), self.serving.generation);
        if newest < serving {
            let problem = format!(
                "the newest generation is {newest}, but this node serves generation {serving}: the store returned an \
                 older state, or the table was created again: to serve that table, empty the cache and start again"
            );
            return Err(PublishError::NoGeneration { url: self.location.url().to_owned(), problem });
        }
        Ok(self.newest.clone().map(|newest| (newest, false)))
    }

    /// Returns the manifest of the generation that is served.
    async fn current(&mut self) -> Result<Option<(Manifest, bool)>, PublishError> {
        match self.serving.generation {
            0 => Ok(None),
            number => Ok(Some((self.manifest(number).await?, false))),
        }
    }

    /// Returns the manifest of a generation, from the folder if possible.
    async fn manifest(&self, number: u64) -> Result<Manifest, PublishError> {
        if let Some(newest) = self.newest.as_ref().filter(|newest| newest.number == number) {
            return Ok(newest.clone());
        }
        if let Some(manifest) = self.cache.complete().into_iter().find(|manifest| manifest.number == number) {
            return Ok(manifest);
        }
        let missing = || PublishError::NoGeneration {
            url: self.location.url().to_owned(),
            problem: format!("the pin names generation {number}, which does not exist: pin an existing generation"),
        };
        Manifest::read(&self.location, number).await?.ok_or_else(missing)
    }

    /// Fetches and verifies a generation, unless the folder has it.
    async fn prepare(&mut self, manifest: &Manifest) -> Result<(), PublishError> {
        if self.cache.has(manifest) {
            return Ok(());
        }
        self.cache.trim(self.options.keep, &[self.serving.generation], manifest)?;
        let facts = Arc::clone(&self.control.facts);
        let mut last_bytes = None;
        let observe = &mut self.observe;
        let mut progress = move |progress: Progress| {
            if let Some(observe) = observe {
                observe(progress);
            }
            let mut facts = unpoisoned(&facts);
            let more = last_bytes.map_or(0, |last| progress.done_bytes.saturating_sub(last));
            last_bytes = Some(progress.done_bytes);
            facts.fetched_bytes += more;
            facts.fetching = Some((progress.done_bytes, progress.total_bytes));
        };
        let fetched =
            self.cache.fetch(&self.location, manifest, &self.bandwidth, &self.control.cancel, &mut progress).await;
        self.change(|facts| facts.fetching = None);
        fetched
    }

    /// Serves a prepared generation.
    fn serve(&mut self, manifest: &Manifest, serve: &mut Serve) -> Result<Polled, PublishError> {
        let before = self.serving.generation;
        if let Some(membership) = &mut self.membership {
            membership.set_file_slots(self.cache.slots());
        }
        self.cache.place(manifest)?;
        if let Err(problem) = serve(&self.cache.serving_path(), manifest) {
            self.fail(manifest.number);
            if let Some(membership) = &mut self.membership {
                self.cache.set_slots(self.held.clone());
                membership.set_file_slots(&self.held);
            }
            if let Some(before) = self.cache.complete().iter().find(|manifest| manifest.number == before) {
                self.cache.place(before)?;
            }
            return Err(PublishError::Rejected { generation: manifest.number, problem });
        }
        self.cache.serves_slots();
        self.held = self.cache.slots().clone();
        (self.serving.generation, self.serving.slots) = (manifest.number, self.held.ranges());
        (self.failure, self.is_settled) = (None, false);
        self.settle(manifest, &[manifest.number, before])?;
        Ok(Polled::Served(manifest.number))
    }

    /// Records what the node serves, and deletes what the folder need not keep. An attempt that failed is repeated at the
    /// next poll.
    fn settle(&mut self, served: &Manifest, needed: &[u64]) -> Result<(), PublishError> {
        let recorded = self.cache.record(&self.serving);
        self.report_serving(served);
        recorded?;
        self.cache.trim(self.options.keep, needed, served)?;
        self.is_settled = true;
        Ok(())
    }

    /// Records that a generation cannot be served now, so that the next attempt waits.
    fn fail(&mut self, generation: u64) {
        let attempts = self.failure.as_ref().filter(|failure| failure.generation == generation);
        let attempts = attempts.map_or(0, |failure| failure.attempts) + 1;
        let wait = self.options.poll.saturating_mul(1 << attempts.min(10)).min(RETRY_MAX);
        self.failure = Some(Failure { generation, attempts, retry_at: Instant::now() + wait });
        self.change(|facts| facts.status.failed = generation);
    }

    fn report_serving(&self, manifest: &Manifest) {
        self.change(|facts| {
            facts.slots = self.held.summary();
            let status = &mut facts.status;
            if self.membership.is_some() {
                status.slots = self.held.ranges();
            }
            (status.serving, status.digest) = (manifest.number, manifest.digest());
            (status.prepared, status.failed, status.lag_s) = (0, 0, 0);
            status.error.clear();
        });
    }

    fn change(&self, change: impl FnOnce(&mut FollowFacts)) {
        change(&mut unpoisoned(&self.control.facts));
    }

    /// Writes the status to the store, if it has changed or the last one is old. A failure is counted, but does not
    /// affect serving.
    async fn write_status(&mut self) {
        if !self.location.is_writable {
            return;
        }
        let status = self.control.facts().status;
        let every = match &self.membership {
            Some(_) => STATUS_EVERY.min(self.options.poll.saturating_mul(STATUS_POLLS)),
            None => STATUS_EVERY,
        };
        let compared = NodeStatus { lag_s: 0, ..status.clone() };
        let is_same = |(at, last): &(Instant, NodeStatus)| *last == compared && at.elapsed() < every;
        if self.status_written.as_ref().is_some_and(is_same) {
            return;
        }
        match status.write(&self.location).await {
            Ok(()) => {
                self.status_written = Some((Instant::now(), compared));
                self.is_status_failing = false;
            }
            Err(error) if !self.is_status_failing => {
                self.is_status_failing = true;
                let kind = error.kind();
                self.change(|facts| facts.failures[kind as usize] += 1);
            }
            Err(_) => {}
        }
    }
}

/// Returns the number of seconds since a time in RFC 3339 text, or 0 if the time is in the future or malformed.
fn age_s(created: &str) -> u64 {
    let created = humantime::parse_rfc3339(created).ok();
    created.and_then(|created| SystemTime::now().duration_since(created).ok()).map_or(0, |age| age.as_secs())
}
