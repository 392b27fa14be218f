//! The command-line options of the commands that query or control a running server.

use std::num::NonZeroU64;
use std::time::Duration;

use clap::Subcommand;

use super::parse_time;

#[derive(Subcommand)]
pub(crate) enum ServerCommand {
    /// Print the server's settings, facts about its file, and its counters, as lines of `name value`
    ///
    /// Counters begin at 0 when the server starts.
    ///
    /// Exit status: 0 after success, 2 after an error.
    Info {
        /// Write one JSON object on one line
        #[arg(long)]
        json: bool,
    },
    /// Measure the round-trip time of one ping request
    ///
    /// Exit status: 0 if the server responds, 2 after an error.
    Ping,
    /// Report whether the server responds and serves an intact file
    ///
    /// Exit status: 0 if the server is healthy; 1 if it is not, with a line for each reason; 2 after a
    /// usage error.
    Health(HealthArgs),
    /// Show live statistics of the server; if standard output is not a terminal, write one line per
    /// interval
    ///
    /// Press q, Esc, or Ctrl-C to quit. Rates cover the last interval.
    ///
    /// Exit status: 0 after success, 2 after an error.
    Top(TopArgs),
    /// Reload the file now and wait until the server serves or rejects it
    ///
    /// Only root and the server's own user may request a reload.
    ///
    /// Exit status: 0 if the server serves the requested file or generation, even if the server already
    /// served it before; 1 if the server rejected the file, with the reason; 2 after an error.
    Reload(ReloadArgs),
}

#[derive(clap::Args)]
pub(crate) struct HealthArgs {
    /// Wait at most this long for the response
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    pub(crate) timeout: Duration,
    /// Report a problem if a server that follows a published table has not read its store for this long [default: ten
    /// polls, and at least 30 s]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) stale_after: Option<Duration>,
    /// If the server is healthy, print the generation, digest, and number of rows of its table
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(clap::Args)]
pub(crate) struct TopArgs {
    /// Sample the server at this interval
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub(crate) interval: Duration,
    /// Write this many lines, one per interval, even to a terminal
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<NonZeroU64>,
    /// Write one line (short for --count 1)
    #[arg(long, conflicts_with = "count")]
    pub(crate) once: bool,
}

#[derive(clap::Args)]
pub(crate) struct ReloadArgs {
    /// Go back to the previous generation instead
    #[arg(long)]
    pub(crate) rollback: bool,
    /// Wait at most this long for the server to serve or reject the file
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = parse_time)]
    pub(crate) timeout: Duration,
}
