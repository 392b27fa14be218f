//! Has a server look at its file, or go back to the one before.
//!
//! In: a socket, and how long to wait. Out: how it went, in the server's words.

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use zero_kv::client::{ClientError, Info};

use crate::args::{Address, ReloadArgs};
use crate::deadline::within;
use crate::output::{complain, settle_stdout};

/// How far apart the server is asked whether it is done.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// The server's words for a file that it does not serve begin so.
const REFUSED: &str = "refused";

pub(crate) fn reload(server: &Address, args: &ReloadArgs) -> anyhow::Result<bool> {
    let (address, rollback) = (server.clone(), args.rollback);
    let done = within(args.timeout, move || attempt(&address, rollback)).ok_or_else(|| {
        let (name, seconds) = (server.socket.display(), args.timeout.as_secs_f64());
        anyhow!("{name}: not done within {seconds} s: `zkv info` tells, as reload_last, how it went")
    })??;
    let how = done.get("reload_last").unwrap_or_default();
    if how.starts_with(REFUSED) {
        complain(&format_args!("{}: {how}", server.socket.display()));
        return Ok(false);
    }
    let mut output = io::stdout().lock();
    settle_stdout(writeln!(output, "{how}").and_then(|()| output.flush()))?;
    Ok(true)
}

/// What the server says of itself once it is done.
fn attempt(server: &Address, rollback: bool) -> Result<Info, ClientError> {
    let mut client = server.connect()?;
    let attempt = if rollback { client.rollback()? } else { client.reload()? };
    loop {
        let info = client.info()?;
        if info.number::<u64>("reload_done").is_some_and(|done| done >= attempt) {
            return Ok(info);
        }
        thread::sleep(ASK_EVERY);
    }
}
