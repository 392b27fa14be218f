//! Samples of a server, an interval apart.
//!
//! In: a socket. Out: samples, or why there is none. A thread asks, so that nobody
//! else waits for a server that does not answer.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use zero_kv::client::{Client, ClientError};

use super::sample::Sample;
use crate::args::Address;
use crate::deadline::within;

/// Who has not answered for so long is said not to.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// What came of asking, or in words why nothing did.
pub(super) type Asked = Result<Sample, String>;

pub(super) struct Feed {
    socket: PathBuf,
    asked: Receiver<Asked>,
    interval: Duration,
    /// When something came, or it was said that nothing does.
    heard_at: Instant,
}

impl Feed {
    /// The first sample, and those that follow it. Without a first there is
    /// nothing to wait for.
    pub(super) fn start(address: Address, interval: Duration) -> anyhow::Result<(Sample, Feed)> {
        let socket = address.socket.clone();
        let mut server = Server { address, client: None };
        let first = within(ANSWER_MAX, move || server.sample().map(|sample| (sample, server)));
        let (sample, mut server) = first.ok_or_else(|| anyhow!(silence(&socket)))??;
        let (sender, asked) = mpsc::channel();
        thread::spawn(move || {
            let mut due = Instant::now();
            loop {
                // What could not be asked in time is not asked later.
                due = (due + interval).max(Instant::now());
                thread::sleep(due.saturating_duration_since(Instant::now()));
                if sender.send(server.sample().map_err(|error| error.to_string())).is_err() {
                    return;
                }
            }
        });
        Ok((sample, Feed { socket, asked, interval, heard_at: Instant::now() }))
    }

    /// What comes next within this time; also that nothing has come for long.
    pub(super) fn next(&mut self, wait: Duration) -> Option<Asked> {
        let silent_from = self.heard_at + self.interval + ANSWER_MAX;
        let asked = match self.asked.recv_timeout(wait.min(silent_from.saturating_duration_since(Instant::now()))) {
            Ok(asked) => asked,
            Err(RecvTimeoutError::Timeout) if Instant::now() >= silent_from => Err(silence(&self.socket)),
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => Err("the thread that asks the server has ended".to_owned()),
        };
        self.heard_at = Instant::now();
        Some(asked)
    }
}

fn silence(socket: &Path) -> String {
    format!("{}: no answer for {} s", socket.display(), ANSWER_MAX.as_secs())
}

struct Server {
    address: Address,
    client: Option<Client>,
}

impl Server {
    fn sample(&mut self) -> Result<Sample, ClientError> {
        // A connection that lay idle may have been cut off, or be one to a server that is gone.
        if let Some(Ok(sample)) = self.client.as_mut().map(sample) {
            return Ok(sample);
        }
        self.client = None;
        let mut client = self.address.connect()?;
        let sample = sample(&mut client)?;
        self.client = Some(client);
        Ok(sample)
    }
}

fn sample(client: &mut Client) -> Result<Sample, ClientError> {
    let info = client.info()?;
    Ok(Sample::new(Instant::now(), info.iter()))
}
