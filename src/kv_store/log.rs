//! The log of `kv_store`, on standard error.
//!
//! In: the format, and the environment variable `RUST_LOG`. Out: one line for each log event that the filter lets
//! through, and for each panic. After the start, nothing else of the program writes to standard error, because a write
//! waits as long as nobody reads the log.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::{Display, Write as _};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::panic::PanicHookInfo;
use std::time::Duration;
use std::{env, panic, thread};

use rustix::event::{PollFd, PollFlags, poll};
use tracing::{Subscriber, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use zero_kv::printable::{Printable, escaped_except};
use zero_kv::server::LogQueue;

use super::args::LogFormat;

/// The names of the library's crate and of this program's crate. The target of every log event begins with one of these
/// names, except [`QUIET_TARGET`].
const TARGETS: [&str; 2] = ["zero_kv", "kv_store"];

/// The crate that logs each retry of a request to an object store. `kv_store` logs the failure of the last retry.
const QUIET_TARGET: &str = "object_store";

/// How long the end of the program waits for the reader of the log.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The log. Dropping this value waits until the lines are written, but not longer than [`FLUSH_TIMEOUT`].
pub(crate) struct Log {
    pub(crate) queue: LogQueue,
}

impl Log {
    pub(crate) fn error(&self, error: &dyn Display) {
        self.queue.push(format!("kv_store: {}\n", Printable(error)).as_bytes());
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.queue.flush(FLUSH_TIMEOUT);
    }
}

/// Standard error. If another program that shares the descriptor has made it nonblocking, as Node does with its pipes,
/// writes wait nevertheless.
struct Stderr(File);

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None)?;
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Receives one line at a time, because the layers format a line before they write it.
struct LineWriter<F: Fn(&str)>(F);

impl<F: Fn(&str)> Write for LineWriter<F> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0(&String::from_utf8_lossy(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts the log, and logs a warning for each invalid entry of `RUST_LOG`.
pub(crate) fn start(format: LogFormat) -> io::Result<Log> {
    // Not io::stderr, whose lock others would wait for while a write waits for the reader.
    let stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let has_colors = stderr.is_terminal() && format == LogFormat::Text;
    let queue = LogQueue::start(Stderr(stderr), |count| {
        warn!("{count} log lines were dropped, because standard error was not read, or could not be written");
    })?;
    report_panics(queue.clone());
    let wanted = env::var("RUST_LOG").unwrap_or_default();
    let (filter, invalid) = filter(&wanted);
    let to_queue = queue.clone();
    // Tracing escapes the escape characters of values, but not, for example, line ends.
    let push = move |line: &str| {
        let line = escaped_except(line.trim_end_matches('\n'), |char| has_colors && char == '\x1b');
        to_queue.push(format!("{line}\n").as_bytes());
    };
    let log = tracing_subscriber::fmt::layer().with_target(false).with_writer(move || LineWriter(push.clone()));
    match format {
        LogFormat::Text => {
            let log = log.with_ansi(has_colors);
            tracing_subscriber::registry().with(filter).with(log).with(retained(&queue)).init();
        }
        LogFormat::Json => {
            let log = log.json().flatten_event(true).with_current_span(false).with_span_list(false);
            tracing_subscriber::registry().with(filter).with(log).with(retained(&queue)).init();
        }
    }
    for part in invalid {
        warn!(
            "RUST_LOG contains {part:?}, which is ignored: set a level, such as debug, or TARGET=LEVEL, such as \
             zero_kv=debug"
        );
    }
    Ok(Log { queue })
}

fn retained<S: Subscriber + for<'a> LookupSpan<'a>>(queue: &LogQueue) -> impl Layer<S> {
    let queue = queue.clone();
    let retain = move |line: &str| queue.retain(line);
    let layer = tracing_subscriber::fmt::layer().with_target(false).with_ansi(false);
    layer.with_writer(move || LineWriter(retain.clone())).with_filter(LevelFilter::WARN)
}

/// Installs a panic hook that logs the text of the standard library's hook.
fn report_panics(queue: LogQueue) {
    panic::set_hook(Box::new(move |info| queue.push(panic_text(info, &Backtrace::capture()).as_bytes())));
}

fn panic_text(info: &PanicHookInfo<'_>, backtrace: &Backtrace) -> String {
    let payload = info.payload();
    let message = payload.downcast_ref::<&str>().copied();
    let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    let thread = thread::current();
    let mut text = format!("thread '{}' panicked", thread.name().unwrap_or("<unnamed>"));
    if let Some(location) = info.location() {
        let _ = write!(text, " at {location}");
    }
    let _ = writeln!(text, ":\n{}", Printable(message));
    if backtrace.status() == BacktraceStatus::Captured {
        let _ = writeln!(text, "stack backtrace:\n{backtrace}");
    }
    text
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
