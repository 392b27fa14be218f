//! `zkv bake`, `zkv serve`, and `zkv saturate`, which run the other programs: `baker`, `kv_store`, and `benchmarker`.
//!
//! In: the command line of the other program. The other program replaces this process, so it keeps the process ID and
//! receives all signals. It must be installed in the same folder as `zkv`.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use zero_kv::cli::completions::MoreCompletions;

use crate::EXIT_ERROR;
use crate::args::ProgramCommand;
use crate::output::print_error;

/// Completes the options of the programs after the commands.
pub(crate) const COMPLETIONS: MoreCompletions = MoreCompletions {
    bash: include_str!("completions/programs.bash"),
    zsh: include_str!("completions/programs.zsh"),
    fish: include_str!("completions/programs.fish"),
};

/// If the first argument is one of the commands, runs its program with the other arguments. Returns only after an
/// error. Otherwise returns `None`.
///
/// This function is called before the command line is parsed, because options of the other programs, such as `--db`,
/// have the same names as options of `zkv`.
pub(crate) fn run_if_requested() -> Option<ExitCode> {
    let mut args = env::args_os().skip(1);
    let program = ProgramCommand::program(args.next()?.to_str()?)?;
    let error = run(program, args);
    print_error(&error);
    Some(ExitCode::from(EXIT_ERROR))
}

/// Replaces this process by a program in the folder of `zkv`. Returns the error if that fails.
fn run(program: &str, args: impl Iterator<Item = OsString>) -> String {
    let path = match env::current_exe() {
        Ok(zkv) => zkv.with_file_name(program),
        Err(error) => return format!("cannot find {program}: the path of zkv is not known: {error}"),
    };
    let error = Command::new(&path).args(args).exec();
    format!("{}: cannot be run: {error}: install {program} in the same folder as zkv", path.display())
}
