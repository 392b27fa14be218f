//! Transactions: MULTI, EXEC, DISCARD, WATCH, and UNWATCH.
//!
//! In: commands between MULTI and EXEC, in array form. Out: the same commands, which a session executes one after
//! another from one generation. A transaction only reads, so it cannot fail halfway. A watched key counts as changed as
//! soon as another generation is served.

use std::sync::Arc;

use super::clients::NOT_QUEUEING;
use super::keys::{SlotOfKeys, SlotsOfTransaction};
use super::{Out, Replied, Session};
use crate::protocol::resp::Command;
use crate::protocol::resp::commands::{Id, Spec};
use crate::server::table::Generation;
use crate::setting::Setting;

/// The state of a transaction, which is restored if a pass is repeated.
#[derive(Clone, Default)]
pub(super) struct Transaction {
    /// The commands since MULTI. `None` outside a transaction.
    queued: Option<Queued>,
    /// The commands that EXEC executes.
    executing: Option<Executing>,
    /// The number of the generation that was served at the first WATCH.
    watched_generation: Option<u64>,
}

/// The commands of a transaction that waits for EXEC.
#[derive(Clone, Copy, Default)]
struct Queued {
    count: usize,
    len_bytes: usize,
    /// Whether a command of the transaction was rejected. If so, EXEC will fail.
    is_rejected: bool,
    /// The slots of the commands' keys, if the server is a node of a cluster.
    slots: SlotsOfTransaction,
}

/// The commands that EXEC executes.
#[derive(Clone)]
struct Executing {
    commands: Arc<Vec<u8>>,
    /// The offset in `commands` at which the next command begins.
    at_bytes: usize,
}

impl Transaction {
    /// Returns whether commands are queued instead of executed.
    #[inline]
    pub(super) fn is_queueing(&self) -> bool {
        self.queued.is_some()
    }

    /// Returns the commands that EXEC executes, and the offset of the next one. `None` if no EXEC is in progress.
    #[inline]
    pub(super) fn executing(&self) -> Option<(Arc<Vec<u8>>, usize)> {
        self.executing.as_ref().map(|executing| (Arc::clone(&executing.commands), executing.at_bytes))
    }

    #[inline]
    pub(super) fn is_executing(&self) -> bool {
        self.executing.is_some()
    }

    /// Records that EXEC has executed the next `len_bytes` bytes of its commands.
    fn advance(&mut self, len_bytes: usize) {
        if let Some(executing) = &mut self.executing {
            executing.at_bytes += len_bytes;
            if executing.at_bytes == executing.commands.len() {
                self.executing = None;
            }
        }
    }

    /// Records that a command was rejected with an error. If commands are being queued, EXEC will fail. If EXEC itself
    /// was rejected, the transaction ends. Returns the text of the error reply: `text`, or for EXEC, a text which says
    /// that the transaction was discarded because of `text`.
    pub(super) fn reject(&mut self, is_exec: bool, text: Vec<u8>) -> Vec<u8> {
        if is_exec {
            self.clear();
            let reason = text.strip_prefix(b"ERR ").unwrap_or(&text);
            return [b"EXECABORT Transaction discarded because of: ", reason].concat();
        }
        if let Some(queued) = &mut self.queued {
            queued.is_rejected = true;
        }
        text
    }

    /// Records the slot of the keys of a command that will be queued.
    pub(super) fn note_slot(&mut self, slot: SlotOfKeys) {
        if let Some(queued) = &mut self.queued {
            queued.slots.add(slot);
        }
    }

    /// Adds the slots of the queued commands to those of EXEC.
    pub(super) fn add_slots(&self, slot: &mut SlotOfKeys) -> Replied {
        self.queued.map_or(Ok(()), |queued| queued.slots.add_to(slot))
    }

    /// Ends the transaction and forgets the watched keys.
    pub(super) fn clear(&mut self) {
        (self.queued, self.watched_generation) = (None, None);
    }
}

/// Returns whether a command is executed at once even after MULTI.
pub(super) fn is_immediate(spec: &Spec) -> bool {
    matches!(spec.id, Id::Multi | Id::Exec | Id::Discard | Id::Watch | Id::Quit | Id::Reset)
}

impl Session {
    /// Records that EXEC has executed the next `len_bytes` bytes of its commands, and shows EXEC to monitors if all are
    /// executed.
    pub(super) fn advance_transaction(&mut self, len_bytes: usize) {
        self.state.transaction.advance(len_bytes);
        self.end_caching();
        self.show_exec();
    }

    /// Queues a command of a transaction.
    ///
    /// # Errors
    /// If the commands of the transaction take more memory than a connection may buffer.
    pub(super) fn queue(&mut self, command: &Command<'_>, out: &mut Out<'_>) -> Replied {
        let max_bytes = self.worker.server.settings.limits.buffer_max_bytes;
        let Some(queued) = &mut self.state.transaction.queued else { return Ok(()) };
        let len_bytes = queued.len_bytes + command.bytes().len();
        if len_bytes > max_bytes {
            queued.is_rejected = true;
            return Err(format!(
                "ERR the transaction is too long, the limit is {max_bytes} bytes ({})",
                Setting::BufferMax
            ));
        }
        let commands = Arc::make_mut(&mut self.queued_commands);
        // Removes commands that a pass queued before it was undone.
        commands.truncate(queued.len_bytes);
        commands.extend_from_slice(command.bytes());
        (queued.count, queued.len_bytes) = (queued.count + 1, len_bytes);
        // The command is counted when EXEC executes it.
        self.counted.commands -= 1;
        out.sink().steps().add_bytes(command.bytes().len());
        self.client.set_queued(queued.count as i64);
        out.simple("QUEUED");
        Ok(())
    }

    pub(super) fn multi(&mut self, out: &mut Out<'_>) -> Replied {
        if self.state.transaction.is_queueing() {
            return Err("ERR MULTI calls can not be nested".to_owned());
        }
        self.state.transaction.queued = Some(Queued::default());
        self.client.set_queued(0);
        let commands = std::mem::take(&mut self.queued_commands);
        self.kept_commands.get_or_insert(commands);
        out.ok();
        Ok(())
    }

    /// Begins to execute the queued commands. The session continues with these commands before the rest of its input.
    pub(super) fn exec(&mut self, generation: &Generation, out: &mut Out<'_>) -> Replied {
        let transaction = &mut self.state.transaction;
        let Some(queued) = transaction.queued else { return Err("ERR EXEC without MULTI".to_owned()) };
        let is_changed = transaction.watched_generation.is_some_and(|watched| watched != generation.number);
        transaction.clear();
        self.client.set_queued(NOT_QUEUEING);
        if queued.is_rejected {
            return Err("EXECABORT Transaction discarded because of previous errors.".to_owned());
        }
        if is_changed {
            out.null_array();
            return Ok(());
        }
        out.array(queued.count);
        if queued.count > 0 {
            let commands = Arc::make_mut(&mut self.queued_commands);
            commands.truncate(queued.len_bytes);
            transaction.executing = Some(Executing { commands: Arc::clone(&self.queued_commands), at_bytes: 0 });
        }
        Ok(())
    }

    pub(super) fn discard(&mut self, out: &mut Out<'_>) -> Replied {
        if !self.state.transaction.is_queueing() {
            return Err("ERR DISCARD without MULTI".to_owned());
        }
        self.state.transaction.clear();
        self.client.set_queued(NOT_QUEUEING);
        out.ok();
        Ok(())
    }

    pub(super) fn watch(&mut self, generation: &Generation, out: &mut Out<'_>) -> Replied {
        let transaction = &mut self.state.transaction;
        if transaction.is_queueing() {
            return Err("ERR WATCH inside MULTI is not allowed".to_owned());
        }
        transaction.watched_generation.get_or_insert(generation.number);
        out.ok();
        Ok(())
    }

    pub(super) fn unwatch(&mut self, out: &mut Out<'_>) {
        self.state.transaction.watched_generation = None;
        out.ok();
    }

    /// Releases the memory of transactions that have ended.
    #[inline]
    pub(super) fn release_queue(&mut self) {
        self.kept_commands = None;
        let transaction = &self.state.transaction;
        if !transaction.is_queueing() && !transaction.is_executing() && self.queued_commands.capacity() > 0 {
            self.queued_commands = Arc::default();
        }
    }
}
