//! Man pages and completions of shells, made of a program's command line.
//!
//! In: the command line as clap knows it. Out: files in a folder. Each program has this
//! as `--generate FOLDER`, which its help does not show: it is for those who package it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io, io::Write};

use clap::Command;
use clap_complete::Shell;

/// Writes the files if that, and nothing else, is asked for.
pub(crate) fn if_asked(command: impl FnOnce() -> Command) -> Option<ExitCode> {
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
            let _ = writeln!(io::stderr(), "{name}: {}: cannot write there: {error}", folder.display());
            ExitCode::from(1)
        }
    })
}

fn generate(mut command: Command, folder: &Path) -> io::Result<()> {
    let name = command.get_name().to_owned();
    let place = folder.join("man1");
    fs::create_dir_all(&place)?;
    // Pages on `help` itself would say nothing. Before completions: those add the command for good.
    clap_mangen::generate_to(command.clone().disable_help_subcommand(true), place)?;
    for (shell, place) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")] {
        let place = folder.join(place);
        fs::create_dir_all(&place)?;
        clap_complete::generate_to(shell, &mut command, &name, place)?;
    }
    Ok(())
}
