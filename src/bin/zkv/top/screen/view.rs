//! The data that the screen of `zkv top` shows: the last samples, and the history of rates.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::top::sample::{Delta, Sample};
use crate::top::sampler::SampleResult;

/// Maximum number of rates in the history. Each column of the terminal shows one rate, and few terminals have this many
/// columns.
const RATES_MAX: usize = 1024;
/// Number of intervals that quantiles cover. One interval may have too few values, because a server times only some
/// batches, and an idle server has few batches.
const WINDOW_INTERVALS: usize = 10;

pub(super) struct View {
    pub(super) socket: String,
    pub(super) interval: Duration,
    /// Samples of one server process, the newest last. Never empty.
    samples: VecDeque<Sample>,
    /// Whether the last sample is the first one of a restarted server.
    pub(super) is_restarted: bool,
    /// Requests per second in each interval, the newest first. `None` if the rate is unknown.
    pub(super) rates: VecDeque<Option<u64>>,
    pub(super) lost: Option<Lost>,
}

/// The state while samples fail: the reason, and the time of the first failed sample.
pub(super) struct Lost {
    pub(super) reason: String,
    pub(super) since: Instant,
}

impl View {
    pub(super) fn new(socket: &Path, interval: Duration, first: Sample) -> View {
        View {
            socket: socket.display().to_string(),
            interval,
            samples: VecDeque::from([first]),
            is_restarted: false,
            rates: VecDeque::new(),
            lost: None,
        }
    }

    pub(super) fn update(&mut self, result: SampleResult, now: Instant) {
        match result {
            Ok(sample) => {
                self.is_restarted = Delta::between(self.last(), &sample).is_none();
                let kept_samples = if self.is_restarted { 0 } else { WINDOW_INTERVALS };
                self.samples.drain(..self.samples.len().saturating_sub(kept_samples));
                self.samples.push_back(sample);
                self.lost = None;
            }
            Err(reason) => {
                let since = self.lost.as_ref().map_or(now, |lost| lost.since);
                self.lost = Some(Lost { reason, since });
            }
        }
        let rate = self.delta().and_then(|delta| delta.request_rate());
        self.rates.push_front(rate.map(|rate| rate.round() as u64));
        self.rates.truncate(RATES_MAX);
    }

    pub(super) fn last(&self) -> &Sample {
        self.samples.back().expect("there is a first sample")
    }

    /// Returns the difference between the last two samples. Returns `None` while samples fail, and for the first sample
    /// of a server process.
    pub(super) fn delta(&self) -> Option<Delta<'_>> {
        self.since(self.samples.len().checked_sub(2)?)
    }

    /// Returns the difference between the first and the last stored sample, from which quantiles are computed.
    pub(super) fn window(&self) -> Option<Delta<'_>> {
        self.since(0)
    }

    fn since(&self, from: usize) -> Option<Delta<'_>> {
        let from = self.samples.get(from).filter(|_| self.lost.is_none())?;
        Delta::between(from, self.last())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: Instant, pid: u64, requests: u64) -> Sample {
        let values = [
            ("pid", pid.to_string()),
            ("requests_get", requests.to_string()),
            ("service_ns_buckets", format!("9:{requests}")),
        ];
        Sample::new(at, values.iter().map(|(name, value)| (*name, &**value)))
    }

    /// Returns a view that received these samples, one per second. Each sample consists of a process ID and the number
    /// of requests of that process. `None` is a failed sample.
    fn view_after(samples: &[Option<(u64, u64)>]) -> View {
        let start = Instant::now();
        let mut view = View::new(Path::new("s"), Duration::from_secs(1), sample(start, 1, 0));
        for (sampled, seconds) in samples.iter().zip(1..) {
            let now = start + Duration::from_secs(seconds);
            let result = sampled.map(|(pid, requests)| sample(now, pid, requests)).ok_or("stopped".to_owned());
            view.update(result, now);
        }
        view
    }

    #[test]
    fn a_restart_leaves_a_gap_in_the_rates() {
        let view = view_after(&[Some((1, 100)), Some((1, 300)), Some((2, 7)), Some((2, 57))]);
        assert_eq!(view.rates, [Some(50), None, Some(200), Some(100)]);
        assert!(!view.is_restarted);
        assert!(view_after(&[Some((1, 100)), Some((2, 200))]).is_restarted);
        let first_of_new = view_after(&[Some((1, 100)), Some((2, 200))]);
        assert!(
            first_of_new.delta().is_none() && first_of_new.window().is_none_or(|delta| delta.service_ns(0.5).is_none())
        );
    }

    #[test]
    fn while_samples_fail_there_are_no_rates_or_quantiles() {
        let lost_view = view_after(&[Some((1, 100)), None, None]);
        assert!(lost_view.delta().is_none() && lost_view.window().is_none());
        let lost = lost_view.lost.as_ref().unwrap();
        assert_eq!((&*lost.reason, lost_view.last().number("requests_get")), ("stopped", Some(100)));
        // The server process did not change, although two samples failed.
        let back = view_after(&[Some((1, 100)), None, None, Some((1, 400))]);
        assert_eq!(back.rates, [Some(100), None, None, Some(100)]);
        assert!(back.lost.is_none() && !back.is_restarted);
    }

    #[test]
    fn quantiles_cover_the_last_intervals() {
        let samples: Vec<_> = (1..=100).map(|second| Some((1, second))).collect();
        let view = view_after(&samples);
        let window = view.window().unwrap();
        assert_eq!((window.rate("requests_get"), window.service_ns(1.0)), (Some(1.0), Some(9)));
        assert_eq!(view.samples.len(), WINDOW_INTERVALS + 1);
    }
}
