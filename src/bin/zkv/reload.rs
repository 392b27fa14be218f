//! `zkv reload`: makes a server reload its file, or go back to the previous generation.
//!
//! In: a socket, and a time limit. Out: the outcome, as the server reports it.

use std::io::Write;
use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use zero_kv::client::{ClientError, Info};
use zero_kv::printable::Printable;

use crate::args::{Address, ReloadArgs};
use crate::deadline::run_within;
use crate::output::{print, print_error};

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// In Info, the first word of the field `reload_last` if the server rejected the file.
const REJECTED: &str = "refused";

pub(crate) fn reload(server: &Address, args: &ReloadArgs) -> anyhow::Result<bool> {
    let (address, rollback) = (server.clone(), args.rollback);
    let info = run_within(args.timeout, move || reload_and_wait(&address, rollback))?.ok_or_else(|| {
        let (name, seconds) = (server.socket.display(), args.timeout.as_secs_f64());
        anyhow!("{name}: not done within {seconds} s: `zkv info` shows the outcome later, as reload_last")
    })??;
    let outcome = info.get("reload_last").unwrap_or_default();
    if outcome.starts_with(REJECTED) {
        print_error(&format_args!("{}: {outcome}", server.socket.display()));
        return Ok(false);
    }
    print(|stdout| writeln!(stdout, "{}", Printable(outcome)))?;
    Ok(true)
}

/// Requests a reload, or a rollback if `rollback` is true. Waits until the attempt ends, and returns the server's Info.
fn reload_and_wait(server: &Address, rollback: bool) -> Result<Info, ClientError> {
    let mut client = server.connect()?;
    let attempt = if rollback { client.rollback()? } else { client.reload()? };
    loop {
        let info = client.info()?;
        if info.number::<u64>("reload_done").is_some_and(|done| done >= attempt) {
            return Ok(info);
        }
        thread::sleep(POLL_INTERVAL);
    }
}
