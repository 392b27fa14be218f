//! `zkv`: looks up keys and ranges on a server or in a baked file, inspects files and servers, and publishes files.

mod args;
mod batches;
mod bench;
mod columns;
mod diff;
mod dump;
mod groups;
mod inspect;
mod key_lines;
mod lookup;
mod output;
#[cfg(feature = "parquet")]
mod parquet_dump;
#[cfg(feature = "object-store")]
mod publishing;
mod server;
mod table;
mod text_table;
mod top;
mod topology;

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, CommandFactory, FromArgMatches, Subcommand, value_parser};
use zero_kv::MappedStore;
use zero_kv::cli::args::ServerArgs;
use zero_kv::cli::examples::add_examples;
use zero_kv::cli::generate::{self, MoreCompletions};

use args::{Args, Command, EXAMPLES, FileCommand, Lookup, ProgramCommand, PublishingCommand, ServerCommand};
use output::{ignore_closed_pipe, stdout_error};
use table::{DirectTable, ServedTable, Table};

/// Exit status for a positive result: the key or row exists, the file is intact, or the server is healthy.
const EXIT_YES: u8 = 0;
/// Exit status for a negative result: the key or row does not exist, the file is damaged, or the server is unhealthy.
const EXIT_NO: u8 = 1;
/// Exit status after an error. Clap uses the same status for usage errors.
const EXIT_ERROR: u8 = 2;

fn main() -> ExitCode {
    if let Some(code) = generate::run_if_requested(command, COMPLETIONS) {
        return code;
    }
    if let Some(code) = run_program_if_requested() {
        return code;
    }
    // With this handler, a write beyond the file size limit returns an error instead of killing the process.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let matches = groups::with_groups(command()).get_matches();
    let mut args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    args.take_file_of_get();
    match run(&args) {
        Ok(true) => ExitCode::from(EXIT_YES),
        Ok(false) => ExitCode::from(EXIT_NO),
        Err(error) => {
            output::print_error(&error);
            ExitCode::from(EXIT_ERROR)
        }
    }
}

fn run(args: &Args) -> anyhow::Result<bool> {
    check_address_options(args);
    match (&args.command, &args.db) {
        (Command::Lookup(lookup), Some(file)) => look_up(&mut &MappedStore::open(file)?, lookup),
        (Command::Lookup(lookup), None) if args.direct => {
            look_up(&mut DirectTable::new(args.connect_direct()?), lookup)
        }
        (Command::Lookup(lookup), None) => look_up(&mut ServedTable::new(args.connect()?), lookup),
        (Command::Bench(bench), Some(file)) => {
            let store = MappedStore::open(file)?;
            bench::bench(bench, || Ok(Box::new(&store)))
        }
        (Command::Bench(bench), None) if args.direct => {
            let direct = DirectTable::new(args.connect_direct()?);
            bench::bench(bench, || Ok(Box::new(direct.clone())))
        }
        (Command::Bench(bench), None) => bench::bench(bench, || Ok(Box::new(ServedTable::new(args.connect()?)))),
        (Command::Server(command), _) => match command {
            ServerCommand::Info { json } => server::info(&mut args.connect()?, *json),
            ServerCommand::Ping => server::ping(&mut args.connect()?),
            ServerCommand::Health(health) => server::health(&args.address()?, health),
            ServerCommand::Top(top) => top::top(args.address()?, top),
            ServerCommand::Reload(reload) => server::reload(&args.address()?, reload),
        },
        (Command::File(command), _) => match command {
            FileCommand::Inspect { file, json } => inspect::inspect(file, *json),
            FileCommand::Verify { file } => inspect::verify(file),
            FileCommand::Dump(args) => dump::dump(args),
            FileCommand::Diff(args) => diff::diff(args),
            FileCommand::Canary(args) => key_lines::canary(args),
        },
        (Command::Slot(keys), _) => key_lines::slot(keys),
        (Command::Topology { command }, _) => topology::run(command),
        #[cfg(feature = "object-store")]
        (Command::Publishing(command), _) => publishing::run(command),
        #[cfg(not(feature = "object-store"))]
        (Command::Publishing(_), _) => unreachable!("without the feature object-store, every URL is rejected"),
        (Command::Program(_), _) => unreachable!("check_address_options rejects options before these commands"),
    }
}

/// Exits with a usage error if an option for a server or a file does not apply to the command, or conflicts with
/// `--db`. This check is necessary, because clap overlooks a conflict between two global options if only one of them
/// precedes the subcommand.
fn check_address_options(args: &Args) {
    let socket = ("--socket", args.socket.is_some());
    let (db, direct) = (("--db", args.db.is_some()), ("--direct", args.direct));
    let timeout = ("--timeout", args.timeout.is_some());
    let of_server = [socket, direct, timeout].into_iter().chain(args.server.given());
    let (unusable, reason): (Vec<_>, _) = match args.command {
        Command::Lookup(_) | Command::Bench(_) if db.1 => {
            (of_server.collect(), "and --db cannot be used together: name a server or a file, not both")
        }
        Command::Lookup(_) | Command::Bench(_) => return,
        Command::File(_) => {
            let reason = "cannot be used with a command for files: name files as arguments";
            (of_server.chain([db]).collect(), reason)
        }
        Command::Topology { .. } => {
            let reason = "cannot be used with this command: name a file, or a table by its URL";
            (of_server.chain([db]).collect(), reason)
        }
        Command::Program(_) => {
            let message = "options and arguments of bake, serve, and saturate must follow the command";
            command().error(ErrorKind::ArgumentConflict, message).exit()
        }
        Command::Slot(_) => (of_server.chain([db]).collect(), "cannot be used with this command, which reads no table"),
        Command::Publishing(ref command) => {
            let has_timeout = matches!(command, PublishingCommand::Rollout(_));
            let of_server = of_server.filter(|option| *option != timeout || !has_timeout);
            let reason = "cannot be used with a command for published tables: name a table by its URL";
            (of_server.chain([db]).collect(), reason)
        }
        Command::Server(ServerCommand::Top(_)) => {
            (vec![db, direct, timeout], "cannot be used with this command: name a server with --socket")
        }
        Command::Server(_) => {
            (vec![db, direct], "cannot be used with a command for servers: name a server with --socket")
        }
    };
    if let Some((name, _)) = unusable.iter().find(|(_, is_given)| *is_given) {
        command().error(ErrorKind::ArgumentConflict, format!("{name} {reason}")).exit();
    }
}

/// Looks keys or rows up, and prints them. Returns whether they were found, or true if the reader of the output closed
/// the pipe.
fn look_up(table: &mut dyn Table, lookup: &Lookup) -> anyhow::Result<bool> {
    ignore_closed_pipe(lookup::look_up(table, lookup), true, stdout_error)
}

/// Returns the definition of the command line. The help of each command hides the options that
/// [`check_address_options`] rejects.
fn command() -> clap::Command {
    let hidden = |name: &'static str| Arg::new(name).long(name).value_parser(value_parser!(PathBuf)).hide(true);
    let direct = || Arg::new("direct").long("direct").action(ArgAction::SetTrue).hide(true);
    let timeout = || Arg::new("timeout").long("timeout").value_parser(args::parse_time).hide(true);
    let hide_all = |command: clap::Command| {
        command.args(["socket", "db"].map(hidden)).args([direct(), timeout()]).args(ServerArgs::hidden())
    };
    // A rollout has its own time-out.
    let hide_all_but_timeout =
        |command: clap::Command| command.args(["socket", "db"].map(hidden)).arg(direct()).args(ServerArgs::hidden());
    let command = Args::command().mut_subcommands(|command| match command.get_name() {
        name if FileCommand::has_subcommand(name) || ProgramCommand::has_subcommand(name) => hide_all(command),
        "slot" => hide_all(command),
        "store" | "topology" => hide_all(command).mut_subcommands(hide_all),
        "rollout" => hide_all_but_timeout(command),
        name if PublishingCommand::has_subcommand(name) => hide_all(command),
        "top" => command.arg(hidden("db")).args([direct(), timeout()]),
        name if ServerCommand::has_subcommand(name) => command.arg(hidden("db")).arg(direct()),
        _ => command,
    });
    add_examples(generate::with_option(command), EXAMPLES)
}

/// Completes the options of the programs after the commands.
const COMPLETIONS: MoreCompletions = MoreCompletions {
    bash: include_str!("completions/programs.bash"),
    zsh: include_str!("completions/programs.zsh"),
    fish: include_str!("completions/programs.fish"),
};

/// If the first argument is `bake`, `serve`, or `saturate`, replaces this process by the program of the command, so
/// that it keeps the process ID and receives all signals. Returns only after an error. Otherwise returns `None`.
///
/// This function is called before the command line is parsed, because options of the other programs, such as `--db`,
/// have the same names as options of `zkv`.
fn run_program_if_requested() -> Option<ExitCode> {
    let mut args = env::args_os().skip(1);
    let program = ProgramCommand::program(args.next()?.to_str()?)?;
    let error = run_program(program, args);
    output::print_error(&error);
    Some(ExitCode::from(EXIT_ERROR))
}

/// Replaces this process by a program in the folder of `zkv`. Returns the error if that fails.
fn run_program(program: &str, args: impl Iterator<Item = OsString>) -> String {
    let path = match env::current_exe() {
        Ok(zkv) => zkv.with_file_name(program),
        Err(error) => return format!("cannot find {program}: the path of zkv is not known: {error}"),
    };
    let error = process::Command::new(&path).args(args).exec();
    format!("{}: cannot be run: {error}: install {program} in the same folder as zkv", path.display())
}

// Some examples of the help need optional features.
#[cfg(all(test, feature = "full"))]
mod tests {
    use zero_kv::cli::examples::check_examples;
    use zero_kv::cli::values::check_spellings;

    use super::*;

    #[test]
    fn all_durations_and_sizes_accept_the_same_spellings() {
        check_spellings(&command());
    }

    #[test]
    fn the_examples_of_the_help_are_valid_command_lines() {
        check_examples(&command(), EXAMPLES, |args| {
            if ProgramCommand::program(&args[1]).is_some() {
                // The other program parses its command line.
                return Ok(());
            }
            let args = command().try_get_matches_from(args).and_then(|matches| Args::from_arg_matches(&matches));
            args.map(|args| check_address_options(&args)).map_err(|error| error.to_string())
        });
    }
}
