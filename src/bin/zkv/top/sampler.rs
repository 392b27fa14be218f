//! Takes samples of a server periodically.
//!
//! In: a socket. Out: samples, or the error of each failed sample. A thread requests the samples, so a server that does
//! not respond does not block the screen.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use zero_kv::client::{Client, ClientError};

use super::sample::Sample;
use crate::args::Address;
use crate::deadline::{run_within, spawn};

/// If no response arrives for this time, the server is reported as not responding.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(3);

/// A sample, or the reason why it failed.
pub(super) type SampleResult = Result<Sample, String>;

pub(super) struct Sampler {
    socket: PathBuf,
    results: Receiver<SampleResult>,
    interval: Duration,
    /// The time at which [`Sampler::next`] last returned a sample or an error.
    last_result_at: Instant,
}

impl Sampler {
    /// Takes the first sample, and starts a thread that takes all further samples. Fails if the first sample fails.
    pub(super) fn start(address: Address, interval: Duration) -> anyhow::Result<(Sample, Sampler)> {
        let socket = address.socket.clone();
        let mut server = Server { address, client: None };
        let first = run_within(RESPONSE_TIME_MAX, move || server.sample().map(|sample| (sample, server)))?;
        let (sample, mut server) = first.ok_or_else(|| anyhow!(no_response(&socket)))??;
        let (sender, results) = mpsc::channel();
        spawn(move || {
            let mut due = Instant::now();
            loop {
                // Samples that are overdue are skipped.
                due = (due + interval).max(Instant::now());
                thread::sleep(due.saturating_duration_since(Instant::now()));
                if sender.send(server.sample().map_err(|error| error.to_string())).is_err() {
                    return;
                }
            }
        })?;
        Ok((sample, Sampler { socket, results, interval, last_result_at: Instant::now() }))
    }

    /// Waits at most `wait` for the next result, and returns the result, or `None` if there is none yet. Returns an
    /// error if the next sample is overdue by more than [`RESPONSE_TIME_MAX`].
    pub(super) fn next(&mut self, wait: Duration) -> Option<SampleResult> {
        let deadline = self.last_result_at + self.interval + RESPONSE_TIME_MAX;
        let result = match self.results.recv_timeout(wait.min(deadline.saturating_duration_since(Instant::now()))) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => Err(no_response(&self.socket)),
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => Err("the thread that samples the server has ended".to_owned()),
        };
        self.last_result_at = Instant::now();
        Some(result)
    }
}

fn no_response(socket: &Path) -> String {
    format!("{}: no response for {} s", socket.display(), RESPONSE_TIME_MAX.as_secs())
}

struct Server {
    address: Address,
    client: Option<Client>,
}

impl Server {
    fn sample(&mut self) -> Result<Sample, ClientError> {
        // If this sample fails, the server may have closed the idle connection or may have been restarted. The client
        // therefore connects again once.
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
