//! The words of the page that lookups load.
//!
//! In: changes of what the server serves and of the state of its lease. Out: whether bytes that a client has copied are
//! those that the server verified. The order of the stores and loads is checked in `models/`.

#[cfg(feature = "server")]
use crate::store::LeaseState;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The state of the served file, in one word.
///
/// Bits 0 to 31 are the lowest bits of the generation's number. Bits 32 to 60 count changes of the state, so that no two
/// states in a row are equal. The three highest bits are flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(u64);

/// The server has leased this generation's file at some time. Without a lease now, nothing of the file may be trusted.
const LEASABLE: u64 = 1 << 61;
/// The server has the file leased. It clears this flag before a process can write to the file.
const LEASED: u64 = 1 << 62;
/// The file was changed in place: nothing of it may be trusted.
const CHANGED: u64 = 1 << 63;
const FLAGS: u64 = LEASABLE | LEASED | CHANGED;
const GENERATION: u64 = u32::MAX as u64;

impl State {
    /// Returns the state without its flags, by which a client tells the server which state it knows.
    pub(crate) fn known(self) -> u64 {
        self.0 & !FLAGS
    }

    /// Returns whether this is the state of the generation with a number.
    pub(crate) fn is_of(self, generation: u64) -> bool {
        (self.0 ^ generation) & GENERATION == 0
    }

    /// Returns whether the state has not changed since it was `then`.
    #[inline(always)]
    pub(crate) fn is_since(self, then: State) -> bool {
        (self.0 ^ then.0) & !FLAGS == 0
    }

    /// Returns whether the file is leased, and was not changed while it was not.
    #[inline(always)]
    pub(crate) fn is_leased(self) -> bool {
        self.0 & (LEASED | CHANGED) == LEASED
    }

    /// Returns whether the file can be trusted: it is leased, or never was and is not known to have changed.
    pub(crate) fn is_trusted(self) -> bool {
        self.is_leased() || self.0 & FLAGS == 0
    }

    /// Returns whether a process may have changed the file since the state was `then`.
    fn has_lost_trust_since(self, then: State) -> bool {
        self.is_of(then.0) && (!self.is_trusted() || then.is_leased() && !self.is_since(then))
    }

    #[cfg(test)]
    pub(crate) fn is_changed(self) -> bool {
        self.0 & CHANGED != 0
    }
}

#[cfg(feature = "server")]
impl State {
    /// Returns the state after this one.
    fn next(self, generation: u64, flags: u64) -> State {
        let count = (self.0 & !FLAGS).wrapping_add(1 << 32) & !(FLAGS | GENERATION);
        State(generation & GENERATION | count | flags)
    }

    /// Returns the state after some flags are set or cleared; `None` if nothing changes.
    fn with(self, flags: u64, is_set: bool) -> Option<State> {
        self.with_flags(if is_set { self.0 & FLAGS | flags } else { self.0 & FLAGS & !flags })
    }

    /// Returns the state after the lease was lost, which may happen before it was ever published; `None` if nothing
    /// changes.
    fn with_lost_lease(self) -> Option<State> {
        self.with_flags(self.0 & FLAGS & !LEASED | LEASABLE)
    }

    fn with_flags(self, flags: u64) -> Option<State> {
        (flags != self.0 & FLAGS).then(|| self.next(self.0, flags))
    }
}

/// What the page proves about the bytes of a file that were read before it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No process has written to the file.
    Unchanged,
    /// The file must be examined.
    Unknown,
    /// A process may have written to the file.
    Changed,
}

/// The bits of a futex that are the number of the thread that owns it: see <linux/futex.h>.
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;

/// The words, as they follow each other in the page. The server's stores are serialized by its own lock.
#[derive(Default)]
#[repr(C)]
pub(super) struct Words {
    pub(super) state: AtomicU64,
    /// The time until which the lease of the served file is trusted, by the server's clock; 0 without one.
    leased_until_ns: AtomicU64,
    /// A robust futex: the number of a thread of the server, and no thread's number once the server has ended.
    pub(super) owner: AtomicU32,
}

impl Words {
    /// Returns the state. Memory that is read after this is not older, and what was read before it not newer.
    #[inline(always)]
    pub(super) fn state(&self) -> State {
        fence(Ordering::Acquire);
        let state = State(self.state.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        state
    }

    /// Returns what the words prove about the bytes that were read since the state was `then` and before this call.
    /// `is_before` returns whether the server's clock shows a time before a deadline.
    ///
    /// A server that is stopped does not move the deadline. One that was killed has no thread with the owner's number: the
    /// kernel changes that word before it drops the lease.
    #[inline(always)]
    pub(super) fn standing_since(&self, then: State, is_before: impl FnOnce(u64) -> bool) -> Standing {
        fence(Ordering::Acquire);
        let until_ns = self.leased_until_ns.load(Ordering::Relaxed);
        let is_owned = self.owner.load(Ordering::Relaxed) & FUTEX_TID_MASK != 0;
        // The deadline is loaded before the state: if it is that of a later generation, the state is, too.
        let state = self.state();
        let is_leased = state.is_leased() && state.is_since(then);
        if is_leased && is_owned && is_before(until_ns) {
            return Standing::Unchanged;
        }
        if state.has_lost_trust_since(then) { Standing::Changed } else { Standing::Unknown }
    }
}

#[cfg(feature = "server")]
impl Words {
    /// Publishes that another generation is served, whose file is not leased yet.
    pub(super) fn serve(&self, generation: u64) {
        // Whoever sees the new state does not see the deadline of the old one.
        self.leased_until_ns.store(0, Ordering::SeqCst);
        self.update(|state| Some(state.next(generation, 0)));
    }

    /// Publishes the state of the lease on the file of the served generation. Returns whether the state has changed.
    pub(super) fn set_lease(&self, lease: LeaseState) -> bool {
        // Whoever sees *leased* sees a deadline of the lease.
        let until_ns = if let LeaseState::TrustedUntil(until_ns) = lease { until_ns } else { 0 };
        self.leased_until_ns.store(until_ns, Ordering::SeqCst);
        match lease {
            LeaseState::TrustedUntil(_) => self.update(|state| state.with(LEASABLE | LEASED, true)),
            LeaseState::Lost => self.update(State::with_lost_lease),
            // The server ends. Clients go on with the file as it is, and examine it for each batch.
            LeaseState::Released => false,
        }
    }

    /// Publishes whether the served file was changed in place. Returns whether the state has changed.
    pub(super) fn set_changed(&self, is_changed: bool) -> bool {
        self.update(|state| state.with(CHANGED, is_changed))
    }

    /// Changes the state. `None` is no change.
    fn update(&self, change: impl FnOnce(State) -> Option<State>) -> bool {
        let changed = change(State(self.state.load(Ordering::SeqCst)));
        if let Some(state) = changed {
            self.state.store(state.0, Ordering::SeqCst);
        }
        changed.is_some()
    }
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::*;

    #[test]
    fn every_change_gives_a_state_that_was_not_there_before() {
        let mut state = State(0).next(7, 0);
        assert!(state.is_of(7) && !state.is_of(8) && !state.is_leased() && !state.is_changed());
        let mut seen = vec![state];
        for (flag, is_set) in [(LEASED, true), (CHANGED, true), (LEASED, false), (CHANGED, false), (LEASED, true)] {
            let next = state.with(flag, is_set).unwrap();
            assert!(next.is_of(7) && seen.iter().all(|before| !next.is_since(*before)));
            assert_eq!(next.with(flag, is_set), None);
            seen.push(next);
            state = next;
        }
        assert!(state.is_leased());
        assert!(!state.with(CHANGED, true).unwrap().is_leased(), "what is leased is what was changed");
    }

    #[test]
    fn a_file_whose_lease_was_lost_is_not_trusted_by_whoever_mapped_it_before_or_maps_it_then() {
        let unleased = State(0).next(7, 0);
        let leased = unleased.with(LEASABLE | LEASED, true).unwrap();
        let lost = leased.with(LEASED, false).unwrap();
        let changed = lost.with(CHANGED, true).unwrap();
        let leased_again = changed.with(LEASED, true).unwrap();
        let checked = leased_again.with(CHANGED, false).unwrap();
        assert!([unleased, leased, checked].iter().all(|state| state.is_trusted()));
        assert!(![lost, changed, leased_again].iter().any(|state| state.is_trusted()));
        for later in [lost, changed, leased_again, checked] {
            assert!(later.has_lost_trust_since(leased), "{later:?}");
        }
        assert!(!leased.has_lost_trust_since(leased) && !leased.has_lost_trust_since(unleased));
        // A client that still reads the generation before is not concerned.
        assert!(!leased.next(8, 0).has_lost_trust_since(leased));
    }

    /// A process opens the file for writing between its check and its publication.
    #[test]
    fn a_file_whose_lease_is_lost_before_the_file_is_published_is_not_trusted() {
        let words = Words::default();
        words.serve(7);
        let published = words.state();
        assert!(words.set_lease(LeaseState::Lost) && !words.set_lease(LeaseState::Lost));
        assert!(!words.state().is_trusted() && words.state().has_lost_trust_since(published));
        // The server takes the lease again, and checks the file.
        words.set_changed(true);
        words.set_lease(LeaseState::TrustedUntil(u64::MAX));
        assert!(!words.state().is_trusted());
        words.set_changed(false);
        assert!(words.state().is_trusted());
        // The next file was never leased.
        words.serve(8);
        assert!(words.state().is_trusted());
    }

    #[test]
    fn counts_do_not_reach_beyond_their_bits() {
        let last = State(!FLAGS);
        let next = last.next(u64::MAX, LEASED);
        assert!(next.is_of(u64::MAX) && next.is_leased() && !next.is_changed());
        assert!(!next.is_since(last));
        // A number that does not fit is told apart by its lowest bits.
        assert!(last.next(1 << 40 | 3, 0).is_of(3));
    }
}
