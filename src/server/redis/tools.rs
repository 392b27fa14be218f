//! Commands that dashboards, profilers, and monitoring agents send.
//!
//! In: commands about logs, memory, modules, and channels. Out: replies. The server records no slow commands and no
//! latency events, has no modules, and publishes nothing, so most of the replies are empty.

use std::fmt::Write;
use std::time::UNIX_EPOCH;

use super::Out;
use super::info::{process_status, status_bytes};
use super::text::quoted;
use crate::protocol::resp::commands::Spec;
use crate::protocol::resp::{Args, integer};
use crate::server::state::ServerState;
use crate::setting::Setting;

/// The cost of reading `/proc/self/status`, in steps.
const PROCESS_STEPS: usize = 500;

fn too_many(subcommand: &str, container: &str) -> String {
    format!("ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try {container} HELP.")
}

/// Replies to SLOWLOG GET with an empty list.
pub(super) fn slow_log(mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    match (args.next(), args.next()) {
        (_, Some(_)) => Err(too_many("GET", "SLOWLOG")),
        (Some(count), None) if integer(count).is_none_or(|count| count < -1) => {
            Err("ERR count should be greater than or equal to -1".to_owned())
        }
        _ => {
            out.array(0);
            Ok(())
        }
    }
}

/// Replies to LATENCY GRAPH with an error, because the server records no latency events.
pub(super) fn latency_graph(mut args: Args<'_>) -> Result<(), String> {
    Err(format!("ERR No samples available for event {}", quoted(args.next().unwrap_or_default())))
}

pub(super) fn latency_doctor(out: &mut Out<'_>) {
    out.verbatim(
        "This server records no latency events. The metric zero_kv_service_seconds and the command zkv top report how \
         long batches take.\n",
    );
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

/// Replies to MEMORY DOCTOR with a summary for people.
pub(super) fn memory_doctor(server: &ServerState, out: &mut Out<'_>) {
    let (memory, generation) = (&server.client_memory, server.table.current());
    let mut text = format!(
        "The served file has {} bytes, of which {} were in memory when they were last counted. Connections hold {} \
         bytes; the limit is {} bytes ({}).",
        generation.store.file_len_bytes(),
        server.residency.len_bytes(),
        memory.held_bytes(),
        memory.max_bytes,
        Setting::ClientMemoryMax,
    );
    if memory.is_over_limit() {
        // Writing to a string cannot fail.
        let _ =
            write!(text, " The connections hold more than the limit, so those that hold the most are disconnected.");
    }
    out.verbatim(&(text + "\n"));
}

pub(super) fn malloc_stats(out: &mut Out<'_>) {
    out.verbatim("The allocator of this server has no statistics. MEMORY STATS reports the memory of the process.\n");
}

/// Replies with the modification time of the served file. This is when the file was baked, unless somebody has changed
/// the modification time since then.
pub(super) fn last_save(server: &ServerState, out: &mut Out<'_>) {
    let modified = server.table.current().modified().duration_since(UNIX_EPOCH).unwrap_or_default();
    out.integer(modified.as_secs() as i64);
}

/// Replies to PUBSUB CHANNELS and PUBSUB SHARDCHANNELS with an empty list.
pub(super) fn channels(spec: &Spec, args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    if args.count() > 1 {
        return Err(too_many(&spec.own_name().to_ascii_uppercase(), "PUBSUB"));
    }
    out.array(0);
    Ok(())
}

/// Replies to PUBSUB NUMSUB and PUBSUB SHARDNUMSUB: no channel has subscribers.
pub(super) fn subscriber_counts(args: Args<'_>, out: &mut Out<'_>) {
    out.array(2 * args.clone().count());
    for channel in args {
        out.bulk(channel);
        out.integer(0);
    }
}

/// Replies to UNSUBSCRIBE, PUNSUBSCRIBE, and SUNSUBSCRIBE as Redis does if the client has no subscriptions: with one
/// message for each channel. Clients wait for these messages.
pub(super) fn unsubscribe(spec: &Spec, args: Args<'_>, out: &mut Out<'_>) {
    let mut message = |channel: Option<&[u8]>| {
        out.push(3);
        out.bulk(spec.name.as_bytes());
        match channel {
            Some(channel) => out.bulk(channel),
            None => out.null(),
        }
        out.integer(0);
    };
    let mut channels = args.peekable();
    if channels.peek().is_none() {
        message(None);
    }
    channels.for_each(|channel| message(Some(channel)));
}

/// Replies to CLIENT REPLY.
///
/// # Errors
/// If the client wants no replies.
pub(super) fn client_reply(mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    match args.next().unwrap_or_default().to_ascii_uppercase().as_slice() {
        b"ON" => out.ok(),
        b"OFF" | b"SKIP" => {
            return Err(
                "ERR replies cannot be turned off: the table is read-only, so a command without a reply has no \
                        effect: receive and discard the replies"
                    .to_owned(),
            );
        }
        _ => return Err("ERR syntax error".to_owned()),
    }
    Ok(())
}

/// Replies to CLIENT UNBLOCK with 0, because no command blocks a client.
pub(super) fn unblock(mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    let (id, reason) = (args.next().unwrap_or_default(), args.next());
    if args.next().is_some() {
        return Err(too_many("UNBLOCK", "CLIENT"));
    }
    let is_reason = |reason: &[u8]| [&b"TIMEOUT"[..], b"ERROR"].iter().any(|known| reason.eq_ignore_ascii_case(known));
    if reason.is_some_and(|reason| !is_reason(reason)) {
        return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".to_owned());
    }
    integer(id).ok_or("ERR value is not an integer or out of range")?;
    out.integer(0);
    Ok(())
}

/// Replies to CLIENT TRACKING.
///
/// # Errors
/// If the client wants invalidation messages.
pub(super) fn tracking(mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    match (args.next().unwrap_or_default().to_ascii_uppercase().as_slice(), args.next()) {
        (b"OFF", None) => out.ok(),
        (b"ON", _) => {
            return Err(
                "ERR the server sends no invalidation messages: a cached row stays valid until the generation \
                        changes: poll ZKV.GENERATION"
                    .to_owned(),
            );
        }
        _ => return Err("ERR syntax error".to_owned()),
    }
    Ok(())
}

/// Replies to CLIENT TRACKINGINFO: tracking is off.
pub(super) fn tracking_info(out: &mut Out<'_>) {
    out.map(3);
    out.bulk(b"flags");
    out.set(1);
    out.bulk(b"off");
    out.bulk(b"redirect");
    out.integer(-1);
    out.bulk(b"prefixes");
    out.array(0);
}

pub(super) const CACHING_ERROR: &str = "ERR CLIENT CACHING can be called only when the client is in tracking mode with \
                                        OPTIN or OPTOUT mode enabled";
