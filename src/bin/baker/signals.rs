//! Signals that stop a bake.
//!
//! The first lets the bake end by itself; where that waits for its input or for
//! the disk, it is not waited for. The process dies by the signal, as whoever
//! started it expects. A second signal kills at once.

use std::fs;
use std::io::{self, Write};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, iterator, low_level};
use zero_kv::bake::{BakeError, Cancel};

use crate::progress::Live;

/// What a bake has to end by itself.
const GRACE: Duration = Duration::from_millis(200);

pub(crate) struct Signals {
    came: Arc<AtomicI32>,
    /// Held by who ends the process.
    last_word: Arc<Mutex<()>>,
    /// Closed when the bake has ended.
    at_work: Sender<()>,
}

impl Signals {
    /// Stops the bake when a signal comes that is not ignored: under `nohup` and in the background some are.
    pub(crate) fn watch(cancel: &Cancel, live: &Live) -> io::Result<Signals> {
        let ignored = ignored();
        let watched = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
        let watched: Vec<_> = watched.collect();
        let came_once = Arc::default();
        for signal in &watched {
            // In this order: the first signal kills only the next.
            flag::register_conditional_default(*signal, Arc::clone(&came_once))?;
            flag::register(*signal, Arc::clone(&came_once))?;
        }
        // What is written beyond the limit of a file's size fails then, and its message says so.
        flag::register(SIGXFSZ, Arc::default())?;

        let came = Arc::new(AtomicI32::new(0));
        let last_word = Arc::new(Mutex::new(()));
        let (at_work, ended) = channel();
        let watcher = Watcher {
            came: came.clone(),
            last_word: last_word.clone(),
            ended,
            cancel: cancel.clone(),
            live: live.clone(),
        };
        let signals = iterator::Signals::new(&watched)?;
        thread::Builder::new().name("signals".to_owned()).spawn(move || watcher.run(signals))?;
        Ok(Signals { came, last_word, at_work })
    }

    /// The bake has ended: from here on no signal ends the process but a second one.
    pub(crate) fn bake_ended(self) -> Came {
        drop(self.at_work);
        // Kept until the process ends.
        std::mem::forget(hold(&self.last_word));
        Came(self.came.load(Ordering::Relaxed))
    }
}

/// The signal that came while a bake was at work, or 0.
pub(crate) struct Came(i32);

impl Came {
    /// Dies by the signal, if one came.
    pub(crate) fn die(self) {
        if self.0 != 0 {
            die(self.0);
        }
    }
}

struct Watcher {
    came: Arc<AtomicI32>,
    last_word: Arc<Mutex<()>>,
    ended: Receiver<()>,
    cancel: Cancel,
    live: Live,
}

impl Watcher {
    fn run(self, mut signals: iterator::Signals) {
        let Some(signal) = signals.forever().next() else { return };
        self.came.store(signal, Ordering::Relaxed);
        self.cancel.set();
        if self.ended.recv_timeout(GRACE) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let last_word = hold(&self.last_word);
        // If the file is in place, the bake is about to end and to say so.
        if self.cancel.abandon() {
            self.live.clear();
            let _ = writeln!(io::stderr(), "baker: {}", BakeError::Cancelled);
            die(signal);
        }
        drop(last_word);
    }
}

fn hold(last_word: &Mutex<()>) -> MutexGuard<'_, ()> {
    last_word.lock().unwrap_or_else(PoisonError::into_inner)
}

fn die(signal: i32) {
    // The first process of a container does not die by signals.
    if std::process::id() != 1 {
        let _ = low_level::emulate_default_handler(signal);
    }
    std::process::exit(128 + signal);
}

/// The signals that the process was started to ignore, as bits.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
