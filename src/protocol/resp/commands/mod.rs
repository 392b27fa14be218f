//! The supported commands, and the error texts for other commands.
//!
//! In: a command. Out: the command's entry in [`COMMANDS`], or Redis's text for the error. This module does not execute
//! commands.

mod describe;
mod refusal;
mod table;

use std::ops::Range;

use super::Command;
pub use describe::{docs, help, info};
pub use refusal::{Refusal, is_http, is_unsupported_name, is_write_name, write_name};
use refusal::{unsupported_reason, write_refusal};
pub use table::{COMMANDS, Id};

/// The names of [`COMMANDS`] as numbers, so that looking a command up compares numbers instead of byte strings. 0
/// stands for a name that is too long for a number.
static PACKED_NAMES: [u128; COMMANDS.len()] = {
    let mut names = [0; COMMANDS.len()];
    let mut at = 0;
    while at < names.len() {
        if let Some(name) = packed(COMMANDS[at].name.as_bytes()) {
            names[at] = name;
        }
        at += 1;
    }
    names
};

/// The description of a command or subcommand.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The command's identifier.
    pub id: Id,
    /// The name in lower case. The name of a subcommand has the form `container|name`.
    pub name: &'static str,
    /// Number of arguments, including the name. A negative number is a minimum: -2 means at least 2.
    pub arity: i32,
    /// Maximum number of arguments including the name.
    pub args_max: usize,
    /// The command's flags in Redis.
    pub flags: &'static [&'static str],
    /// The command's categories in Redis's access control lists.
    pub categories: &'static [&'static str],
    /// The positions of keys among the arguments.
    pub keys: KeyPositions,
    /// The keys that a user must be allowed to use.
    pub keys_needed: KeysNeeded,
    /// Redis's flags for the keys.
    pub key_flags: &'static [&'static str],
    /// Redis's tips for clients of a cluster.
    pub tips: &'static [&'static str],
    /// The command's group in Redis's documentation.
    pub group: &'static str,
    /// The first version of Redis that has the command. For Zero-KV's own commands, the first version of Zero-KV that
    /// has the command.
    pub since: &'static str,
    /// The syntax of the arguments.
    pub syntax: &'static str,
    /// A summary of the command.
    pub summary: &'static str,
    /// The subcommands. If the list is not empty, the first argument after the command's name, if any, must name one of
    /// them.
    pub subcommands: &'static [Spec],
    /// The command's reply to a missing key, if the command reads hashes. `None` for other commands.
    pub missing: Option<Missing>,
}

/// The keys that a user must be allowed to use for a command, or for an op of the native protocol.
///
/// If two tables that differ only in rows of other keys can lead to different replies, the command needs all keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeysNeeded {
    /// No key: the reply depends on no row.
    None,
    /// The keys at the positions [`Spec::key_positions`], or the key of the op.
    Named,
    /// At least one key, which the table may lack. Only ops need this.
    Some,
    /// All keys with a prefix that all keys of the range have: the prefix of a command, or a prefix that the bounds of an
    /// op show. If there is none, all keys.
    Prefix,
    /// All keys.
    All,
}

/// The reply of a command that reads hashes to a missing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Null.
    Null,
    /// The number 0.
    Zero,
    /// An empty array.
    Array,
    /// An empty map.
    Map,
    /// An array with a null for each argument after the key.
    Nulls,
    /// Null, or an empty array if the client requests a number of elements.
    NullOrArray,
    /// The cursor 0 and an empty array.
    Scan,
}

/// Maximum number of arguments, including the name, of a command that is executed in one pass. A command that may have
/// more arguments is executed in several passes, and the worker serves its other connections between the passes.
pub const ARGS_MAX_AT_ONCE: usize = 1024;

/// The positions of keys: `first`, and every `step`-th argument after it up to `last`. A negative `last` counts from
/// the end. If `first` is 0, the command has no keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the struct's documentation describes the fields")]
pub struct KeyPositions {
    pub first: i32,
    pub last: i32,
    pub step: i32,
}

impl Spec {
    /// Returns the last part of the name: `get` for the subcommand `config|get`.
    pub fn own_name(&self) -> &'static str {
        self.name.rsplit_once('|').map_or(self.name, |(_, own)| own)
    }

    /// Returns the name as a client writes it: `CONFIG GET` for the subcommand `config|get`.
    pub fn written_name(&self) -> String {
        self.name.to_ascii_uppercase().replace('|', " ")
    }

    /// Returns whether the command can have this number of arguments, including the name.
    pub fn accepts(&self, arg_count: usize) -> bool {
        accepts(self.arity, arg_count)
    }

    /// Returns the positions of the keys among `arg_count` arguments. The command's name has position 0.
    pub fn key_positions(&self, arg_count: usize) -> Range<usize> {
        let last = self.keys.last + if self.keys.last < 0 { arg_count as i32 } else { 0 };
        let first = self.keys.first as usize;
        if first == 0 { 0..0 } else { first..(last as usize + 1).max(first) }
    }
}

/// Returns whether a command with this [`Spec::arity`] may have `arg_count` arguments.
fn accepts(arity: i32, arg_count: usize) -> bool {
    let least = arity.unsigned_abs() as usize;
    if arity < 0 { arg_count >= least } else { arg_count == least }
}

/// Returns all commands, each before its subcommands.
pub fn all_commands() -> impl Iterator<Item = &'static Spec> {
    COMMANDS.iter().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands))
}

/// Returns the command with this name. Ignores case.
pub fn find(name: &[u8]) -> Option<&'static Spec> {
    match packed(name) {
        Some(0) => None,
        Some(wanted) => Some(&COMMANDS[PACKED_NAMES.iter().position(|&packed| packed == wanted)?]),
        None => COMMANDS.iter().find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name)),
    }
}

/// Returns the subcommand of `container` with this name. Ignores case.
pub fn find_subcommand(container: &Spec, name: &[u8]) -> Option<&'static Spec> {
    container.subcommands.iter().find(|spec| spec.own_name().as_bytes().eq_ignore_ascii_case(name))
}

/// Returns the command or subcommand with this full name, such as `get` or `config|get`. Ignores case.
pub fn find_full(name: &[u8]) -> Option<&'static Spec> {
    match name.iter().position(|&byte| byte == b'|') {
        None => find(name),
        Some(bar) => find_subcommand(find(&name[..bar])?, &name[bar + 1..]),
    }
}

/// Returns the description of a command, or of the subcommand that its first argument names.
///
/// # Errors
/// [`Refusal`] if the command is unknown or unsupported, writes data, or has a wrong number of arguments.
pub fn resolve<'a>(command: &Command<'a>) -> Result<&'static Spec, Refusal<'a>> {
    let mut args = command.args();
    let name = args.next().unwrap_or_default();
    let Some(mut spec) = find(name) else {
        return Err(write_refusal(command).or_else(|| unsupported(command)).unwrap_or(Refusal::Unknown(*command)));
    };
    if !spec.subcommands.is_empty()
        && let Some(subcommand) = args.next()
    {
        let found = find_subcommand(spec, subcommand);
        let unknown = Refusal::UnknownSubcommand { container: spec.name, name: subcommand };
        spec = found.ok_or_else(|| unsupported(command).unwrap_or(unknown))?;
    }
    match command.arg_count() {
        arg_count if arg_count > spec.args_max => Err(Refusal::TooManyArgs { spec, arg_count }),
        arg_count if accepts(spec.arity, arg_count) => Ok(spec),
        _ => Err(Refusal::ArgCount(spec.name)),
    }
}

fn unsupported<'a>(command: &Command<'a>) -> Option<Refusal<'a>> {
    unsupported_reason(command).map(Refusal::Unsupported)
}

/// Returns the name in lower case, padded with zero bytes, as one number. Returns `None` if the name is longer than 16
/// bytes, or ends in a zero byte.
const fn packed(name: &[u8]) -> Option<u128> {
    let mut bytes = [0; 16];
    if name.len() > bytes.len() || matches!(name, [.., 0]) {
        return None;
    }
    bytes.split_at_mut(name.len()).0.copy_from_slice(name);
    bytes.make_ascii_lowercase();
    Some(u128::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::protocol::native::{Op, OpNeeds};

    #[test]
    fn every_command_is_found_by_its_name_in_any_case() {
        for spec in all_commands() {
            let upper = spec.name.to_ascii_uppercase();
            for name in [spec.name, &upper] {
                assert_eq!(find_full(name.as_bytes()).map(|found| found.id), Some(spec.id), "{name}");
            }
        }
        for name in [
            "",
            "ge",
            "gett",
            "get\0",
            "get ",
            "g\0t",
            "zkv.generations",
            "zkv.generation\0\0\0",
            "config|",
            "|get",
            "get|x",
        ] {
            assert!(find_full(name.as_bytes()).is_none(), "{name:?}");
        }
    }

    #[test]
    fn ids_and_names_are_one_to_one() {
        let mut names: Vec<&str> = all_commands().map(|spec| spec.name).collect();
        let mut ids: Vec<String> = all_commands().map(|spec| format!("{:?}", spec.id)).collect();
        // An identifier is named after its command.
        for spec in all_commands() {
            let letters: String = spec.name.chars().filter(char::is_ascii_alphanumeric).collect();
            assert_eq!(format!("{:?}", spec.id).to_ascii_lowercase(), letters);
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((names.len(), ids.len()), (count, count));
    }

    #[test]
    fn every_entry_is_complete() {
        for spec in all_commands() {
            assert!(spec.arity != 0 && !spec.group.is_empty() && !spec.summary.is_empty(), "{}", spec.name);
            assert!(!spec.since.is_empty() && !spec.categories.is_empty(), "{}", spec.name);
            assert_eq!(spec.keys.first == 0, spec.keys.step == 0, "{}", spec.name);
            for subcommand in spec.subcommands {
                assert_eq!(subcommand.name, format!("{}|{}", spec.name, subcommand.own_name()));
            }
        }
    }
    #[test]
    fn keys_are_needed_where_the_arguments_have_keys() {
        for spec in all_commands() {
            let has_keys = spec.keys.first != 0;
            match spec.keys_needed {
                KeysNeeded::Named => assert!(has_keys, "{}: no argument is a key", spec.name),
                // The keys of these commands are not the only ones that the reply depends on.
                KeysNeeded::All => assert!(!has_keys || spec.name.starts_with("zkv."), "{}", spec.name),
                KeysNeeded::None => {
                    let has_channels = matches!(spec.id, Id::SSubscribe | Id::SUnsubscribe);
                    assert!(!has_keys || has_channels, "{}", spec.name);
                }
                KeysNeeded::Prefix => assert!(!has_keys, "{}", spec.name),
                KeysNeeded::Some => panic!("{}: only ops need some key", spec.name),
            }
            // `Spec::key_positions` returns a range, and so assumes that all arguments between two keys are keys.
            assert!(spec.keys.step <= 1, "{}", spec.name);
        }
    }

    #[test]
    fn the_documents_list_the_commands_that_need_all_keys() {
        let access = include_str!("../../../../docs/operations/access.md").replace('\n', " ");
        let (_, list) = access.split_once("need a permission for all keys (`~*`):").unwrap();
        let (all_keys, rest) = list.split_once(". ").unwrap();
        let (prefix, _) = rest.split_once(" with ").unwrap();
        let of = |wanted: &[KeysNeeded]| -> BTreeSet<String> {
            all_commands().filter(|spec| wanted.contains(&spec.keys_needed)).map(|spec| spec.written_name()).collect()
        };
        let quoted =
            |text: &str| -> BTreeSet<String> { text.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
        assert_eq!(quoted(all_keys), of(&[KeysNeeded::All, KeysNeeded::Prefix]));
        assert_eq!(quoted(prefix), of(&[KeysNeeded::Prefix]));
    }

    #[test]
    fn an_op_needs_no_fewer_keys_than_the_command_of_the_same_lookup() {
        for op in Op::ALL {
            let OpNeeds::Command(id, keys) = op.needs() else { continue };
            match all_commands().find(|spec| spec.id == id).unwrap().keys_needed {
                needed @ (KeysNeeded::All | KeysNeeded::Prefix) => assert_eq!(keys, needed, "{op:?}"),
                KeysNeeded::Named => assert!(matches!(keys, KeysNeeded::Named | KeysNeeded::Some), "{op:?}"),
                KeysNeeded::None | KeysNeeded::Some => {}
            }
        }
    }

    #[test]
    fn the_document_of_the_protocol_lists_the_permissions_of_all_ops() {
        let protocol = include_str!("../../../../docs/PROTOCOL.md");
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
        let name_of = |id: Id| all_commands().find(|spec| spec.id == id).unwrap().written_name();
        let described = |op: &Op| match op.needs() {
            OpNeeds::Nothing => format!("{op:?}: none: none"),
            OpNeeds::Everything => format!("{op:?}: all commands: all"),
            OpNeeds::Command(id, keys) => {
                let keys = match keys {
                    KeysNeeded::None => "none",
                    KeysNeeded::Named => "the requested key",
                    KeysNeeded::Some => "at least one permitted key",
                    KeysNeeded::Prefix => "all with a prefix that all keys of the range have",
                    KeysNeeded::All => "all",
                };
                format!("{op:?}: {}: {keys}", name_of(id))
            }
        };
        assert_eq!(listed, Op::ALL.iter().map(described).collect());
    }
}
