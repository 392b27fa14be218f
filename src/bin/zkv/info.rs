//! `zkv info`: prints the fields of a server's Info response, as text or as JSON. All fields are printed, including
//! fields that this program does not use.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use serde::ser::{Serialize, SerializeMap, Serializer};
use zero_kv::client::{Client, ClientError, Info};
use zero_kv::printable::Printable;

use crate::args::{Address, ReloadArgs};
use crate::deadline::run_within;
use crate::output::{print, print_error, write_json_line};

/// Fields whose values are JSON strings even if they look like numbers.
const TEXT_FIELDS: &[&str] =
    &["version", "socket", "tcp", "file", "memory", "verify", "digest", "keys", "state", "reload_last"];

pub(crate) fn info(client: &mut Client, json: bool) -> anyhow::Result<bool> {
    let info = client.info()?;
    print(|stdout| match json {
        true => write_json_line(stdout, &InfoObject(&info)),
        false => info
            .iter()
            .try_for_each(|(name, value)| writeln!(stdout, "{}", Printable(format!("{name} {value}").trim_end()))),
    })?;
    Ok(true)
}

/// Serializes an Info response as one JSON object, with the fields in the server's order.
struct InfoObject<'a>(&'a Info);

impl Serialize for InfoObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.0.iter() {
            match parse_number(value).filter(|_| !TEXT_FIELDS.contains(&name)) {
                Some(number) => map.serialize_entry(name, &number)?,
                None => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}

/// Parses a value that is a decimal number, with or without a fraction.
fn parse_number(value: &str) -> Option<serde_json::Number> {
    value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.').then(|| value.parse().ok()).flatten()
}

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
