//! The permissions that every op of the native protocol needs. The table of commands has those of commands.

use crate::protocol::native::Op;
use crate::protocol::resp::commands::{Id, KeysNeeded};

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
            match spec.keys_needed {
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
            match all().find(|spec| spec.id == id).unwrap().keys_needed {
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
            all().filter(|spec| wanted.contains(&spec.keys_needed)).map(|spec| written(spec.name)).collect()
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
