//! The screen and the keyboard of `zkv top`.
//!
//! In: samples. Out: a screen until the user quits. `view` stores the samples to show, and `draw` formats them. The
//! terminal leaves raw mode and the alternate screen in every case: at the end, after an error, after a panic, and
//! before a signal ends the process.

mod draw;

use std::collections::VecDeque;
use std::env;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::style::Color;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use super::sample::{Delta, Sample};
use super::{SampleResult, Sampler};
use draw::draw;

/// Maximum time until the screen shows a new sample or reacts to a signal.
const TICK_MAX: Duration = Duration::from_millis(100);

/// Shows the screen until the user quits or a signal arrives.
pub(super) fn show(socket: &Path, interval: Duration, first: Sample, sampler: &mut Sampler) -> anyhow::Result<()> {
    let view = View::new(socket, interval, first);
    let received_signal = Arc::new(AtomicUsize::new(0));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        flag::register_usize(signal, Arc::clone(&received_signal), signal as usize)?;
    }
    let shown = run_screen(view, sampler, &received_signal).map_err(|error| anyhow!("terminal: {error}"));
    match received_signal.load(Ordering::Relaxed) {
        0 => shown,
        signal => Ok(low_level::emulate_default_handler(signal as i32)?),
    }
}

fn run_screen(mut view: View, sampler: &mut Sampler, received_signal: &AtomicUsize) -> std::io::Result<()> {
    let _guard = RestoreOnDrop;
    let mut terminal = ratatui::try_init()?;
    let tick = view.interval.min(TICK_MAX);
    // As https://no-color.org asks for.
    let has_colors = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    while received_signal.load(Ordering::Relaxed) == 0 {
        terminal.draw(|frame| {
            draw(&view, frame, Instant::now());
            if !has_colors {
                frame.buffer_mut().content.iter_mut().for_each(|cell| cell.fg = Color::Reset);
            }
        })?;
        if event::poll(tick)? && matches!(event::read()?, Event::Key(key) if is_quit(key)) {
            break;
        }
        if let Some(result) = sampler.next(Duration::ZERO) {
            view.update(result, Instant::now());
        }
    }
    Ok(())
}

fn is_quit(key: KeyEvent) -> bool {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind != KeyEventKind::Release
        && match key.code {
            KeyCode::Char('c') => is_control,
            KeyCode::Char('q') | KeyCode::Esc => true,
            _ => false,
        }
}

/// A guard that restores the terminal when the guard is dropped. `run_screen` declares the guard first, so the terminal
/// is restored after all other cleanup.
struct RestoreOnDrop;

impl Drop for RestoreOnDrop {
    fn drop(&mut self) {
        // Restoring fails only if the terminal no longer exists.
        let _ = ratatui::try_restore();
    }
}

/// Maximum number of rates in the history. Each column of the terminal shows one rate, and few terminals have this many
/// columns.
const RATES_MAX: usize = 1024;
/// Number of intervals that quantiles cover. One interval may have too few values, because a server times only some
/// batches, and an idle server has few batches.
const WINDOW_INTERVALS: usize = 10;

struct View {
    socket: String,
    interval: Duration,
    /// Samples of one server process, the newest last. Never empty.
    samples: VecDeque<Sample>,
    /// Whether the last sample is the first one of a restarted server.
    is_restarted: bool,
    /// Requests per second in each interval, the newest first. `None` if the rate is unknown.
    rates: VecDeque<Option<u64>>,
    lost: Option<Lost>,
}

/// The state while samples fail: the reason, and the time of the first failed sample.
struct Lost {
    reason: String,
    since: Instant,
}

impl View {
    fn new(socket: &Path, interval: Duration, first: Sample) -> View {
        View {
            socket: socket.display().to_string(),
            interval,
            samples: VecDeque::from([first]),
            is_restarted: false,
            rates: VecDeque::new(),
            lost: None,
        }
    }

    fn update(&mut self, result: SampleResult, now: Instant) {
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

    fn last(&self) -> &Sample {
        self.samples.back().expect("there is a first sample")
    }

    /// Returns the difference between the last two samples. Returns `None` while samples fail, and for the first sample
    /// of a server process.
    fn delta(&self) -> Option<Delta<'_>> {
        self.since(self.samples.len().checked_sub(2)?)
    }

    /// Returns the difference between the first and the last stored sample, from which quantiles are computed.
    fn window(&self) -> Option<Delta<'_>> {
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
