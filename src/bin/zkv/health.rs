//! Whether a server serves.
//!
//! In: a socket, and how long to wait. Out: an exit status, and on one line what
//! is wrong.

use std::io::{self, Write};

use anyhow::{anyhow, bail};
use zero_kv::client::{ClientError, Info};

use crate::args::{Address, HealthArgs};
use crate::deadline::within;
use crate::output::{complain, settle_stdout};

pub(crate) fn health(server: &Address, args: &HealthArgs) -> anyhow::Result<bool> {
    let info = match look(server, args) {
        Ok(info) => info,
        Err(reason) => {
            complain(&reason);
            return Ok(false);
        }
    };
    if args.verbose {
        let value = |name| info.get(name).unwrap_or("?");
        let mut output = io::stdout().lock();
        let (generation, digest, rows) = (value("generation"), value("digest"), value("rows"));
        let written = writeln!(output, "generation {generation}, digest {digest}, {rows} rows");
        settle_stdout(written.and_then(|()| output.flush()))?;
    }
    Ok(true)
}

/// What a server says of itself that serves.
fn look(server: &Address, args: &HealthArgs) -> anyhow::Result<Info> {
    let (address, name) = (server.clone(), server.socket.display());
    let answer = within(args.timeout, move || -> Result<Info, ClientError> { address.connect()?.info() });
    let info = answer.ok_or_else(|| anyhow!("{name}: no answer within {} s", args.timeout.as_secs_f64()))??;
    match info.get("state") {
        Some("serving") => match info.number::<u64>("blocks_damaged") {
            None | Some(0) => Ok(info),
            Some(count) => bail!(
                "{name}: {} has damaged blocks, {count} of {}: bake it anew, or put a good file in its place by a rename",
                info.get("file").unwrap_or("its file"),
                info.get("blocks").unwrap_or("?")
            ),
        },
        Some("changed") => bail!(
            "{name}: {} was changed where it lies: bake it anew, or put a good file in its place by a rename",
            info.get("file").unwrap_or("its file")
        ),
        Some(state) => bail!("{name}: the state is \"{}\", where \"serving\" was expected", state.escape_default()),
        None => bail!("{name}: the server does not say in what state it is: is it a kv_store of this version?"),
    }
}
