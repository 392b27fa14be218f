//! The option `--generate FOLDER` of each program, which writes man pages and shell completions.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, io, io::Write};

use clap::{Arg, Command, value_parser};

use super::completions::MoreCompletions;
#[cfg(feature = "full")]
use super::generated_files::generate;

/// Name of the option, without dashes.
const GENERATE: &str = "generate";

/// Adds the option to the definition of a program's command line, so that the help shows it. [`run_if_requested`] reads
/// the option, before the command line is parsed: a program that requires a command or an argument could not parse a
/// command line of only this option.
pub fn with_option(command: Command) -> Command {
    command.arg(
        Arg::new(GENERATE)
            .long(GENERATE)
            .value_name("FOLDER")
            .value_parser(value_parser!(PathBuf))
            .exclusive(true)
            .help_heading(None::<&str>)
            .help("Write the man pages and the completions for bash, zsh, and fish into this folder, and exit"),
    )
}

/// If `--generate FOLDER` is the whole command line, generates the files and returns the exit code. Otherwise returns
/// `None`.
pub fn run_if_requested(command: impl FnOnce() -> Command, more: MoreCompletions) -> Option<ExitCode> {
    let mut args = env::args_os().skip(1);
    let (Some(option), Some(folder), None) = (args.next(), args.next(), args.next()) else { return None };
    if option.to_str()?.strip_prefix("--")? != GENERATE {
        return None;
    }
    let (command, folder) = (command(), PathBuf::from(folder));
    let name = command.get_name().to_owned();
    Some(match generate(command, &more, &folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{name}: {}: cannot write the files: {error}", folder.display());
            ExitCode::from(1)
        }
    })
}

#[cfg(not(feature = "full"))]
fn generate(_: Command, _: &MoreCompletions, _: &std::path::Path) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this program was built without the feature full"))
}
