//! The option `--generate FOLDER` of each program, which writes man pages and shell completions.
//!
//! In: the definition of a program's command line. Out: files in a folder.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, Command, value_parser};

#[cfg(feature = "full")]
use files::generate;

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
            .help("Write the man pages and the shell completions into this folder, and exit")
            .long_help("Write the man pages and the completions for bash, zsh, and fish into this folder, and exit"),
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

/// Shell code for completions that do not follow from the definition of a command line.
#[derive(Clone, Copy, Debug, Default)]
pub struct MoreCompletions {
    /// Follows the generated code for bash.
    pub bash: &'static str,
    /// Follows the generated functions for zsh, and precedes the call of the function for the program.
    pub zsh: &'static str,
    /// Follows the generated code for fish.
    pub fish: &'static str,
}

/// Generates the files in memory, and writes them into a folder.
#[cfg(feature = "full")]
mod files {
    use std::ffi::OsStr;
    use std::io;
    use std::path::{Path, PathBuf};

    use clap::{Arg, Command};
    use clap_complete::{Generator, Shell};
    use clap_mangen::Man;
    use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

    use super::MoreCompletions;
    use crate::cli::examples::HEADING;
    use crate::folder::{Folder, folder_of};

    /// The start of the code after the functions for zsh.
    const ZSH_END: &str = "\nif [ \"$funcstack[1]\" = ";

    pub(super) fn generate(mut command: Command, more: &MoreCompletions, folder: &Path) -> io::Result<()> {
        let name = command.get_name().to_owned();
        // Files are generated in memory, because clap's generators would follow symbolic links that other users may
        // have created in `folder`.
        let folder = output_folder(folder)?;
        // The command `help` gets no man page. Completions are generated after the man pages, because generating
        // completions adds the command `help`.
        let mut documented = command.clone().disable_help_subcommand(true);
        documented.build();
        generate_man_pages(documented, &subfolder(&folder, "man1")?)?;
        for (shell, folder_name) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")] {
            let mut generated = Vec::new();
            clap_complete::generate(shell, &mut command, &name, &mut generated);
            let generated = String::from_utf8(generated).map_err(io::Error::other)?;
            let completions = with_more(&generated, shell, more);
            subfolder(&folder, folder_name)?.write(shell.file_name(&name), completions.as_bytes())?;
        }
        Ok(())
    }

    /// Opens the folder at a path, or creates it. A link at the path is not followed, because another user may have
    /// created it.
    fn output_folder(path: &Path) -> io::Result<Folder> {
        // Without a slash at its end, which would follow a link.
        let path: PathBuf = path.components().collect();
        match path.file_name().and_then(OsStr::to_str) {
            Some(name) => Folder::create_all(folder_of(&path))?.create_subfolder(name),
            None => Folder::create_all(&path),
        }
    }

    fn subfolder(folder: &Folder, name: &str) -> io::Result<Folder> {
        folder.create_subfolder(name).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}: remove it", folder.path().join(name).display()))
        })
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

    fn generate_man_pages(command: Command, folder: &Folder) -> io::Result<()> {
        for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
            generate_man_pages(subcommand.clone(), folder)?;
        }
        let examples = command.get_after_long_help().map(ToString::to_string);
        let synopsis = render_synopsis(&command);
        let version = command.get_version().unwrap_or(env!("CARGO_PKG_VERSION")).to_owned();
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        // The examples get their own section. clap_mangen would name the section EXTRA, and join the lines.
        let page = Man::new(command.after_long_help(None)).source(format!("{name} {version}")).manual("Zero-KV");
        let mut rendered = Vec::new();
        page.render(&mut rendered)?;
        let mut rendered = with_synopsis(&String::from_utf8(rendered).map_err(io::Error::other)?, &synopsis);
        if let Some(examples) = examples {
            rendered.push_str(&render_examples(&examples));
        }
        folder.write(page.get_filename(), rendered.as_bytes())
    }

    const SYNOPSIS: &str = ".SH SYNOPSIS\n";
    const DESCRIPTION: &str = ".SH DESCRIPTION\n";

    /// Replaces the section SYNOPSIS of a page. That of clap_mangen leaves out the values of options.
    fn with_synopsis(page: &str, synopsis: &str) -> String {
        let sections =
            page.split_once(SYNOPSIS).and_then(|(before, rest)| Some((before, rest.split_once(DESCRIPTION)?)));
        let (before, (_, after)) = sections.expect("clap_mangen renders both sections");
        format!("{before}{synopsis}{DESCRIPTION}{after}")
    }

    fn render_synopsis(command: &Command) -> String {
        let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
        let mut line = vec![bold(name)];
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set() && !arg.is_positional()) {
            let names =
                [arg.get_short().map(|short| format!("-{short}")), arg.get_long().map(|long| format!("--{long}"))];
            let mut inlines = Vec::new();
            for name in names.into_iter().flatten() {
                inlines.extend((!inlines.is_empty()).then(|| roman("|")));
                inlines.push(bold(name));
            }
            if arg.get_action().takes_values() {
                inlines.push(roman(" "));
                inlines.push(italic(value_names(arg)));
            }
            push_word(&mut line, arg.is_required_set(), inlines);
        }
        for arg in command.get_positionals().filter(|arg| !arg.is_hide_set()) {
            push_word(&mut line, arg.is_required_set(), vec![italic(value_names(arg))]);
        }
        if command.get_subcommands().any(|subcommand| !subcommand.is_hide_set()) {
            push_word(&mut line, true, vec![italic("COMMAND")]);
        }
        let mut section = Roff::new();
        // Without hyphenation, which would divide the names of options.
        section.control("SH", ["SYNOPSIS"]).control("nh", []).text(line).control("hy", []);
        section.to_roff()
    }

    /// Appends an argument, in brackets if it is optional.
    fn push_word(line: &mut Vec<Inline>, is_required: bool, inlines: Vec<Inline>) {
        line.push(roman(if is_required { " " } else { " [" }));
        line.extend(inlines);
        line.extend((!is_required).then(|| roman("]")));
    }

    fn value_names(arg: &Arg) -> String {
        let names = arg.get_value_names().unwrap_or_default().iter().map(|name| name.as_str()).collect::<Vec<_>>();
        let is_list = arg.is_positional() && arg.get_num_args().is_some_and(|count| count.max_values() > 1);
        names.join(" ") + if is_list { "..." } else { "" }
    }

    /// Renders the text that [`crate::cli::examples::add_examples`] has added to the help of a command.
    fn render_examples(text: &str) -> String {
        let mut page = Roff::new();
        page.control("SH", ["EXAMPLES"]);
        for line in text.lines().filter(|line| *line != HEADING) {
            match line.trim_start() {
                command if command.starts_with("$ ") => {
                    page.control("RS", ["4"])
                        .control("nf", [])
                        .text([bold(command)])
                        .control("fi", [])
                        .control("RE", []);
                }
                what => {
                    page.control("PP", []).text([roman(what)]);
                }
            }
        }
        page.to_roff()
    }
}
