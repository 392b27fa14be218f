//! Commands about replication.

use super::Out;
use super::strings::{NOT_AN_INTEGER, next};
use crate::protocol::resp::{Args, integer};

/// The error for commands that only a node of a cluster executes.
pub(super) const NO_CLUSTER: &str = "ERR This instance has cluster support disabled";

/// Replies at once that no replica has acknowledged the client's writes, because the server has no replicas.
pub(super) fn wait(mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    integer(next(&mut args)).ok_or(NOT_AN_INTEGER)?;
    let timeout = integer(next(&mut args)).ok_or("ERR timeout is not an integer or out of range")?;
    if timeout < 0 {
        return Err("ERR timeout is negative".to_owned());
    }
    out.integer(0);
    Ok(())
}
