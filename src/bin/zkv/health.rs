//! `zkv health`: checks whether a server is healthy.
//!
//! In: a socket, and a time limit. Out: an exit status, and lines for an operator: a line for each problem, and a line
//! for each note. A note describes a condition that does not make the server unhealthy.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use zero_kv::client::{ClientError, Info};
use zero_kv::counted::counted;
use zero_kv::printable::Printable;

use crate::args::{Address, HealthArgs};
use crate::deadline::run_within;
use crate::output::{print, print_error};

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
    problems.extend(store_age_problem(info, stale_after));
    problems.extend(info.get("published_name_problem").filter(|problem| !problem.is_empty()).map(str::to_owned));
    problems
}

/// Returns a message if a server that follows a published table has not read the store for a time, which is 10 polls and
/// at least 30 s by default.
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
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let expires_s = info.number::<u64>("tls_certificate_expires_s").filter(|expires_s| *expires_s > 0);
    let expired = expires_s.and_then(|expires_s| now_s.checked_sub(expires_s));
    let expired = expired.map(|age_s| format!("the TLS certificate expired {} h ago: replace it", age_s / 3600));
    let published = info.get("published_error").filter(|error| !error.is_empty());
    let published = published.map(|error| {
        let (serving, newest) = (info.get("published_generation"), info.get("published_newest"));
        let (serving, newest) = (serving.unwrap_or("?"), newest.unwrap_or("?"));
        format!("serves generation {serving} of the published table, whose newest one is {newest}: {error}")
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
        .chain(refused)
        .chain(unknown)
        .chain(tls)
        .chain(expired)
        .chain(published)
        .chain(topology)
        .collect()
}
