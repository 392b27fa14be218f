//! The live line on standard error that shows the progress of a run, if standard error is a terminal.

use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use zero_kv::cli::live_bar::live_bar;

use crate::plan::Clock;

/// Minimum time between two updates of the displayed rate. The rate is the average since the previous update.
const RATE_OVER_MIN: Duration = Duration::from_millis(100);

pub(crate) struct LiveLine {
    bar: Option<ProgressBar>,
    clock: Clock,
    shown_at: Instant,
    requests_shown: u64,
}

impl LiveLine {
    pub(crate) fn new(clock: Clock) -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg}").expect("a valid template");
        let bar = Some(live_bar(false).with_style(style)).filter(|bar| !bar.is_hidden());
        LiveLine { bar, clock, shown_at: clock.measured_from, requests_shown: 0 }
    }

    pub(crate) fn is_shown(&self) -> bool {
        self.bar.is_some()
    }

    pub(crate) fn show(&mut self, (requests, wrong_responses): (u64, u64)) {
        let Some(bar) = &self.bar else { return };
        let now = Instant::now();
        let left_seconds = |end: Instant| end.saturating_duration_since(now).as_secs_f64();
        if now <= self.clock.measured_from {
            bar.set_message(format!("warming up, {:.1} s left", left_seconds(self.clock.measured_from)));
        } else {
            let since_shown = now.saturating_duration_since(self.shown_at);
            if since_shown < RATE_OVER_MIN {
                return;
            }
            let per_second = (requests - self.requests_shown) as f64 / since_shown.as_secs_f64();
            bar.set_message(format!(
                "{} requests/s, {} errors, {:.1} s left",
                HumanCount(per_second as u64),
                HumanCount(wrong_responses),
                left_seconds(self.clock.end),
            ));
            (self.shown_at, self.requests_shown) = (now, requests);
        }
        bar.tick();
    }

    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
