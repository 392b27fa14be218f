//! Which generations a node can use.
//!
//! In: the manifests that the node has read, and the generations that have failed. Out: the newest generation that may be
//! usable, and the manifests that must be read to find it. A generation whose files are missing, damaged, or rejected is
//! passed over, so that a new node serves the newest complete one. So is a generation that differs from the one before it
//! in a way that nodes reject and that its publisher has not allowed: a new node that served it would reject all later
//! ones.

use super::{NodeMachine, Prepared};
use crate::publish::change::Change;
use crate::publish::manifest::Manifest;

/// The maximum number of older generations that are tried, or that a generation is compared with.
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
    /// Returns the generation that the node serves without a pin: the one that it has begun to fetch, or the newest one that
    /// has not turned out to be unusable. If all are, returns the one that is tried again first.
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

    /// Returns whether the node may serve a generation that the documents select. `is_newest` means that no pin selects it.
    pub(super) fn verdict(&self, manifest: &Manifest, is_newest: bool) -> Verdict {
        match self.compare(manifest, is_newest) {
            Ok(Ok(allowed)) => Verdict::Usable(allowed),
            Ok(Err(problem)) => Verdict::Unusable(problem),
            Err(_) => Verdict::Unknown,
        }
    }

    /// Compares a generation, and each of the generations before it, with the usable one before. Only documents matter, and
    /// not what the node serves, so all nodes come to the same result. A difference that has lasted for
    /// [`COMPARED_MAX`] generations is none anymore.
    fn compare(&self, manifest: &Manifest, is_newest: bool) -> Needs<Result<Vec<Change>, String>> {
        let number = manifest.number;
        let accepts_all = Change::ALL.iter().all(|change| self.options.allow.contains(change));
        // A pin selects any generation for a new node, and any older one.
        if accepts_all || number <= self.serving || self.serving == 0 && !is_newest {
            return Ok(Ok(Change::ALL.to_vec()));
        }
        let oldest = number.saturating_sub(COMPARED_MAX).max(1);
        let mut allowed = vec![Change::Empty, Change::KeyKind, Change::Schema];
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
        for (change, problem) in manifest.facts().changes_from(&base.facts()) {
            let is_allowed = manifest.allowed.iter().any(|name| name == change.name());
            if !is_allowed && !self.options.allow.contains(&change) {
                return Err(format!(
                    "{problem} as in generation {}, and its publisher did not allow this change: publish the table again, or \
                     allow the change",
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

    /// Returns the older manifest that must be read next.
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
