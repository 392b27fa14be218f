//! Commands about replication and clusters. The server is a master without replicas, outside a cluster.

use super::Out;
use super::strings::{NOT_AN_INTEGER, next};
use crate::protocol::resp::{Args, integer};

/// The error for commands that only a node of a cluster executes.
pub(super) const NO_CLUSTER: &str = "ERR This instance has cluster support disabled";

pub(super) fn role(out: &mut Out<'_>) {
    out.array(3);
    out.bulk(b"master");
    out.integer(0);
    out.array(0);
}

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
