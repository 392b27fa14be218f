//! The table of permissions: which permissions every command and every op needs.
//!
//! In: a command, or an op of the native protocol. Out: the keys that its user must be allowed to use and, for an op,
//! the command that its user must be allowed to use. Each `match` lists every command or op, so a new one does not
//! compile without an entry.
//!
//! The entry of a command follows from its reply: if two tables that differ only in rows of other keys can lead to
//! different replies, the entry is [`KeysNeeded::All`].

use crate::protocol::native::Op;
use crate::protocol::resp::commands::Id;

/// The keys that a user must be allowed to use for a command or an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum KeysNeeded {
    /// No key: the reply depends on no row.
    None,
    /// The keys that the arguments of the command name, at the positions of
    /// [`Spec::key_positions`](crate::protocol::resp::commands::Spec::key_positions), or the key of the op.
    Named,
    /// At least one key, which the table may lack.
    Some,
    /// For a range that is given by a prefix, all keys with this prefix. Otherwise, all keys.
    Prefix,
    /// All keys: the reply depends on rows of keys that the arguments do not name.
    All,
}

/// The permissions that an op needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum OpNeeds {
    /// No permission: every connection may log in.
    Nothing,
    /// The permission for a command, and for keys.
    Command(Id, KeysNeeded),
    /// The permission for all commands and all keys.
    Everything,
}

/// Returns the keys that a user must be allowed to use for a command.
pub(in crate::server) const fn keys_of_command(id: Id) -> KeysNeeded {
    match id {
        Id::Get
        | Id::MGet
        | Id::Exists
        | Id::StrLen
        | Id::GetRange
        | Id::Type
        | Id::Ttl
        | Id::PTtl
        | Id::Watch
        | Id::MemoryUsage
        | Id::ObjectEncoding
        | Id::GetBit
        | Id::Touch
        | Id::ExpireTime
        | Id::PExpireTime
        | Id::HExists
        | Id::HGet
        | Id::HGetAll
        | Id::HKeys
        | Id::HLen
        | Id::HMGet
        | Id::HRandField
        | Id::HScan
        | Id::HStrLen
        | Id::HVals => KeysNeeded::Named,

        Id::ZkvRange | Id::ZkvCount => KeysNeeded::Prefix,

        Id::DbSize | Id::RandomKey | Id::Scan | Id::Keys => KeysNeeded::All,
        Id::ClusterCountKeysInSlot | Id::ClusterGetKeysInSlot => KeysNeeded::All,
        // The reply can be the row of another key than the argument.
        Id::ZkvFloor | Id::ZkvCeiling => KeysNeeded::All,
        // These replies describe the served file: its digest, its length, or its time.
        Id::ZkvGeneration | Id::MemoryStats | Id::LastSave => KeysNeeded::All,
        // The lines show the keys of other clients.
        Id::Monitor => KeysNeeded::All,

        // INFO omits the sections that depend on rows, unless its user may use all keys.
        Id::Info => KeysNeeded::None,
        // The counters, names, and addresses of clients.
        Id::ClientList | Id::ClientInfo | Id::ClientKill => KeysNeeded::None,
        // The arguments are keys, but no key is looked up.
        Id::CommandGetKeys | Id::ClusterKeySlot | Id::AclDryRun => KeysNeeded::None,
        // The arguments are channels.
        Id::SUnsubscribe | Id::Unsubscribe | Id::PUnsubscribe => KeysNeeded::None,
        // EXEC checks the permission of each command again.
        Id::Multi | Id::Exec | Id::Discard | Id::Unwatch => KeysNeeded::None,
        // The topology, which a document describes.
        Id::Role
        | Id::Wait
        | Id::ReadOnly
        | Id::ReadWrite
        | Id::Asking
        | Id::Cluster
        | Id::ClusterHelp
        | Id::ClusterInfo
        | Id::ClusterMyId
        | Id::ClusterNodes
        | Id::ClusterReplicas
        | Id::ClusterShards
        | Id::ClusterSlots => KeysNeeded::None,
        // The connection, the users, the settings, and the commands.
        Id::Ping
        | Id::Echo
        | Id::Time
        | Id::Select
        | Id::Hello
        | Id::Auth
        | Id::Reset
        | Id::Quit
        | Id::Acl
        | Id::AclWhoAmI
        | Id::AclList
        | Id::AclUsers
        | Id::AclGetUser
        | Id::AclCat
        | Id::AclHelp
        | Id::Config
        | Id::ConfigGet
        | Id::ConfigHelp
        | Id::Command
        | Id::CommandCount
        | Id::CommandDocs
        | Id::CommandInfo
        | Id::CommandList
        | Id::CommandHelp
        | Id::Client
        | Id::ClientSetInfo
        | Id::ClientSetName
        | Id::ClientGetName
        | Id::ClientId
        | Id::ClientNoEvict
        | Id::ClientNoTouch
        | Id::ClientHelp => KeysNeeded::None,
        // These replies are the same for every table.
        Id::Memory
        | Id::MemoryHelp
        | Id::Object
        | Id::ObjectHelp
        | Id::SlowLog
        | Id::SlowLogGet
        | Id::SlowLogLen
        | Id::SlowLogReset
        | Id::SlowLogHelp
        | Id::Latency
        | Id::LatencyLatest
        | Id::LatencyHistogram
        | Id::LatencyHelp
        | Id::Module
        | Id::ModuleList
        | Id::ModuleHelp => KeysNeeded::None,
    }
}

/// Returns the permissions that an op needs.
pub(in crate::server) const fn needs_of_op(op: Op) -> OpNeeds {
    match op {
        Op::Get | Op::GetColumns => OpNeeds::Command(Id::Get, KeysNeeded::Named),
        Op::Exists => OpNeeds::Command(Id::Exists, KeysNeeded::Named),
        // A user who may read some rows needs the names and types of their columns, and whether rows come from the same
        // generation.
        Op::Schema | Op::Select | Op::Generation => OpNeeds::Command(Id::Get, KeysNeeded::Some),
        // A user who may read some rows needs the nodes that have them.
        Op::Topology => OpNeeds::Command(Id::ClusterSlots, KeysNeeded::Some),
        Op::Floor => OpNeeds::Command(Id::ZkvFloor, KeysNeeded::All),
        Op::Ceiling => OpNeeds::Command(Id::ZkvCeiling, KeysNeeded::All),
        Op::Range => OpNeeds::Command(Id::ZkvRange, KeysNeeded::All),
        Op::Count => OpNeeds::Command(Id::ZkvCount, KeysNeeded::All),
        // The response describes the table.
        Op::Info => OpNeeds::Command(Id::Info, KeysNeeded::All),
        Op::Ping => OpNeeds::Command(Id::Ping, KeysNeeded::None),
        Op::Auth => OpNeeds::Nothing,
        Op::Reload | Op::Rollback | Op::Open => OpNeeds::Everything,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::protocol::resp::commands::{COMMANDS, Spec};

    fn all() -> impl Iterator<Item = &'static Spec> {
        COMMANDS.iter().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands))
    }

    fn written(name: &str) -> String {
        name.to_ascii_uppercase().replace('|', " ")
    }

    fn document(name: &str) -> String {
        std::fs::read_to_string(format!("{}/docs/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    /// Returns the text between backquotes.
    fn quoted(text: &str) -> BTreeSet<String> {
        text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn keys_are_needed_where_the_arguments_have_keys() {
        for spec in all() {
            let has_keys = spec.keys.first != 0;
            match keys_of_command(spec.id) {
                KeysNeeded::Named => assert!(has_keys, "{}: no argument is a key", spec.name),
                // The keys of these commands are not the only ones that the reply depends on.
                KeysNeeded::All => assert!(!has_keys || spec.name.starts_with("zkv."), "{}", spec.name),
                KeysNeeded::None => assert!(!has_keys || spec.id == Id::SUnsubscribe, "{}", spec.name),
                KeysNeeded::Prefix => assert!(!has_keys, "{}", spec.name),
                KeysNeeded::Some => panic!("{}: only ops need some key", spec.name),
            }
            // `Spec::key_positions` returns a range, and so assumes that all arguments between two keys are keys.
            assert!(spec.keys.step <= 1, "{}", spec.name);
        }
    }

    #[test]
    fn an_op_needs_no_fewer_keys_than_the_command_of_the_same_lookup() {
        for op in Op::ALL {
            let OpNeeds::Command(id, keys) = needs_of_op(op) else { continue };
            match keys_of_command(id) {
                KeysNeeded::All | KeysNeeded::Prefix => assert_eq!(keys, KeysNeeded::All, "{op:?}"),
                KeysNeeded::Named => assert!(matches!(keys, KeysNeeded::Named | KeysNeeded::Some), "{op:?}"),
                KeysNeeded::None | KeysNeeded::Some => {}
            }
        }
    }

    #[test]
    fn the_documents_list_the_commands_that_need_all_keys() {
        let access = document("operations/access.md").replace('\n', " ");
        let (_, list) = access.split_once("need a permission for all keys (`~*`):").unwrap();
        let (all_keys, rest) = list.split_once(". ").unwrap();
        let (prefix, _) = rest.split_once(" with ").unwrap();
        let of = |wanted: &[KeysNeeded]| -> BTreeSet<String> {
            all().filter(|spec| wanted.contains(&keys_of_command(spec.id))).map(|spec| written(spec.name)).collect()
        };
        assert_eq!(quoted(all_keys), of(&[KeysNeeded::All, KeysNeeded::Prefix]));
        assert_eq!(quoted(prefix), of(&[KeysNeeded::Prefix]));
    }

    #[test]
    fn the_document_of_the_protocol_lists_the_permissions_of_all_ops() {
        let protocol = document("PROTOCOL.md");
        let (_, table) = protocol.split_once("\n| op | Redis command | keys |\n").unwrap();
        let mut listed = BTreeSet::new();
        for line in table.lines().skip(1).take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let (ops, commands): (Vec<&str>, Vec<&str>) =
                (cells[1].split(", ").collect(), cells[2].split(", ").collect());
            for (at, op) in ops.iter().enumerate() {
                let command = commands.get(at).unwrap_or(&commands[0]).trim_matches('`');
                let keys = cells[3].split_once(',').map_or(cells[3], |(keys, _)| keys);
                listed.insert(format!("{op}: {command}: {keys}"));
            }
        }
        let name_of = |id: Id| written(all().find(|spec| spec.id == id).unwrap().name);
        let described = |op: &Op| match needs_of_op(*op) {
            OpNeeds::Nothing => format!("{op:?}: none: none"),
            OpNeeds::Everything => format!("{op:?}: all commands: all"),
            OpNeeds::Command(id, keys) => {
                let keys = match keys {
                    KeysNeeded::None => "none",
                    KeysNeeded::Named => "the requested key",
                    KeysNeeded::Some => "at least one permitted key",
                    KeysNeeded::Prefix | KeysNeeded::All => "all",
                };
                format!("{op:?}: {}: {keys}", name_of(id))
            }
        };
        assert_eq!(listed, Op::ALL.iter().map(described).collect());
    }
}
