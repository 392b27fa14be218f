//! Commands that dashboards, profilers, and monitoring agents send.
//!
//! In: commands about logs, memory, modules, and channels. Out: replies. The server records no slow commands and no
//! latency events, has no modules, and publishes nothing, so most of the replies are empty.

use std::time::UNIX_EPOCH;

use super::Out;
use super::info::{process_status, status_bytes};
use crate::Lookup;
use crate::protocol::resp::commands::Spec;
use crate::protocol::resp::{Args, integer};
use crate::server::state::server::ServerState;

/// The cost of reading `/proc/self/status`, in steps.
const PROCESS_STEPS: usize = 500;

/// Replies to SLOWLOG GET with an empty list.
pub(super) fn slow_log(mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
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

/// Replies with the modification time of the served file. This is when the file was baked, unless somebody has changed
/// the modification time since then.
pub(super) fn last_save(server: &ServerState, out: &mut Out<'_>) {
    let modified = server.table.current().modified().duration_since(UNIX_EPOCH).unwrap_or_default();
    out.integer(modified.as_secs() as i64);
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
