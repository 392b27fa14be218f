//! The thread that renews and releases the leases on served files.
//!
//! In: a timer, and SIGIO, which the kernel sends when a process tries to open a leased file for writing. Out: renewed
//! and released leases. As long as the lease on a file is renewed in time, the server need not call fstat after each
//! batch.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::thread;

use signal_hook::consts::SIGIO;
use signal_hook::low_level::pipe;
use tracing::warn;

use crate::server::process::liveness::{LEASES, beat_every};
use crate::store::{RENEW_LEASES_EVERY, renew_leases, take_leases};

/// Starts the thread that renews leases, and enables leases on served files for as long as the process runs. Later
/// calls have no effect.
pub(in crate::server) fn start() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        if let Err(error) = start_thread() {
            warn!("files cannot be leased: {error}: the server calls fstat after every batch instead");
        }
    });
}

fn start_thread() -> io::Result<()> {
    let (mut signals, sender) = UnixStream::pair()?;
    pipe::register(SIGIO, sender)?;
    signals.set_read_timeout(Some(RENEW_LEASES_EVERY.min(beat_every(sd_notify::watchdog_enabled()))))?;
    thread::Builder::new().name("leases".to_owned()).spawn(move || {
        LEASES.started();
        loop {
            LEASES.beat();
            // Waits for a signal, or until leases must be renewed. One call of `renew_leases` handles all signals that
            // have arrived.
            let _ = signals.read(&mut [0; 64]);
            let _ = LEASES.catch(renew_leases);
        }
    })?;
    take_leases();
    Ok(())
}
