//! What a server and the processes that look up in its file themselves tell each
//! other.
//!
//! In: what becomes of the file that is served. Out: one word of memory that is
//! shared with every such process, by which each sees in the time of one load
//! whether what it has mapped is still what is served. `docs/PROTOCOL.md` draws
//! it; this module knows no socket and no table.

mod page;

use std::time::Duration;

pub(crate) use page::Notice;
#[cfg(feature = "server")]
pub(crate) use page::{Board, Waiter};

/// How often a server counts the beat up, at least.
#[cfg(feature = "server")]
pub(crate) const BEAT_EVERY: Duration = Duration::from_secs(1);
/// The time without a beat after which a client takes the server for stopped.
pub(crate) const BEAT_MISSED: Duration = Duration::from_secs(4);

/// What the word says.
///
/// Bits 0 to 31 are the generation's number, or what of it fits; bits 32 to 61 count
/// what has become of it: whatever happens, the word is another. The two highest are
/// flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(u64);

/// Nobody can write to the file without the server's knowing first, who then says so
/// here.
const LEASED: u64 = 1 << 62;
/// The file was changed in place: nothing of it is to be believed.
const CHANGED: u64 = 1 << 63;
const FLAGS: u64 = LEASED | CHANGED;
const GENERATION: u64 = u32::MAX as u64;

impl State {
    /// What a client says that it has: the word without its flags.
    pub(crate) fn known(self) -> u64 {
        self.0 & !FLAGS
    }

    /// Whether this is about the generation with a number.
    pub(crate) fn is_of(self, generation: u64) -> bool {
        (self.0 ^ generation) & GENERATION == 0
    }

    /// Whether nothing has become of what was served since `then`, but that its file
    /// may have been leased or not.
    #[inline(always)]
    pub(crate) fn is_since(self, then: State) -> bool {
        (self.0 ^ then.0) & !FLAGS == 0
    }

    #[inline(always)]
    pub(crate) fn is_leased(self) -> bool {
        self.0 & FLAGS == LEASED
    }

    #[cfg(test)]
    pub(crate) fn is_changed(self) -> bool {
        self.0 & CHANGED != 0
    }
}

#[cfg(feature = "server")]
impl State {
    /// Something has become of it.
    fn next(self, generation: u64, flags: u64) -> State {
        let count = (self.0 & !FLAGS).wrapping_add(1 << 32) & !(FLAGS | GENERATION);
        State(generation & GENERATION | count | flags)
    }

    /// The same with a flag set or not; `None` if it is so already.
    fn with(self, flag: u64, is_set: bool) -> Option<State> {
        let flags = if is_set { self.0 & FLAGS | flag } else { self.0 & FLAGS & !flag };
        (flags != self.0 & FLAGS).then(|| self.next(self.0, flags))
    }
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::*;

    #[test]
    fn whatever_happens_the_word_is_another() {
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
    fn counts_do_not_reach_beyond_their_bits() {
        let last = State(!FLAGS);
        let next = last.next(u64::MAX, LEASED);
        assert!(next.is_of(u64::MAX) && next.is_leased() && !next.is_changed());
        assert!(!next.is_since(last));
        // A number that does not fit is told apart by its lowest bits.
        assert!(last.next(1 << 40 | 3, 0).is_of(3));
    }
}
