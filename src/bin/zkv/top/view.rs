//! What the screen shows: the last samples, and the rates before them.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use super::feed::Asked;
use super::sample::{Sample, Span};

/// More rates than a terminal has columns.
const RATES_MAX: usize = 1024;
/// Quantiles are of so many intervals: a server times few of its batches, and has few of them when it is idle.
const WINDOW_INTERVALS: usize = 10;

pub(super) struct View {
    pub(super) socket: String,
    pub(super) interval: Duration,
    /// Of one server, the last behind; never empty.
    samples: VecDeque<Sample>,
    /// Whether the last sample is the first of a server that took the place of another.
    pub(super) is_anew: bool,
    /// Requests a second, the newest in front; none where none is known.
    pub(super) rates: VecDeque<Option<u64>>,
    pub(super) lost: Option<Lost>,
}

/// Why the server is not there, and since when.
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
            is_anew: false,
            rates: VecDeque::new(),
            lost: None,
        }
    }

    pub(super) fn take(&mut self, asked: Asked, now: Instant) {
        match asked {
            Ok(sample) => {
                self.is_anew = Span::between(self.last(), &sample).is_none();
                let kept = if self.is_anew { 0 } else { WINDOW_INTERVALS };
                self.samples.drain(..self.samples.len().saturating_sub(kept));
                self.samples.push_back(sample);
                self.lost = None;
            }
            Err(reason) => {
                let since = self.lost.as_ref().map_or(now, |lost| lost.since);
                self.lost = Some(Lost { reason, since });
            }
        }
        let rate = self.span().and_then(|span| span.request_rate());
        self.rates.push_front(rate.map(|rate| rate.round() as u64));
        self.rates.truncate(RATES_MAX);
    }

    pub(super) fn last(&self) -> &Sample {
        self.samples.back().expect("there is a first sample")
    }

    /// What the server did in the last interval, if it was there.
    pub(super) fn span(&self) -> Option<Span<'_>> {
        self.since(self.samples.len().checked_sub(2)?)
    }

    /// What the server did in the intervals that quantiles are of.
    pub(super) fn window(&self) -> Option<Span<'_>> {
        self.since(0)
    }

    fn since(&self, from: usize) -> Option<Span<'_>> {
        let from = self.samples.get(from).filter(|_| self.lost.is_none())?;
        Span::between(from, self.last())
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

    /// A view after these, a second apart: the process and its requests, or none if it is gone.
    fn view_of(asked: &[Option<(u64, u64)>]) -> View {
        let start = Instant::now();
        let mut view = View::new(Path::new("s"), Duration::from_secs(1), sample(start, 1, 0));
        for (asked, seconds) in asked.iter().zip(1..) {
            let now = start + Duration::from_secs(seconds);
            let asked = asked.map(|(pid, requests)| sample(now, pid, requests)).ok_or("gone".to_owned());
            view.take(asked, now);
        }
        view
    }

    #[test]
    fn a_server_that_is_started_anew_leaves_a_gap_and_no_nonsense() {
        let view = view_of(&[Some((1, 100)), Some((1, 300)), Some((2, 7)), Some((2, 57))]);
        assert_eq!(view.rates, [Some(50), None, Some(200), Some(100)]);
        assert!(!view.is_anew);
        assert!(view_of(&[Some((1, 100)), Some((2, 200))]).is_anew);
        let first_of_new = view_of(&[Some((1, 100)), Some((2, 200))]);
        assert!(
            first_of_new.span().is_none() && first_of_new.window().is_none_or(|span| span.service_ns(0.5).is_none())
        );
    }

    #[test]
    fn while_the_server_is_gone_nothing_is_known() {
        let gone = view_of(&[Some((1, 100)), None, None]);
        assert!(gone.span().is_none() && gone.window().is_none());
        let lost = gone.lost.as_ref().unwrap();
        assert_eq!((&*lost.reason, gone.last().number("requests_get")), ("gone", Some(100)));
        // The same server, which could not be asked for two seconds.
        let back = view_of(&[Some((1, 100)), None, None, Some((1, 400))]);
        assert_eq!(back.rates, [Some(100), None, None, Some(100)]);
        assert!(back.lost.is_none() && !back.is_anew);
    }

    #[test]
    fn quantiles_are_of_the_last_intervals() {
        let asked: Vec<_> = (1..=100).map(|second| Some((1, second))).collect();
        let view = view_of(&asked);
        let window = view.window().unwrap();
        assert_eq!((window.rate("requests_get"), window.service_ns(1.0)), (Some(1.0), Some(9)));
        assert_eq!(view.samples.len(), WINDOW_INTERVALS + 1);
    }
}
