//! Connections that are cut off for what they do not do.
//!
//! In: what each connection of a worker waits for, and when it last moved a byte. Out: an
//! end to those that have waited too long, and a line of the log. One task a worker looks
//! at its connections once a second while there are any; a connection only
//! notes what it does. It knows no protocol and no socket.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tracing::{info, warn};

use super::counters::Totals;
use super::limits::Limits;
use super::peer::Peer;

/// How often connections are looked at, and the unit of time here. It is counted
/// and not measured: a server that was itself stopped cuts nobody off for that.
const TICK: Duration = Duration::from_secs(1);
/// Connections that are cut off at one look and have a line of the log each; the
/// others are counted in one more.
const LINES_MAX: usize = 5;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// Its turn.
    Turn,
    /// A request.
    Request,
    /// The rest of one, of which so many bytes have come.
    Rest(usize),
    /// Its client, to take so many bytes of answers.
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

/// What is known of one connection.
pub(super) struct Pulse {
    number: u64,
    pub(super) peer: Peer,
    /// The tick at which it last read or sent a byte.
    moved: AtomicU32,
    waits: AtomicU64,
}

impl Pulse {
    #[inline]
    pub(super) fn waits_for(&self, waits: Waits) {
        self.waits.store(waits.pack(), Ordering::Relaxed);
    }
}

/// Those of one worker. All of it is used on that worker's thread.
pub(super) struct Timeouts {
    /// Zero: never.
    idle_ticks: u32,
    stall_ticks: u32,
    now: AtomicU32,
    last_number: AtomicU64,
    watched: Mutex<BTreeMap<u64, Watched>>,
    came: Notify,
}

/// A connection, and what ends it.
#[derive(Clone)]
struct Watched {
    pulse: Arc<Pulse>,
    abort: AbortHandle,
}

impl Timeouts {
    pub(super) fn new(limits: &Limits) -> Timeouts {
        let ticks =
            |timeout: Duration| u32::try_from(timeout.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX);
        Timeouts {
            idle_ticks: ticks(limits.idle_timeout),
            stall_ticks: ticks(limits.stall_timeout),
            now: AtomicU32::default(),
            last_number: AtomicU64::default(),
            watched: Mutex::default(),
            came: Notify::new(),
        }
    }

    /// For a connection that begins.
    pub(super) fn pulse(&self, peer: Peer) -> Arc<Pulse> {
        Arc::new(Pulse {
            number: self.last_number.fetch_add(1, Ordering::Relaxed),
            peer,
            moved: AtomicU32::new(self.now.load(Ordering::Relaxed)),
            waits: AtomicU64::new(Waits::Request.pack()),
        })
    }

    /// Notes that a connection has read or sent something.
    #[inline]
    pub(super) fn moved(&self, pulse: &Pulse) {
        pulse.moved.store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Has a connection cut off when it is time.
    pub(super) fn watch(&self, pulse: Arc<Pulse>, abort: AbortHandle) {
        self.watched().insert(pulse.number, Watched { pulse, abort });
        self.came.notify_one();
    }

    /// A connection has ended.
    pub(super) fn forget(&self, pulse: &Pulse) {
        self.watched().remove(&pulse.number);
    }

    /// Nothing is left half done by who holds it.
    fn watched(&self) -> MutexGuard<'_, BTreeMap<u64, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts off whoever is due. Does not end, unless nobody ever is.
    pub(super) async fn run(&self, totals: &Totals) {
        if self.idle_ticks == 0 && self.stall_ticks == 0 {
            return;
        }
        loop {
            while self.watched().is_empty() {
                self.came.notified().await;
            }
            tokio::time::sleep(TICK).await;
            self.look(totals);
        }
    }

    fn look(&self, totals: &Totals) {
        let now = self.now.load(Ordering::Relaxed).wrapping_add(1);
        self.now.store(now, Ordering::Relaxed);
        // What ends a connection forgets it: not under the lock.
        let due: Vec<_> =
            self.watched().values().filter_map(|watched| Some((self.due(now, watched)?, watched.clone()))).collect();
        let (mut idle, mut stalled) = (0, 0);
        for (at, (waits, Watched { pulse, abort })) in due.iter().enumerate() {
            abort.abort();
            match waits {
                Waits::Request => idle += 1,
                _ => stalled += 1,
            }
            if at < LINES_MAX {
                self.tell(&pulse.peer, *waits);
            }
        }
        if let Some(more @ 1..) = due.len().checked_sub(LINES_MAX) {
            warn!(idle, stalled, "cut off: {more} more connections than have lines here");
        }
        totals.cut_idle.fetch_add(idle, Ordering::Relaxed);
        totals.cut_stalled.fetch_add(stalled, Ordering::Relaxed);
    }

    /// What a connection has waited for too long.
    fn due(&self, now: u32, Watched { pulse, .. }: &Watched) -> Option<Waits> {
        let waits = Waits::unpack(pulse.waits.load(Ordering::Relaxed));
        let timeout_ticks = match waits {
            Waits::Turn => 0,
            Waits::Request => self.idle_ticks,
            Waits::Rest(_) | Waits::Client(_) => self.stall_ticks,
        };
        // The first of them may have been all but over when it was noted.
        let waited_ticks = now.wrapping_sub(pulse.moved.load(Ordering::Relaxed));
        (timeout_ticks > 0 && waited_ticks > timeout_ticks).then_some(waits)
    }

    fn tell(&self, peer: &Peer, waits: Waits) {
        let (idle_s, stall_s) = (self.idle_ticks, self.stall_ticks);
        match waits {
            Waits::Turn | Waits::Request => info!(%peer, "cut off: idle: asked for nothing for {idle_s} s"),
            Waits::Rest(len_bytes) => {
                warn!(%peer, "cut off: stalled: {len_bytes} bytes of a request came, and no more for {stall_s} s");
            }
            Waits::Client(len_bytes) => {
                warn!(%peer, "cut off: stalled: took none of {len_bytes} bytes of answers for {stall_s} s");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_connection_waits_for_is_noted_in_one_number() {
        for waits in [Waits::Turn, Waits::Request, Waits::Rest(1), Waits::Rest(4 << 20), Waits::Client(usize::MAX >> 2)]
        {
            assert_eq!(Waits::unpack(waits.pack()), waits);
        }
    }

    /// Of each kind one, which wait from the start; tells when each is cut off.
    fn cut_off_at(idle_s: u64, stall_s: u64) -> [Option<u32>; 4] {
        let kinds = [Waits::Turn, Waits::Request, Waits::Rest(7), Waits::Client(9)];
        let (idle_timeout, stall_timeout) = (Duration::from_secs(idle_s), Duration::from_secs(stall_s));
        let timeouts = Timeouts::new(&Limits { idle_timeout, stall_timeout, ..Limits::default() });
        let (runtime, totals) = (tokio::runtime::Builder::new_current_thread().build().unwrap(), Totals::default());
        let tasks = kinds.map(|waits| {
            let (task, pulse) = (runtime.spawn(std::future::pending::<()>()), timeouts.pulse(Peer::default()));
            pulse.waits_for(waits);
            timeouts.watch(Arc::clone(&pulse), task.abort_handle());
            (task, pulse)
        });
        let mut at = [None; 4];
        for tick in 1..10 {
            timeouts.look(&totals);
            runtime.block_on(tokio::task::yield_now());
            for (at, (task, pulse)) in at.iter_mut().zip(&tasks) {
                if at.is_none() && task.is_finished() {
                    *at = Some(tick);
                    timeouts.forget(pulse);
                }
            }
        }
        let number = |total: &AtomicU64| total.load(Ordering::Relaxed);
        assert_eq!(number(&totals.cut_idle), u64::from(idle_s > 0));
        assert_eq!(number(&totals.cut_stalled), if stall_s > 0 { 2 } else { 0 });
        at
    }

    #[test]
    fn a_connection_is_cut_off_after_the_time_of_what_it_waits_for() {
        assert_eq!(cut_off_at(5, 2), [None, Some(6), Some(3), Some(3)]);
        assert_eq!(cut_off_at(0, 1), [None, None, Some(2), Some(2)]);
        assert_eq!(cut_off_at(3, 0), [None, Some(4), None, None]);
        assert_eq!(cut_off_at(0, 0), [None; 4]);
    }
}
