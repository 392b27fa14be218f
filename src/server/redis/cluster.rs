//! The cluster that this server is a node of: the keys that this node answers for, and the commands CLUSTER, READONLY,
//! READWRITE, ASKING, ROLE, and WAIT.
//!
//! In: keys, and the view of the node. Out: replies, redirections, and errors in the formats of Redis. The topology
//! comes from a document, so commands that would change it are rejected. A row that is present needs no check if the
//! file has only rows of slots that the node serves, so only missing keys are hashed.

use std::sync::Arc;

use super::clients::NOT_QUEUEING;
use super::keys::{SlotOfKeys, is_padded, key_steps, slot_of_text};
use super::keyspace::begin_slot;
use super::runs::Routing;
use super::strings::next;
use super::transaction::is_immediate;
use super::work::{Outcome, SlotTask, Work, WorkStep};
use super::{NOT_AN_INTEGER, Out, Replied, Session};
use crate::Lookup;
use crate::cluster::SlotSet;
use crate::format::key::{Key, KeyKind};
use crate::format::key_type::KeyType;
use crate::protocol::resp::commands::{ARGS_MAX_AT_ONCE, Id, KeysNeeded, Spec, resolve};
use crate::protocol::resp::{Args, Command, Version, integer};
use crate::server::cluster::{ClusterNode, View};
use crate::server::responses::Responses;
use crate::server::table::Generation;
use crate::slots::{SLOT_COUNT, slot_of, slot_of_typed};

/// The error for commands that only a node of a cluster executes.
const NO_CLUSTER: &str = "ERR This instance has cluster support disabled";

impl Session {
    pub(super) fn execute_about_cluster(
        &mut self,
        generation: &Generation,
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
            Id::ClusterInfo => out.verbatim(&view.info_text(&generation.slots)),
            Id::ClusterMyId => out.bulk(cluster.node().id().as_bytes()),
            Id::ClusterKeySlot => {
                out.integer(slot_of_text(generation.store.key_type(), next(&mut args)).into());
            }
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

    pub(super) fn is_replica(&self) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.view().primary_of_this().is_some())
    }
}

/// Replies at once that no replica has acknowledged the client's writes, because the server has no replicas.
pub(super) fn wait(mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
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

const NOT_SERVED: &str = "CLUSTERDOWN Hash slot not served";

/// The slots that a node serves for a connection.
#[derive(Clone, Copy)]
pub(super) struct Route<'r> {
    view: &'r View,
    /// The slots that the topology assigns to this node.
    assigned: &'r SlotSet,
    /// The slots whose rows the file has.
    of_file: &'r SlotSet,
    /// Whether the file has only rows of assigned slots.
    is_exact: bool,
    key_type: KeyType,
}

impl Routing for Route<'_> {
    #[inline(always)]
    fn admits(self, kind: KeyKind, text: &[u8]) -> bool {
        !(kind == KeyKind::U64 && is_padded(text)) && (self.is_exact || self.serves_key(text))
    }

    fn admits_stored(self, key: Key<'_>) -> bool {
        self.is_exact || self.serves(slot_of_typed(self.key_type, key))
    }

    /// Not inlined, so that the loop over found values can use all registers.
    #[inline(never)]
    fn refuse_missing(self, key: Key<'_>, version: Version, responses: &mut Responses) -> bool {
        // The slot of a found key is not computed here: `admits` has checked it, or the file has only rows of served
        // slots.
        let slot = slot_of_typed(self.key_type, key);
        let is_refused = !self.serves(slot);
        if is_refused {
            Out::new(responses, version).error(self.refuse(slot).unwrap_or_default());
        }
        is_refused
    }
}

impl Route<'_> {
    #[inline]
    fn serves(self, slot: u16) -> bool {
        self.assigned.has(slot) && self.of_file.has(slot)
    }

    /// Not inlined, as [`Route::refuse_missing`].
    #[inline(never)]
    fn serves_key(self, text: &[u8]) -> bool {
        self.serves(slot_of(Key::Bytes(text)))
    }

    /// Returns the error for a slot that this node does not serve.
    fn refuse(self, slot: u16) -> Option<String> {
        if self.serves(slot) {
            return None;
        }
        let Some(owner) = self.view.owner(slot) else { return Some(NOT_SERVED.to_owned()) };
        if self.view.is_this(owner) {
            return Some(format!("LOADING This node does not have the rows of hash slot {slot} yet"));
        }
        Some(format!("MOVED {slot} {}:{}", owner.host, owner.port))
    }
}

pub(super) struct ClusterSession {
    node: Arc<ClusterNode>,
    view: Arc<View>,
    /// The numbers of the generation and the view that `is_exact` was derived from, and whether the client reads from
    /// replicas.
    derived_from: (u64, u64, bool),
    is_exact: bool,
}

impl ClusterSession {
    pub(super) fn new(node: &Arc<ClusterNode>) -> ClusterSession {
        ClusterSession { node: Arc::clone(node), view: node.view(), derived_from: (0, 0, false), is_exact: false }
    }

    pub(super) fn view(&self) -> &View {
        &self.view
    }

    pub(super) fn node(&self) -> &ClusterNode {
        &self.node
    }

    /// Reads the node's view again if it has changed.
    #[inline]
    fn refresh(&mut self) {
        if self.view.version() != self.node.version() {
            self.view = self.node.view();
        }
    }

    #[inline]
    pub(super) fn route<'r>(&'r mut self, generation: &'r Generation, reads_replicas: bool) -> Route<'r> {
        let derived_from = (generation.number, self.view.version(), reads_replicas);
        let assigned = self.view.served_slots(reads_replicas);
        if self.derived_from != derived_from {
            self.derived_from = derived_from;
            self.is_exact = generation.slots.is_subset(assigned);
        }
        Route {
            view: &self.view,
            assigned,
            of_file: &generation.slots,
            is_exact: self.is_exact,
            key_type: generation.store.key_type(),
        }
    }
}

impl Session {
    /// Reads the view of the cluster again if it has changed.
    #[inline]
    pub(super) fn refresh_cluster(&mut self) {
        if let Some(cluster) = &mut self.cluster {
            cluster.refresh();
        }
    }

    /// Checks whether this node serves the slot of a command's keys. Returns `None` if it does, and the outcome of the
    /// rejected command if it does not. If checking the keys takes several passes, returns [`Outcome::Work`].
    pub(super) fn check_slots(
        &mut self,
        generation: &Generation,
        spec: &Spec,
        command: &Command<'_>,
        out: &mut Out<'_>,
    ) -> Option<Outcome> {
        // EXEC has checked its commands.
        if self.state.transaction.is_executing() {
            return None;
        }
        // The replies to all other commands depend on no key, or on keys that the arguments do not name.
        if spec.keys_needed != KeysNeeded::Named && spec.id != Id::Exec {
            return None;
        }
        if command.arg_count() > ARGS_MAX_AT_ONCE {
            let mut args = command.args();
            args.next();
            return Some(Outcome::Work(Work::CheckSlots {
                next_arg: args.offset_bytes(),
                slot: SlotOfKeys::default(),
            }));
        }
        let mut slot = SlotOfKeys::default();
        let checked = match spec.id {
            Id::Exec => self.state.transaction.add_slots(&mut slot),
            _ => {
                let keys = spec.key_positions(command.arg_count());
                out.sink().steps().add(key_steps(generation.store.key_type()) * keys.len());
                let mut keys = command.args().skip(keys.start).take(keys.len());
                keys.try_for_each(|key| slot.add(generation.store.key_type(), key))
            }
        };
        self.end_slot_check(generation, spec, slot, checked, out)
    }

    /// Continues to check the slots of a command with many keys, and then begins to execute or queue the command.
    pub(super) fn more_of_slots(
        &mut self,
        generation: &Generation,
        command: &Command<'_>,
        work: &mut Work,
        out: &mut Out<'_>,
    ) -> WorkStep {
        let (Work::CheckSlots { next_arg, slot }, Ok(spec)) = (&mut *work, resolve(command)) else {
            return WorkStep::Done;
        };
        let (key_type, mut args, mut checked) = (generation.store.key_type(), command.args_from(*next_arg), Ok(()));
        while let Some(key) = args.next().filter(|_| checked.is_ok()) {
            checked = slot.add(key_type, key);
            let steps = out.sink().steps();
            steps.add(key_steps(key_type));
            steps.add_bytes(key.len());
            if steps.is_pass_over() && checked.is_ok() {
                *next_arg = args.offset_bytes();
                return WorkStep::Yield;
            }
        }
        let slot = *slot;
        let outcome = match self.end_slot_check(generation, spec, slot, checked, out) {
            None => self.execute_routed(generation, spec, command, out),
            Some(rejected) => rejected,
        };
        match outcome {
            Outcome::Work(next) => {
                *work = next;
                WorkStep::Next
            }
            // Commands with many keys neither log in nor close the connection.
            Outcome::Done | Outcome::Delay(_) | Outcome::Close => WorkStep::Done,
        }
    }

    /// Rejects a command if its keys were rejected or if this node does not serve their slot.
    fn end_slot_check(
        &mut self,
        generation: &Generation,
        spec: &Spec,
        slot: SlotOfKeys,
        checked: Replied,
        out: &mut Out<'_>,
    ) -> Option<Outcome> {
        let Some(cluster) = &mut self.cluster else { return None };
        let route = cluster.route(generation, self.state.reads_replicas);
        let refused = checked.err().or_else(|| route.refuse(slot.get()?));
        let transaction = &mut self.state.transaction;
        let Some(problem) = refused else {
            if transaction.is_queueing() && !is_immediate(spec) {
                transaction.note_slot(slot);
            }
            return None;
        };
        self.counted.errors += 1;
        let text = if spec.id == Id::Exec {
            transaction.clear();
            self.client.set_queued(NOT_QUEUEING);
            problem.into_bytes()
        } else {
            transaction.reject(false, problem.into_bytes())
        };
        out.error(text);
        Some(Outcome::Done)
    }
}
