//! What a node reports: its status in the store, and the outcome of its polls.

use std::mem::take;
use std::time::Duration;

use super::selection::Selection;
use super::{Action, Failure, Goal, NodeMachine, Polled, STATUS_EVERY, STATUS_GAP, STATUS_POLLS};
use crate::cluster::SlotSet;
use crate::publish::error::{FailureKind, PublishError};
use crate::publish::status::NodeStatus;

impl NodeMachine {
    fn is_idle(&self) -> bool {
        self.round.is_none() && self.transfer.is_none() && self.swap.is_none() && !self.is_settling
    }

    /// Returns the outcome of the polls that have ended, as soon as nothing that they started is in progress.
    pub(in crate::publish) fn take_report(&mut self) -> Option<Result<Polled, PublishError>> {
        // A starting node fetches an older generation if the newest one fails. That can take long, so the failure is
        // reported first.
        if self.serving == 0
            && let Some((_, error)) = self.goal_error.take()
        {
            return Some(Err(error));
        }
        if !self.is_unreported || !self.is_idle() || self.polls == 0 {
            return None;
        }
        self.is_unreported = false;
        let has_served = take(&mut self.has_served);
        // A served generation is reported before the failure of a newer one.
        self.is_unreported = has_served && self.goal_error.is_some();
        if !self.is_unreported
            && let Some(error) = self.goal_error.take().map(|(_, error)| error).or_else(|| self.poll_error.take())
        {
            return Some(Err(error));
        }
        Some(Ok(match self.selection() {
            _ if has_served => Polled::Served(self.serving),
            Selection::Generation { manifest, holds, .. } => {
                let (number, needed) = (manifest.number, self.needed());
                match self.is_served(number, &needed) {
                    _ if needed.is_empty() => Polled::Unassigned,
                    true => Polled::Current(number),
                    false if holds => Polled::Holding(number),
                    false => Polled::Waiting(number),
                }
            }
            Selection::Nothing => Polled::Empty,
            Selection::Unknown => Polled::Waiting(self.manifests.number()),
        }))
    }

    /// Returns whether a transfer, a swap, or a record is in progress.
    pub(in crate::publish) fn is_folder_in_use(&self) -> bool {
        self.transfer.is_some() || self.swap.is_some() || self.is_settling
    }

    pub(in crate::publish) fn swapping(&self) -> Option<&Goal> {
        self.swap.as_ref()
    }

    pub(in crate::publish) fn polls(&self) -> u64 {
        self.polls
    }

    pub(in crate::publish) fn serving(&self) -> u64 {
        self.serving
    }

    pub(in crate::publish) fn held(&self) -> &SlotSet {
        &self.held
    }

    pub(in crate::publish) fn failures(&self) -> [u64; FailureKind::ALL.len()] {
        self.failure_counts
    }

    /// Returns when the last successful poll ended.
    pub(in crate::publish) fn polled_at(&self) -> Option<Duration> {
        self.polled_at
    }

    /// Returns the generation in transfer, and when the fetch began.
    pub(in crate::publish) fn fetching(&self) -> Option<(u64, Duration)> {
        self.transfer.as_ref().map(|transfer| (transfer.prepared.generation, transfer.since))
    }

    /// Returns the status, without the parts that depend on other clocks or on the progress of a transfer.
    pub(in crate::publish) fn status(&self) -> NodeStatus {
        let missing = self.missing().map(|manifest| manifest.number);
        let failure = self.reported_failure(missing);
        let ready = self.ready.as_ref().filter(|ready| Some(ready.generation) == missing);
        let is_member = self.options.slots.is_none();
        let problem = match failure {
            Some((_, failure)) => &failure.text,
            None => &self.poll_problem,
        };
        NodeStatus {
            node: self.options.name.clone(),
            serving: self.serving,
            digest: self.digest.clone(),
            prepared: ready.map_or(0, |ready| ready.generation),
            newest: self.manifests.number(),
            pin: self.pins.number(),
            error: problem.clone(),
            failed: failure.map_or(0, |(generation, _)| generation),
            slots: if is_member { self.held_ranges.clone() } else { Vec::new() },
            topology: self.topologies.number(),
            ready_topology: if is_member { self.topologies.ready(&self.held) } else { 0 },
            fetching: self.transfer.as_ref().map_or(0, |transfer| transfer.prepared.generation),
            report_every_s: self.status_every().as_secs_f64().ceil() as u64,
            beat: self.beat,
            ..NodeStatus::default()
        }
    }

    /// Returns the failure of the newest generation that is unusable, so that the node serves or fetches an older one,
    /// or the failure of the generation that is missing.
    fn reported_failure(&self, missing: Option<u64>) -> Option<(u64, &Failure)> {
        let oldest = missing.unwrap_or(self.serving + 1);
        let newer = self.failures.range(oldest..).rev().find(|(_, failure)| failure.is_unusable && !self.is_pinned());
        let failure = newer.or_else(|| self.failures.get_key_value(&missing?));
        failure.map(|(generation, failure)| (*generation, failure))
    }

    fn status_every(&self) -> Duration {
        let is_watched = self.options.slots.is_none() || self.transfer.is_some() || self.swap.is_some();
        if is_watched { STATUS_EVERY.min(STATUS_POLLS * self.options.poll) } else { STATUS_EVERY }
    }

    pub(super) fn status_due_at(&self, status: &NodeStatus) -> Duration {
        let Some(tried_at) = self.status_tried_at else { return Duration::ZERO };
        let gap = self.options.poll.min(STATUS_GAP);
        match &self.status_written {
            Some((_, written)) if is_same_state(written, status) => tried_at + self.status_every(),
            Some(_) | None if self.is_status_failing => tried_at + self.options.poll,
            _ => tried_at + gap,
        }
    }

    pub(super) fn next_status(&mut self, now: Duration) -> Option<Action> {
        if !self.options.is_writable || self.is_writing_status {
            return None;
        }
        let status = self.status();
        if now < self.status_due_at(&status) {
            return None;
        }
        self.beat = self.beat.wrapping_add(1);
        (self.is_writing_status, self.status_tried_at) = (true, Some(now));
        let status = NodeStatus { beat: self.beat, ..status };
        self.status_written = Some((now, status.clone()));
        Some(Action::WriteStatus(status))
    }

    pub(super) fn status_written(&mut self, result: Result<(), PublishError>) {
        self.is_writing_status = false;
        match result {
            Ok(()) => self.is_status_failing = false,
            Err(error) => {
                if !self.is_status_failing {
                    self.failure_counts[error.kind() as usize] += 1;
                }
                self.is_status_failing = true;
                self.status_written = None;
            }
        }
    }
}

/// Returns whether two statuses differ at most in their counter.
fn is_same_state(left: &NodeStatus, right: &NodeStatus) -> bool {
    NodeStatus { beat: right.beat, ..left.clone() } == *right
}

#[cfg(test)]
mod tests {
    use super::super::{Event, Found, NodeOptions, Read};
    use super::*;
    use crate::publish::Record;

    /// Returns the result of a read in an empty table.
    fn nothing(read: &Read) -> Found {
        match read {
            Read::NewestManifest(_) | Read::NewestPin(_) | Read::NewestTopology(_) => Found::Newest(0),
            Read::CheckManifest(_) => Found::Checked { exists: false, manifest: None, newest: 0 },
            Read::Manifest(_) | Read::PinnedManifest(_) | Read::OlderManifest(_) => Found::Manifest(None),
            Read::Pin(_) => Found::Pin(None),
            Read::Decision(_) => Found::Decision(None),
            Read::Topology(_) | Read::ReportedTopology(_) => Found::Topology(None),
            Read::Statuses(_) | Read::AllStatuses => Found::Statuses(Vec::new()),
        }
    }

    /// Returns the number of reports and reads of an idle node in an hour.
    fn in_an_hour(poll: Duration, slots: Option<SlotSet>) -> (u64, u64) {
        let options = NodeOptions {
            url: "file:///table".to_owned(),
            name: "a".to_owned(),
            poll,
            slots,
            is_writable: true,
            allow: Vec::new(),
            shrink_max_percent: None,
            seed: 7,
        };
        let mut machine = NodeMachine::new(options, &Record::default(), Vec::new());
        let (mut now, mut reports, mut reads) = (Duration::ZERO, 0, 0);
        while now < Duration::from_secs(3600) {
            while let Some(action) = machine.next(now) {
                let event = match action {
                    Action::Read(read) => {
                        reads += 1;
                        let found = nothing(&read);
                        Event::Read(read, Ok(found))
                    }
                    Action::WriteStatus(_) => {
                        reports += 1;
                        Event::StatusWritten(Ok(()))
                    }
                    action => panic!("{action:?}"),
                };
                machine.apply(event, now);
            }
            now = machine.wait_until(now).max(now + Duration::from_millis(1));
        }
        (reports, reads)
    }

    #[test]
    fn an_idle_node_reports_on_a_fixed_beat() {
        for poll_ms in [100, 5_000, 30_000] {
            let poll = Duration::from_millis(poll_ms);
            let polls = 3_600_000 / poll_ms;
            let (reports, reads) = in_an_hour(poll, Some(SlotSet::ALL));
            assert!((59..=61).contains(&reports), "{reports} reports with a poll of {poll_ms} ms");
            assert!((polls * 9 / 5..polls * 11 / 5 + 4).contains(&reads), "{reads} reads in {polls} polls");
            let (reports, reads) = in_an_hour(poll, None);
            let due = (polls / 3).max(60);
            assert!(
                (due * 9 / 10..=due + 2).contains(&reports),
                "{reports} reports of a node of a cluster, {due} are due"
            );
            assert!((polls * 27 / 10..polls * 33 / 10 + 4).contains(&reads), "{reads} reads in {polls} polls");
        }
    }
}
