//! The page of memory that a server shares with direct clients.
//!
//! In: the generation that is served and the state of its lease. Out: a few words that every direct client has mapped, by
//! which it sees without a system call whether the file that it has mapped is unchanged. `docs/PROTOCOL.md` describes the
//! page; this module knows no socket and no table.

#[cfg(feature = "server")]
mod owner;
mod page;

use std::time::Duration;

#[cfg(feature = "server")]
pub(crate) use page::{Board, Waiter};
pub(crate) use page::{Notice, Standing};

/// How often a server counts the beat up, at least.
#[cfg(feature = "server")]
pub(crate) const BEAT_EVERY: Duration = Duration::from_secs(1);
/// The time without a beat after which a client takes the server for stopped.
pub(crate) const BEAT_MISSED: Duration = Duration::from_secs(4);

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
        let flags = if is_set { self.0 & FLAGS | flags } else { self.0 & FLAGS & !flags };
        (flags != self.0 & FLAGS).then(|| self.next(self.0, flags))
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
