//! `zkv top`: shows live statistics of a server.
//!
//! In: a socket. Out: a screen that is redrawn, or lines, until the user quits. `sampler` requests samples, `sample`
//! computes rates and quantiles, `view` stores the samples to show, `draw` and `lines` format them, and `terminal` owns
//! the screen and the keyboard.

mod draw;
mod lines;
mod sample;
mod sampler;
mod terminal;
mod view;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anyhow::anyhow;

use crate::args::{Address, TopArgs};
use crate::output::{ignore_closed_pipe, print_error, stdout_error};
use sample::Sample;
use sampler::Sampler;
use view::View;

pub(crate) fn top(server: Address, args: &TopArgs) -> anyhow::Result<bool> {
    let socket = server.socket.clone();
    let (first, mut sampler) = Sampler::start(server, args.interval)?;
    let count = if args.once { Some(1) } else { args.count.map(Into::into) };
    if count.is_none() && io::stdout().is_terminal() {
        terminal::show(View::new(&socket, args.interval, first), &mut sampler)?;
        return Ok(true);
    }
    ignore_closed_pipe(write_lines(count, first, &mut sampler), true, stdout_error)
}

/// Writes `count` lines. Without a count, writes lines until the reader closes the pipe, and continues after errors,
/// because a stopped server may be restarted.
fn write_lines(count: Option<u64>, first: Sample, sampler: &mut Sampler) -> anyhow::Result<bool> {
    let (mut output, mut last, mut written, mut is_lost) = (io::stdout().lock(), first, 0, false);
    while count.is_none_or(|count| written < count) {
        match sampler.next(Duration::MAX) {
            Some(Ok(sample)) => {
                writeln!(output, "{}", lines::line(&last, &sample)).and_then(|()| output.flush())?;
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
