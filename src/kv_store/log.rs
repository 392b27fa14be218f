//! The log of `kv_store`, on standard error.
//!
//! In: the format, and the environment variable `RUST_LOG`. Out: one line for each log event that the filter lets
//! through.

use std::io::IsTerminal;
use std::{env, io};

use tracing::warn;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::args::LogFormat;

/// The names of the library's crate and of this program's crate. The target of every log event begins with one of these
/// names, except [`QUIET_TARGET`].
const TARGETS: [&str; 2] = ["zero_kv", "kv_store"];

/// The crate that logs each retry of a request to an object store. `kv_store` logs the failure of the last retry.
const QUIET_TARGET: &str = "object_store";

/// Starts the log, and logs a warning for each invalid entry of `RUST_LOG`.
pub(crate) fn start(format: LogFormat) {
    let wanted = env::var("RUST_LOG").unwrap_or_default();
    let (filter, invalid) = filter(&wanted);
    let log = tracing_subscriber::fmt::layer().with_target(false).with_writer(io::stderr);
    match format {
        LogFormat::Text => {
            let log = log.with_ansi(io::stderr().is_terminal());
            tracing_subscriber::registry().with(filter).with(log).init();
        }
        LogFormat::Json => {
            let log = log.json().flatten_event(true).with_current_span(false).with_span_list(false);
            tracing_subscriber::registry().with(filter).with(log).init();
        }
    }
    for part in invalid {
        warn!(
            "RUST_LOG contains {part:?}, which is ignored: set a level, such as debug, or TARGET=LEVEL, such as zero_kv=debug"
        );
    }
}

/// Parses a comma-separated list of log levels and `TARGET=LEVEL` entries. Returns the filter and the invalid entries.
/// Without valid entries, the filter has the level info. Only a filter with the level debug or trace lets the events of
/// [`QUIET_TARGET`] through.
fn filter(text: &str) -> (Targets, Vec<&str>) {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let (valid, invalid): (Vec<_>, Vec<_>) = parts.partition(|part| is_valid(part));
    let filter = valid.join(",").parse();
    let filter = match filter {
        Ok(filter) if !valid.is_empty() => filter,
        _ => Targets::new().with_default(LevelFilter::INFO),
    };
    match filter.default_level() {
        Some(LevelFilter::DEBUG | LevelFilter::TRACE) => (filter, invalid),
        _ => (filter.with_target(QUIET_TARGET, LevelFilter::OFF), invalid),
    }
}

fn is_valid(part: &str) -> bool {
    let is_level = part.parse::<LevelFilter>().is_ok();
    is_level || TARGETS.iter().any(|target| part.starts_with(target)) && part.parse::<Targets>().is_ok()
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn valid_parts_of_a_filter_apply_and_invalid_parts_are_returned() {
        let cases: [(&str, LevelFilter, &[&str]); 9] = [
            ("", LevelFilter::INFO, &[]),
            (",", LevelFilter::INFO, &[]),
            ("debug", LevelFilter::DEBUG, &[]),
            ("info,", LevelFilter::INFO, &[]),
            (" WARN , ", LevelFilter::WARN, &[]),
            ("verbose", LevelFilter::INFO, &["verbose"]),
            ("error,zero_kv=loud", LevelFilter::ERROR, &["zero_kv=loud"]),
            ("hyper=trace,debug", LevelFilter::DEBUG, &["hyper=trace"]),
            ("off", LevelFilter::OFF, &[]),
        ];
        for (text, level, expected) in cases {
            let (filter, invalid) = filter(text);
            assert_eq!((filter.default_level(), &*invalid), (Some(level), expected), "{text:?}");
        }
        let (filter, invalid) = filter("warn,zero_kv::server=debug");
        assert!(invalid.is_empty() && filter.would_enable("zero_kv::server::worker", &Level::DEBUG));
        assert!(!filter.would_enable("zero_kv::store", &Level::INFO));
        for (text, is_enabled) in [("", false), ("info", false), ("debug", true)] {
            assert_eq!(
                super::filter(text).0.would_enable("object_store::client", &Level::INFO),
                is_enabled,
                "{text:?}"
            );
        }
    }
}
