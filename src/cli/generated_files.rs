//! Generates man pages and shell completions.
//!
//! In: the definition of a program's command line. Out: files in a folder.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::completions::MoreCompletions;
use super::examples::HEADING;

/// The start of the code after the functions for zsh.
const ZSH_END: &str = "\nif [ \"$funcstack[1]\" = ";

pub(super) fn generate(mut command: Command, more: &MoreCompletions, folder: &Path) -> io::Result<()> {
    let name = command.get_name().to_owned();
    // Files are generated in a private folder and then copied, because clap's generators would follow symbolic links
    // that other users may have created in `folder`.
    let generated = tempfile::tempdir()?;
    // The command `help` gets no man page. Completions are generated after the man pages, because generating
    // completions adds the command `help`.
    let mut documented = command.clone().disable_help_subcommand(true);
    documented.build();
    generate_man_pages(documented, generated.path())?;
    copy_all(generated.path(), &folder.join("man1"))?;
    for (shell, folder_name) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")] {
        let generated = tempfile::tempdir()?;
        let file = clap_complete::generate_to(shell, &mut command, &name, generated.path())?;
        fs::write(&file, with_more(&fs::read_to_string(&file)?, shell, more))?;
        copy_all(generated.path(), &folder.join(folder_name))?;
    }
    Ok(())
}

/// Adds the code for a shell to the generated code.
fn with_more(generated: &str, shell: Shell, more: &MoreCompletions) -> String {
    match shell {
        Shell::Bash => format!("{generated}{}", more.bash),
        Shell::Fish => format!("{generated}{}", more.fish),
        _ => {
            let end = generated.rfind(ZSH_END).expect("clap generates the call of the function");
            let (functions, call) = generated.split_at(end);
            format!("{functions}{}{call}", more.zsh)
        }
    }
}

/// Writes the man page of a command and of each of its subcommands.
fn generate_man_pages(command: Command, folder: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        generate_man_pages(subcommand.clone(), folder)?;
    }
    let examples = command.get_after_long_help().map(ToString::to_string);
    let version = command.get_version().unwrap_or(env!("CARGO_PKG_VERSION")).to_owned();
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    // The examples get their own section. clap_mangen would name the section EXTRA, and join the lines.
    let page = Man::new(command.after_long_help(None)).source(format!("{name} {version}")).manual("Zero-KV");
    let mut rendered = Vec::new();
    page.render(&mut rendered)?;
    if let Some(examples) = examples {
        rendered.extend_from_slice(&render_examples(&examples));
    }
    fs::write(folder.join(page.get_filename()), rendered)
}

/// Renders the text that [`super::examples::add_examples`] has added to the help of a command.
fn render_examples(text: &str) -> Vec<u8> {
    let mut page = Roff::new();
    page.control("SH", ["EXAMPLES"]);
    for line in text.lines().filter(|line| *line != HEADING) {
        match line.trim_start() {
            command if command.starts_with("$ ") => {
                page.control("RS", ["4"]).control("nf", []).text([bold(command)]).control("fi", []).control("RE", []);
            }
            what => {
                page.control("PP", []).text([roman(what)]);
            }
        }
    }
    page.to_roff().into_bytes()
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
