//! `zkv`: asks a server or a file for keys, or for rows in key order, tells what
//! is in files, and how a server is.

mod args;
mod ask;
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
mod reload;
mod top;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Arg, CommandFactory, FromArgMatches, Subcommand, value_parser};
use zero_kv::client::Client;
use zero_kv::{DEFAULT_SOCKET, Store};

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
    let socket = args.socket.as_deref().unwrap_or(Path::new(DEFAULT_SOCKET));
    // By hand: clap overlooks a conflict of global options before and after the subcommand.
    match (&args.command, &args.socket, &args.db) {
        (Command::Ask(_), Some(_), Some(_)) => {
            refuse("--socket and --db cannot be used together: ask one of them");
        }
        (Command::File(_), Some(_), _) => refuse("--socket is not for this: name a file as an argument"),
        (Command::File(_), _, Some(_)) => refuse("--db is not for this: name the file as an argument"),
        (Command::Ask(question), _, Some(file)) => settle_rows(ask::ask_file(&Store::open(file)?, question)),
        (Command::Server(_), _, Some(_)) => refuse("--db is not for this: ask a server, with --socket"),
        (Command::Server(command), _, None) => match command {
            ServerCommand::Info { json } => info::info(&mut Client::connect(socket)?, *json),
            ServerCommand::Health(args) => health::health(socket, args),
            ServerCommand::Top(args) => top::top(socket, args),
            ServerCommand::Reload(args) => reload::reload(socket, args),
        },
        (Command::Ask(question), _, None) => settle_rows(ask::ask_server(&mut Client::connect(socket)?, question)),
        (Command::File(command), None, None) => match command {
            FileCommand::Inspect { file, json } => inspect::inspect(file, *json),
            FileCommand::Verify { file } => verify::verify(file),
            FileCommand::Dump(args) => dump::dump(args),
            FileCommand::Diff(args) => diff::diff(args),
            FileCommand::Canary(args) => canary::canary(args),
        },
    }
}

/// Where who reads closed the pipe, there was something to find.
fn settle_rows(asked: anyhow::Result<bool>) -> anyhow::Result<bool> {
    settle(asked, true, unwritten)
}

/// What is done with files names them as arguments, and servers have no --db: the
/// help does not offer what [`run`] refuses.
fn command() -> clap::Command {
    let hidden = |name: &'static str| Arg::new(name).long(name).value_parser(value_parser!(PathBuf)).hide(true);
    Args::command().mut_subcommands(|command| match command.get_name() {
        name if FileCommand::has_subcommand(name) => command.args(["socket", "db"].map(hidden)),
        name if ServerCommand::has_subcommand(name) => command.arg(hidden("db")),
        _ => command,
    })
}

fn refuse(message: &str) -> ! {
    command().error(ErrorKind::ArgumentConflict, message).exit()
}
