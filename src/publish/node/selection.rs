//! Which generation a node serves, and the next transfer or swap.
//!
//! In: the documents that the node has read, the file that it serves, and its transfer in progress. Out: an action.
//! Nothing here is remembered: a newer pin, decision, manifest, or topology changes the result at the next step.

use std::sync::Arc;
use std::time::Duration;

use super::{Action, Goal, MANIFESTS_MAX, NodeMachine, Prepared, Transfer};
use crate::cluster::SlotSet;
use crate::publish::Record;
use crate::publish::change::Change;
use crate::publish::error::PublishError;
use crate::publish::manifest::Manifest;
use crate::publish::pin::Decision;

/// The generation that the documents select.
pub(super) enum Selection {
    /// Unknown, because a document cannot be read. The node continues what it does, but does not swap.
    Unknown,
    /// The table has no generation.
    Nothing,
    Generation {
        manifest: Arc<Manifest>,
        /// Whether the node waits for the decision of a rollout.
        holds: bool,
        /// Whether no pin selects the generation.
        is_newest: bool,
    },
}

impl NodeMachine {
    pub(in crate::publish) fn needed(&self) -> SlotSet {
        match &self.options.slots {
            Some(slots) => slots.clone(),
            None => {
                let mut needed = self.served_slots.clone();
                needed.insert_all(&self.topologies.slots());
                needed
            }
        }
    }

    pub(super) fn selection(&self) -> Selection {
        if !self.pins.is_known() {
            return Selection::Unknown;
        }
        let node = self.options.name.as_str();
        let selected = self.pin.as_ref().map(|pin| (pin.generation_for(Some(node)), pin.hold && pin.applies_to(node)));
        let Some((Some(number), holds)) = selected else { return self.newest_selection() };
        let (number, holds) = match (holds && number != self.serving, self.decision()) {
            (true, Some(Decision::Abort)) if self.serving == 0 => return Selection::Nothing,
            (true, Some(Decision::Abort)) => (self.serving, false),
            (true, None) => (number, true),
            _ => (number, false),
        };
        match self.bodies.get(&number) {
            Some(manifest) => Selection::Generation { manifest: Arc::clone(manifest), holds, is_newest: false },
            None => Selection::Unknown,
        }
    }

    pub(super) fn decision(&self) -> Option<Decision> {
        self.decision.filter(|(pin, _)| *pin == self.pins.number()).map(|(_, decision)| decision)
    }

    pub(super) fn is_pinned(&self) -> bool {
        self.pin.as_ref().is_some_and(|pin| pin.generation_for(Some(&self.options.name)).is_some())
    }

    fn newest_selection(&self) -> Selection {
        let newest = self.manifests.number();
        match self.newest_usable().ok().and_then(|number| self.bodies.get(&number)) {
            _ if newest == 0 && self.serving == 0 => Selection::Nothing,
            // Only a pin makes a node go back.
            Some(manifest) if manifest.number >= self.serving => {
                Selection::Generation { manifest: Arc::clone(manifest), holds: false, is_newest: true }
            }
            _ => Selection::Unknown,
        }
    }

    /// Returns whether the node serves a generation with the slots that it needs.
    pub(super) fn is_served(&self, generation: u64, needed: &SlotSet) -> bool {
        generation == self.serving && !self.is_damaged && needed.is_subset(&self.held)
    }

    /// Returns the manifest of the generation that the node should serve but does not.
    pub(in crate::publish) fn missing(&self) -> Option<Arc<Manifest>> {
        match self.selection() {
            Selection::Generation { manifest, .. } if !self.is_served(manifest.number, &self.needed()) => {
                Some(manifest)
            }
            _ => None,
        }
    }

    /// Returns whether the served file is damaged, or lacks rows of slots that the node needs.
    fn lacks_rows(&self, needed: &SlotSet) -> bool {
        self.serving != 0 && (self.is_damaged || !needed.is_subset(&self.held))
    }

    /// Returns whether a generation is served as soon as its file is complete.
    fn can_serve(&self, selection: &Selection, now: Duration) -> bool {
        let Selection::Generation { manifest, holds, .. } = selection else { return false };
        !holds && !self.is_failing(manifest.number, now)
    }

    /// Returns whether the node fetches rows of the served generation because the selected one has failed. The next
    /// attempt to fetch the selected one waits until these rows are complete.
    fn fetches_rows(&self, selection: &Selection) -> bool {
        let Selection::Generation { manifest, .. } = selection else { return false };
        let has_failed = self.failures.contains_key(&manifest.number);
        let fetched = self.transfer.as_ref().map(|transfer| &transfer.prepared).or(self.ready.as_ref());
        has_failed && fetched.is_some_and(|prepared| prepared.generation == self.serving)
    }

    fn is_failing(&self, generation: u64, now: Duration) -> bool {
        self.failures.get(&generation).is_some_and(|failure| now < failure.retry_at)
    }

    pub(super) fn next_transfer_or_swap(&mut self, now: Duration) -> Option<Action> {
        let confirmed = self.confirmed.take();
        if self.swap.is_some() {
            return None;
        }
        let needed = self.needed();
        let selection = match self.selection() {
            // The rows of new slots do not wait for the decision of a rollout, or for a document that cannot be read.
            selection
                if self.lacks_rows(&needed) && (!self.can_serve(&selection, now) || self.fetches_rows(&selection)) =>
            {
                self.bodies.get(&self.serving).map_or(selection, |manifest| Selection::Generation {
                    manifest: Arc::clone(manifest),
                    holds: false,
                    is_newest: false,
                })
            }
            selection => selection,
        };
        let (manifest, holds, is_newest) = match selection {
            Selection::Unknown => return None,
            Selection::Nothing => return self.cancel_transfer(),
            Selection::Generation { manifest, holds, is_newest } => (manifest, holds, is_newest),
        };
        let generation = manifest.number;
        if needed.is_empty() || self.is_served(generation, &needed) {
            self.ready = None;
            self.failures.remove(&generation);
            return self.cancel_transfer();
        }
        if let Some(transfer) = &self.transfer {
            let is_wanted = transfer.prepared.generation == generation && needed.is_subset(&transfer.prepared.slots);
            return if is_wanted { None } else { self.cancel_transfer() };
        }
        if self.is_failing(generation, now) || self.is_settling {
            return None;
        }
        let allowed = match self.verdict(&manifest, is_newest) {
            Verdict::Usable(allowed) => allowed,
            Verdict::Unknown => return None,
            Verdict::Unusable(problem) => {
                self.fail(generation, PublishError::Rejected { generation, problem }, false, now);
                self.is_unreported = true;
                // An older generation may be usable.
                return self.next_transfer_or_swap(now);
            }
        };
        let is_ready = |ready: &Prepared| ready.generation == generation && needed.is_subset(&ready.slots);
        let Some(ready) = self.ready.clone().filter(is_ready) else {
            self.ready = None;
            let prepared = Prepared { generation, slots: needed.clone(), is_newest };
            self.transfer = Some(Transfer { prepared, is_canceled: false, since: now });
            return Some(Action::Transfer(Goal {
                manifest,
                slots: needed,
                repairs: self.is_damaged && generation == self.serving,
                allowed,
            }));
        };
        if holds || self.waits_for_poll {
            return None;
        }
        if generation != self.serving && confirmed != Some(generation) {
            // The pins may have changed during the transfer.
            return if self.round.is_none() { self.begin_round(now, true) } else { None };
        }
        let goal = Goal { manifest, slots: ready.slots, repairs: false, allowed };
        let record = Record { generation, slots: goal.slots.ranges(), ..self.record() };
        self.swap = Some(goal.clone());
        Some(Action::Swap(goal, record))
    }

    fn cancel_transfer(&mut self) -> Option<Action> {
        let transfer = self.transfer.as_mut().filter(|transfer| !transfer.is_canceled)?;
        transfer.is_canceled = true;
        Some(Action::CancelTransfer)
    }

    pub(super) fn record(&self) -> Record {
        Record {
            generation: self.serving,
            pin: self.pins.number(),
            pinned: self.pin.clone(),
            slots: self.held_ranges.clone(),
            earlier_slots: self.earlier_slots.iter().map(SlotSet::ranges).collect(),
        }
    }

    /// Returns the generations in use: served, fetched, or about to be served.
    fn used(&self) -> Vec<u64> {
        let selected = match self.selection() {
            Selection::Generation { manifest, .. } => Some(manifest.number),
            _ => None,
        };
        let prepared = self.transfer.as_ref().map(|transfer| transfer.prepared.generation);
        let ready = self.ready.as_ref().map(|ready| ready.generation);
        [Some(self.serving), selected, prepared, ready].into_iter().flatten().collect()
    }

    pub(super) fn used_manifests(&self) -> Vec<Arc<Manifest>> {
        self.used().iter().filter_map(|number| self.bodies.get(number)).cloned().collect()
    }

    /// Forgets the manifests that are not in use.
    pub(super) fn prune_bodies(&mut self) {
        let mut used = self.used();
        let newest = self.manifests.number();
        used.extend(newest.saturating_sub(2 * COMPARED_MAX)..=newest);
        while self.bodies.len() > MANIFESTS_MAX {
            let Some(unused) = self.bodies.keys().copied().find(|number| !used.contains(number)) else { return };
            self.bodies.remove(&unused);
        }
    }
}

/// The maximum number of older generations to try or to compare with.
pub(super) const COMPARED_MAX: u64 = 8;

/// Whether a node may serve a generation.
pub(super) enum Verdict {
    /// Yes, with these changes from the served generation.
    Usable(Vec<Change>),
    /// No, for this reason.
    Unusable(String),
    /// A manifest must be read first.
    Unknown,
}

/// The result of a comparison that needs manifests, or the number of a manifest that must be read first.
pub(super) type Needs<T> = Result<T, u64>;

impl NodeMachine {
    /// Returns the generation that the node serves without a pin: the one that it has begun to fetch, or the newest one
    /// that has not turned out to be unusable. If all are, returns the one that is tried again first.
    pub(super) fn newest_usable(&self) -> Needs<u64> {
        let newest = self.manifests.number();
        let earlier = self.transfer.as_ref().map(|transfer| &transfer.prepared).or(self.ready.as_ref());
        let is_earlier =
            |prepared: &&Prepared| prepared.is_newest && (self.serving + 1..newest).contains(&prepared.generation);
        if let Some(prepared) = earlier.filter(is_earlier) {
            return Ok(prepared.generation);
        }
        let oldest = newest.saturating_sub(COMPARED_MAX).max(self.serving).max(1);
        let mut tried_first = newest;
        for number in (oldest..=newest).rev().filter(|number| *number > self.serving) {
            match self.failures.get(&number) {
                Some(failure) if failure.is_unusable => {
                    if self.failures.get(&tried_first).is_none_or(|first| failure.retry_at < first.retry_at) {
                        tried_first = number;
                    }
                }
                _ if self.unreadable.contains(&number) => {}
                _ if self.bodies.contains_key(&number) => return Ok(number),
                _ => return Err(number),
            }
        }
        Ok(tried_first)
    }

    /// Returns whether the node may serve a generation that the documents select. `is_newest` means that no pin selects
    /// it.
    pub(super) fn verdict(&self, manifest: &Manifest, is_newest: bool) -> Verdict {
        match self.compare(manifest, is_newest) {
            Ok(Ok(allowed)) => Verdict::Usable(allowed),
            Ok(Err(problem)) => Verdict::Unusable(problem),
            Err(_) => Verdict::Unknown,
        }
    }

    /// Compares a generation, and each of the generations before it, with the usable one before. Only documents matter,
    /// and not what the node serves, so all nodes come to the same result. A difference that has lasted for
    /// [`COMPARED_MAX`] generations is none anymore.
    fn compare(&self, manifest: &Manifest, is_newest: bool) -> Needs<Result<Vec<Change>, String>> {
        let number = manifest.number;
        let accepts_all = Change::ALL.iter().all(|change| self.options.allow.contains(change));
        // A pin selects any generation for a new node, and any older one.
        if accepts_all || number <= self.serving || self.serving == 0 && !is_newest {
            return Ok(Ok(Change::ALL.to_vec()));
        }
        let oldest = number.saturating_sub(COMPARED_MAX).max(1);
        let mut allowed = vec![Change::Empty, Change::KeyType, Change::Schema];
        // The number of rows of a generation that was served long ago means nothing.
        allowed.extend((self.serving < oldest).then_some(Change::Shrink));
        // The oldest of them may itself be wrong, unless the table began with it: then the next one replaces it.
        let (mut base, mut is_confirmed): (Option<&Manifest>, bool) = (None, oldest == 1);
        for next in oldest..=number {
            let Some(manifest) = self.older(next)? else { continue };
            let differences = base.map_or(Ok(Vec::new()), |base| self.differences(manifest, base));
            match differences {
                Ok(changes) => {
                    is_confirmed |= base.is_some();
                    base = Some(manifest);
                    allowed.extend(changes.into_iter().filter(|_| next > self.serving));
                }
                Err(problem) if next == number => return Ok(Err(problem)),
                Err(_) if !is_confirmed => base = Some(manifest),
                // Nodes do not serve it.
                Err(_) => {}
            }
        }
        Ok(Ok(allowed))
    }

    /// Returns the changes from an older generation, all of which are allowed, or the first one that is not.
    fn differences(&self, manifest: &Manifest, base: &Manifest) -> Result<Vec<Change>, String> {
        let mut changes = Vec::new();
        for (change, problem) in manifest.facts().changes_from(&base.facts(), self.options.shrink_max_percent) {
            let is_allowed = manifest.allowed.iter().any(|name| name == change.name());
            if !is_allowed && !self.options.allow.contains(&change) {
                return Err(format!(
                    "{problem} as in generation {}, and its publisher did not allow this change: publish the table \
                     again, or allow the change",
                    base.number
                ));
            }
            if is_allowed {
                changes.push(change);
            }
        }
        Ok(changes)
    }

    /// Returns an older manifest, or `None` if it cannot be read.
    fn older(&self, number: u64) -> Needs<Option<&Manifest>> {
        match self.bodies.get(&number) {
            Some(manifest) => Ok(Some(&**manifest)),
            None if self.unreadable.contains(&number) => Ok(None),
            None => Err(number),
        }
    }

    pub(super) fn needed_manifest(&self) -> Option<u64> {
        if self.manifests.number() == 0 || !self.pins.is_known() {
            return None;
        }
        let (number, is_newest) = match self.pin.as_ref().and_then(|pin| pin.generation_for(Some(&self.options.name))) {
            Some(pinned) => (pinned, false),
            None => match self.newest_usable() {
                Ok(number) => (number, true),
                Err(number) => return Some(number),
            },
        };
        let manifest = self.bodies.get(&number)?;
        self.compare(manifest, is_newest).err()
    }
}
