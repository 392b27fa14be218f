//! The state of connected clients, and the rules that disconnect them.
//!
//! A connection writes its [`Activity`] with relaxed stores, mostly at the end of a turn. The registry of the
//! connection's worker reads the activity once a second, to apply the time-outs. The code that limits client memory and
//! retained generations reads the activity when a limit is exceeded.
//!
//! Reasons and evidence: `docs/decisions/time-outs.md`.

pub(super) mod memory;
pub(super) mod registry;
pub(super) mod timeouts;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::Waker;

use super::sockets::Peer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// Waits for the connection's next turn.
    Turn,
    /// Waits for a request. Also applies while an Open request waits for a change of the table's state.
    Request,
    /// Waits for the rest of an incomplete request. This many bytes of the request have arrived.
    Rest(usize),
    /// Waits for the client to receive pending responses. This many bytes of these responses are not sent yet.
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

/// The flag in [`Activity::held_bytes`] that marks an evicted connection: one that will be closed in order to free
/// memory. The recorded memory of an evicted connection does not change.
const EVICTED: u64 = 1 << 63;

/// The state of one connection, as other parts of the server see it. Only the thread of the connection's worker writes
/// the state, except the flag [`EVICTED`], which any worker may set.
pub(super) struct Activity {
    /// A number that is unique among the connections of the worker.
    pub(super) number: u64,
    pub(super) peer: Peer,
    /// The latest tick at which a byte was sent or received, or at which responses became pending. The registry counts
    /// one tick per second.
    moved_tick: AtomicU32,
    waits: AtomicU64,
    progress_bytes: AtomicU64,
    /// The number of the generation that the connection holds between turns, or 0 if it holds none.
    generation: AtomicU64,
    /// The number that identifies the connection's user, or 0 if the connection has no user.
    user: AtomicU64,
    /// The number of bytes that the connection holds, combined with the flag [`EVICTED`].
    held_bytes: AtomicU64,
    /// How many of the `held_bytes` the kernel holds for the connection's socket, as last measured.
    socket_bytes: AtomicU64,
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
            progress_bytes: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            user: AtomicU64::new(0),
            held_bytes: AtomicU64::new(0),
            socket_bytes: AtomicU64::new(0),
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

    /// Counts `len_bytes` bytes of progress: response bytes that the socket accepted, or request bytes that arrived
    /// while responses were pending.
    #[inline]
    pub(super) fn count_progress(&self, len_bytes: usize) {
        let progress_bytes = self.progress_bytes.load(Ordering::Relaxed) + len_bytes as u64;
        self.progress_bytes.store(progress_bytes, Ordering::Relaxed);
    }

    pub(super) fn progress_bytes(&self) -> u64 {
        self.progress_bytes.load(Ordering::Relaxed)
    }

    /// Records the number of the generation that the connection holds until its next turn, or 0 if it holds none.
    #[inline]
    pub(super) fn set_generation(&self, number: u64) {
        self.generation.store(number, Ordering::Relaxed);
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Records the number that identifies the connection's user, or 0 if the connection has no user.
    #[inline]
    pub(super) fn set_user(&self, number: u64) {
        self.user.store(number, Ordering::Relaxed);
    }

    pub(super) fn user(&self) -> u64 {
        self.user.load(Ordering::Relaxed)
    }

    /// Records the number of bytes that the connection holds, unless the connection is evicted. Returns the number
    /// that is recorded after this call, and the number that was recorded before it.
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

    /// Records the memory that the kernel holds for the connection's socket. Returns the number that was recorded
    /// before.
    pub(super) fn replace_socket_bytes(&self, socket_bytes: u64) -> u64 {
        self.socket_bytes.swap(socket_bytes, Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn socket_bytes(&self) -> u64 {
        self.socket_bytes.load(Ordering::Relaxed)
    }

    /// Sets the waker of the connection's task. Later calls have no effect, because the task's waker never changes.
    pub(super) fn set_waker(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    /// Marks the connection as evicted, so that the connection is closed in its next turn. Returns the number of bytes
    /// that the connection holds.
    pub(super) fn evict(&self) -> u64 {
        self.held_bytes.fetch_or(EVICTED, Ordering::Relaxed) & !EVICTED
    }

    /// Wakes the connection's task, so that the connection's next turn begins at once. Returns false if the task's
    /// waker is not set.
    pub(super) fn wake(&self) -> bool {
        self.waker.get().map(Waker::wake_by_ref).is_some()
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
    fn every_wait_state_can_be_packed_into_one_number_and_unpacked() {
        for waits in [Waits::Turn, Waits::Request, Waits::Rest(1), Waits::Rest(4 << 20), Waits::Client(usize::MAX >> 2)]
        {
            assert_eq!(Waits::unpack(waits.pack()), waits);
        }
    }

    #[test]
    fn the_recorded_memory_of_an_evicted_connection_does_not_change() {
        let activity = Activity::new(1, Peer::default(), 0);
        assert_eq!(activity.replace_held_bytes(7), (7, 0));
        assert_eq!((activity.evict(), activity.is_evicted()), (7, true));
        assert_eq!(activity.replace_held_bytes(9), (7, 7));
        assert_eq!(activity.held_bytes(), 7);
    }
}
