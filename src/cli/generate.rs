//! The option `--generate FOLDER` of each program, which writes man pages and shell completions. The help does not show
//! the option, because only the packaging scripts use it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, io, io::Write};

use clap::Command;

#[cfg(feature = "full")]
use super::generated_files::generate;

/// If `--generate FOLDER` is the whole command line, generates the files and returns the exit code. Otherwise returns
/// `None`.
pub fn run_if_requested(command: impl FnOnce() -> Command) -> Option<ExitCode> {
    let mut args = env::args_os().skip(1);
    let (Some(option), Some(folder), None) = (args.next(), args.next(), args.next()) else { return None };
    if option != "--generate" {
        return None;
    }
    let (command, folder) = (command(), PathBuf::from(folder));
    let name = command.get_name().to_owned();
    Some(match generate(command, &folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{name}: {}: cannot write the files: {error}", folder.display());
            ExitCode::from(1)
        }
    })
}

#[cfg(not(feature = "full"))]
fn generate(_: Command, _: &std::path::Path) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this program was built without the feature full"))
}
