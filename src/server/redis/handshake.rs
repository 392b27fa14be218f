//! Commands about the connection.

use super::Out;
use crate::protocol::resp::{Args, integer};

pub(super) fn ping(mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    match (args.next(), args.next()) {
        (None, _) => out.simple("PONG"),
        (Some(message), None) => out.bulk(message),
        _ => return Err("ERR wrong number of arguments for 'ping' command".to_owned()),
    }
    Ok(())
}

pub(super) fn echo(mut args: Args<'_>, out: &mut Out<'_>) {
    out.bulk(args.next().unwrap_or_default());
}

/// Selects database 0, which is the only database.
pub(super) fn select(is_cluster: bool, mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    match integer(args.next().unwrap_or_default()) {
        Some(0) => out.ok(),
        Some(_) if is_cluster => return Err("ERR SELECT is not allowed in cluster mode".to_owned()),
        Some(_) => return Err("ERR DB index is out of range".to_owned()),
        None => return Err("ERR value is not an integer or out of range".to_owned()),
    }
    Ok(())
}

/// Replies to CLIENT NO-EVICT and CLIENT NO-TOUCH, which have no effect: the limit on client memory applies to all
/// clients, and accesses to keys are not recorded.
pub(super) fn on_or_off(mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    match args.next().unwrap_or_default().to_ascii_lowercase().as_slice() {
        b"on" | b"off" => out.ok(),
        _ => return Err("ERR syntax error".to_owned()),
    }
    Ok(())
}
