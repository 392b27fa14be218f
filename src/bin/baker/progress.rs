//! Progress of a bake on standard error: one live line on a terminal, otherwise one line per completed stage.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write};

use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};
use zero_kv::bake::{Progress, Stage, StageFacts};

/// The template of the live line in stages that count rows.
const ROWS: &str = "{wide_bar} {human_pos}/{human_len} rows ({rows_per_sec}), {eta} left";
const MIB: f64 = (1 << 20) as f64;

/// Displays the progress of a bake. Clones draw the same live line.
#[derive(Clone)]
pub(crate) struct ProgressDisplay {
    bar: ProgressBar,
    /// Whether a line is printed for each completed stage.
    prints_stages: bool,
}

impl ProgressDisplay {
    pub(crate) fn new(quiet: bool) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let bar = if quiet || !is_terminal { ProgressBar::hidden() } else { ProgressBar::no_length() };
        ProgressDisplay { bar, prints_stages: !quiet && !is_terminal }
    }

    /// Shows progress. `input_len_bytes` is the total length of the inputs, if known.
    pub(crate) fn show(&self, progress: Progress, input_len_bytes: Option<u64>) {
        match progress {
            Progress::Read { input_bytes, rows } => {
                match input_len_bytes {
                    Some(len_bytes) => self.stage(
                        Stage::Read,
                        "{wide_bar} {bytes}/{total_bytes} ({bytes_per_sec}), {msg}, {eta} left",
                        len_bytes,
                    ),
                    None => self.stage(Stage::Read, "{spinner} {bytes} ({bytes_per_sec}), {msg}", 0),
                }
                self.bar.set_message(format!("{} rows", HumanCount(rows)));
                self.bar.set_position(input_bytes);
            }
            Progress::Merge { rows, rows_total } => {
                self.stage(Stage::Merge, ROWS, rows_total);
                self.bar.set_position(rows);
            }
            Progress::Write { rows, rows_total } => {
                self.stage(Stage::Write, ROWS, rows_total);
                self.bar.set_position(rows);
            }
            Progress::Index { done, total } => {
                self.stage(Stage::Index, "{wide_bar} {percent} %, {eta} left", total);
                self.bar.set_position(done);
            }
            Progress::Verify { bytes, bytes_total } => {
                self.stage(
                    Stage::Verify,
                    "{wide_bar} {bytes}/{total_bytes} ({bytes_per_sec}), {eta} left",
                    bytes_total,
                );
                self.bar.set_position(bytes);
            }
            Progress::Compare { rows, rows_total } => {
                self.stage(Stage::Verify, ROWS, rows_total);
                self.bar.set_position(rows);
            }
            Progress::Settle => self.stage(Stage::Settle, "{spinner} waiting for the disk", 0),
            Progress::Ended(facts) => self.print_stage(&facts),
            _ => {}
        }
        self.bar.tick();
    }

    /// Switches the live line to another stage, and restarts the rate and the remaining time.
    fn stage(&self, stage: Stage, template: &str, len: u64) {
        if self.bar.prefix() == stage.name() && self.bar.length() == Some(len) {
            return;
        }
        let rows_per_sec = |state: &ProgressState, out: &mut dyn fmt::Write| {
            // An error is ignored, because the line is redrawn soon.
            let _ = write!(out, "{} rows/s", HumanCount(state.per_sec() as u64));
        };
        let template = format!("{:<7} {template}", stage.name());
        let style = ProgressStyle::with_template(&template).expect("a valid template");
        // The style is set first, because the calls after it may draw the line.
        self.bar.set_style(style.with_key("rows_per_sec", rows_per_sec));
        self.bar.reset_eta();
        self.bar.set_position(0);
        self.bar.set_length(len);
        // The prefix is not shown. It stores the current stage.
        self.bar.set_prefix(stage.name());
    }

    fn print_stage(&self, facts: &StageFacts) {
        if self.prints_stages {
            // The bake continues even if standard error is closed.
            let _ = writeln!(io::stderr(), "{}", stage_line(facts));
        }
    }

    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// Formats a completed stage in columns: name, rows, MiB, seconds, and MiB/s.
fn stage_line(facts: &StageFacts) -> String {
    let seconds = facts.took.as_secs_f64();
    let mut line = format!("{:<7}", facts.stage.name());
    match facts.rows {
        Some(rows) => write!(line, "{rows:>11} rows"),
        None => write!(line, "{:>16}", ""),
    }
    .expect("writing to a string does not fail");
    let mib = facts.len_bytes.map(|len_bytes| len_bytes as f64 / MIB);
    match mib {
        Some(mib) => write!(line, "{mib:>10.1} MiB"),
        None => write!(line, "{:>14}", ""),
    }
    .expect("writing to a string does not fail");
    write!(line, "{seconds:>8.2} s").expect("writing to a string does not fail");
    if let Some(mib) = mib.filter(|_| seconds >= 0.01) {
        write!(line, "{:>7.0} MiB/s", mib / seconds).expect("writing to a string does not fail");
    }
    line
}
