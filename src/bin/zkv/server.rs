//! `zkv info`, `zkv ping`, `zkv reload`, and `zkv health`: commands for a server.
//!
//! In: a server's address, and a time limit for the whole operation. Out: the fields of the server's Info response, all
//! of them, or lines for an operator.

use std::io::Write;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use serde::ser::{Serialize, SerializeMap, Serializer};
use zero_kv::client::{Client, ClientError, Info};
use zero_kv::counted::counted;
use zero_kv::printable::Printable;

use crate::args::{Address, HealthArgs, ReloadArgs};
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

/// The maximum number of log lines that Info has.
const LOG_LINES_MAX: usize = 10;

pub(crate) fn health(server: &Address, args: &HealthArgs) -> anyhow::Result<bool> {
    let info = match request_info(server, args) {
        Ok(info) => info,
        Err(reason) => {
            print_error(&reason);
            return Ok(false);
        }
    };
    let problems = problems(&info, args.stale_after);
    for line in problems.iter().chain(&notes(&info)) {
        print_error(&format_args!("{}: {line}", server.socket.display()));
    }
    if args.verbose || !problems.is_empty() {
        let lines = (1..=LOG_LINES_MAX).map_while(|number| info.get(&format!("log_{number}")));
        lines.for_each(|line| print_error(&format_args!("{}: log: {line}", server.socket.display())));
    }
    if args.verbose && problems.is_empty() {
        let value = |name| Printable(info.get(name).unwrap_or("?"));
        let (generation, digest, rows) = (value("generation"), value("digest"), value("rows"));
        print(|stdout| writeln!(stdout, "generation {generation}, digest {digest}, {}", counted(rows, "row")))?;
    }
    Ok(problems.is_empty())
}

fn request_info(server: &Address, args: &HealthArgs) -> anyhow::Result<Info> {
    let (address, name) = (server.clone(), server.socket.display());
    let response = run_within(args.timeout, move || -> Result<Info, ClientError> { address.connect()?.info() })?;
    Ok(response.ok_or_else(|| anyhow!("{name}: no response within {} s", args.timeout.as_secs_f64()))??)
}

/// Returns a message for each condition that makes the server unhealthy.
fn problems(info: &Info, stale_after: Option<Duration>) -> Vec<String> {
    let file = info.get("file").unwrap_or("its file");
    let remedy = "bake it again, or replace it with an intact file by rename";
    let mut problems = Vec::new();
    match info.get("state") {
        Some("serving") => {}
        Some("changed") => problems.push(format!("{file} was changed in place: {remedy}")),
        Some(state) => {
            problems.push(format!("the state is \"{}\", but \"serving\" was expected", state.escape_default()));
        }
        None => {
            problems
                .push("the server does not report its state: check that it is a kv_store of this version".to_owned());
        }
    }
    if let Some(count @ 1..) = info.number::<u64>("blocks_damaged") {
        let blocks = info.get("blocks").unwrap_or("?");
        // A node that follows a published table fetches the file again, without an operator.
        let remedy = if info.get("published_url").is_some() { "the server fetches it again" } else { remedy };
        problems.push(format!("{file} has damaged blocks, {count} of {blocks}: {remedy}"));
    }
    if let Some(threads) = info.get("thread_problems").filter(|threads| !threads.is_empty()) {
        problems.push(format!("{threads}: restart the server, and report the errors in its log"));
    }
    if let Some(slots) = info.get("cluster_slots_lacking").filter(|slots| !slots.is_empty()) {
        let number = info.get("cluster_topology").unwrap_or("?");
        // A node that follows a published table fetches its rows without an operator.
        let remedy = if info.get("published_url").is_some() {
            "the server fetches them"
        } else {
            "serve a file with these slots (--slots), or correct the topology"
        };
        problems.push(format!(
            "topology {number} assigns slots {slots} to this node, but its file lacks their rows, so clients get the \
             error LOADING: {remedy}"
        ));
    }
    problems.extend(store_age_problem(info, stale_after));
    problems.extend(info.get("published_name_problem").filter(|problem| !problem.is_empty()).map(str::to_owned));
    problems
}

/// Returns a message if a server that follows a published table has not read the store for a time, which is 10 polls
/// and at least 30 s by default.
fn store_age_problem(info: &Info, stale_after: Option<Duration>) -> Option<String> {
    const AGE_MIN_S: f64 = 30.0;
    const POLLS: f64 = 10.0;
    let (age_s, poll_s) = (info.number::<u64>("published_poll_age_s")?, info.number::<f64>("published_poll_s")?);
    let stale_after_s = stale_after.map_or(AGE_MIN_S.max(poll_s * POLLS), |after| after.as_secs_f64());
    (age_s as f64 > stale_after_s).then(|| {
        let url = info.get("published_url").unwrap_or("?");
        let error = info.get("published_error").filter(|error| !error.is_empty()).unwrap_or("see the log");
        format!("{url} was not read successfully for {age_s} s, so newer generations and pins are unknown: {error}")
    })
}

/// Returns a message for each condition that does not make the server unhealthy, but may matter to an operator.
fn notes(info: &Info) -> Vec<String> {
    let refused = info.get("file_refused").filter(|reason| !reason.is_empty());
    let refused = refused.map(|reason| format!("the file at the path is {reason}"));
    let rolled_back = info.get("rolled_back").filter(|rolled_back| *rolled_back == "yes");
    let rolled_back = rolled_back.map(|_| "serves the previous table, after a rollback".to_owned());
    let file = info.get("file").unwrap_or("its file");
    let unknown = info.get("writers_detected").and_then(|detected| detected.strip_prefix("no: "));
    let unknown = unknown.map(|reason| {
        format!(
            "processes that write to {file} cannot be detected: {reason}: run kv_store as the file's owner or with \
             CAP_LEASE, or serve a private copy (--memory copy or sealed)"
        )
    });
    let tls = info.get("tls_refused").filter(|reason| !reason.is_empty());
    let tls = tls.map(|reason| format!("changed TLS files were rejected, and the previous ones are in use: {reason}"));
    let users = info.get("users_refused").filter(|reason| !reason.is_empty());
    let users =
        users.map(|reason| format!("the users file was rejected, and the previous users are in effect: {reason}"));
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let expires_s = info.number::<u64>("tls_certificate_expires_s").filter(|expires_s| *expires_s > 0);
    let expired = expires_s.and_then(|expires_s| now_s.checked_sub(expires_s));
    let expired = expired.map(|age_s| format!("the TLS certificate expired {} h ago: replace it", age_s / 3600));
    let published = info.get("published_error").filter(|error| !error.is_empty());
    let published = published.map(|error| {
        let (serving, newest) = (info.get("published_generation"), info.get("published_newest"));
        let (serving, newest) = (serving.unwrap_or("?"), newest.unwrap_or("?"));
        format!("serves published generation {serving}, and the newest one is {newest}: {error}")
    });
    let dropped = info.number::<u64>("log_dropped_lines").filter(|count| *count > 0);
    let dropped = dropped.map(|count| {
        format!("{count} lines of the log were dropped: check the program or the disk that takes standard error")
    });
    let topology = info.get("cluster_topology_refused").filter(|reason| !reason.is_empty());
    let topology = topology.map(|reason| {
        let number = info.get("cluster_topology").unwrap_or("?");
        format!("the topology file was rejected, and topology {number} stays in effect: {reason}")
    });
    dropped
        .into_iter()
        .chain(rolled_back)
        .chain(refused)
        .chain(unknown)
        .chain(tls)
        .chain(users)
        .chain(expired)
        .chain(published)
        .chain(topology)
        .collect()
}

pub(crate) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<JoinHandle<T>> {
    thread::Builder::new().spawn(work).context(THREAD_ERROR)
}

/// The error message if a thread cannot be started.
pub(crate) const THREAD_ERROR: &str = "a thread cannot be started: raise the limit on processes (ulimit -u, TasksMax=)";

/// Runs an operation on a new thread, and returns its result, or `None` after the time-out. After a time-out, the
/// operation continues on its thread until it ends or the process exits.
pub(crate) fn run_within<T: Send + 'static>(
    timeout: Duration,
    operation: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<Option<T>> {
    let (sender, receiver) = mpsc::channel();
    spawn(move || sender.send(operation()))?;
    Ok(receiver.recv_timeout(timeout).ok())
}
