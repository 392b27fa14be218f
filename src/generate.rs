//! Man pages and completions of shells, made of a program's command line.
//!
//! In: the command line as clap knows it. Out: files in a folder. Each program has this
//! as `--generate FOLDER`, which its help does not show: it is for those who package it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
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
    // Not in `folder` itself: clap's generators follow links that other users may have put there.
    let made = tempfile::tempdir()?;
    // Pages on `help` itself would say nothing. Before completions: those add the command for good.
    clap_mangen::generate_to(command.clone().disable_help_subcommand(true), made.path())?;
    put_all(made.path(), &folder.join("man1"))?;
    for (shell, place) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")] {
        let made = tempfile::tempdir()?;
        clap_complete::generate_to(shell, &mut command, &name, made.path())?;
        put_all(made.path(), &folder.join(place))?;
    }
    Ok(())
}

/// Puts copies of all files of a folder into another one. Links there are replaced, not followed.
fn put_all(made: &Path, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    if fs::symlink_metadata(folder)?.is_symlink() {
        let message = format!("{} is a symbolic link, where a folder was expected: remove it", folder.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    for file in fs::read_dir(made)? {
        let file = file?;
        // The umask takes away from these rights.
        let mut copy = tempfile::Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(folder)?;
        copy.write_all(&fs::read(file.path())?)?;
        copy.persist(folder.join(file.file_name()))?;
    }
    Ok(())
}
