//! Reads and writes the words that lookups load from the shared page.
//!
//! In: changes of the served table and of the state of its lease. Out: whether the bytes that a client has copied are
//! the bytes that the server verified.

#[cfg(all(test, loom))]
mod models;

#[cfg(any(feature = "server", loom))]
use crate::store::LeaseState;
use crate::store::Standing;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The state of the served table, in one word.
///
/// Bits 0 to 31 are the lowest bits of the generation's number. Bits 32 to 60 count changes of the state, so that
/// successive states differ. The three highest bits are flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableState(u64);

/// This flag is set if the server ever leased this generation's file. A file with this flag may be trusted only while
/// [`LEASED`] is also set.
const LEASABLE: u64 = 1 << 61;
/// This flag is set while the server holds a lease on the file. The server clears it before a process can write to the
/// file.
const LEASED: u64 = 1 << 62;
/// This flag is set if the file was changed in place. No byte of a changed file may be trusted.
const CHANGED: u64 = 1 << 63;
const FLAGS: u64 = LEASABLE | LEASED | CHANGED;
const GENERATION: u64 = u32::MAX as u64;

impl TableState {
    /// Returns the state without its flags. A client sends this number to the server to identify the state that the
    /// client last read.
    pub(crate) fn known(self) -> u64 {
        self.0 & !FLAGS
    }

    /// Returns whether this state belongs to the generation with the number `generation`. Compares only the lowest 32
    /// bits of the numbers.
    pub(crate) fn is_of(self, generation: u64) -> bool {
        (self.0 ^ generation) & GENERATION == 0
    }

    /// Returns whether this state equals the earlier state `then`, which means that no change was published in between.
    #[inline(always)]
    pub(crate) fn is_since(self, then: TableState) -> bool {
        (self.0 ^ then.0) & !FLAGS == 0
    }

    /// Returns whether the file is leased and not marked as changed.
    #[inline(always)]
    pub(crate) fn is_leased(self) -> bool {
        self.0 & (LEASED | CHANGED) == LEASED
    }

    /// Returns whether the file can be trusted: it is not marked as changed, and it is leased now or was never leased.
    pub(crate) fn is_trusted(self) -> bool {
        self.is_leased() || self.0 & FLAGS == 0
    }

    /// Returns whether a process may have changed the file between the earlier state `then` and this state. Returns
    /// `false` if the two states belong to different generations, because this state then says nothing about the file
    /// of the earlier generation.
    fn has_lost_trust_since(self, then: TableState) -> bool {
        self.is_of(then.0) && (!self.is_trusted() || then.is_leased() && !self.is_since(then))
    }

    #[cfg(all(test, feature = "server"))]
    pub(crate) fn is_changed(self) -> bool {
        self.0 & CHANGED != 0
    }
}

#[cfg(any(feature = "server", loom))]
impl TableState {
    /// Returns the next state, which has the given generation and flags, and an incremented count of changes.
    fn next(self, generation: u64, flags: u64) -> TableState {
        let count = (self.0 & !FLAGS).wrapping_add(1 << 32) & !(FLAGS | GENERATION);
        TableState(generation & GENERATION | count | flags)
    }

    /// Returns the next state, in which `flags` are set, or cleared if `is_set` is false. Returns `None` if the flags
    /// already have these values.
    fn with(self, flags: u64, is_set: bool) -> Option<TableState> {
        self.with_flags(if is_set { self.0 & FLAGS | flags } else { self.0 & FLAGS & !flags })
    }

    /// Returns the next state, in which the lease is lost. [`LEASABLE`] is set in the next state, even if it is not set
    /// in this state: the server may lose the lease before it has published that it holds the lease. Returns `None` if
    /// this state already shows a lost lease.
    fn with_lost_lease(self) -> Option<TableState> {
        self.with_flags(self.0 & FLAGS & !LEASED | LEASABLE)
    }

    fn with_flags(self, flags: u64) -> Option<TableState> {
        (flags != self.0 & FLAGS).then(|| self.next(self.0, flags))
    }
}

/// The bits of a futex that contain the ID of the thread that owns the futex: see <linux/futex.h>.
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;

/// The words that lookups load from the shared page. The fields have the layout of the page. The server holds a lock
/// while it writes `state` or `leased_until_ns`.
#[derive(Default)]
#[repr(C)]
pub(super) struct Words {
    pub(super) state: AtomicU64,
    /// The time until which the lease on the current file is trusted, in nanoseconds of the server's clock. 0 if there
    /// is no lease.
    leased_until_ns: AtomicU64,
    /// The owner word: a robust futex with the ID of a server thread. After the server has ended, the word contains no
    /// thread ID.
    pub(super) owner: AtomicU32,
}

impl Words {
    /// Returns the current state. Reads of memory are not reordered across this call.
    #[inline(always)]
    pub(super) fn state(&self) -> TableState {
        fence(Ordering::Acquire);
        let state = TableState(self.state.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        state
    }

    /// Returns whether a process may have changed the file before this client finished reading bytes from it. The
    /// client must load the state, read the bytes, and then call this function with that state as `then`. `is_before`
    /// takes a deadline. It returns whether the time of the server's clock is before the deadline, or `None` if this
    /// process cannot read that clock.
    ///
    /// If the server is suspended, it does not extend the deadline, and the deadline expires. If the server is killed,
    /// the kernel clears the thread ID in the owner word before it releases the lease.
    #[inline(always)]
    pub(super) fn standing_since(&self, then: TableState, is_before: impl FnOnce(u64) -> Option<bool>) -> Standing {
        fence(Ordering::Acquire);
        let until_ns = self.leased_until_ns.load(Ordering::Relaxed);
        let is_owned = self.owner.load(Ordering::Relaxed) & FUTEX_TID_MASK != 0;
        // The deadline is loaded before the state, so if the loaded deadline belongs to a later generation, the loaded
        // state does, too.
        let state = self.state();
        let is_leased = state.is_leased() && state.is_since(then);
        if is_leased && is_owned {
            match is_before(until_ns) {
                Some(true) => return Standing::Unchanged,
                Some(false) if until_ns != 0 => return Standing::Expired,
                _ => {}
            }
        }
        if state.has_lost_trust_since(then) { Standing::Changed } else { Standing::Unknown }
    }
}

#[cfg(any(feature = "server", loom))]
impl Words {
    /// Publishes the number of a new generation, whose file is not leased yet.
    pub(super) fn serve(&self, generation: u64) {
        // The deadline is cleared first: a client that sees the new state does not see the old generation's deadline.
        self.leased_until_ns.store(0, Ordering::SeqCst);
        self.update(|state| Some(state.next(generation, 0)));
    }

    /// Publishes the state of the lease on the current file. Returns whether the state has changed.
    pub(super) fn set_lease(&self, lease: LeaseState) -> bool {
        // The deadline is stored first: a client that sees the flag `LEASED` also sees a deadline of that lease.
        let until_ns = if let LeaseState::TrustedUntil(until_ns) = lease { until_ns } else { 0 };
        self.leased_until_ns.store(until_ns, Ordering::SeqCst);
        match lease {
            LeaseState::TrustedUntil(_) => self.update(|state| state.with(LEASABLE | LEASED, true)),
            LeaseState::Lost => self.update(TableState::with_lost_lease),
            // The server is ending. Clients continue to use the file, and examine it after each batch.
            LeaseState::Released => false,
        }
    }

    /// Publishes whether the current file was changed in place. Returns whether the state has changed.
    pub(super) fn set_changed(&self, is_changed: bool) -> bool {
        self.update(|state| state.with(CHANGED, is_changed))
    }

    /// Changes the state, unless `change` returns `None`. Returns whether the state has changed.
    fn update(&self, change: impl FnOnce(TableState) -> Option<TableState>) -> bool {
        let changed = change(TableState(self.state.load(Ordering::SeqCst)));
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
    fn every_change_produces_a_new_state() {
        let mut state = TableState(0).next(7, 0);
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
        assert!(!state.with(CHANGED, true).unwrap().is_leased(), "a changed file does not count as leased");
    }

    #[test]
    fn a_file_whose_lease_was_lost_is_not_trusted_by_clients_that_mapped_it_before_or_after() {
        let unleased = TableState(0).next(7, 0);
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
        // A client that still reads the previous generation is not affected.
        assert!(!leased.next(8, 0).has_lost_trust_since(leased));
    }

    /// A process opens the file for writing after the server has checked the file and before the server publishes the
    /// file.
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
    fn the_count_of_changes_wraps_within_its_bits() {
        let last = TableState(!FLAGS);
        let next = last.next(u64::MAX, LEASED);
        assert!(next.is_of(u64::MAX) && next.is_leased() && !next.is_changed());
        assert!(!next.is_since(last));
        // A number of more than 32 bits is identified by its lowest 32 bits.
        assert!(last.next(1 << 40 | 3, 0).is_of(3));
    }
}
