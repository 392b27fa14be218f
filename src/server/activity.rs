//! The state that a connection reports to other parts of the server.
//!
//! A connection writes its [`Activity`] with relaxed stores, mostly at the end of a turn. The registry of its worker
//! reads it once a second, for the time-outs; the code for the limits on client memory and on retained generations
//! reads it when a limit is exceeded.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::Waker;

use super::peer::Peer;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// Its next turn.
    Turn,
    /// A request.
    Request,
    /// The rest of a request of which this many bytes have arrived.
    Rest(usize),
    /// Its client, to take this many bytes of responses.
    Client(usize),
}

impl Waits {
    fn pack(self) -> u64 {
        let (kind, len_bytes) = match self {
            Waits::Turn => (0, 0),
            Waits::Request => (1, 0),
            Waits::Rest(len_bytes) => (2, len_bytes),
            Waits::Client(len_bytes) => (3, len_bytes),
        };
        (len_bytes as u64) << 2 | kind
    }

    fn unpack(packed: u64) -> Waits {
        let len_bytes = (packed >> 2) as usize;
        match packed & 3 {
            0 => Waits::Turn,
            1 => Waits::Request,
            2 => Waits::Rest(len_bytes),
            _ => Waits::Client(len_bytes),
        }
    }
}

/// Set in [`Activity::held_bytes`] once the connection is evicted. The recorded memory does not change after that.
const EVICTED: u64 = 1 << 63;

/// The state of one connection, as other parts of the server see it. Only its worker's thread writes it, but any worker
/// may evict the connection.
pub(super) struct Activity {
    /// Distinguishes it from the other connections of its worker.
    pub(super) number: u64,
    pub(super) peer: Peer,
    /// The registry's tick at which the connection last moved a byte.
    moved_tick: AtomicU32,
    waits: AtomicU64,
    sent_bytes: AtomicU64,
    /// Number of the generation that the connection holds between turns; 0 for none.
    generation: AtomicU64,
    /// The memory that the connection holds, with the flag [`EVICTED`].
    held_bytes: AtomicU64,
    /// Wakes the connection's task. Set when the connection first holds memory.
    waker: OnceLock<Waker>,
}

impl Activity {
    pub(super) fn new(number: u64, peer: Peer, now_tick: u32) -> Activity {
        Activity {
            number,
            peer,
            moved_tick: AtomicU32::new(now_tick),
            waits: AtomicU64::new(Waits::Request.pack()),
            sent_bytes: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            held_bytes: AtomicU64::new(0),
            waker: OnceLock::new(),
        }
    }

    #[inline]
    pub(super) fn set_waits(&self, waits: Waits) {
        self.waits.store(waits.pack(), Ordering::Relaxed);
    }

    pub(super) fn waits(&self) -> Waits {
        Waits::unpack(self.waits.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn set_moved_tick(&self, tick: u32) {
        self.moved_tick.store(tick, Ordering::Relaxed);
    }

    pub(super) fn moved_tick(&self) -> u32 {
        self.moved_tick.load(Ordering::Relaxed)
    }

    /// Counts bytes that the socket accepted.
    #[inline]
    pub(super) fn count_sent(&self, len_bytes: usize) {
        let sent_bytes = self.sent_bytes.load(Ordering::Relaxed) + len_bytes as u64;
        self.sent_bytes.store(sent_bytes, Ordering::Relaxed);
    }

    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Records the generation that the connection holds from this turn to the next; 0 for none.
    #[inline]
    pub(super) fn set_generation(&self, number: u64) {
        self.generation.store(number, Ordering::Relaxed);
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Records the memory that the connection holds, unless it is evicted. Returns the recorded number of bytes and the
    /// previous one.
    pub(super) fn replace_held_bytes(&self, held_bytes: u64) -> (u64, u64) {
        let replace = |before: u64| (before & EVICTED == 0).then_some(held_bytes);
        match self.held_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, replace) {
            Ok(before) => (held_bytes, before),
            Err(evicted) => (evicted & !EVICTED, evicted & !EVICTED),
        }
    }

    #[inline]
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed) & !EVICTED
    }

    /// Sets the waker of the connection's task. Later calls have no effect, because the task's waker never changes.
    pub(super) fn set_waker(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    /// Makes the connection end in its next turn. Returns the memory that it holds.
    pub(super) fn evict(&self) -> u64 {
        self.held_bytes.fetch_or(EVICTED, Ordering::Relaxed) & !EVICTED
    }

    /// Wakes the connection's task, if its waker is set, so that its next turn begins at once.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    #[inline]
    pub(super) fn is_evicted(&self) -> bool {
        self.held_bytes.load(Ordering::Relaxed) & EVICTED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_connection_waits_for_fits_into_one_number() {
        for waits in [Waits::Turn, Waits::Request, Waits::Rest(1), Waits::Rest(4 << 20), Waits::Client(usize::MAX >> 2)]
        {
            assert_eq!(Waits::unpack(waits.pack()), waits);
        }
    }

    #[test]
    fn an_evicted_connection_holds_what_it_held() {
        let activity = Activity::new(1, Peer::default(), 0);
        assert_eq!(activity.replace_held_bytes(7), (7, 0));
        assert_eq!((activity.evict(), activity.is_evicted()), (7, true));
        assert_eq!(activity.replace_held_bytes(9), (7, 7));
        assert_eq!(activity.held_bytes(), 7);
    }
}
