//! The groups of commands in the help. Clap can only show all commands as one list.

use std::fmt::Write;

use clap::Command;

/// The heading of each group, and its commands.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Lookups", &["get", "exists", "floor", "ceiling", "cover", "first", "last", "range", "scan", "count"]),
    ("Files", &["inspect", "verify", "dump", "diff", "canary"]),
    ("Servers", &["info", "ping", "health", "top", "reload", "bench"]),
    (
        "Published tables",
        &["publish", "generations", "watch", "pin", "unpin", "rollout", "policy", "pull", "copy", "gc", "store"],
    ),
    ("Clusters", &["topology", "slot"]),
    ("Other programs", &["bake", "serve", "saturate"]),
];

/// Makes the help of a program list its commands in groups. The commands are hidden, so that clap does not list them
/// again. Man pages and completions have no hidden commands, so they need the definition without groups.
pub(crate) fn with_groups(command: Command) -> Command {
    let name_len = command.get_subcommands().map(|command| command.get_name().len()).max().unwrap_or_default();
    let (header, literal) = (command.get_styles().get_header(), command.get_styles().get_literal());
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        // Writing to a string cannot fail.
        let _ = writeln!(groups, "{header}{heading}:{header:#}");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let padding = " ".repeat(name_len - name.len());
            let _ = writeln!(groups, "  {literal}{name}{literal:#}{padding}  {about}");
        }
        groups.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}`{program} help COMMAND` prints the help of a \
         command.\n\n{{all-args}}{{after-help}}",
        program = command.get_name()
    );
    let usage = format!("{} [OPTIONS] <COMMAND>", command.get_name());
    command.mut_subcommands(|command| command.hide(true)).override_usage(usage).help_template(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_one_group() {
        let command = crate::command();
        let mut commands: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        commands.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, commands);
    }
}
