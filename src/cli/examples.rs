//! The examples at the end of a command's long help, which are also the section EXAMPLES of its man page.

use std::fmt::Write;

use clap::Command;

/// An example: what it does, and its command line.
pub type Example = (&'static str, &'static str);

/// The examples of a command, which is named by the words after the program's name, such as `topology plan`. The
/// program itself has no words.
pub type CommandExamples = (&'static str, &'static [Example]);

pub(super) const HEADING: &str = "Examples:";

/// Adds examples to the long help of a program and its commands.
pub fn add_examples(command: Command, examples: &[CommandExamples]) -> Command {
    add(command, "", examples)
}

fn add(command: Command, words: &str, examples: &[CommandExamples]) -> Command {
    let command = command.mut_subcommands(|subcommand| {
        let words = format!("{words} {}", subcommand.get_name());
        add(subcommand, words.trim_start(), examples)
    });
    match examples.iter().find(|(of, _)| *of == words) {
        Some((_, examples)) => command.after_long_help(text(examples)),
        None => command,
    }
}

fn text(examples: &[Example]) -> String {
    let mut text = HEADING.to_owned();
    for (does, line) in examples {
        let _ = write!(text, "\n  {does}:\n    $ {line}");
    }
    text
}

/// Panics unless every command has examples, and `parse` accepts the command line of every example.
///
/// Examples are split into words as a shell does it, but without expansions. A pipeline is cut at `|`, `>`, and `<`,
/// and its part that begins with the program's name is parsed.
pub fn check_examples(
    command: &Command,
    examples: &[CommandExamples],
    parse: impl Fn(&[String]) -> Result<(), String>,
) {
    let mut missing = Vec::new();
    commands_without_examples(command, "", examples, &mut missing);
    assert!(missing.is_empty(), "commands without examples: {missing:?}");
    for (words, examples) in examples {
        assert!(command_exists(command, words), "there is no command `{words}`");
        for (_, line) in *examples {
            let args = program_args(line, command.get_name());
            let args = args.unwrap_or_else(|| panic!("`{line}` does not run {}", command.get_name()));
            let begins = [command.get_name()].into_iter().chain(words.split_whitespace());
            assert!(args.iter().map(String::as_str).take(1 + words.split_whitespace().count()).eq(begins), "`{line}`");
            parse(&args).unwrap_or_else(|error| panic!("`{line}`: {error}"));
        }
    }
}

fn commands_without_examples(command: &Command, words: &str, examples: &[CommandExamples], missing: &mut Vec<String>) {
    let has_examples = examples.iter().any(|(of, examples)| *of == words && !examples.is_empty());
    if !has_examples && command.get_name() != "help" {
        missing.push(words.to_owned());
    }
    for subcommand in command.get_subcommands() {
        let words = format!("{words} {}", subcommand.get_name());
        commands_without_examples(subcommand, words.trim_start(), examples, missing);
    }
}

fn command_exists(command: &Command, words: &str) -> bool {
    let mut words = words.split_whitespace();
    words.try_fold(command, |command, word| command.find_subcommand(word)).is_some()
}

/// Returns the words of the part of a pipeline that runs `program`.
fn program_args(line: &str, program: &str) -> Option<Vec<String>> {
    let (mut parts, mut word, mut quote) = (vec![vec![]], None::<String>, None);
    for c in line.chars().chain([' ']) {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ' | '|' | '>' | '<' | '&') => {
                if let Some(word) = word.take() {
                    parts.last_mut()?.push(word);
                }
                if c != ' ' {
                    parts.push(vec![]);
                }
            }
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    parts.into_iter().find(|part| part.first().is_some_and(|first| first == program))
}
