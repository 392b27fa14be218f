//! Signals that stop a program: SIGINT, SIGTERM, and SIGHUP.
//!
//! The first signal lets the program end its work; a second signal kills the process at once. If nobody reads standard
//! error, a program that waits until it can write there cannot end its work, so the first signal kills it, too. Signals
//! that were already ignored when the process started, as under `nohup`, stay ignored.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, iterator, low_level};

use crate::bake::Cancel;

/// Registers handlers for the signals. Returns the signals that arrive.
pub fn watch() -> io::Result<iterator::Signals> {
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
    iterator::Signals::new(&watched)
}

/// Ends the process by a signal, so that its parent sees the signal in the exit status.
pub fn die(signal: i32) {
    // The kernel does not kill process 1, the first process of a container, by the default action of a signal.
    if std::process::id() != 1 {
        let _ = low_level::emulate_default_handler(signal);
    }
    std::process::exit(128 + signal);
}

/// The time after a signal until a program whose standard error nobody reads is killed, and the time between two
/// checks.
const STDERR_WAIT: Duration = Duration::from_millis(200);

/// Returns whether a line can be written to standard error without waiting. Returns `true` if the system cannot tell.
pub fn is_stderr_writable() -> bool {
    let (stderr, now) = (io::stderr(), Timespec::default());
    !matches!(poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&now)), Ok(0))
}

/// The signal that arrived, if one has.
#[derive(Clone, Default)]
pub struct ArrivedSignal(Arc<AtomicI32>);

impl ArrivedSignal {
    /// Starts a thread that cancels the operations of `cancel` when a signal arrives.
    pub fn watch(cancel: &Cancel) -> io::Result<ArrivedSignal> {
        let (arrived, cancel, mut signals) = (ArrivedSignal::default(), cancel.clone(), watch()?);
        let sees = arrived.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let Some(signal) = signals.forever().next() else { return };
            sees.set(signal);
            cancel.set();
            // The thread ends with the process.
            loop {
                thread::sleep(STDERR_WAIT);
                if !is_stderr_writable() {
                    die(signal);
                }
            }
        })?;
        Ok(arrived)
    }

    /// Records that a signal arrived.
    pub fn set(&self, signal: i32) {
        self.0.store(signal, Ordering::Relaxed);
    }

    /// If a signal arrived, ends the process by this signal.
    pub fn die(self) {
        let signal = self.0.load(Ordering::Relaxed);
        if signal != 0 {
            die(signal);
        }
    }
}

/// Returns the signals that the process ignores, as a bit mask.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
