//! `zkv`: asks a server or a file for keys, or for rows in key order, tells what
//! is in files, and how a server is.

mod args;
mod ask;
mod batches;
mod bench;
mod canary;
mod deadline;
mod diff;
mod dump;
#[path = "../../generate.rs"]
mod generate;
mod health;
mod info;
mod inspect;
mod keys;
mod output;
mod ping;
#[path = "../benchmarker/random.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod random;
mod reload;
mod rows;
#[path = "../../special_file.rs"]
mod special_file;
mod table;
mod top;
mod verify;
#[path = "../../whole_file.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod whole_file;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, CommandFactory, FromArgMatches, Subcommand, value_parser};
use zero_kv::MappedStore;

use args::{Args, Command, FileCommand, ServerCommand};
use output::{settle, unwritten};

/// There is what was asked for, or all is well.
const EXIT_YES: u8 = 0;
/// There is not, or something is wrong with the file that was asked about.
const EXIT_NO: u8 = 1;
/// Also what clap gives to usage errors.
const EXIT_ERROR: u8 = 2;

fn main() -> ExitCode {
    if let Some(code) = generate::if_asked(command) {
        return code;
    }
    let mut args = Args::from_arg_matches(&command().get_matches()).unwrap_or_else(|error| error.exit());
    args.take_file_of_get();
    match run(&args) {
        Ok(true) => ExitCode::from(EXIT_YES),
        Ok(false) => ExitCode::from(EXIT_NO),
        Err(error) => {
            output::complain(&error);
            ExitCode::from(EXIT_ERROR)
        }
    }
}

fn run(args: &Args) -> anyhow::Result<bool> {
    refuse_others(args);
    let server = args.address();
    match (&args.command, &args.db) {
        (Command::Ask(question), Some(file)) => settle_rows(ask::ask(&mut &MappedStore::open(file)?, question)),
        (Command::Ask(question), None) if args.direct => settle_rows(ask::ask(&mut args.connect_direct()?, question)),
        (Command::Ask(question), None) => settle_rows(ask::ask(&mut args.connect()?, question)),
        (Command::Bench(bench), Some(file)) => {
            let store = MappedStore::open(file)?;
            bench::bench(bench, || Ok(Box::new(&store)))
        }
        (Command::Bench(bench), None) if args.direct => {
            let direct = args.connect_direct()?;
            bench::bench(bench, || Ok(Box::new(direct.clone())))
        }
        (Command::Bench(bench), None) => bench::bench(bench, || Ok(Box::new(args.connect()?))),
        (Command::Server(command), _) => match command {
            ServerCommand::Info { json } => info::info(&mut args.connect()?, *json),
            ServerCommand::Ping => ping::ping(&mut args.connect()?),
            ServerCommand::Health(args) => health::health(&server, args),
            ServerCommand::Top(args) => top::top(server, args),
            ServerCommand::Reload(args) => reload::reload(&server, args),
        },
        (Command::File(command), _) => match command {
            FileCommand::Inspect { file, json } => inspect::inspect(file, *json),
            FileCommand::Verify { file } => verify::verify(file),
            FileCommand::Dump(args) => dump::dump(args),
            FileCommand::Diff(args) => diff::diff(args),
            FileCommand::Canary(args) => canary::canary(args),
        },
    }
}

/// Ends the process if an option says whom to ask where nobody is asked, or somebody else. By hand: clap
/// overlooks a conflict of global options before and after the subcommand.
fn refuse_others(args: &Args) {
    let socket = ("--socket", args.socket.is_some());
    let (db, direct) = (("--db", args.db.is_some()), ("--direct", args.direct));
    let timeout = ("--timeout", args.timeout.is_some());
    let server_user = ("--server-user", args.server_user.is_some());
    let (others, why) = match args.command {
        Command::Ask(_) | Command::Bench(_) if db.1 => {
            (&[socket, direct, timeout, server_user][..], "and --db cannot be used together: ask one of them")
        }
        Command::Ask(_) | Command::Bench(_) => return,
        Command::File(_) => {
            (&[socket, db, direct, timeout, server_user][..], "is not for this: name files as arguments")
        }
        Command::Server(ServerCommand::Top(_)) => {
            (&[db, direct, timeout][..], "is not for this: name a server with --socket")
        }
        Command::Server(_) => (&[db, direct][..], "is not for this: name a server with --socket"),
    };
    if let Some((name, _)) = others.iter().find(|(_, is_given)| *is_given) {
        command().error(ErrorKind::ArgumentConflict, format!("{name} {why}")).exit();
    }
}

/// Where who reads closed the pipe, there was something to find.
fn settle_rows(asked: anyhow::Result<bool>) -> anyhow::Result<bool> {
    settle(asked, true, unwritten)
}

/// What is done with files names them as arguments, and servers have no --db: the
/// help does not offer what [`refuse_others`] refuses.
fn command() -> clap::Command {
    let hidden = |name: &'static str| Arg::new(name).long(name).value_parser(value_parser!(PathBuf)).hide(true);
    let direct = || Arg::new("direct").long("direct").action(ArgAction::SetTrue).hide(true);
    let timeout = || Arg::new("timeout").long("timeout").value_parser(args::seconds).hide(true);
    let server_user = || Arg::new("server_user").long("server-user").hide(true);
    Args::command().mut_subcommands(|command| match command.get_name() {
        name if FileCommand::has_subcommand(name) => {
            command.args(["socket", "db"].map(hidden)).args([direct(), timeout(), server_user()])
        }
        "top" => command.arg(hidden("db")).args([direct(), timeout()]),
        name if ServerCommand::has_subcommand(name) => command.arg(hidden("db")).arg(direct()),
        _ => command,
    })
}
