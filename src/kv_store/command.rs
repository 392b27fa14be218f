//! The definition of the command line of `kv_store`, with the examples of its help.

use clap::{Command, CommandFactory};
use zero_kv::cli::examples::{CommandExamples, add_examples};
use zero_kv::cli::generate;

use super::args::Args;

const EXAMPLES: &[CommandExamples] = &[(
    "",
    &[
        ("Serve ./storage.db on the default socket", "kv_store"),
        (
            "Serve a file on another socket, after reading the whole file into memory",
            "kv_store users.db --socket /run/zero-kv/users.sock --warm",
        ),
        (
            "Also serve Redis clients of this machine over TCP, and metrics over HTTP",
            "kv_store --tcp 127.0.0.1:6380 --metrics 127.0.0.1:9464",
        ),
        (
            "Let only user 1000 connect, and only as a member of group 2000",
            "kv_store --mode 660 --group 2000 --allow-uid 1000",
        ),
        (
            "Serve other machines with TLS, to users with passwords",
            "kv_store --tls 0.0.0.0:6390 --tls-cert server.crt --tls-key server.key --users users.acl",
        ),
        (
            "Serve the newest generation of a published table, and follow the table",
            "kv_store --from s3://tables/users --cache /var/cache/zero-kv",
        ),
        ("Print the options that a file and the environment set", "kv_store --config kv_store.toml --print-config"),
    ],
)];

pub(crate) fn command() -> Command {
    add_examples(generate::with_option(Args::command()), EXAMPLES)
}

#[cfg(test)]
mod tests {
    use zero_kv::cli::examples::check_examples;

    use super::*;

    #[test]
    fn the_examples_of_the_help_are_valid_command_lines() {
        check_examples(&command(), EXAMPLES, |args| {
            command().try_get_matches_from(args).map(drop).map_err(|error| error.to_string())
        });
    }
}
