//! Signals that stop a bake.
//!
//! The first signal cancels the bake, and the process then dies by this signal, so that its parent sees the signal in
//! the exit status. If the bake has not ended after 200 ms, for example because it waits for its input or for the disk,
//! the process dies anyway. Exception: if the new file is already in place, the process waits until the bake has ended.
//! A second signal always kills the process at once.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use signal_hook::consts::SIGXFSZ;
use signal_hook::{flag, iterator};
use zero_kv::bake::{BakeError, Cancel};
use zero_kv::cli::stop_signals::{self, ArrivedSignal};
use zero_kv::unpoisoned;

use crate::progress::ProgressDisplay;

/// Maximum time that the process waits for a canceled bake to end.
const GRACE: Duration = Duration::from_millis(200);

pub(crate) struct Signals {
    arrived: ArrivedSignal,
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
        let signals = stop_signals::watch()?;
        // With this handler, a write beyond the file size limit returns an error instead of killing the process.
        flag::register(SIGXFSZ, Arc::default())?;

        let arrived = ArrivedSignal::default();
        let ending = Arc::new(Mutex::new(()));
        let (running, ended) = channel();
        let watcher = Watcher {
            arrived: arrived.clone(),
            ending: ending.clone(),
            ended,
            cancel: cancel.clone(),
            live: live.clone(),
        };
        thread::Builder::new().name("signals".to_owned()).spawn(move || watcher.run(signals))?;
        Ok(Signals { arrived, ending, running })
    }

    /// Marks the end of the bake, and returns the signal that has arrived or will arrive. After this call, the
    /// first signal only sets `cancel`, but a second signal still ends the process.
    pub(crate) fn bake_ended(self) -> ArrivedSignal {
        drop(self.running);
        // The mutex stays locked until the process ends, so the watcher thread can no longer end the process.
        std::mem::forget(unpoisoned(&self.ending));
        self.arrived
    }
}

struct Watcher {
    arrived: ArrivedSignal,
    ending: Arc<Mutex<()>>,
    ended: Receiver<()>,
    cancel: Cancel,
    live: ProgressDisplay,
}

impl Watcher {
    fn run(self, mut signals: iterator::Signals) {
        let Some(signal) = signals.forever().next() else { return };
        self.arrived.set(signal);
        self.cancel.set();
        if self.ended.recv_timeout(GRACE) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let ending = unpoisoned(&self.ending);
        // `abandon` returns false if the new file is already in place. In that case, the main thread is about to report
        // the result and to end the process.
        if self.cancel.abandon() {
            // Nobody may read standard error. Another thread may even wait in a write to it, and have locked the
            // display.
            if stop_signals::is_stderr_writable() {
                self.live.clear();
                let _ = writeln!(io::stderr(), "baker: {}", BakeError::Canceled);
            }
            stop_signals::die(signal);
        }
        drop(ending);
    }
}
