//! The definition of the command line of `baker`, with the examples of its help.

use clap::{Command, CommandFactory};
use zero_kv::cli::examples::{CommandExamples, add_examples};
use zero_kv::cli::generate;

use crate::args::Args;

const EXAMPLES: &[CommandExamples] = &[
    (
        "",
        &[
            ("Bake rows of key,value into ./storage.db", "baker rows.csv"),
            (
                "Read the key and the value from named columns",
                "baker --header --key id --value name -o names.db names.csv",
            ),
            (
                "Bake the output of another program, with keys of bytes",
                "sort -u users.csv | baker --keys bytes -o users.db -",
            ),
            ("Bake a typed table", "baker --header --key id --types 'price:f32,name:text?' -o items.db items.csv"),
            ("Replace and add rows of an existing table", "baker --base storage.db delta.csv"),
            (
                "Skip at most 10 malformed rows, and list them in a file",
                "baker --bad-rows skip --max-bad-rows 10 --bad-rows-file bad.csv rows.csv",
            ),
            ("Bake a table, and publish it to an object store", "baker rows.csv -o users.db --to s3://tables/users"),
        ],
    ),
    (
        "merge",
        &[(
            "Merge two tables; if both have a key, the row of the second one is kept",
            "baker merge a.db b.db --duplicates last -o both.db",
        )],
    ),
];

pub(crate) fn command() -> Command {
    add_examples(generate::with_option(Args::command()), EXAMPLES)
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;
    use zero_kv::bake::Cancel;
    use zero_kv::cli::examples::check_examples;

    use super::*;

    #[test]
    fn the_examples_of_the_help_are_valid_command_lines() {
        check_examples(&command(), EXAMPLES, |args| {
            let args = command().try_get_matches_from(args).and_then(|matches| Args::from_arg_matches(&matches));
            args.and_then(|args| args.options(&Cancel::default())).map(drop).map_err(|error| error.to_string())
        });
    }
}
