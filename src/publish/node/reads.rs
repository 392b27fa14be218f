//! The reads of a node: which document it reads next, and what each read changes.
//!
//! A poll is a round of reads, at most one at a time. A shorter round reads only the pins, immediately before a swap. A
//! [`SeriesReader`] reads a numbered series until a number is missing. A document that cannot be decoded does not hide
//! later ones: the reader passes over it, so a newer document leads out of every damaged state.

use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use super::{Action, CHECK_POLLS, Found, NodeMachine, Read, Round, split_mix};
use crate::publish::error::PublishError;
use crate::publish::manifest::Manifest;
use crate::publish::pin::Pin;

impl NodeMachine {
    pub(super) fn next_read(&mut self, now: Duration) -> Option<Action> {
        if self.is_reading {
            return None;
        }
        if self.round.is_none() {
            return if now >= self.next_round_at { self.begin_round(now, false) } else { None };
        }
        match self.next_read_of_round() {
            Some(read) => {
                self.is_reading = true;
                self.confirming = self.ready.as_ref().map(|ready| ready.generation);
                Some(Action::Read(read))
            }
            None => {
                self.end_round(now);
                // The end of a round may make a swap possible.
                self.next(now)
            }
        }
    }

    pub(super) fn begin_round(&mut self, now: Duration, is_confirmation: bool) -> Option<Action> {
        self.pins.begin_round();
        if !is_confirmation {
            self.polls += 1;
            self.is_woken = false;
            self.manifests.begin_round();
            self.topologies.series.begin_round();
        }
        self.round = Some(Round { is_confirmation, ..Round::default() });
        self.next_read(now)
    }

    fn next_read_of_round(&self) -> Option<Read> {
        let round = self.round.as_ref()?;
        match self.pins.next_read() {
            Some(SeriesRead::Search(known)) => return Some(Read::NewestPin(known)),
            Some(SeriesRead::Number(number)) => return Some(Read::Pin(number)),
            None if round.is_confirmation => return None,
            None => {}
        }
        match self.manifests.next_read() {
            Some(SeriesRead::Search(known)) => return Some(Read::NewestManifest(known)),
            Some(SeriesRead::Number(number)) => return Some(Read::Manifest(number)),
            None => {}
        }
        if let Some(number) = self.needed_manifest().filter(|_| !round.has_failed_older) {
            return Some(Read::OlderManifest(number));
        }
        let pin = self.pin.as_ref().filter(|_| self.pins.is_known());
        let selected = pin.and_then(|pin| pin.generation_for(Some(&self.options.name)));
        if let Some(number) = selected {
            if !round.has_read_pinned && !self.bodies.contains_key(&number) {
                return Some(Read::PinnedManifest(number));
            }
            let holds = pin.is_some_and(|pin| pin.hold && pin.applies_to(&self.options.name));
            if !round.has_read_decision && holds && number != self.serving && self.decision().is_none() {
                return Some(Read::Decision(self.pins.number()));
            }
        }
        if self.options.slots.is_none()
            && let Some(read) = self.topologies.next_read(round, &self.options)
        {
            return Some(read);
        }
        if !round.has_checked_serving && !self.has_checked_serving && self.serving > 0 {
            return Some(Read::CheckManifest(self.serving));
        }
        let is_check_due =
            self.polls_checked == 0 || self.is_newest_missing || self.polls >= self.polls_checked + CHECK_POLLS;
        (!round.has_checked && is_check_due && self.manifests.exists() > 0)
            .then(|| Read::CheckManifest(self.manifests.exists()))
    }

    fn end_round(&mut self, now: Duration) {
        let Some(mut round) = self.round.take() else { return };
        let mut error = round.error.take().map(|(_, error)| error);
        if error.is_none() && !self.pins.is_known() {
            error = Some(self.missing_pin());
        }
        self.is_unreported = true;
        if round.is_confirmation {
            if let Some(error) = error {
                self.fail_poll(error);
                self.waits_for_poll = true;
            }
            return;
        }
        let error = error.or_else(|| self.contradiction()).or_else(|| self.topologies.error.take());
        self.waits_for_poll = false;
        match error {
            Some(error) => self.fail_poll(error),
            None => {
                (self.poll_error, self.polled_at) = (None, Some(now));
                self.poll_problem.clear();
            }
        }
        let poll_ns = self.options.poll.as_nanos() as u64;
        let wait = poll_ns / 2 + split_mix(&mut self.random) % (poll_ns + 1);
        self.next_round_at = if self.is_woken { now } else { now + Duration::from_nanos(wait) };
        self.prune_bodies();
    }

    fn missing_pin(&self) -> PublishError {
        let number = self.pins.exists();
        PublishError::NoGeneration {
            url: self.options.url.clone(),
            problem: format!("pin {number} is missing or cannot be read: the served generation stays: create a pin"),
        }
    }

    /// Returns why the store's responses contradict the node's state.
    fn contradiction(&self) -> Option<PublishError> {
        let (newest, serving) = (self.manifests.exists(), self.serving);
        if serving <= newest && !self.is_newest_missing {
            return None;
        }
        let problem = format!(
            "the store does not have manifest {}, but this node serves generation {serving}: the store returned an \
             older state, or the manifest or the whole table was deleted: check the URL and the store, and restore \
             or publish what is missing. Only if the table was created again, empty the cache and start again to \
             serve the new one",
            newest.max(serving)
        );
        Some(PublishError::NoGeneration { url: self.options.url.clone(), problem })
    }

    pub(super) fn fail_poll(&mut self, error: PublishError) {
        self.failure_counts[error.kind() as usize] += 1;
        self.poll_problem = error.to_string();
        self.poll_error = Some(error);
    }

    /// Compares the manifest in the store with the known one. Manifests do not change, so another one belongs to
    /// another table, whose file replaces the served one.
    fn checked(&mut self, number: u64, manifest: Manifest, now: Duration) {
        let is_other = |known: &Arc<Manifest>| known.digest() != manifest.digest();
        if !self.bodies.get(&number).is_some_and(is_other) {
            return;
        }
        self.bodies.insert(number, Arc::new(manifest));
        if number == self.serving {
            self.damaged("the table was created again, or the cache has files of another table", now);
        }
    }

    fn found_pin(&mut self, number: u64, pin: Pin, now: Duration) {
        if !self.pins.found(number) {
            return;
        }
        // The operator may have corrected the cause of a failure, and repeats a rollout. The reports with this pin then
        // show only what happens from now on. Failures of other generations stay known: the node would fetch all of
        // them again before an older one.
        if let Some(generation) = pin.generation_for(Some(&self.options.name)) {
            self.failures.remove(&generation);
            self.unreadable.remove(&generation);
        }
        (self.pin, self.is_settled) = (Some(pin), false);
        if self.round.as_ref().is_some_and(|round| round.is_confirmation) {
            // Read the other documents that the pin needs.
            self.next_round_at = now;
        }
    }

    pub(super) fn apply_read(&mut self, read: Read, result: Result<Found, PublishError>, now: Duration) {
        let (found, mut error) = match result {
            Ok(found) => (Some(found), None),
            Err(error) => (None, Some(error)),
        };
        let is_damaged = matches!(error, Some(PublishError::Document { .. }));
        match (&read, found) {
            (Read::NewestPin(_), Some(Found::Newest(newest))) => self.pins.searched(newest),
            (Read::NewestPin(_), _) => self.pins.failed(),
            (Read::NewestManifest(_), Some(Found::Newest(newest))) => self.manifests.searched(newest),
            (Read::NewestManifest(_), _) => self.manifests.failed(),
            (Read::Pin(number), Some(Found::Pin(Some(pin)))) => self.found_pin(*number, pin, now),
            (Read::Pin(number), Some(_)) => self.pins.missing(*number),
            (Read::Pin(number), None) if is_damaged => self.pins.damaged(*number),
            (Read::Pin(_), None) => self.pins.failed(),
            (Read::Manifest(number), Some(Found::Manifest(Some(manifest)))) => {
                if self.manifests.found(*number) {
                    self.is_newest_missing = false;
                }
                self.bodies.insert(*number, Arc::from(manifest));
            }
            (Read::Manifest(number), Some(_)) => self.manifests.missing(*number),
            (Read::Manifest(number), None) if is_damaged => self.manifests.damaged(*number),
            (Read::Manifest(_), None) => self.manifests.failed(),
            (Read::CheckManifest(number), Some(Found::Checked { exists, manifest, newest })) => {
                self.has_checked_serving |= *number == self.serving;
                if *number == self.manifests.exists() {
                    self.polls_checked = self.polls;
                    self.unreadable.clear();
                    self.is_newest_missing = !exists && newest <= *number;
                }
                self.manifests.exists_up_to(newest);
                if let Some(manifest) = manifest {
                    self.checked(*number, *manifest, now);
                }
            }
            (Read::OlderManifest(number), Some(Found::Manifest(None))) => drop(self.unreadable.insert(*number)),
            (Read::OlderManifest(number), None) if is_damaged => drop(self.unreadable.insert(*number)),
            (Read::PinnedManifest(number) | Read::OlderManifest(number), Some(Found::Manifest(Some(manifest)))) => {
                self.bodies.insert(*number, Arc::from(manifest));
            }
            (Read::Decision(pin), Some(Found::Decision(Some(decision)))) => self.decision = Some((*pin, decision)),
            (
                Read::NewestTopology(_)
                | Read::Topology(_)
                | Read::ReportedTopology(_)
                | Read::Statuses(_)
                | Read::AllStatuses,
                found,
            ) => self.topologies.apply_read(&read, found, is_damaged, now),
            _ => {}
        }
        // The pins that a swap depends on were read to their end at this moment.
        if matches!(read, Read::Pin(_)) && error.is_none() && self.pins.next_read().is_none() && self.pins.is_known() {
            self.confirmed = self.confirming;
        }
        let Some(round) = &mut self.round else { return };
        if matches!(read, Read::OlderManifest(_)) && is_damaged {
            // The generation is passed over. It is an error only if it is the newest one, or if a pin selects it.
            error = None;
        }
        match &read {
            Read::PinnedManifest(number) => {
                round.has_read_pinned = true;
                if error.is_none() && !self.bodies.contains_key(number) {
                    let problem =
                        format!("the pin names generation {number}, which does not exist: pin an existing generation");
                    error = Some(PublishError::NoGeneration { url: self.options.url.clone(), problem });
                }
            }
            Read::OlderManifest(_) => round.has_failed_older |= error.is_some(),
            Read::Decision(_) => round.has_read_decision = true,
            Read::Statuses(_) | Read::AllStatuses => round.has_read_statuses = true,
            Read::ReportedTopology(_) => round.has_read_reported = true,
            Read::CheckManifest(number) => {
                round.has_checked |= *number == self.manifests.exists() || error.is_some();
                round.has_checked_serving |= *number == self.serving;
            }
            _ => {}
        }
        let is_same_series = |(failed, _): &(Read, PublishError)| discriminant(failed) == discriminant(&read);
        let is_known = match &read {
            Read::Pin(_) => self.pins.is_known(),
            Read::Manifest(_) => self.manifests.is_known(),
            Read::Topology(_) => self.topologies.series.is_known(),
            _ => false,
        };
        match (&round.error, error) {
            // A later document leads out of a damaged one.
            (Some(failed), None) if is_known && is_same_series(failed) => round.error = None,
            (None, Some(error)) => round.error = Some((read, error)),
            _ => {}
        }
    }
}

/// The maximum number of documents that a node reads in a round. It reads the others in the next round.
const READS_MAX: u32 = 32;
/// The maximum number of documents between the newest one that was read and the newest one that exists, for which a
/// node reads all of them. Otherwise, it continues with the newest one.
const SKIPPED_MAX: u64 = 8;

/// The reader of a series.
#[derive(Clone, Debug, Default)]
pub(super) struct SeriesReader {
    /// The number of the newest document that was read, or 0.
    number: u64,
    /// The highest known number. It never decreases.
    exists: u64,
    /// Whether the newest number was searched since the node started.
    is_searched: bool,
    /// Whether the reader goes back from a damaged document that the search found.
    is_descending: bool,
    /// The next number to read in this round. `None` after the last read.
    next: Option<u64>,
    reads: u32,
}

/// The next read of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeriesRead {
    /// Find the newest number. The contained number is known to exist, or 0.
    Search(u64),
    /// Read the document with a number.
    Number(u64),
}

impl SeriesReader {
    /// Creates a reader that has read the document with a number before the node started, or none if it is 0.
    pub(super) fn new(number: u64) -> SeriesReader {
        SeriesReader { number, exists: number, ..SeriesReader::default() }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the highest known number.
    pub(super) fn exists(&self) -> u64 {
        self.exists
    }

    /// Returns whether the newest document that is known to exist was read.
    pub(super) fn is_known(&self) -> bool {
        self.is_searched && self.number == self.exists
    }

    pub(super) fn begin_round(&mut self) {
        (self.next, self.reads) = (Some(self.first()), 0);
    }

    fn first(&self) -> u64 {
        if self.exists > self.number + SKIPPED_MAX { self.exists } else { self.number + 1 }
    }

    /// Returns the next read of this round, or `None` after the last one.
    pub(super) fn next_read(&self) -> Option<SeriesRead> {
        let number = self.next?;
        Some(if self.is_searched { SeriesRead::Number(number) } else { SeriesRead::Search(self.number) })
    }

    /// Records the newest number that a search found.
    pub(super) fn searched(&mut self, newest: u64) {
        self.exists = self.exists.max(newest);
        self.is_searched = true;
        // Without an earlier document, only the newest one matters, unless it is damaged.
        self.is_descending = self.number == 0 && self.exists > 0;
        self.next = Some(if self.is_descending { self.exists } else { self.first() });
    }

    /// Records that a number exists, which was not found by reading the preceding ones.
    pub(super) fn exists_up_to(&mut self, newest: u64) {
        self.exists = self.exists.max(newest);
    }

    /// Records that a document was read. Returns whether it is the newest one that was read.
    pub(super) fn found(&mut self, number: u64) -> bool {
        let is_newest = number > self.number;
        self.number = self.number.max(number);
        self.exists = self.exists.max(number);
        self.advance(if self.is_descending { self.exists } else { number });
        self.is_descending = false;
        is_newest
    }

    /// Records that a document exists but cannot be decoded.
    pub(super) fn damaged(&mut self, number: u64) {
        self.exists = self.exists.max(number);
        if self.is_descending && number > self.number + 1 && self.reads < READS_MAX / 2 {
            self.advance(number - 2);
        } else {
            self.advance(if self.is_descending { self.exists } else { number });
            self.is_descending = false;
        }
    }

    /// Records that there is no document with a number.
    pub(super) fn missing(&mut self, number: u64) {
        if number > self.exists {
            self.next = None;
        } else {
            // A gap, or a read that did not see the newest state.
            self.advance(number);
        }
    }

    /// Ends the reads of this round, because a read failed.
    pub(super) fn failed(&mut self) {
        self.next = None;
    }

    fn advance(&mut self, number: u64) {
        self.reads += 1;
        self.next = (self.reads < READS_MAX).then_some(number + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Event, NodeOptions};
    use super::*;
    use crate::cluster::SlotSet;
    use crate::publish::Record;
    use crate::publish::change::Change;
    use crate::publish::location::Location;

    /// A node that follows a table with one generation, whose transfers fail.
    struct FailingNode {
        machine: NodeMachine,
        manifest: Manifest,
        pins: Vec<Pin>,
        now: Duration,
    }

    impl FailingNode {
        fn new() -> FailingNode {
            let options = NodeOptions {
                url: "file:///table".to_owned(),
                name: "a".to_owned(),
                poll: Duration::from_secs(5),
                slots: Some(SlotSet::ALL),
                allow: Change::ALL.to_vec(),
                seed: 7,
                ..NodeOptions::default()
            };
            let machine = NodeMachine::new(options, &Record::default(), Vec::new());
            let mut manifest = Manifest::new(&Location::parse("file:///table").unwrap(), "job", Vec::new());
            manifest.number = 1;
            FailingNode { machine, manifest, pins: Vec::new(), now: Duration::ZERO }
        }

        fn found(&self, read: &Read) -> Found {
            match read {
                Read::NewestManifest(_) => Found::Newest(1),
                Read::NewestPin(_) => Found::Newest(self.pins.len() as u64),
                Read::NewestTopology(_) => Found::Newest(0),
                Read::CheckManifest(_) => Found::Checked { exists: true, manifest: None, newest: 1 },
                Read::Manifest(number) | Read::PinnedManifest(number) | Read::OlderManifest(number) => {
                    Found::Manifest((*number == 1).then(|| Box::new(self.manifest.clone())))
                }
                Read::Pin(number) => Found::Pin(self.pins.get(*number as usize - 1).cloned()),
                Read::Decision(_) => Found::Decision(None),
                Read::Topology(_) | Read::ReportedTopology(_) => Found::Topology(None),
                Read::Statuses(_) | Read::AllStatuses => Found::Statuses(Vec::new()),
            }
        }

        /// Lets the node act for a time. Returns the number of transfers.
        fn transfers_in(&mut self, time: Duration) -> usize {
            let (end, mut transfers) = (self.now + time, 0);
            while self.now < end {
                while let Some(action) = self.machine.next(self.now) {
                    let event = match action {
                        Action::Read(read) => {
                            let found = self.found(&read);
                            Event::Read(read, Ok(found))
                        }
                        Action::Transfer(_) => {
                            transfers += 1;
                            let (object, problem) = ("generation 1".to_owned(), "it is damaged".to_owned());
                            Event::Transferred(Err(PublishError::Corrupt { object, problem }))
                        }
                        Action::Settle(..) => Event::Settled(Ok(())),
                        action => panic!("{action:?}"),
                    };
                    self.machine.apply(event, self.now);
                }
                self.now = self.machine.wait_until(self.now).max(self.now + Duration::from_millis(1));
            }
            transfers
        }
    }

    /// An operator who has repaired a node or the store creates a pin again.
    #[test]
    fn a_new_pin_ends_the_wait_after_a_failure() {
        let mut node = FailingNode::new();
        for _ in 0..3 {
            let transfers = node.transfers_in(Duration::from_secs(3600));
            assert!((10..30).contains(&transfers), "{transfers}");
            // The next attempt is five minutes after this one.
            while node.transfers_in(Duration::from_secs(10)) == 0 {}
            assert_eq!(node.transfers_in(Duration::from_secs(20)), 0);
            node.pins.push(Pin::new(Some(1)));
            assert!(node.transfers_in(Duration::from_secs(20)) > 0);
        }
    }

    /// Reads a series whose documents are described by a function: `Some(true)` is intact, `Some(false)` is damaged.
    /// Returns the number of reads.
    fn read(reader: &mut SeriesReader, newest: u64, documents: impl Fn(u64) -> Option<bool>) -> u32 {
        reader.begin_round();
        let mut reads = 0;
        while let Some(next) = reader.next_read() {
            reads += 1;
            match next {
                SeriesRead::Search(known) => reader.searched(newest.max(known)),
                SeriesRead::Number(number) => match documents(number) {
                    Some(true) => drop(reader.found(number)),
                    Some(false) => reader.damaged(number),
                    None => reader.missing(number),
                },
            }
        }
        reads
    }

    #[test]
    fn a_reader_finds_the_newest_intact_document_and_then_reads_one_number_per_round() {
        for newest in 0..12_u64 {
            for damaged in 0..=newest {
                let documents = |number| (number >= 1 && number <= newest).then_some(number <= newest - damaged);
                let mut reader = SeriesReader::new(0);
                read(&mut reader, newest, documents);
                assert_eq!((reader.number(), reader.exists()), (newest - damaged, newest), "{damaged} are damaged");
                assert_eq!(reader.is_known(), damaged == 0);
                // A later document leads out.
                let documents = |number| if number == newest + 1 { Some(true) } else { documents(number) };
                read(&mut reader, newest, documents);
                assert_eq!(reader.number(), newest + 1);
                assert_eq!(read(&mut reader, newest, documents), 1);
                assert!(reader.is_known());
            }
        }
    }

    #[test]
    fn a_number_never_decreases_if_documents_disappear() {
        let mut reader = SeriesReader::new(7);
        read(&mut reader, 0, |_| None);
        assert_eq!((reader.number(), reader.is_known()), (7, true));
        // A gap: 8 is missing, but 9 exists.
        reader.exists_up_to(9);
        read(&mut reader, 0, |number| (number == 9).then_some(true));
        assert_eq!((reader.number(), reader.is_known()), (9, true));
    }
}
