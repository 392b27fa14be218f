//! Generates man pages and shell completions.
//!
//! In: the definition of a program's command line. Out: files in a folder.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;

pub(super) fn generate(mut command: Command, folder: &Path) -> io::Result<()> {
    let name = command.get_name().to_owned();
    // Files are generated in a private folder and then copied, because clap's generators would follow symbolic links
    // that other users may have created in `folder`.
    let generated = tempfile::tempdir()?;
    // The command `help` gets no man page. Completions are generated after the man pages, because generating
    // completions adds the command `help`.
    clap_mangen::generate_to(command.clone().disable_help_subcommand(true), generated.path())?;
    copy_all(generated.path(), &folder.join("man1"))?;
    for (shell, folder_name) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")] {
        let generated = tempfile::tempdir()?;
        clap_complete::generate_to(shell, &mut command, &name, generated.path())?;
        copy_all(generated.path(), &folder.join(folder_name))?;
    }
    Ok(())
}

/// Copies all files of `generated` into `folder`. Symbolic links in `folder` are replaced, not followed.
fn copy_all(generated: &Path, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    if fs::symlink_metadata(folder)?.is_symlink() {
        let message = format!("{} is a symbolic link, but a folder was expected: remove it", folder.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    for file in fs::read_dir(generated)? {
        let file = file?;
        // The process's umask applies to this mode.
        let mut copy = tempfile::Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(folder)?;
        copy.write_all(&fs::read(file.path())?)?;
        copy.persist(folder.join(file.file_name()))?;
    }
    Ok(())
}
