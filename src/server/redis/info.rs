//! Commands about the server: INFO, CONFIG GET, TIME, and those that dashboards, profilers, and monitoring agents send.
//!
//! The server records no slow commands and no latency events, and has no modules, so most replies about them are empty.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use super::clients::Clients;
use super::keyspace::{self, PATTERN_LEN_MAX_BYTES};
use super::{Out, Replied};
use crate::Lookup;
use crate::protocol::native::Status;
use crate::protocol::resp::{Args, BULK_LEN_MAX_BYTES, integer};
use crate::server::cluster::ClusterNode;
use crate::server::facts::{self, Snapshot, VERSION};
use crate::server::state::ServerState;
use crate::server::stats::{COMMAND_STATS, STATUS_NAMES};

/// The version of Redis whose replies this server imitates. Clients check this version.
pub(super) const REDIS_VERSION: &str = "7.0.15";

pub(super) fn time(out: &mut Out<'_>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    out.array(2);
    out.bulk(itoa::Buffer::new().format(now.as_secs()).as_bytes());
    out.bulk(itoa::Buffer::new().format(now.subsec_micros()).as_bytes());
}

/// The title of the section with the facts of the native protocol. Clients request it as `zero_kv`, but parsers expect
/// titles of letters and digits.
const ZERO_KV: &str = "ZeroKV";

type Section = fn(&Snapshot, &Clients) -> Vec<(&'static str, String)>;

/// The sections of the reply to INFO, in order: their titles, and the functions that return their fields.
const SECTIONS: &[(&str, Section)] = &[
    ("Server", server_section),
    ("Clients", clients_section),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("CPU", processor),
    ("Modules", |_, _| Vec::new()),
    ("Commandstats", command_stats),
    ("Errorstats", error_stats),
    ("Latencystats", latency_stats),
    ("Cluster", |snapshot, _| vec![("cluster_enabled", u8::from(cluster(snapshot).is_some()).to_string())]),
    ("Keyspace", keyspace),
    (ZERO_KV, zero_kv),
];

/// The sections that only clients with access to all keys get. The processor time depends on the length of the file,
/// because the server verifies the file, and the time of a request on its row.
const ABOUT_KEYS: [&str; 6] = ["Memory", "CPU", "Commandstats", "Latencystats", "Keyspace", ZERO_KV];

/// The sections that Redis sends only if they are requested, by their own names or with `all`.
const NOT_DEFAULT: [&str; 2] = ["Commandstats", "Latencystats"];

/// Replies with the requested sections. `shows_keys` says whether the client has access to all keys.
pub(super) fn info(server: &ServerState, clients: &Clients, shows_keys: bool, args: Args<'_>, out: &mut Out<'_>) {
    let mut wanted = [false; SECTIONS.len()];
    let default = if args.clone().next().is_none() { Some(&b"default"[..]) } else { None };
    for name in default.into_iter().chain(args) {
        let is_all = ["all", "everything"].iter().any(|all| name.eq_ignore_ascii_case(all.as_bytes()));
        let is_default = name.eq_ignore_ascii_case(b"default");
        let name = if name.eq_ignore_ascii_case(b"zero_kv") { ZERO_KV.as_bytes() } else { name };
        for (wanted, (title, _)) in wanted.iter_mut().zip(SECTIONS) {
            let is_named = name.eq_ignore_ascii_case(title.as_bytes());
            *wanted |= is_all || is_named || is_default && !NOT_DEFAULT.contains(title);
        }
    }
    for (wanted, (title, _)) in wanted.iter_mut().zip(SECTIONS) {
        *wanted &= shows_keys || !ABOUT_KEYS.contains(title);
    }
    let (mut text, snapshot) = (String::new(), Snapshot::take(server));
    for (_, (title, section)) in wanted.iter().zip(SECTIONS).filter(|(wanted, _)| **wanted) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "# {title}\r\n");
        for (name, value) in section(&snapshot, clients) {
            let _ = write!(text, "{name}:{value}\r\n");
        }
    }
    out.verbatim(&text);
}

fn cluster<'s>(snapshot: &Snapshot<'s>) -> Option<&'s ClusterNode> {
    snapshot.server.settings.source.cluster.as_deref()
}

fn server_section(snapshot: &Snapshot, _: &Clients) -> Vec<(&'static str, String)> {
    let uptime_s = snapshot.server.statistics.uptime().as_secs();
    vec![
        ("redis_version", REDIS_VERSION.to_owned()),
        ("redis_mode", if cluster(snapshot).is_some() { "cluster" } else { "standalone" }.to_owned()),
        ("zero_kv_version", VERSION.to_owned()),
        ("arch_bits", usize::BITS.to_string()),
        ("process_id", std::process::id().to_string()),
        ("tcp_port", tcp_port(snapshot.server)),
        ("uptime_in_seconds", uptime_s.to_string()),
        ("uptime_in_days", (uptime_s / 86_400).to_string()),
    ]
}

fn tcp_port(server: &ServerState) -> String {
    server.settings.tcp.map_or(0, |tcp| tcp.port()).to_string()
}

fn clients_section(snapshot: &Snapshot, clients: &Clients) -> Vec<(&'static str, String)> {
    vec![
        ("connected_clients", snapshot.sums.connections.to_string()),
        ("redis_protocol_clients", clients.count().to_string()),
        ("blocked_clients", "0".to_owned()),
        ("tracking_clients", clients.tracking_count().to_string()),
        ("maxclients", snapshot.server.settings.connections_max.to_string()),
    ]
}

/// Returns the section Memory. Omits values that cannot be read from /proc.
fn memory(snapshot: &Snapshot, _: &Clients) -> Vec<(&'static str, String)> {
    let status = process_status();
    let bytes = |name: &str| status_bytes(&status, name).map(|bytes| bytes.to_string());
    let mut memory = Vec::new();
    // `RssAnon` includes the file only if the file was copied into memory.
    memory.extend(bytes("RssAnon").map(|bytes| ("used_memory", bytes)));
    memory.extend(bytes("VmRSS").map(|bytes| ("used_memory_rss", bytes)));
    memory.extend([("maxmemory", "0".to_owned()), ("maxmemory_policy", "noeviction".to_owned())]);
    memory.push(("mem_clients_normal", snapshot.server.client_memory.held_bytes().to_string()));
    memory
}

/// Returns the text of `/proc/self/status`, or an empty text if it cannot be read.
pub(super) fn process_status() -> String {
    std::fs::read_to_string("/proc/self/status").unwrap_or_default()
}

/// Returns the size that `status` states in the line with this name, converted from KiB to bytes.
pub(super) fn status_bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

fn persistence(_: &Snapshot, _: &Clients) -> Vec<(&'static str, String)> {
    // All are 0: the server has loaded its table before it replies to a client, and it never saves anything.
    let zeros = [
        "loading",
        "async_loading",
        "rdb_changes_since_last_save",
        "rdb_bgsave_in_progress",
        "aof_enabled",
        "aof_rewrite_in_progress",
    ];
    zeros.map(|name| (name, "0".to_owned())).to_vec()
}

/// Returns the section Replication. Omits the fields about a replication ID and a backlog, which the server does not
/// have.
fn replication(snapshot: &Snapshot, _: &Clients) -> Vec<(&'static str, String)> {
    let view = cluster(snapshot).map(ClusterNode::view);
    let (text, mut fields) = (str::to_owned, Vec::new());
    let offset = view.as_ref().map_or(0, |view| view.offset()).to_string();
    match view.as_ref().and_then(|view| view.primary_of_this()) {
        None => fields.push(("role", text("master"))),
        Some(primary) => fields.extend([
            ("role", text("slave")),
            ("master_host", primary.host.clone()),
            ("master_port", primary.port.to_string()),
            ("master_link_status", text("up")),
            ("slave_repl_offset", offset.clone()),
            ("slave_read_only", text("1")),
        ]),
    }
    fields.extend([
        ("connected_slaves", view.map_or(0, |view| view.replicas_of_this().len()).to_string()),
        ("master_failover_state", text("no-failover")),
        ("master_repl_offset", offset),
        ("second_repl_offset", text("-1")),
        ("repl_backlog_active", text("0")),
    ]);
    fields
}

/// Returns the section CPU: the processor time of this process and of its children, in seconds.
fn processor(_: &Snapshot, _: &Clients) -> Vec<(&'static str, String)> {
    let mut times = Vec::new();
    for (who, of_system, of_user) in [
        (UsageWho::RUSAGE_SELF, "used_cpu_sys", "used_cpu_user"),
        (UsageWho::RUSAGE_CHILDREN, "used_cpu_sys_children", "used_cpu_user_children"),
    ] {
        let text = |time: TimeVal| format!("{}.{:06}", time.tv_sec(), time.tv_usec());
        if let Ok(usage) = getrusage(who) {
            times.extend([(of_system, text(usage.system_time())), (of_user, text(usage.user_time()))]);
        }
    }
    times
}

/// Returns the section Stats. Its counts include both protocols.
fn stats(snapshot: &Snapshot, _: &Clients) -> Vec<(&'static str, String)> {
    let sums = &snapshot.sums;
    let requests: u64 = sums.requests.as_flattened().iter().sum();
    vec![
        ("total_connections_received", sums.accepted.to_string()),
        ("total_commands_processed", requests.to_string()),
        ("total_net_input_bytes", sums.read_len_bytes.to_string()),
        ("total_net_output_bytes", sums.written_len_bytes.to_string()),
        ("rejected_connections", snapshot.totals.refused.to_string()),
        ("expired_keys", "0".to_owned()),
        ("evicted_keys", "0".to_owned()),
        ("keyspace_hits", sums.hits().to_string()),
        ("keyspace_misses", sums.misses().to_string()),
        ("total_error_replies", sums.errors().to_string()),
        ("evicted_clients", snapshot.totals.cut_memory.to_string()),
    ]
}

/// Returns the section Commandstats. The server counts Redis commands together, and native requests by their op. Its
/// timer measures some passes, which answer several requests, so the time of a request is an average over all requests.
fn command_stats(snapshot: &Snapshot, _: &Clients) -> Vec<(&'static str, String)> {
    let sums = &snapshot.sums;
    let per = |sum: u64, count: u64| if count == 0 { 0.0 } else { sum as f64 / count as f64 };
    let pass_us = per(sums.service_ns.sum, sums.service_ns.count()) / 1e3;
    let requests_per_pass = per(sums.batch_requests.sum, sums.batch_requests.count());
    let request_us = if requests_per_pass == 0.0 { 0.0 } else { pass_us / requests_per_pass };
    let called = COMMAND_STATS.iter().zip(&sums.requests).filter(|(_, counts)| counts.iter().sum::<u64>() > 0);
    let line = |counts: &[u64; STATUS_NAMES.len()]| {
        let (calls, failed) = (counts.iter().sum::<u64>(), counts[Status::Error as usize]);
        format!(
            "calls={calls},usec={:.0},usec_per_call={request_us:.2},rejected_calls=0,failed_calls={failed}",
            calls as f64 * request_us
        )
    };
    called.map(|(name, counts)| (*name, line(counts))).collect()
}

/// Returns the section Errorstats. The server counts errors of all kinds together.
fn error_stats(snapshot: &Snapshot, _: &Clients) -> Vec<(&'static str, String)> {
    match snapshot.sums.errors() {
        0 => Vec::new(),
        count => vec![("errorstat_ERR", format!("count={count}"))],
    }
}

/// Returns the section Latencystats: percentiles of the times of passes, which answer the requests that arrive
/// together.
fn latency_stats(snapshot: &Snapshot, _: &Clients) -> Vec<(&'static str, String)> {
    let service_ns = &snapshot.sums.service_ns;
    if service_ns.count() == 0 {
        return Vec::new();
    }
    let percentile = |share: f64| format!("{:.3}", service_ns.quantile(share) as f64 / 1e3);
    let [median, p99, p999] = [0.5, 0.99, 0.999].map(percentile);
    vec![("latency_percentiles_usec_batch", format!("p50={median},p99={p99},p99.9={p999}"))]
}

fn keyspace(snapshot: &Snapshot, _: &Clients) -> Vec<(&'static str, String)> {
    match snapshot.generation.store.len() {
        0 => Vec::new(),
        rows => vec![("db0", format!("keys={rows},expires=0,avg_ttl=0"))],
    }
}

fn zero_kv(snapshot: &Snapshot, _: &Clients) -> Vec<(&'static str, String)> {
    facts::redis_texts(snapshot)
}

/// Returns the configuration of a Redis server that would behave like this server.
fn settings(server: &ServerState) -> Vec<(&'static str, String)> {
    let text = str::to_owned;
    vec![
        ("appendonly", text("no")),
        ("client-query-buffer-limit", server.settings.limits.buffer_max_bytes.to_string()),
        ("databases", text("1")),
        ("maxclients", server.settings.connections_max.to_string()),
        ("maxmemory", text("0")),
        ("maxmemory-clients", server.client_memory.max_bytes.to_string()),
        ("maxmemory-policy", text("noeviction")),
        ("notify-keyspace-events", text("")),
        ("port", tcp_port(server)),
        ("proto-max-bulk-len", BULK_LEN_MAX_BYTES.to_string()),
        ("requirepass", text("")),
        ("save", text("")),
        ("timeout", server.settings.limits.idle_timeout.as_secs().to_string()),
        ("unixsocket", server.settings.socket.display().to_string()),
    ]
}

/// Replies with the settings whose names match one of the patterns.
///
/// # Errors
/// If the patterns are so long that matching them would delay other connections.
pub(super) fn config_get(server: &ServerState, patterns: Args<'_>, out: &mut Out<'_>) -> Replied {
    let len_bytes: usize = patterns.clone().map(<[u8]>::len).sum();
    if len_bytes > PATTERN_LEN_MAX_BYTES {
        return Err(format!(
            "ERR the patterns are too long: {len_bytes} bytes together, the limit is {PATTERN_LEN_MAX_BYTES}: \
             send fewer or shorter ones"
        ));
    }
    let mut settings = settings(server);
    let mut is_wanted = vec![false; settings.len()];
    for pattern in patterns {
        let glob = keyspace::compile(&pattern.to_ascii_lowercase(), out.sink().steps())?;
        for (is_wanted, (name, _)) in is_wanted.iter_mut().zip(&settings) {
            *is_wanted |= keyspace::matches(&glob, name.as_bytes(), out.sink().steps());
        }
        out.sink().steps().add(settings.len() / 4);
    }
    let mut is_wanted = is_wanted.into_iter();
    settings.retain(|_| is_wanted.next().unwrap_or_default());
    out.map(settings.len());
    for (name, value) in settings {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    }
    Ok(())
}

/// The cost of reading `/proc/self/status`, in steps.
const PROCESS_STEPS: usize = 500;

/// Replies to SLOWLOG GET with an empty list.
pub(super) fn slow_log(mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
    match (args.next(), args.next()) {
        (_, Some(_)) => {
            Err("ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.".to_owned())
        }
        (Some(count), None) if integer(count).is_none_or(|count| count < -1) => {
            Err("ERR count should be greater than or equal to -1".to_owned())
        }
        _ => {
            out.array(0);
            Ok(())
        }
    }
}

/// Replies to MEMORY STATS with those of Redis's fields that apply to this server.
pub(super) fn memory_stats(server: &ServerState, out: &mut Out<'_>) {
    out.sink().steps().add(PROCESS_STEPS);
    let (generation, status) = (server.table.current(), process_status());
    let (rows, file_len_bytes) = (generation.store.len() as u64, generation.store.file_len_bytes());
    let mut fields = Vec::new();
    fields.extend(status_bytes(&status, "RssAnon").map(|bytes| ("total.allocated", bytes)));
    fields.extend([("replication.backlog", 0), ("clients.slaves", 0)]);
    fields.push(("clients.normal", server.client_memory.held_bytes()));
    fields.extend([("cluster.links", 0), ("aof.buffer", 0), ("lua.caches", 0), ("functions.caches", 0)]);
    fields.push(("keys.count", rows));
    fields.push(("keys.bytes-per-key", file_len_bytes.checked_div(rows).unwrap_or_default()));
    fields.push(("dataset.bytes", file_len_bytes));
    fields.extend(status_bytes(&status, "VmRSS").map(|bytes| ("allocator.resident", bytes)));
    out.map(fields.len());
    for (name, number) in fields {
        out.bulk(name.as_bytes());
        out.integer(number as i64);
    }
}

/// Replies with the modification time of the served file.
pub(super) fn last_save(server: &ServerState, out: &mut Out<'_>) {
    out.integer(server.table.current().modified_s() as i64);
}
