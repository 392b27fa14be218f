//! Errors for commands that the server does not execute. If Redis has the same error, the text is Redis's text.

use std::fmt;

use super::super::Command;
use super::Spec;

/// An error quotes at most this many bytes of a name, and at most this many bytes of all arguments together.
const QUOTED_LEN_MAX_BYTES: usize = 128;

/// The reason why a command is not executed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Refusal<'a> {
    /// The command is unknown.
    Unknown(Command<'a>),
    /// The command has no subcommand with this name.
    UnknownSubcommand {
        /// The name of the command that has subcommands.
        container: &'static str,
        /// The name of the unknown subcommand.
        name: &'a [u8],
    },
    /// The command with this name has a wrong number of arguments.
    ArgCount(&'static str),
    /// The command has more arguments than [`Spec::args_max`].
    TooManyArgs {
        /// The command.
        spec: &'static Spec,
        /// The number of arguments including the name.
        arg_count: usize,
    },
    /// The command writes data in Redis.
    Write,
    /// The server does not support this command of Redis. The text states the reason.
    Unsupported(&'static str),
}

impl Refusal<'_> {
    /// Returns the text for [`Reply::error`](super::super::Reply::error). As in Redis, the text quotes at most 128
    /// bytes of a name, and at most 128 bytes of all arguments together. A name or an argument is truncated before its
    /// first zero byte.
    pub fn text(&self) -> Vec<u8> {
        match self {
            Refusal::Unknown(command) => unknown(command),
            Refusal::UnknownSubcommand { container, name } => {
                let container = container.to_ascii_uppercase();
                [
                    b"ERR unknown subcommand '",
                    quoted(name, QUOTED_LEN_MAX_BYTES),
                    b"'. Try ",
                    container.as_bytes(),
                    b" HELP.",
                ]
                .concat()
            }
            Refusal::ArgCount(name) => format!("ERR wrong number of arguments for '{name}' command").into(),
            Refusal::TooManyArgs { spec, arg_count } => format!(
                "ERR too many arguments for '{}' command: {arg_count}, the limit is {}",
                spec.name, spec.args_max
            )
            .into(),
            Refusal::Write => b"READONLY You can't write against a read only replica.".to_vec(),
            Refusal::Unsupported(reason) => reason.as_bytes().to_vec(),
        }
    }
}

/// Returns whether the name of a command is the first word of an HTTP POST request or of a `Host` header.
///
/// Like Redis, the server closes the connection if a command's name is `POST` or `Host:`, in upper or lower case.
/// Otherwise, a web page could make a browser send an HTTP request with commands in its body to the server's port.
pub fn is_http(name: &[u8]) -> bool {
    [&b"post"[..], b"host:"].iter().any(|word| name.eq_ignore_ascii_case(word))
}

impl fmt::Display for Refusal<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&String::from_utf8_lossy(&self.text()))
    }
}

impl std::error::Error for Refusal<'_> {}

fn unknown(command: &Command) -> Vec<u8> {
    let mut args = Vec::new();
    for arg in command.args().skip(1) {
        if args.len() >= QUOTED_LEN_MAX_BYTES {
            break;
        }
        let quoted = quoted(arg, QUOTED_LEN_MAX_BYTES - args.len());
        args.extend([b"'", quoted, b"' "].concat());
    }
    let name = quoted(command.name(), QUOTED_LEN_MAX_BYTES);
    [b"ERR unknown command '", name, b"', with args beginning with: ", &args].concat()
}

fn quoted(text: &[u8], len_max: usize) -> &[u8] {
    let text = &text[..text.len().min(len_max)];
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::super::inline;
    use super::super::resolve;

    fn error_or_name(words: &str) -> String {
        let bytes = inline::to_command(words.as_bytes()).unwrap();
        match resolve(&super::Command::new(&bytes)) {
            Ok(spec) => spec.name.to_owned(),
            Err(refusal) => refusal.to_string(),
        }
    }

    #[test]
    fn known_commands_with_valid_arguments_are_accepted() {
        for (words, name) in [
            ("GET k", "get"),
            ("mGet a b c", "mget"),
            ("PING", "ping"),
            ("config GET save", "config|get"),
            ("client setinfo LIB-NAME x", "client|setinfo"),
            ("COMMAND", "command"),
            ("Zkv.Range - +", "zkv.range"),
        ] {
            assert_eq!(error_or_name(words), name);
        }
    }

    #[test]
    fn an_unknown_command_has_the_error_of_redis() {
        for (words, text) in [
            ("foo a b", "ERR unknown command 'foo', with args beginning with: 'a' 'b' ".to_owned()),
            ("FOO", "ERR unknown command 'FOO', with args beginning with: ".to_owned()),
            ("''", "ERR unknown command '', with args beginning with: ".to_owned()),
            (r#""fo\x00o" "a\x00b""#, "ERR unknown command 'fo', with args beginning with: 'a' ".to_owned()),
            (
                &format!("foo{} {} {} c", "x".repeat(200), "a".repeat(100), "b".repeat(100)),
                format!(
                    "ERR unknown command 'foo{}', with args beginning with: '{}' '{}' ",
                    "x".repeat(125),
                    "a".repeat(100),
                    "b".repeat(25)
                ),
            ),
            (
                &format!("foo {} bbbbb c", "a".repeat(124)),
                format!("ERR unknown command 'foo', with args beginning with: '{}' 'b' ", "a".repeat(124)),
            ),
            (
                &format!("foo {} bbbbb c", "a".repeat(125)),
                format!("ERR unknown command 'foo', with args beginning with: '{}' ", "a".repeat(125)),
            ),
        ] {
            assert_eq!(error_or_name(words), text);
        }
    }

    #[test]
    fn an_unknown_subcommand_has_the_error_of_redis() {
        assert_eq!(error_or_name("Client X"), "ERR unknown subcommand 'X'. Try CLIENT HELP.");
        assert_eq!(error_or_name("config sett a b"), "ERR unknown subcommand 'sett'. Try CONFIG HELP.");
        let long = format!("ERR unknown subcommand '{}'. Try COMMAND HELP.", "x".repeat(128));
        assert_eq!(error_or_name(&format!("COMMAND {}", "x".repeat(200))), long);
    }

    #[test]
    fn a_wrong_number_of_arguments_has_the_error_of_redis() {
        for (words, name) in [
            ("get", "get"),
            ("GET a b", "get"),
            ("mget", "mget"),
            ("CLIENT", "client"),
            ("cliENT geTNAME x", "client|getname"),
            ("config get", "config|get"),
            ("zkv.floor", "zkv.floor"),
        ] {
            assert_eq!(error_or_name(words), format!("ERR wrong number of arguments for '{name}' command"));
        }
    }

    #[test]
    fn a_write_command_gets_the_read_only_error_of_redis() {
        for words in [
            "set k v",
            "getex k persist",
            "Del k",
            "georadiusbymember k m 1 m x",
            "FUNCTION LOAD x",
            "xgroup setid k g 0",
            "flushall",
            "sort k",
        ] {
            assert_eq!(error_or_name(words), "READONLY You can't write against a read only replica.", "{words}");
        }
        for (words, error) in [
            ("SET", "wrong number of arguments for 'set' command"),
            ("FUNCTION DELETE", "wrong number of arguments for 'function|delete' command"),
            ("xgroup create k g", "wrong number of arguments for 'xgroup|create' command"),
            ("xgroup", "wrong number of arguments for 'xgroup' command"),
            ("xgroup X", "unknown subcommand 'X'. Try XGROUP HELP."),
        ] {
            assert_eq!(error_or_name(words), format!("ERR {error}"), "{words}");
        }
        for words in ["sett", "xreads", "georadiusbymemberx", "function|load", "xgroup|create k g 0"] {
            assert!(error_or_name(words).starts_with("ERR unknown command"), "{words}");
        }
    }

    #[test]
    fn an_unsupported_command_gets_an_error_with_the_reason() {
        for (words, reason) in [
            ("subscribe", "subscriptions are not supported"),
            ("PSUBSCRIBE a b", "subscriptions are not supported"),
            ("spublish a b", "publishing is not supported"),
            ("function list", "scripts and functions are not supported"),
            ("EVALSHA x", "scripts and functions are not supported"),
            ("config set a b", "settings cannot be changed"),
            ("CONFIG resetStat", "counters cannot be reset"),
        ] {
            assert!(error_or_name(words).starts_with(&format!("ERR {reason}")), "{words}");
        }
    }
}
