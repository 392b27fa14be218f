//! The definition of the command line of `benchmarker`, with the examples of its help.

use clap::{Command, CommandFactory};
use zero_kv::cli::examples::{CommandExamples, add_examples};
use zero_kv::cli::generate;

use crate::args::Args;

const EXAMPLES: &[CommandExamples] = &[(
    "",
    &[
        ("Saturate the server on the default socket, which serves ./storage.db", "benchmarker"),
        ("Compare every value with the file", "benchmarker --db storage.db --verify --seconds 3"),
        (
            "Measure latencies at 100,000 requests per second, and write a page with charts",
            "benchmarker --rate 100000 --clients 16 --pipeline 16 --report run.html",
        ),
        ("Find the highest rate whose p99 latency is at most 2 ms", "benchmarker --sweep --p99-us 2000 --seconds 2"),
        (
            "Request popular keys more often, and absent keys in a tenth of the requests",
            "benchmarker --distribution zipf --miss-ratio 0.1",
        ),
        (
            "Request columns of a typed table with Redis commands",
            "benchmarker --db items.db --protocol resp --op hmget --columns price,name",
        ),
        ("Compare the server with a server that looks nothing up", "benchmarker --ceiling --seconds 5"),
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
        check_examples(&command(), EXAMPLES, Args::check_command_line);
    }
}
