//! The thread that returns leases on files that are served.
//!
//! In: SIGIO. Out: files that others may write to. A leased file need not be checked after every batch of answers.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::thread;

use signal_hook::consts::SIGIO;
use signal_hook::low_level::pipe;
use tracing::warn;

use super::liveness::{LEASES, beat_every};
use crate::store::{take_leases, yield_leases};

/// Leases files from now on, for as long as the process runs, and returns a lease when somebody wants to write to its
/// file.
pub(super) fn take() {
    static ANSWERING: OnceLock<()> = OnceLock::new();
    ANSWERING.get_or_init(|| {
        if let Err(error) = answer() {
            warn!("files are not leased, but checked after every batch: {error}");
        }
    });
}

fn answer() -> io::Result<()> {
    let (mut signals, sender) = UnixStream::pair()?;
    pipe::register(SIGIO, sender)?;
    signals.set_read_timeout(Some(beat_every(sd_notify::watchdog_enabled())))?;
    thread::Builder::new().name("leases".to_owned()).spawn(move || {
        LEASES.started();
        loop {
            LEASES.beat();
            // One call of `yield_leases` answers all signals that have arrived.
            if signals.read(&mut [0; 64]).is_ok() {
                let _ = LEASES.catch(yield_leases);
            }
        }
    })?;
    take_leases();
    Ok(())
}
