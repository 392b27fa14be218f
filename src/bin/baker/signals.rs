//! Signals that stop a bake.
//!
//! The first signal cancels the bake, and the process then dies by this signal, so that its parent sees the signal in
//! the exit status. If the bake has not ended after 200 ms, for example because it waits for its input or for the disk,
//! the process dies anyway. Exception: if the new file is already in place, the process waits until the bake has ended.
//! A second signal always kills the process at once.

use std::fs;
use std::io::{self, Write};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, iterator, low_level};
use zero_kv::bake::{BakeError, Cancel};

use crate::progress::ProgressDisplay;

/// Maximum time that the process waits for a canceled bake to end.
const GRACE: Duration = Duration::from_millis(200);

pub(crate) struct Signals {
    arrived: Arc<AtomicI32>,
    /// Only the thread that has locked this mutex may end the process: the watcher thread or, after the bake, the main
    /// thread.
    ending: Arc<Mutex<()>>,
    /// Dropping this sender tells the watcher thread, which has the receiver, that the bake has ended.
    running: Sender<()>,
}

impl Signals {
    /// Starts a thread that cancels the bake when a signal arrives. Signals that were already ignored when the process
    /// started, as under `nohup`, stay ignored.
    pub(crate) fn watch(cancel: &Cancel, live: &ProgressDisplay) -> io::Result<Signals> {
        let ignored = ignored();
        let watched = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
        let watched: Vec<_> = watched.collect();
        let arrived_once = Arc::default();
        for signal in &watched {
            // The order matters. The first signal only sets the flag; the flag enables the default action of the next
            // signal.
            flag::register_conditional_default(*signal, Arc::clone(&arrived_once))?;
            flag::register(*signal, Arc::clone(&arrived_once))?;
        }
        // A process inherits blocked signals from its parent, so the watched signals are unblocked.
        watched.iter().try_for_each(|signal| SigSet::from(Signal::try_from(*signal)?).thread_unblock())?;
        // With this handler, a write beyond the file size limit returns an error instead of killing the process.
        flag::register(SIGXFSZ, Arc::default())?;

        let arrived = Arc::new(AtomicI32::new(0));
        let ending = Arc::new(Mutex::new(()));
        let (running, ended) = channel();
        let watcher = Watcher {
            arrived: arrived.clone(),
            ending: ending.clone(),
            ended,
            cancel: cancel.clone(),
            live: live.clone(),
        };
        let signals = iterator::Signals::new(&watched)?;
        thread::Builder::new().name("signals".to_owned()).spawn(move || watcher.run(signals))?;
        Ok(Signals { arrived, ending, running })
    }

    /// Marks the end of the bake, and returns the signal that arrived during the bake. After this call, one signal
    /// alone no longer ends the process, but a second signal still does.
    pub(crate) fn bake_ended(self) -> ArrivedSignal {
        drop(self.running);
        // The mutex stays locked until the process ends, so the watcher thread can no longer end the process.
        std::mem::forget(lock(&self.ending));
        ArrivedSignal(self.arrived.load(Ordering::Relaxed))
    }
}

/// The number of the signal that arrived during the bake, or 0 if no signal arrived.
pub(crate) struct ArrivedSignal(i32);

impl ArrivedSignal {
    /// If a signal arrived, ends the process by this signal.
    pub(crate) fn die(self) {
        if self.0 != 0 {
            die(self.0);
        }
    }
}

struct Watcher {
    arrived: Arc<AtomicI32>,
    ending: Arc<Mutex<()>>,
    ended: Receiver<()>,
    cancel: Cancel,
    live: ProgressDisplay,
}

impl Watcher {
    fn run(self, mut signals: iterator::Signals) {
        let Some(signal) = signals.forever().next() else { return };
        self.arrived.store(signal, Ordering::Relaxed);
        self.cancel.set();
        if self.ended.recv_timeout(GRACE) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let ending = lock(&self.ending);
        // `abandon` returns false if the new file is already in place. In that case, the main thread is about to report
        // the result and to end the process.
        if self.cancel.abandon() {
            self.live.clear();
            let _ = writeln!(io::stderr(), "baker: {}", BakeError::Canceled);
            die(signal);
        }
        drop(ending);
    }
}

fn lock(ending: &Mutex<()>) -> MutexGuard<'_, ()> {
    ending.lock().unwrap_or_else(PoisonError::into_inner)
}

fn die(signal: i32) {
    // The kernel does not kill process 1, the first process of a container, by the default action of a signal.
    if std::process::id() != 1 {
        let _ = low_level::emulate_default_handler(signal);
    }
    std::process::exit(128 + signal);
}

/// Returns the signals that the process ignores, as a bit mask.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
