//! What the server says of itself: INFO, CONFIG GET, TIME.

use std::fmt::Write;
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Out;
use super::keyspace::PATTERN_LEN_MAX_BYTES;
use crate::format::key::KeyKind;
use crate::protocol::resp::{Args, BULK_LEN_MAX_BYTES, COMMAND_LEN_MAX_BYTES, Glob};
use crate::server::shared::{Counters, Serving, Shared};
use crate::store::Store;

/// The version of Redis whose replies ours are; clients look at it.
pub(super) const REDIS_VERSION: &str = "7.0.15";

/// INFO, which asks the system about this process, takes as long as a look at so many rows.
pub(super) const COST_ROWS: usize = 1000;

/// What tells one generation of a table from others: 32 hexadecimal digits.
pub(super) fn generation(store: &Store) -> String {
    format!("{:032x}", store.digest())
}

pub(super) fn time(out: &mut Out<'_>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    out.array(2);
    out.bulk(itoa::Buffer::new().format(now.as_secs()).as_bytes());
    out.bulk(itoa::Buffer::new().format(now.subsec_micros()).as_bytes());
}

type Section = fn(&Serving) -> Vec<(&'static str, String)>;

/// Titles and sections of INFO, in order.
const SECTIONS: [(&str, Section); 6] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Stats", stats),
    ("Keyspace", keyspace),
    ("Zero_kv", zero_kv),
];

pub(super) fn info(shared: &Shared, args: Args<'_>, out: &mut Out<'_>) {
    let mut wanted = [args.clone().next().is_none(); SECTIONS.len()];
    for name in args {
        let all = ["default", "all", "everything"].iter().any(|all| name.eq_ignore_ascii_case(all.as_bytes()));
        for (wanted, (title, _)) in wanted.iter_mut().zip(SECTIONS) {
            *wanted |= all || name.eq_ignore_ascii_case(title.as_bytes());
        }
    }
    let mut text = String::new();
    for (_, (title, section)) in wanted.iter().zip(SECTIONS).filter(|(wanted, _)| **wanted) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        // Writing to a string does not fail.
        let _ = write!(text, "# {title}\r\n");
        for (name, value) in section(&shared.serving) {
            let _ = write!(text, "{name}:{value}\r\n");
        }
    }
    out.verbatim(&text);
}

fn server(serving: &Serving) -> Vec<(&'static str, String)> {
    let uptime_s = serving.started.elapsed().as_secs();
    vec![
        ("redis_version", REDIS_VERSION.to_owned()),
        ("redis_mode", "standalone".to_owned()),
        ("zero_kv_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("arch_bits", usize::BITS.to_string()),
        ("process_id", std::process::id().to_string()),
        ("tcp_port", tcp_port(serving)),
        ("uptime_in_seconds", uptime_s.to_string()),
        ("uptime_in_days", (uptime_s / 86_400).to_string()),
    ]
}

fn tcp_port(serving: &Serving) -> String {
    serving.tcp.map_or(0, |tcp| tcp.port()).to_string()
}

fn total(serving: &Serving, counter: fn(&Counters) -> &AtomicU64) -> String {
    serving.total(counter).to_string()
}

fn clients(serving: &Serving) -> Vec<(&'static str, String)> {
    vec![
        ("connected_clients", total(serving, |counters| &counters.connections)),
        ("redis_protocol_clients", serving.clients.count().to_string()),
        ("blocked_clients", "0".to_owned()),
    ]
}

/// From /proc; what cannot be read there is left out.
fn memory(_: &Serving) -> Vec<(&'static str, String)> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some((line.split_whitespace().next()?.parse::<u64>().ok()? << 10).to_string())
    };
    let mut memory = Vec::new();
    // Without the file, unless that was copied.
    memory.extend(bytes("RssAnon").map(|bytes| ("used_memory", bytes)));
    memory.extend(bytes("VmRSS").map(|bytes| ("used_memory_rss", bytes)));
    memory.extend([("maxmemory", "0".to_owned()), ("maxmemory_policy", "noeviction".to_owned())]);
    memory
}

/// Commands, hits and misses are those of the Redis protocol.
fn stats(serving: &Serving) -> Vec<(&'static str, String)> {
    vec![
        ("total_connections_received", total(serving, |counters| &counters.accepted)),
        ("total_commands_processed", total(serving, |counters| &counters.commands)),
        ("expired_keys", "0".to_owned()),
        ("evicted_keys", "0".to_owned()),
        ("keyspace_hits", total(serving, |counters| &counters.hits)),
        ("keyspace_misses", total(serving, |counters| &counters.misses)),
    ]
}

fn keyspace(serving: &Serving) -> Vec<(&'static str, String)> {
    match serving.store.len() {
        0 => Vec::new(),
        rows => vec![("db0", format!("keys={rows},expires=0,avg_ttl=0"))],
    }
}

fn zero_kv(serving: &Serving) -> Vec<(&'static str, String)> {
    let store = &serving.store;
    let key_kind = match store.key_kind() {
        KeyKind::U64 => "u64",
        KeyKind::Bytes => "bytes",
    };
    vec![
        ("generation", generation(store)),
        ("key_kind", key_kind.to_owned()),
        ("rows", store.len().to_string()),
        ("file_len_bytes", store.file_len_bytes().to_string()),
        ("workers", serving.worker_count().to_string()),
        ("socket", serving.socket.display().to_string()),
        ("tcp", serving.tcp.map(|tcp| tcp.to_string()).unwrap_or_default()),
    ]
}

/// What Redis would be configured as to behave like this server.
fn settings(serving: &Serving) -> Vec<(&'static str, String)> {
    let text = str::to_owned;
    vec![
        ("appendonly", text("no")),
        ("client-query-buffer-limit", COMMAND_LEN_MAX_BYTES.to_string()),
        ("databases", text("1")),
        ("maxmemory", text("0")),
        ("maxmemory-policy", text("noeviction")),
        ("notify-keyspace-events", text("")),
        ("port", tcp_port(serving)),
        ("proto-max-bulk-len", BULK_LEN_MAX_BYTES.to_string()),
        ("requirepass", text("")),
        ("save", text("")),
        ("timeout", text("0")),
        ("unixsocket", serving.socket.display().to_string()),
    ]
}

pub(super) fn config_get(serving: &Serving, patterns: Args<'_>, out: &mut Out<'_>) {
    let mut settings = settings(serving);
    let matches = |name: &str| {
        let mut patterns = patterns.clone().filter(|pattern| pattern.len() <= PATTERN_LEN_MAX_BYTES);
        patterns.any(|pattern| Glob::new(&pattern.to_ascii_lowercase()).matches(name.as_bytes()))
    };
    settings.retain(|(name, _)| matches(name));
    out.map(settings.len());
    for (name, value) in settings {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    }
}
