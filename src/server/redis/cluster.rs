//! The commands about the cluster that this server is a node of: CLUSTER, READONLY, READWRITE, ASKING, ROLE, and WAIT.
//!
//! In: the node's view. Out: replies in the formats of Redis. The topology comes from a document, so commands that would
//! change it are rejected.

use std::sync::Arc;

use super::keyspace::begin_slot;
use super::strings::{NOT_AN_INTEGER, next};
use super::work::{Outcome, SlotTask};
use super::{Out, Session};
use crate::protocol::resp::commands::{Id, Spec};
use crate::protocol::resp::{Args, integer};
use crate::server::cluster::View;
use crate::slots::{SLOT_COUNT, slot_of};

/// The error for commands that only a node of a cluster executes.
const NO_CLUSTER: &str = "ERR This instance has cluster support disabled";

impl Session {
    /// Executes a command about the cluster.
    ///
    /// # Errors
    /// The text of the error reply.
    pub(super) fn execute_about_cluster(
        &mut self,
        spec: &Spec,
        mut args: Args<'_>,
        out: &mut Out<'_>,
    ) -> Result<Outcome, String> {
        let Some(cluster) = &self.cluster else { return Err(NO_CLUSTER.to_owned()) };
        let view = cluster.view();
        match spec.id {
            Id::ReadOnly | Id::ReadWrite => {
                let reads_replicas = spec.id == Id::ReadOnly;
                self.state.reads_replicas = reads_replicas;
                self.client.set_reads_replicas(reads_replicas);
                out.ok();
            }
            // Slots do not migrate key by key, so no client is redirected by ASK.
            Id::Asking => out.ok(),
            Id::ClusterSlots => push_rendered(view.slots_reply(out.version()), out),
            Id::ClusterShards => push_rendered(view.shards_reply(out.version()), out),
            Id::ClusterNodes => push_rendered(view.nodes_reply(out.version()), out),
            Id::ClusterInfo => out.verbatim(view.info_text()),
            Id::ClusterMyId => out.bulk(cluster.node().id().as_bytes()),
            Id::ClusterKeySlot => out.integer(slot_of(next(&mut args).into()).into()),
            Id::ClusterReplicas => {
                let reply = view.replicas_reply(next(&mut args))?;
                out.sink().steps().add(view.node_count());
                push_rendered(&reply, out);
            }
            Id::ClusterCountKeysInSlot => {
                let slot = integer(next(&mut args)).ok_or(NOT_AN_INTEGER)?;
                let slot = valid_slot(slot).ok_or("ERR Invalid slot")?;
                return Ok(begin_slot(SlotTask { slot, keys_max: None }));
            }
            Id::ClusterGetKeysInSlot => {
                let slot = integer(next(&mut args)).ok_or(NOT_AN_INTEGER)?;
                let count = integer(next(&mut args)).ok_or(NOT_AN_INTEGER)?;
                let (slot, count) =
                    valid_slot(slot).zip(usize::try_from(count).ok()).ok_or("ERR Invalid slot or number of keys")?;
                return Ok(begin_slot(SlotTask { slot, keys_max: Some(count) }));
            }
            _ => return Err(NO_CLUSTER.to_owned()),
        }
        Ok(Outcome::Done)
    }

    /// Replies to ROLE.
    pub(super) fn role(&self, out: &mut Out<'_>) {
        let view = self.cluster.as_ref().map(|cluster| cluster.view());
        match (view, view.and_then(View::primary_of_this)) {
            (Some(view), Some(primary)) => {
                out.array(5);
                out.bulk(b"slave");
                out.bulk(primary.host.as_bytes());
                out.integer(primary.port.into());
                out.bulk(b"connected");
                out.integer(view.offset());
            }
            (Some(view), None) => push_rendered(view.primary_role_reply(), out),
            (None, _) => {
                out.array(3);
                out.bulk(b"master");
                out.integer(0);
                out.array(0);
            }
        }
    }

    /// Returns whether the server is a replica in a cluster.
    pub(super) fn is_replica(&self) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.view().primary_of_this().is_some())
    }
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

fn push_rendered(reply: &Arc<[u8]>, out: &mut Out<'_>) {
    out.sink().push_shared(reply);
}

fn valid_slot(slot: i64) -> Option<u16> {
    u16::try_from(slot).ok().filter(|slot| *slot < SLOT_COUNT)
}
