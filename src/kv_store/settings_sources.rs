//! Options from the environment and from a file.
//!
//! In: the command line, environment variables, and a TOML file. Out: the options, each from the first of these sources
//! that has it. An option `--max-connections` is the variable `KV_STORE_MAX_CONNECTIONS`, and the key `max-connections`
//! of the file. `--socket` has a second variable, which clients read, too.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, FromArgMatches};
use zero_kv::client::SOCKET_VARIABLE;
use zero_kv::config_file;
use zero_kv::printable::{Printable, is_escaped};

use super::args::{Args, command};

const PREFIX: &str = "KV_STORE_";
const CONFIG_LEN_MAX_BYTES: usize = 1 << 20;
/// The options that select sources, and so cannot come from one.
const NOT_IN_SOURCES: [&str; 5] = ["config", "print-config", "generate", "help", "version"];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    CommandLine,
    Variable(String),
    File(String),
    Default,
}

/// The options that conflict with the positional argument FILE.
const FILE_OPTIONS: [&str; 2] = ["db", "from"];

struct Given {
    name: String,
    args: Vec<OsString>,
    origin: Origin,
}

/// Parses the options from all sources. Exits with a usage error if an option is invalid. Returns an exit code if the
/// program should end, because it has printed the options.
pub(crate) fn parse() -> Result<Args, ExitCode> {
    let command_line: Vec<OsString> = env::args_os().collect();
    let given = collect(&command_line, &|name| env::var_os(name))
        .unwrap_or_else(|problem| command().error(ErrorKind::ValueValidation, problem).exit());
    let mut args = command_line;
    args.extend(given.iter().flat_map(|given| given.args.clone()));
    let matches = command().try_get_matches_from(args).unwrap_or_else(|error| {
        if error.use_stderr() {
            given.iter().for_each(note_origin);
        }
        error.exit()
    });
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if args.print_config {
        let printed = io::stdout().write_all(print(&matches, &given).as_bytes());
        return Err(if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    Ok(args)
}

/// Prints where an option comes from, before a usage error that may be about it.
fn note_origin(given: &Given) {
    let from = match &given.origin {
        Origin::Variable(name) => format!("the environment variable {name}"),
        Origin::File(path) => path.clone(),
        Origin::CommandLine | Origin::Default => return,
    };
    let _ = writeln!(io::stderr(), "note: --{} is set in {}", given.name, Printable(from));
}

/// Returns the options that another source has and the command line lacks. The error describes a faulty source.
fn collect(command_line: &[OsString], variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Vec<Given>, String> {
    let command = command();
    // Errors are reported later, when all options are known.
    let matches = command.clone().ignore_errors(true).disable_help_flag(true).disable_version_flag(true);
    let matches = matches.get_matches_from(command_line);
    let path = matches.get_one::<PathBuf>("config").cloned().or_else(|| variable("KV_STORE_CONFIG").map(PathBuf::from));
    let file = path.as_ref().map(|path| read_file(path)).transpose()?.unwrap_or_default();
    let origin = path.map(|path| path.display().to_string()).unwrap_or_default();
    if let Some(unknown) = file.keys().find(|key| options(&command).all(|arg| arg.get_long() != Some(key))) {
        return Err(format!(
            "{origin}: unknown option {unknown:?}: name options as `kv_store --help` does, without --"
        ));
    }
    let mut given = Vec::new();
    for arg in options(&command) {
        let Some(name) = arg.get_long() else { continue };
        if is_on_command_line(&matches, arg) {
            continue;
        }
        let mut variable_name = variable_name(name);
        let mut value = variable(&variable_name);
        if name == "socket" && value.is_none() {
            variable_name = SOCKET_VARIABLE.to_owned();
            value = client_socket(variable(SOCKET_VARIABLE))?;
        }
        let (args, origin) = match (value, file.get(name)) {
            (Some(value), _) => {
                let problem = || format!("{variable_name}: found {value:?}, expected true or false");
                let args = match value.to_str() {
                    _ if arg.get_action().takes_values() => vec![with_value(name, value.clone())],
                    Some("true" | "1") => vec![format!("--{name}").into()],
                    Some("false" | "0" | "") => vec![],
                    _ => return Err(problem()),
                };
                (args, Origin::Variable(variable_name))
            }
            (None, Some(value)) => (
                file_args(arg, name, value).map_err(|problem| format!("{origin}: {problem}"))?,
                Origin::File(origin.clone()),
            ),
            (None, None) => continue,
        };
        given.push(Given { name: name.to_owned(), args, origin });
    }
    Ok(given)
}

/// Returns whether the command line has an option, or the positional argument in its place.
fn is_on_command_line(matches: &ArgMatches, arg: &Arg) -> bool {
    let is_given = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
    is_given(arg.get_id().as_str()) || FILE_OPTIONS.contains(&arg.get_id().as_str()) && is_given("positional")
}

/// Checks the address that clients read from the environment. The server listens on it if it is the path of a socket.
fn client_socket(found: Option<OsString>) -> Result<Option<OsString>, String> {
    let found = found.filter(|address| !address.is_empty());
    match found.as_ref().map(|address| address.to_string_lossy()) {
        Some(address) if address.contains("://") => Err(format!(
            "{SOCKET_VARIABLE}: found {address:?}, expected the path of a Unix socket: pass --socket, or unset the \
             variable"
        )),
        _ => Ok(found),
    }
}

/// Returns the options that the environment and the file can set.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| arg.get_long().is_some_and(|long| !NOT_IN_SOURCES.contains(&long)))
}

fn variable_name(option: &str) -> String {
    format!("{PREFIX}{}", option.replace('-', "_").to_uppercase())
}

fn with_value(name: &str, value: OsString) -> OsString {
    let mut arg = OsString::from(format!("--{name}="));
    arg.push(value);
    arg
}

fn read_file(path: &Path) -> Result<toml::Table, String> {
    let read = config_file::read_once(path, CONFIG_LEN_MAX_BYTES).map_err(|error| error.to_string());
    let text = read.and_then(|bytes| String::from_utf8(bytes).map_err(|error| error.to_string()));
    let table = text.and_then(|text| text.parse().map_err(|error: toml::de::Error| error.to_string()));
    table.map_err(|problem| format!("{}: {problem}", path.display()))
}

/// Returns the arguments for an option that the file sets.
fn file_args(arg: &Arg, name: &str, value: &toml::Value) -> Result<Vec<OsString>, String> {
    let takes_values = arg.get_action().takes_values();
    let text = |value: &toml::Value| match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        other => Err(format!("{name}: found {}, expected a string or a number", other.type_str())),
    };
    match value {
        toml::Value::Boolean(is_set) if !takes_values => {
            Ok(is_set.then(|| format!("--{name}").into()).into_iter().collect())
        }
        _ if !takes_values => Err(format!("{name}: found {}, expected true or false", value.type_str())),
        toml::Value::Array(values) if arg.get_value_delimiter().is_some() => {
            values.iter().map(|value| Ok(with_value(name, text(value)?.into()))).collect()
        }
        value => Ok(vec![with_value(name, text(value)?.into())]),
    }
}

/// Returns the options in effect as a TOML file, with the origin of each.
fn print(matches: &ArgMatches, given: &[Given]) -> String {
    let command = command();
    let mut text = String::new();
    for arg in options(&command) {
        let (mut id, name) = (arg.get_id().as_str(), arg.get_long().unwrap_or_default());
        if name == "db" && matches.contains_id("positional") {
            id = "positional";
        }
        let origin = match given.iter().find(|given| given.name == name) {
            Some(given) => given.origin.clone(),
            None if matches.value_source(id) == Some(ValueSource::CommandLine) => Origin::CommandLine,
            None => Origin::Default,
        };
        let values: Vec<String> = matches
            .get_raw(id)
            .map(|values| values.map(|value| toml_string(&value.to_string_lossy())).collect())
            .unwrap_or_default();
        let value = match &values[..] {
            _ if !arg.get_action().takes_values() => matches.get_flag(id).to_string(),
            [] => {
                let _ = writeln!(text, "# {name} is not set");
                continue;
            }
            [value] => value.clone(),
            values => format!("[{}]", values.join(", ")),
        };
        // A default is a comment, because --from and the default of --db cannot be used together.
        let (start, origin) = match origin {
            Origin::CommandLine => ("", "command line".to_owned()),
            Origin::Variable(name) => ("", name),
            Origin::File(path) => ("", path),
            Origin::Default => ("# ", "default".to_owned()),
        };
        let _ = writeln!(text, "{start}{name} = {value}  # {}", Printable(origin));
    }
    text
}

/// Returns a string in the form of TOML, on one line. Characters that could mislead a reader are escaped.
fn toml_string(value: &str) -> String {
    let escape = |char: char| match char {
        '"' | '\\' => format!("\\{char}"),
        char if is_escaped(char) => format!("\\U{:08x}", u32::from(char)),
        char => char.to_string(),
    };
    format!("\"{}\"", value.chars().map(escape).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the arguments that the environment and a file add to a command line.
    fn added(command_line: &str, variables: &[(&str, &str)], file: &str) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kv_store.toml");
        std::fs::write(&path, file).unwrap();
        let mut args: Vec<OsString> = command_line.split_whitespace().map(OsString::from).collect();
        args.push(with_value("config", path.into()));
        let variable = |name: &str| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| OsString::from(value))
        };
        let given = collect(&args, &variable)?;
        Ok(given.into_iter().flat_map(|given| given.args).map(|arg| arg.into_string().unwrap()).collect())
    }

    #[test]
    fn the_command_line_precedes_the_environment_and_the_environment_precedes_the_file() {
        let file = "workers = 1\nwarm = true\nallow-uid = [1, \"2\"]\nno-watch = false\n";
        assert_eq!(added("kv_store", &[], file).unwrap(), ["--warm", "--allow-uid=1", "--allow-uid=2", "--workers=1"]);
        assert_eq!(
            added("kv_store", &[("KV_STORE_WORKERS", "2"), ("KV_STORE_WARM", "0")], file).unwrap(),
            ["--allow-uid=1", "--allow-uid=2", "--workers=2"]
        );
        let all_on_command_line = "kv_store --workers 3 --warm --allow-uid 4";
        assert!(added(all_on_command_line, &[("KV_STORE_WORKERS", "2")], file).unwrap().is_empty());
        let db = [("KV_STORE_DB", "b.db")];
        assert_eq!(added("kv_store", &db, "db = \"c.db\"").unwrap(), ["--db=b.db"]);
        assert!(added("kv_store a.db", &db, "db = \"c.db\"").unwrap().is_empty());
    }

    #[test]
    fn the_socket_of_clients_follows_that_of_the_server_and_precedes_the_file() {
        let added = |variables: &[_]| added("kv_store", variables, "socket = \"/c.sock\"");
        assert_eq!(added(&[]).unwrap(), ["--socket=/c.sock"]);
        assert_eq!(added(&[(SOCKET_VARIABLE, "/b.sock")]).unwrap(), ["--socket=/b.sock"]);
        assert_eq!(added(&[(SOCKET_VARIABLE, "")]).unwrap(), ["--socket=/c.sock"]);
        assert_eq!(
            added(&[("KV_STORE_SOCKET", "/a.sock"), (SOCKET_VARIABLE, "/b.sock")]).unwrap(),
            ["--socket=/a.sock"]
        );
        let error = added(&[(SOCKET_VARIABLE, "zkv+tls://host:1")]).unwrap_err();
        assert!(error.starts_with("ZERO_KV_SOCKET: found \"zkv+tls://host:1\", expected the path"), "{error}");
    }

    #[test]
    fn a_malformed_source_is_named_with_the_expected_value() {
        for (variables, file, expected) in [
            (&[][..], "worker = 1", "unknown option \"worker\""),
            (&[], "config = \"a\"", "unknown option \"config\""),
            (&[], "warm = 1", "warm: found integer, expected true or false"),
            (&[], "workers = true", "workers: found boolean, expected a string or a number"),
            (&[], "workers = ", "kv_store.toml: TOML parse error"),
            (&[("KV_STORE_WARM", "yes")], "", "KV_STORE_WARM: found \"yes\", expected true or false"),
        ] {
            let error = added("kv_store", variables, file).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_printed_string_is_one_line_that_misleads_nobody() {
        let value = "a\u{9b}31m \u{202e}b\n\"c\" \\ #\u{1f600}é";
        let printed = toml_string(value);
        assert_eq!(printed, "\"a\\U0000009b31m \\U0000202eb\\U0000000a\\\"c\\\" \\\\ #\u{1f600}é\"");
        let table: toml::Table = format!("value = {printed}").parse().unwrap();
        assert_eq!(table["value"].as_str(), Some(value));
    }
}
