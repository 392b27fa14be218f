//! Whether a server answers, and how fast.
//!
//! In: a connection. Out: the time of one round trip. It asks for nothing that depends on
//! the table.

use std::io::{self, Write};
use std::time::Instant;

use zero_kv::client::Client;

use crate::output::settle_stdout;

pub(crate) fn ping(client: &mut Client) -> anyhow::Result<bool> {
    // Until the first is answered, the server has the connection to take.
    client.ping()?;
    let started = Instant::now();
    client.ping()?;
    let us = started.elapsed().as_nanos() as f64 / 1e3;
    let mut output = io::stdout().lock();
    settle_stdout(writeln!(output, "answered in {us:.1} µs").and_then(|()| output.flush()))?;
    Ok(true)
}
