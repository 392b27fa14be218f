//! Parses a users file, whose format is a subset of the format of Redis's ACL files.
//!
//! In: the text of the file. Out: the users, or an error with the line number, the value found, the value expected, and
//! the remedy.

use std::collections::BTreeMap;
use std::path::PathBuf;

use thiserror::Error;

use super::permissions::{CommandAccess, Hash, KeyAccess, User};

pub(super) const FILE_LEN_MAX_BYTES: usize = 4 << 20;
/// The maximum length of a user's name, the same as in the client library.
const NAME_LEN_MAX_BYTES: usize = 4096;
/// The maximum number of key patterns of a user. Each requested key is compared with all of them.
const PATTERNS_MAX: usize = 64;
/// The maximum number of passwords of a user. The password of a login is compared with all of them.
const PASSWORDS_MAX: usize = 64;
/// The maximum number of bytes of the file's text that an error quotes.
const QUOTED_LEN_MAX_BYTES: usize = 64;
const HASH_DIGITS: usize = 2 * size_of::<Hash>();
/// The expected form of a key pattern, as errors describe it.
const PATTERN: &str = "a key pattern such as ~user:* or ~*, because this server supports only a prefix followed by *";
/// How to compute the hash of a password.
const HASH_COMMAND: &str = "compute a hash with: printf %s 'PASSWORD' | sha256sum";

/// Why a users file was rejected.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UsersError {
    /// The file cannot be read.
    #[error("{}: the users file cannot be read: {problem}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        problem: String,
    },
    /// The changed file would give TCP clients more permissions without a password than the previous file did.
    #[error(
        "{}: the user default would give every TCP client more permissions without a password: add the line \
         `user default off`, or the previous line of this user, or restart the server if this is intended",
        path.display()
    )]
    Unprotected {
        /// The file.
        path: PathBuf,
    },
    /// A line of the file is not valid.
    #[error("{}: line {line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, counted from 1.
        line: usize,
        /// The value found, the value expected, and the remedy.
        problem: String,
    },
}

/// Returns the users of a file by name. As in Redis, the user `default` has all permissions and needs no password if
/// the file does not name it.
///
/// # Errors
/// The number of the first invalid line, and the problem.
pub(super) fn parse(text: &[u8]) -> Result<BTreeMap<String, User>, (usize, String)> {
    let mut users = BTreeMap::new();
    for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let fault = |problem| (at + 1, problem);
        let line = std::str::from_utf8(line)
            .map_err(|_| fault(format!("found {}, expected text in UTF-8: remove the other bytes", quoted(line))))?;
        if let Some(user) = parse_line(line).map_err(fault)? {
            let name = user.name.clone();
            if users.insert(name.clone(), user).is_some() {
                return Err(fault(format!(
                    "found a second line for the user {}, expected one line per user: join the lines",
                    quoted(name.as_bytes())
                )));
            }
        }
    }
    users.entry("default".to_owned()).or_insert_with(User::open_default);
    Ok(users)
}

/// Returns the user that a line defines, or `None` if the line is blank.
fn parse_line(line: &str) -> Result<Option<User>, String> {
    let mut words = line.split_ascii_whitespace();
    let Some(first) = words.next() else { return Ok(None) };
    if first != "user" {
        return Err(format!(
            "found {}, expected a line that begins with user and a name: comments are not allowed",
            quoted(first.as_bytes())
        ));
    }
    let Some(name) = words.next() else {
        return Err("found no name after user, expected a line such as: user NAME on #HASH ~* +@read".to_owned());
    };
    if name.len() > NAME_LEN_MAX_BYTES {
        let len_bytes = name.len();
        return Err(format!("found a name of {len_bytes} bytes, expected at most {NAME_LEN_MAX_BYTES}: shorten it"));
    }
    // The name appears in replies and logs.
    if name.chars().any(char::is_control) {
        return Err(format!("found the name {}, expected a name without control characters", quoted(name.as_bytes())));
    }
    let mut user = User::new(name);
    words.try_for_each(|rule| apply(&mut user, rule))?;
    Ok(Some(user))
}

/// Applies one rule of a user's line.
fn apply(user: &mut User, rule: &str) -> Result<(), String> {
    let expected = |expected: &str| format!("found {}, expected {expected}", quoted(rule.as_bytes()));
    let lower = rule.to_ascii_lowercase();
    match &*lower {
        "on" => user.is_on = true,
        "off" => user.is_on = false,
        "nopass" => (user.is_nopass, user.hashes) = (true, Vec::new()),
        "resetpass" => (user.is_nopass, user.hashes) = (false, Vec::new()),
        "allkeys" => user.keys = KeyAccess::All,
        "resetkeys" => user.keys = KeyAccess::Prefixes(Vec::new()),
        "allcommands" => user.commands = CommandAccess::all(),
        "nocommands" => user.commands = CommandAccess::none(),
        "allchannels" => user.channels = vec!["*".to_owned()],
        "resetchannels" => user.channels.clear(),
        // These rules concern values that clients write. This server never accepts writes.
        "sanitize-payload" | "skip-sanitize-payload" => {}
        "reset" => *user = User::new(&user.name),
        _ => {
            // The first character is ASCII in the arms that use the rest.
            let rest = rule.get(1..).unwrap_or_default();
            match rule.as_bytes()[0] {
                b'>' => {
                    return Err(format!("found a plain password, expected its SHA-256 hash, as #HASH: {HASH_COMMAND}"));
                }
                b'<' | b'!' => {
                    return Err(
                        "found a rule that removes a password, expected a file without it: remove this rule and the \
                                rule that adds the password"
                            .to_owned(),
                    );
                }
                b'#' => add_hash(user, rest)?,
                b'~' => add_pattern(&mut user.keys, rest).map_err(expected)?,
                b'&' => user.channels.push(rest.to_owned()),
                b'+' | b'-' => user.commands.apply(rule).map_err(expected)?,
                _ => {
                    return Err(expected(
                        "on, off, nopass, #HASH, resetpass, ~PREFIX*, allkeys, resetkeys, +COMMAND, -COMMAND, \
                         +@CATEGORY, -@CATEGORY, allcommands, or nocommands: correct or remove this rule",
                    ));
                }
            }
        }
    }
    Ok(())
}

fn add_hash(user: &mut User, digits: &str) -> Result<(), String> {
    let hash = parse_hash(digits).ok_or_else(|| {
        // The digits may be a password that somebody wrote after the wrong character, so they are not quoted.
        format!(
            "found # with {} other characters, expected # with {HASH_DIGITS} hexadecimal digits in lower case: \
             {HASH_COMMAND}",
            digits.chars().count()
        )
    })?;
    user.is_nopass = false;
    if !user.hashes.contains(&hash) {
        user.hashes.push(hash);
    }
    match user.hashes.len() {
        0..=PASSWORDS_MAX => Ok(()),
        count => Err(format!("found {count} passwords, expected at most {PASSWORDS_MAX}: remove the old ones")),
    }
}

fn parse_hash(digits: &str) -> Option<Hash> {
    if digits.len() != HASH_DIGITS || !digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut hash = Hash::default();
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(hash)
}

fn add_pattern(keys: &mut KeyAccess, pattern: &str) -> Result<(), &'static str> {
    let prefix = pattern.strip_suffix('*').ok_or(PATTERN)?;
    if prefix.bytes().any(|byte| matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\')) {
        return Err(PATTERN);
    }
    match keys {
        KeyAccess::All if prefix.is_empty() => {}
        KeyAccess::All => {
            return Err("no other pattern after ~* or allkeys: remove one of them, or begin with resetkeys");
        }
        keys if prefix.is_empty() => *keys = KeyAccess::All,
        KeyAccess::Prefixes(prefixes) if prefixes.iter().any(|other| other == prefix) => {}
        KeyAccess::Prefixes(prefixes) if prefixes.len() == PATTERNS_MAX => {
            return Err("at most 64 key patterns per user: choose shorter prefixes");
        }
        KeyAccess::Prefixes(prefixes) => prefixes.push(prefix.to_owned()),
    }
    Ok(())
}

/// Quotes a part of the users file for an error. Quotes at most [`QUOTED_LEN_MAX_BYTES`] bytes.
fn quoted(text: &[u8]) -> String {
    let (start, rest) = text.split_at(text.len().min(QUOTED_LEN_MAX_BYTES));
    format!("\"{}{}\"", start.escape_ascii(), if rest.is_empty() { "" } else { "..." })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    #[test]
    fn users_are_listed_as_redis_lists_them() {
        for (line, listed) in [
            ("user a", "user a off resetchannels -@all"),
            ("user a on nopass ~* &* +@all", "user a on nopass ~* &* +@all"),
            ("  user\ta ON NOPASS allkeys allchannels allcommands\r", "user a on nopass ~* &* +@all"),
            ("user a on #HASH ~user:* +@read", "user a on #HASH ~user:* resetchannels -@all +@read"),
            ("user a on #HASH #HASH nopass", "user a on nopass resetchannels -@all"),
            ("user a on nopass #HASH", "user a on #HASH resetchannels -@all"),
            ("user a on #HASH resetpass", "user a on resetchannels -@all"),
            ("user a ~a:* ~b:* ~a:* &x &y", "user a off ~a:* ~b:* resetchannels &x &y -@all"),
            ("user a ~a:* allkeys", "user a off ~* resetchannels -@all"),
            ("user a ~a:* resetkeys ~b*", "user a off ~b* resetchannels -@all"),
            ("user a +@all -@admin nocommands +get", "user a off resetchannels -@all +get"),
            ("user a on nopass ~* reset +get", "user a off resetchannels -@all +get"),
            ("user a sanitize-payload +client|list", "user a off resetchannels -@all +client|list"),
        ] {
            let line = line.replace("HASH", HASH);
            assert_eq!(parse(line.as_bytes()).unwrap()["a"].line(), listed.replace("HASH", HASH), "{line}");
        }
    }

    #[test]
    fn the_user_default_is_open_unless_the_file_names_it() {
        assert_eq!(parse(b"").unwrap()["default"].line(), "user default on nopass ~* &* +@all");
        assert_eq!(parse(b"user a on\n\n").unwrap().len(), 2);
        assert!(!parse(b"user default off").unwrap()["default"].is_open());
    }

    #[test]
    fn an_invalid_line_is_reported_with_its_number_the_value_found_and_the_remedy() {
        let many = (0..65).map(|at| format!(" ~{at}:*")).collect::<String>();
        let hashes = (0..65).map(|at| format!(" #{at:064x}")).collect::<String>();
        let cases: &[(&str, &[&str])] = &[
            ("# users", &["\"#\"", "begins with user", "comments"]),
            ("users a", &["\"users\"", "begins with user"]),
            ("user", &["no name", "user NAME"]),
            ("user b\x1b[2J on", &["the name \"b\\x1b[2J\"", "without control characters"]),
            (&format!("user {}", "b".repeat(4097)), &["a name of 4097 bytes, expected at most 4096"]),
            ("user b\0 on", &["the name \"b\\x00\""]),
            ("user b\u{b}on nopass", &["the name \"b\\x0bon\""]),
            ("user b\nuser b", &["second line", "\"b\"", "join"]),
            ("user b onn", &["\"onn\"", "on, off", "correct or remove"]),
            ("user b >secret", &["a plain password", "#HASH", "sha256sum"]),
            ("user b <secret", &["removes a password", "remove this rule"]),
            ("user b #secret", &["# with 6 other characters", "64 hexadecimal", "sha256sum"]),
            ("user b ~user:?", &["\"~user:?\"", "~user:*", "prefix followed by *"]),
            ("user b ~user", &["\"~user\"", "prefix followed by *"]),
            ("user b ~a*b*", &["prefix followed by *"]),
            ("user b ~[a]*", &["prefix followed by *"]),
            ("user b ~\\a*", &["prefix followed by *"]),
            ("user b %R~a*", &["\"%R~a*\"", "~PREFIX*"]),
            ("user b ~* ~a*", &["\"~a*\"", "after ~* or allkeys", "resetkeys"]),
            ("user b +nope", &["\"+nope\"", "COMMAND LIST"]),
            ("user b +@nope", &["\"+@nope\"", "ACL CAT"]),
            ("user b (+get ~a*)", &["\"(+get\"", "on, off"]),
            (&many, &["at most 64 key patterns"]),
            (&hashes, &["65 passwords", "at most 64"]),
        ];
        for (text, parts) in cases {
            let text = if text.starts_with(' ') { format!("user b{text}") } else { (*text).to_owned() };
            let (line, problem) = parse(format!("user a on\n\n{text}").as_bytes()).unwrap_err();
            assert_eq!(line, 3 + text.matches('\n').count(), "{text}");
            parts.iter().for_each(|part| assert!(problem.contains(part), "{text}: {problem}"));
            assert!(!problem.contains("secret"), "{problem}");
        }
        assert_eq!(parse(b"user a\nuser \xff").unwrap_err().0, 2);
    }
}
