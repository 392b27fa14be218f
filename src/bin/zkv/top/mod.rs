//! `zkv top`: shows live statistics of a server.
//!
//! In: a socket. Out: a screen that is redrawn, or lines, until the user quits. `sampler` requests samples, `sample`
//! computes rates and quantiles, `screen` shows them on a terminal, and `lines` formats them for other outputs. Without
//! the feature `full`, there is no screen, so terminals get lines, too.

mod lines;
mod sample;
mod sampler;
#[cfg(feature = "full")]
mod screen;

use std::io::{self, Write};
use std::time::Duration;

use anyhow::anyhow;
use zero_kv::printable::Printable;

use crate::args::{Address, TopArgs};
use crate::output::{ignore_closed_pipe, print_error, stdout_error};
use sample::Sample;
use sampler::Sampler;

pub(crate) fn top(server: Address, args: &TopArgs) -> anyhow::Result<bool> {
    #[cfg(feature = "full")]
    let socket = server.socket.clone();
    let (first, mut sampler) = Sampler::start(server, args.interval)?;
    let count = if args.once { Some(1) } else { args.count.map(Into::into) };
    #[cfg(feature = "full")]
    if count.is_none() && io::IsTerminal::is_terminal(&io::stdout()) {
        screen::show(&socket, args.interval, first, &mut sampler)?;
        return Ok(true);
    }
    ignore_closed_pipe(write_lines(count, first, &mut sampler), true, stdout_error)
}

/// Writes `count` lines, and fails if a sample fails. Without a count, writes lines until the reader closes the pipe,
/// and continues after failed samples, because a stopped server may be restarted.
fn write_lines(count: Option<u64>, first: Sample, sampler: &mut Sampler) -> anyhow::Result<bool> {
    let (mut output, mut last, mut written, mut is_lost) = (io::stdout().lock(), first, 0, false);
    while count.is_none_or(|count| written < count) {
        match sampler.next(Duration::MAX) {
            Some(Ok(sample)) => {
                writeln!(output, "{}", Printable(lines::line(&last, &sample))).and_then(|()| output.flush())?;
                (last, is_lost) = (sample, false);
                written += 1;
            }
            Some(Err(reason)) if count.is_some() => return Err(anyhow!(reason)),
            Some(Err(reason)) if !is_lost => {
                print_error(&format_args!("{reason}; retrying"));
                is_lost = true;
            }
            _ => {}
        }
    }
    Ok(true)
}
