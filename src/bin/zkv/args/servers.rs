//! Commands about a running server.

use std::num::NonZeroU64;
use std::time::Duration;

use clap::Subcommand;

use super::parse_seconds;

#[derive(Subcommand)]
pub(crate) enum ServerCommand {
    /// Print what the server serves and its counters since it started, in lines `name value`
    ///
    /// Exit status: 0 done, 2 after an error.
    Info {
        /// Write one JSON object on one line
        #[arg(long)]
        json: bool,
    },
    /// Measure one round trip of an empty request
    ///
    /// Exit status: 0 if the server responds, 2 after an error.
    Ping,
    /// Report by the exit status whether the server responds and serves an intact file
    ///
    /// Exit status: 0 if so, 1 with the reason on one line if not, 2 after a usage error.
    Health(HealthArgs),
    /// Show live what the server does; if standard output is not a terminal, write one line per interval
    ///
    /// q, Esc and Ctrl-C quit. Rates are measured over the last interval.
    ///
    /// Exit status: 0 done, 2 after an error.
    Top(TopArgs),
    /// Reload the file now and wait until the server serves or rejects it
    ///
    /// Only root and the server's own user may request it.
    ///
    /// Exit status: 0 if the server serves the requested generation, also if it already did; 1 with the
    /// reason if it rejected the file; 2 after an error.
    Reload(ReloadArgs),
}

#[derive(clap::Args)]
pub(crate) struct HealthArgs {
    /// Wait at most this long for the response
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = parse_seconds)]
    pub(crate) timeout: Duration,
    /// Print generation, digest and rows of a healthy server
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(clap::Args)]
pub(crate) struct TopArgs {
    /// Sample the server at this interval
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    pub(crate) interval: Duration,
    /// Write this many lines, one per interval, also on a terminal
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
    /// Wait at most this long for the server to finish
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = parse_seconds)]
    pub(crate) timeout: Duration,
}
