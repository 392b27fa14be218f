//! `zkv ping`: measures one round trip, with a request that does not depend on the table.

use std::io::Write;
use std::time::Instant;

use zero_kv::client::Client;

use crate::output::print;

pub(crate) fn ping(client: &mut Client) -> anyhow::Result<bool> {
    // The first round trip is not measured, because it includes the time that the server takes to accept the
    // connection.
    client.ping()?;
    let started = Instant::now();
    client.ping()?;
    let us = started.elapsed().as_nanos() as f64 / 1e3;
    print(|stdout| writeln!(stdout, "response in {us:.1} µs"))?;
    Ok(true)
}
