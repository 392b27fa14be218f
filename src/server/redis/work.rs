//! The work that is left after a pass has executed a part of a command. The work is continued by the module that began
//! it: `acl`, `clients`, `cluster`, `commands`, `hashes`, `keyspace`, or `strings`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::keys::SlotOfKeys;
use crate::server::users::{User, UsersByName};

/// The result of executing a command.
pub(super) enum Outcome {
    /// The reply is complete.
    Done,
    /// The reply is not complete. This work is left.
    Work(Work),
    /// The login failed, and its reply is delayed until this time.
    Delay(Instant),
    /// The reply is complete, and the connection ends.
    Close,
}

/// The remaining work of a command. `next_arg` is the offset in the command at which the next argument begins.
#[derive(Clone)]
pub(super) enum Work {
    CheckAccess { next_arg: usize },
    CheckSlots { next_arg: usize, slot: SlotOfKeys },
    CheckKeys { next_arg: usize, of: KeysOf },
    MGet { next_arg: usize },
    Exists { next_arg: usize, count: i64 },
    Hash(HashReply),
    Keys(Keys),
    SlotCounts(SlotCounting),
    Commands(Described),
    GetKeys(GetKeys),
    List(List),
    Kill(Kill),
    Users(UserList),
}

impl Work {
    /// Returns the number of bytes that the work holds besides its command.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Work::List(list) => list.len_bytes(),
            Work::Hash(HashReply { items: Items::Columns { columns, .. } | Items::Random { columns, .. }, .. }) => {
                size_of_val(&**columns)
            }
            Work::SlotCounts(counting) => size_of_val(&counting.counts[..]),
            Work::Hash(_)
            | Work::CheckAccess { .. }
            | Work::CheckSlots { .. }
            | Work::CheckKeys { .. }
            | Work::MGet { .. }
            | Work::Exists { .. }
            | Work::Keys(_)
            | Work::Commands(_)
            | Work::GetKeys(_)
            | Work::Kill(_)
            | Work::Users(_) => 0,
        }
    }
}

/// The result of continuing a command in a pass.
pub(super) enum WorkStep {
    /// The reply is complete.
    Done,
    /// The reply is complete, and the connection ends.
    Close,
    /// The output buffer has no room for more replies.
    Full,
    /// Other connections get their turn before the command continues.
    Yield,
    /// The records of the next keys are read from the disk before the command continues.
    Load,
    /// A phase of the command's work is complete, and the command can continue with the next phase at once.
    Next,
}

/// A command whose arguments are all keys.
#[derive(Clone, Copy)]
pub(super) enum KeysOf {
    MGet,
    Exists,
}

/// A command in progress that replies with fields of a row.
#[derive(Clone)]
pub(super) struct HashReply {
    pub(super) items: Items,
    pub(super) parts: Parts,
    pub(super) progress: CellProgress,
}

/// The fields that remain to be sent.
#[derive(Clone)]
pub(super) enum Items {
    /// These columns, from the position `next` on.
    Columns { columns: Arc<[u16]>, next: usize },
    /// The fields that the arguments from `next_arg` on name.
    Args { next_arg: usize },
    /// `left` random columns among these, with repetitions.
    Random { columns: Arc<[u16]>, left: u64, random: u64 },
}

/// What the reply has for each field.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Parts {
    Names,
    Values,
    Both,
    /// An array with the name and the value in RESP3, and the two without an array in RESP2.
    Pairs,
    /// The length of the value.
    Lengths,
}

/// The progress within one field.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CellProgress {
    Start,
    /// The name is sent.
    Named,
    /// The first `element` elements of a list have been formatted. Their text has `len_bytes` bytes.
    Measuring {
        element: usize,
        len_bytes: usize,
    },
    /// The length of a list's text and the first `element` elements are sent.
    Sending {
        element: usize,
    },
}

/// A KEYS command in progress. It first counts the matching keys, because the reply begins with their number, and then
/// sends them.
#[derive(Clone)]
pub(super) struct Keys {
    /// The next row to visit.
    pub(super) row: usize,
    /// The end of the rows that were read from the disk, if the table is cold.
    pub(super) loaded_row: usize,
    /// The number of matches that have been counted so far. After counting, the number of matches that remain to be
    /// sent.
    pub(super) matches: usize,
    pub(super) counting: bool,
    /// The slot whose keys CLUSTER GETKEYSINSLOT lists. `None` for KEYS.
    pub(super) slot: Option<u16>,
}

/// A CLUSTER command in progress that first counts the keys of all slots, because nobody has counted those of this
/// generation yet. A pass that is repeated counts its rows again.
#[derive(Clone)]
pub(super) struct SlotCounting {
    pub(super) task: SlotTask,
    /// The next row to visit.
    pub(super) row: usize,
    /// The end of the rows that were read from the disk, if the table is cold.
    pub(super) loaded_row: usize,
    /// The number of visited keys of each slot. Empty before the first row is visited.
    pub(super) counts: Arc<Vec<u32>>,
}

/// What a CLUSTER command does with the keys of a slot.
#[derive(Clone, Copy)]
pub(super) struct SlotTask {
    pub(super) slot: u16,
    /// The maximum number of keys in the reply. `None` if the reply is the number of keys.
    pub(super) keys_max: Option<usize>,
}

/// A COMMAND INFO or COMMAND DOCS in progress, whose arguments are names of commands.
#[derive(Clone)]
pub(super) struct Described {
    pub(super) next_arg: usize,
    pub(super) task: Task,
}

/// What COMMAND INFO or COMMAND DOCS does with the next name in its arguments.
#[derive(Clone, Copy)]
pub(super) enum Task {
    Info,
    /// Counts the given names that are commands, because the reply to COMMAND DOCS begins with their number.
    CountDocs(usize),
    Docs,
}

/// A COMMAND GETKEYS in progress.
#[derive(Clone)]
pub(super) struct GetKeys {
    pub(super) next_arg: usize,
    pub(super) left: usize,
}

#[derive(Clone)]
pub(super) struct UserList {
    /// The users when the command began, which connections share.
    pub(super) users: Arc<UsersByName>,
    /// The last user in the reply so far.
    pub(super) last: Option<Arc<User>>,
    /// Whether the reply has the rules of the users in addition to their names.
    pub(super) has_rules: bool,
}

pub(super) enum Listed {
    All,
    None,
    /// The clients with subscriptions, or those without.
    Subscribers(bool),
    /// The clients with these IDs, in ascending order.
    Ids(Vec<i64>),
}

#[derive(Clone)]
pub(super) struct List {
    /// The part of the reply that has been written so far. When a pass is repeated, this part is kept, because the list
    /// of clients does not depend on the table.
    pub(super) unsent: Arc<Mutex<Unsent>>,
    pub(super) sent_bytes: usize,
}

/// The part of a CLIENT LIST reply that has been written so far.
pub(super) struct Unsent {
    pub(super) listed: Listed,
    /// The ID of the last client that was visited.
    pub(super) after_id: u64,
    /// The lines that have been written so far. Once all lines have been written, the complete reply.
    pub(super) bytes: Vec<u8>,
    pub(super) is_whole: bool,
    pub(super) held: Option<LongListPermit>,
}

/// A permit to hold a CLIENT LIST reply that one pass cannot send whole. Dropping the permit returns it.
pub(super) struct LongListPermit(pub(super) Arc<AtomicU64>);

impl Drop for LongListPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone)]
pub(super) struct Kill {
    /// Whether the pass that began the command has been committed. No client is disconnected before that, because a
    /// pass that is undone and repeated must not disconnect clients twice.
    pub(super) is_committed: bool,
    /// The progress of the command, which is kept when a pass is repeated.
    pub(super) killing: Arc<Mutex<Killing>>,
}

pub(super) struct Killing {
    pub(super) filters: Filters,
    /// The ID of the last client that was visited.
    pub(super) after_id: u64,
    pub(super) killed: u64,
    /// Whether the disconnections have been counted and logged.
    pub(super) is_reported: bool,
    /// Whether the client that sent the command is disconnected, too.
    pub(super) kills_self: bool,
}

/// Which clients to disconnect: those that match all filters.
#[derive(Default)]
pub(super) struct Filters {
    pub(super) id: Option<u64>,
    pub(super) address: Option<Vec<u8>>,
    pub(super) local_address: Option<Vec<u8>>,
    pub(super) older_than_s: Option<u64>,
    pub(super) user: Option<String>,
    /// Whether the client has subscriptions.
    pub(super) is_subscriber: Option<bool>,
    /// Whether the command gives a client type that no client of this server has. No client matches then.
    pub(super) is_none: bool,
    /// Whether the client that sent the command stays connected, even if it matches all filters.
    pub(super) skips_self: bool,
    /// Whether an address is the command's only argument. If so, the reply is OK or an error, not a number.
    pub(super) is_address_only: bool,
}
