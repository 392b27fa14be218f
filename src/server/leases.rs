//! Leases on files that are served.
//!
//! In: SIGIO. Out: files that others may write to. A file that is leased need not
//! be looked at behind every batch of answers.

use std::io;
use std::sync::OnceLock;
use std::thread;

use signal_hook::consts::SIGIO;
use signal_hook::iterator::Signals;
use tracing::warn;

use crate::store::{take_leases, yield_leases};

/// Has files leased from now on, for as long as the process runs, and gives a lease
/// back when somebody wants to write to its file.
pub(super) fn take() {
    static ANSWERING: OnceLock<()> = OnceLock::new();
    ANSWERING.get_or_init(|| {
        if let Err(error) = answer() {
            warn!("files are not leased, but looked at behind every batch: {error}");
        }
    });
}

fn answer() -> io::Result<()> {
    let mut signals = Signals::new([SIGIO])?;
    thread::Builder::new().name("leases".to_owned()).spawn(move || {
        for _ in signals.forever() {
            yield_leases();
        }
    })?;
    take_leases();
    Ok(())
}
