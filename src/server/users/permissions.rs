//! A user, and the commands and keys that the user may use.
//!
//! In: rules of the users file. Out: whether a command or a key is permitted, and the rules in the form that ACL LIST
//! and ACL GETUSER show.

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::format::key::Key;
use crate::format::key_type::KeyType;
use crate::protocol::resp::commands::{Id, Spec, all_commands, find_full, is_unsupported_name, is_write_name};
use crate::store::prefix_end;

/// The categories of Redis's commands, in Redis's order.
pub(in crate::server) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// The maximum length of a password. A longer password never matches. The length is limited because hashing a very long
/// password could delay other connections.
pub(in crate::server) const PASSWORD_LEN_MAX_BYTES: usize = 1024;

pub(super) type Hash = [u8; 32];

#[derive(Clone, Debug)]
pub(in crate::server) struct User {
    /// Identifies the user. The number stays the same as long as the user's connections may continue: it changes when
    /// the user is disabled or enabled, and when the user begins to need a password.
    pub(super) number: u64,
    pub(in crate::server) name: String,
    pub(in crate::server) is_on: bool,
    /// Whether every password is accepted.
    pub(in crate::server) is_nopass: bool,
    pub(super) hashes: Vec<Hash>,
    pub(super) keys: KeyAccess,
    pub(super) commands: CommandAccess,
    /// Patterns of channels, which have no effect because the server has no channels.
    pub(super) channels: Vec<String>,
}

impl User {
    /// Returns a new user, who is disabled and has no permissions, as in Redis.
    pub(super) fn new(name: &str) -> User {
        User {
            number: 0,
            name: name.to_owned(),
            is_on: false,
            is_nopass: false,
            hashes: Vec::new(),
            keys: KeyAccess::Prefixes(Vec::new()),
            commands: CommandAccess::none(),
            channels: Vec::new(),
        }
    }

    /// Returns the user `default` of a server that has no users file, or whose users file does not name this user.
    pub(super) fn open_default() -> User {
        User {
            is_on: true,
            is_nopass: true,
            keys: KeyAccess::All,
            commands: CommandAccess::all(),
            channels: vec!["*".to_owned()],
            ..User::new("default")
        }
    }

    /// Returns whether a connection can be this user without a login.
    pub(in crate::server) fn is_open(&self) -> bool {
        self.is_on && self.is_nopass
    }

    /// Returns whether a password is right. Takes the same time for all passwords of the same length.
    pub(super) fn accepts(&self, password: &[u8]) -> bool {
        // Also hashed for a user without a password, so that the time does not tell such a user from an unknown one.
        let given: Hash = hash_of(password);
        let found = self.hashes.iter().fold(Choice::from(0), |found, hash| found | hash.ct_eq(&given));
        self.is_nopass || bool::from(found) && password.len() <= PASSWORD_LEN_MAX_BYTES
    }

    /// Returns whether the user may use every command and every key.
    pub(in crate::server) fn is_unrestricted(&self) -> bool {
        matches!(self.keys, KeyAccess::All) && self.commands.is_all()
    }

    /// Returns whether the user may use the command GET.
    pub(super) fn reads(&self) -> bool {
        self.commands.permits(Id::Get)
    }

    /// Returns the user's flags in the reply to ACL GETUSER.
    pub(in crate::server) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        flags.extend(self.is_nopass.then_some("nopass"));
        flags
    }

    pub(in crate::server) fn hash_texts(&self) -> Vec<String> {
        let hex = |hash: &Hash| hash.iter().map(|byte| format!("{byte:02x}")).collect();
        self.hashes.iter().map(hex).collect()
    }

    /// Returns the number of passwords and rules, on which the cost of showing the user depends.
    pub(in crate::server) fn rule_count(&self) -> usize {
        let prefixes = match &self.keys {
            KeyAccess::All => 1,
            KeyAccess::Prefixes(prefixes) => prefixes.len(),
        };
        1 + self.hashes.len() + prefixes + self.commands.rules.len() + self.channels.len()
    }

    pub(in crate::server) fn command_rules(&self) -> String {
        self.commands.text()
    }

    pub(in crate::server) fn key_rules(&self) -> String {
        self.keys.text()
    }

    pub(in crate::server) fn channel_rules(&self) -> String {
        self.channels.iter().map(|channel| format!("&{channel}")).collect::<Vec<_>>().join(" ")
    }

    /// Returns the user's line in the reply to ACL LIST.
    pub(in crate::server) fn line(&self) -> String {
        let mut words = vec!["user".to_owned(), self.name.clone()];
        words.extend(self.flags().into_iter().map(str::to_owned));
        words.extend(self.hash_texts().into_iter().map(|hash| format!("#{hash}")));
        words.extend(Some(self.key_rules()).filter(|rules| !rules.is_empty()));
        words.push(match self.channel_rules() {
            rules if rules == "&*" => rules,
            rules => format!("resetchannels {rules}").trim_end().to_owned(),
        });
        words.push(self.command_rules());
        words.join(" ")
    }
}

/// Hashes a password. If the password is too long, hashes only its beginning.
pub(super) fn hash_of(password: &[u8]) -> Hash {
    Sha256::digest(&password[..password.len().min(PASSWORD_LEN_MAX_BYTES)]).into()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyAccess {
    All,
    /// The keys that begin with one of these prefixes.
    Prefixes(Vec<String>),
}

impl KeyAccess {
    pub(super) fn is_all(&self) -> bool {
        matches!(self, KeyAccess::All)
    }

    /// Returns whether any key is permitted.
    pub(super) fn is_some(&self) -> bool {
        match self {
            KeyAccess::All => true,
            KeyAccess::Prefixes(prefixes) => !prefixes.is_empty(),
        }
    }

    /// Returns whether every key is permitted whose written form begins with `start`.
    fn permits_start(&self, start: &[u8]) -> bool {
        match self {
            KeyAccess::All => true,
            KeyAccess::Prefixes(prefixes) => prefixes.iter().any(|prefix| start.starts_with(prefix.as_bytes())),
        }
    }

    /// Returns whether all byte keys of a range are permitted, because they begin with the same permitted prefix.
    pub(super) fn permits_range(&self, start: &[u8], end: &[u8], is_end_excluded: bool) -> bool {
        // The end of the range of all keys with a prefix does not begin with the prefix.
        let ends = |prefix: &[u8]| {
            end.starts_with(prefix) || is_end_excluded && prefix_end(prefix).is_some_and(|after| after == end)
        };
        match self {
            KeyAccess::All => true,
            KeyAccess::Prefixes(prefixes) => {
                prefixes.iter().map(String::as_bytes).any(|prefix| start.starts_with(prefix) && ends(prefix))
            }
        }
    }

    /// Returns whether every key is permitted that a client selects by sending `text` as a prefix.
    pub(super) fn permits_prefix(&self, key_type: KeyType, text: &[u8]) -> bool {
        if self.is_all() || key_type.is_plain() {
            return self.permits_start(text);
        }
        // Text that is no prefix selects no keys.
        key_type.written_prefix(text).map_or_else(|_| self.permits_start(text), |start| self.permits_start(&start))
    }

    /// Returns whether the key that a client sent as `text` is permitted. The key's written form decides, so that no
    /// other spelling of the key, such as a number with leading zeros, leads to it.
    pub(super) fn permits(&self, key_type: KeyType, text: &[u8]) -> bool {
        match (self, key_type) {
            (KeyAccess::All, _) => true,
            (_, KeyType::U64) => self.permits_start(without_leading_zeros(text)),
            (_, KeyType::BYTES) => self.permits_start(text),
            // Text that is not a key leads to no key.
            _ => key_type
                .parse(text)
                .map_or_else(|_| self.permits_start(text), |key| self.permits_stored(key_type, key.as_key())),
        }
    }

    /// Returns whether a stored key is permitted.
    pub(super) fn permits_stored(&self, key_type: KeyType, key: Key<'_>) -> bool {
        if self.is_all() {
            return true;
        }
        match key {
            Key::U64(number) if key_type == KeyType::U64 => {
                self.permits_start(itoa::Buffer::new().format(number).as_bytes())
            }
            Key::Bytes(bytes) if key_type == KeyType::BYTES => self.permits_start(bytes),
            _ => {
                let mut written = Vec::new();
                key_type.write(key, &mut written);
                self.permits_start(&written)
            }
        }
    }

    fn text(&self) -> String {
        match self {
            KeyAccess::All => "~*".to_owned(),
            KeyAccess::Prefixes(prefixes) => {
                prefixes.iter().map(|prefix| format!("~{prefix}*")).collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// Returns a number in decimal digits without leading zeros, and any other text unchanged.
fn without_leading_zeros(text: &[u8]) -> &[u8] {
    if !text.iter().all(u8::is_ascii_digit) {
        return text;
    }
    let zeros = text.iter().take_while(|&&digit| digit == b'0').count();
    &text[zeros.min(text.len().saturating_sub(1))..]
}

#[derive(Clone, Debug)]
pub(super) struct CommandAccess {
    /// One bit for each command and subcommand of the server, at the position of its [`Id`](Spec::id). The bit is 1 if
    /// the user may use the command.
    bits: [u64; 2],
    /// Whether commands that write get the error of a read-only server instead of the error for missing permissions.
    is_write_permitted: bool,
    /// Whether the first rule is `+@all` instead of `-@all`.
    begins_with_all: bool,
    /// The rules that follow `+@all` or `-@all`, each with its `+` or `-`.
    rules: Vec<String>,
}

impl CommandAccess {
    pub(super) fn none() -> CommandAccess {
        CommandAccess { bits: [0; 2], is_write_permitted: false, begins_with_all: false, rules: Vec::new() }
    }

    pub(super) fn all() -> CommandAccess {
        let mut all = CommandAccess { begins_with_all: true, is_write_permitted: true, ..CommandAccess::none() };
        all_commands().for_each(|spec| all.set(spec, true));
        all
    }

    /// Applies a rule: a sign (`+` or `-`) that is followed by a command (`get`), a subcommand (`config|get`), or a
    /// category (`@read`).
    ///
    /// # Errors
    /// If the command, subcommand, or category is unknown. The error describes the expected names.
    pub(super) fn apply(&mut self, rule: &str) -> Result<(), &'static str> {
        let is_permitted = rule.starts_with('+');
        let name = rule[1..].to_ascii_lowercase();
        match name.strip_prefix('@') {
            Some("all") => *self = if is_permitted { CommandAccess::all() } else { CommandAccess::none() },
            Some(category) if CATEGORIES.contains(&category) => {
                all_commands().filter(|spec| is_in(spec, category)).for_each(|spec| self.set(spec, is_permitted));
                if category == "write" {
                    self.is_write_permitted = is_permitted;
                }
                self.add_rule(is_permitted, &name);
            }
            Some(_) => return Err("a category that ACL CAT lists, or @all"),
            None => {
                match find_full(name.as_bytes()) {
                    Some(spec) => {
                        self.set(spec, is_permitted);
                        spec.subcommands.iter().for_each(|spec| self.set(spec, is_permitted));
                    }
                    // A user may have rules for commands that write or are not supported. They have no effect.
                    None if is_write_name(name.as_bytes()) || is_unsupported_name(name.as_bytes()) => {}
                    None => return Err("a command that COMMAND LIST lists, or command|subcommand"),
                }
                self.add_rule(is_permitted, &name);
            }
        }
        Ok(())
    }

    /// Adds a rule to `rules`, and removes earlier rules that the new rule makes ineffective.
    fn add_rule(&mut self, is_permitted: bool, name: &str) {
        let is_superseded = |rule: &String| {
            let old = &rule[1..];
            old == name || old.strip_prefix(name).is_some_and(|rest| rest.starts_with('|'))
        };
        self.rules.retain(|rule| !is_superseded(rule));
        self.rules.push(format!("{}{name}", if is_permitted { '+' } else { '-' }));
    }

    fn set(&mut self, spec: &Spec, is_permitted: bool) {
        let (word, bit) = place(spec.id);
        self.bits[word] = if is_permitted { self.bits[word] | bit } else { self.bits[word] & !bit };
    }

    /// Returns whether a command or subcommand is permitted.
    #[inline]
    pub(super) fn permits(&self, id: Id) -> bool {
        let (word, bit) = place(id);
        self.bits[word] & bit != 0
    }

    pub(super) fn permits_writes(&self) -> bool {
        self.is_write_permitted
    }

    fn is_all(&self) -> bool {
        self.is_write_permitted && all_commands().all(|spec| self.permits(spec.id))
    }

    fn text(&self) -> String {
        let mut text = if self.begins_with_all { "+@all" } else { "-@all" }.to_owned();
        self.rules.iter().for_each(|rule| text.extend([" ", rule]));
        text
    }
}

fn place(id: Id) -> (usize, u64) {
    let number = id as usize;
    (number / 64, 1 << (number % 64))
}

fn is_in(spec: &Spec, category: &str) -> bool {
    spec.categories.iter().any(|of| of[1..] == *category)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(rules: &str) -> CommandAccess {
        let mut access = CommandAccess::none();
        rules.split_whitespace().for_each(|rule| access.apply(rule).unwrap());
        access
    }

    #[test]
    fn every_command_has_a_bit_and_a_known_category() {
        for spec in all_commands() {
            assert!((spec.id as usize) < 128, "{}", spec.name);
            for category in spec.categories {
                assert!(CATEGORIES.contains(&&category[1..]), "{}: {category}", spec.name);
            }
        }
    }

    #[test]
    fn rules_apply_in_order() {
        let permitted = |rules: &str| {
            let access = access(rules);
            ["get", "keys", "config|get", "config|help", "ping"]
                .map(|name| access.permits(find_full(name.as_bytes()).unwrap().id))
        };
        for (rules, expected) in [
            ("", [false; 5]),
            ("+@all", [true; 5]),
            ("+@all -@all", [false; 5]),
            ("+@read", [true, true, false, false, false]),
            ("+@read -@dangerous", [true, false, false, false, false]),
            ("-@dangerous +@read", [true, true, false, false, false]),
            ("+config", [false, false, true, true, false]),
            ("+config -config|get", [false, false, false, true, false]),
            ("+config|get", [false, false, true, false, false]),
            ("+@all -get -PING", [false, true, true, true, false]),
            ("+@all -flushall", [true; 5]),
        ] {
            assert_eq!(permitted(rules), expected, "{rules}");
        }
        assert!(access("+@all").is_all() && !access("+@all -get").is_all() && !access("+@all -@write").is_all());
    }

    #[test]
    fn rules_are_shown_in_order_without_those_that_have_no_effect() {
        for (rules, expected) in [
            ("", "-@all"),
            ("+@all", "+@all"),
            ("+get +@all -@admin", "+@all -@admin"),
            ("+@read +get -@read", "-@all +get -@read"),
            ("+config|get -config +client|list", "-@all -config +client|list"),
            ("+GET -flushall -lrange", "-@all +get -flushall -lrange"),
        ] {
            assert_eq!(access(rules).text(), expected, "{rules}");
        }
    }

    #[test]
    fn unknown_names_are_rejected() {
        for rule in ["+nope", "-@nope", "+", "+@", "+config|nope", "+get|0", "+@ALLL"] {
            assert!(CommandAccess::none().apply(rule).is_err(), "{rule}");
        }
        assert!(access("+@READ").permits(Id::Get));
    }

    #[test]
    fn leading_zeros_do_not_lead_to_another_prefix() {
        let prefixes = KeyAccess::Prefixes(vec!["12".to_owned(), "007".to_owned(), "0".to_owned()]);
        for (text, number, bytes) in [
            ("12", true, true),
            ("123", true, true),
            ("00123", true, true),
            ("1", false, false),
            ("007", false, true),
            ("0", true, true),
            ("000", true, true),
            ("x", false, false),
            ("0x", true, true),
            ("", false, false),
        ] {
            assert_eq!(prefixes.permits(KeyType::U64, text.as_bytes()), number, "{text}");
            assert_eq!(prefixes.permits(KeyType::BYTES, text.as_bytes()), bytes, "{text}");
        }
        assert!(KeyAccess::Prefixes(vec![String::new()]).permits(KeyType::BYTES, b"x"));
        assert!(!KeyAccess::Prefixes(Vec::new()).permits(KeyType::BYTES, b"x"));
    }

    #[test]
    fn no_spelling_of_a_key_leads_past_the_pattern() {
        for (key_type, pattern, text, is_permitted) in [
            ("ip", "2001:db8:", "2001:DB8::1", true),
            ("ip", "2001:DB8:", "2001:DB8::1", false),
            ("ip", "10.", "::ffff:10.0.0.1", true),
            ("ip", "::ffff:", "::ffff:10.0.0.1", false),
            ("ip", "10.", "11.0.0.1", false),
            ("i64", "-", "-5", true),
            ("i64", "0", "-0", true),
            ("i64", "-", "-0", false),
            ("i64", "0", "0012", false),
            ("i64", "1", "0012", true),
            ("uuid", "0190163d-8694-", "0190163D8694739BAEA5966C26F8AD91", true),
            ("uuid", "0190163D", "0190163D8694739BAEA5966C26F8AD91", false),
            ("hex", "0a", "0A1F", true),
            ("bytes,bytes", "DE,", r"\D\E,Berlin", true),
            ("bytes,bytes", "DE,", r"DE\,x,Berlin", false),
            ("bytes,bytes", "DE", r"DE\,x,Berlin", true),
            ("ip", "10.", "10.x", true),
        ] {
            let (key_type, keys): (KeyType, _) =
                (key_type.parse().unwrap(), KeyAccess::Prefixes(vec![pattern.to_owned()]));
            assert_eq!(keys.permits(key_type, text.as_bytes()), is_permitted, "{key_type} {pattern} {text}");
            if let Ok(key) = key_type.parse(text.as_bytes()) {
                assert_eq!(keys.permits_stored(key_type, key.as_key()), is_permitted, "{key_type} {pattern} {text}");
            }
        }
    }

    #[test]
    fn a_prefix_is_permitted_if_the_pattern_has_all_keys_that_it_selects() {
        for (key_type, pattern, text, is_permitted) in [
            ("bytes", "DE", "DEU", true),
            ("bytes", "DE", "D", false),
            ("bytes,bytes", "DE,", "DE", true),
            ("bytes,bytes", "DE,", r"\D\E", true),
            ("bytes,bytes", "DE,B", "DE", false),
            ("bytes,bytes", "DE,B", "DE,Ber", true),
            ("bytes,bytes", "DE,", r"DE\,x", false),
            ("bytes,bytes", "DE,", "", false),
            ("bytes,ip", "DE,10.", "DE,10.0.0.1", true),
            ("hex", "0a", "0A", true),
            ("hex", "0a1f", "0A", false),
        ] {
            let (key_type, keys): (KeyType, _) =
                (key_type.parse().unwrap(), KeyAccess::Prefixes(vec![pattern.to_owned()]));
            assert_eq!(keys.permits_prefix(key_type, text.as_bytes()), is_permitted, "{key_type} {pattern} {text}");
        }
    }

    #[test]
    fn a_password_that_is_too_long_is_wrong() {
        let long = [b'x'; PASSWORD_LEN_MAX_BYTES + 1];
        let exact = &long[1..];
        let user = User { hashes: vec![hash_of(b"other"), hash_of(exact)], ..User::new("a") };
        assert!(user.accepts(exact) && user.accepts(b"other") && !user.accepts(&long) && !user.accepts(b""));
        assert!(!User::new("b").accepts(b"") && User { is_nopass: true, ..User::new("c") }.accepts(&long));
    }
}
