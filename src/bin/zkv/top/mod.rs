//! What a server does, live.
//!
//! In: a socket. Out: a screen that changes, or lines, until somebody leaves.
//! `feed` asks the server, `sample` reckons, `view` keeps what is shown, `draw`
//! and `lines` show it, `terminal` has the screen and the keys.

mod draw;
mod feed;
mod lines;
mod sample;
mod terminal;
mod view;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anyhow::anyhow;

use crate::args::{Address, TopArgs};
use crate::output::{complain, settle, unwritten};
use feed::Feed;
use sample::Sample;
use view::View;

pub(crate) fn top(server: Address, args: &TopArgs) -> anyhow::Result<bool> {
    let socket = server.socket.clone();
    let (first, mut feed) = Feed::start(server, args.interval)?;
    let count = if args.once { Some(1) } else { args.count.map(Into::into) };
    if count.is_none() && io::stdout().is_terminal() {
        terminal::show(View::new(&socket, args.interval, first), &mut feed)?;
        return Ok(true);
    }
    settle(write_lines(count, first, &mut feed), true, unwritten)
}

/// Without a count, until nobody reads them: a server that is gone may come back.
fn write_lines(count: Option<u64>, first: Sample, feed: &mut Feed) -> anyhow::Result<bool> {
    let (mut output, mut last, mut written, mut is_lost) = (io::stdout().lock(), first, 0, false);
    while count.is_none_or(|count| written < count) {
        match feed.next(Duration::MAX) {
            Some(Ok(sample)) => {
                writeln!(output, "{}", lines::line(&last, &sample)).and_then(|()| output.flush())?;
                (last, is_lost) = (sample, false);
                written += 1;
            }
            Some(Err(reason)) if count.is_some() => return Err(anyhow!(reason)),
            Some(Err(reason)) if !is_lost => {
                complain(&format_args!("{reason}; trying again"));
                is_lost = true;
            }
            _ => {}
        }
    }
    Ok(true)
}
