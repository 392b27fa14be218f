//! Progress of a bake on standard error: one live line on a terminal, otherwise one line per completed stage.

use std::fmt;
use std::io::{self, Write};

use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};
use zero_kv::bake::{Progress, Stage, StageFacts, Warning};
use zero_kv::cli::stderr::live_bar;
use zero_kv::counted::counted;
use zero_kv::printable::Printable;

use crate::remedies::{explain_warning, shell_quoted};

/// The template of the live line (the progress on a terminal) for stages that count rows.
const ROWS: &str = "{wide_bar} {human_pos}/{human_len} rows ({rows_per_sec}), {eta} left";
const READ: &str = "{wide_bar} {bytes}/{total_bytes} ({bytes_per_sec}), {msg}, {eta} left";
const VERIFY: &str = "{wide_bar} {bytes}/{total_bytes} ({bytes_per_sec}), {eta} left";
const MIB: f64 = (1 << 20) as f64;

/// Displays the progress of a bake. All clones of a value share one live line of the terminal.
#[derive(Clone)]
pub(crate) struct ProgressDisplay {
    bar: ProgressBar,
    /// Whether a line is printed for each completed stage.
    prints_stages: bool,
    is_quiet: bool,
}

impl ProgressDisplay {
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = live_bar(quiet);
        ProgressDisplay { prints_stages: !quiet && bar.is_hidden(), bar, is_quiet: quiet }
    }

    /// Shows progress. `input_len_bytes` is the total length of the inputs, if known.
    pub(crate) fn show(&self, progress: Progress, input_len_bytes: Option<u64>) {
        let rows_read = if let Progress::Read { rows, .. } = progress { Some(rows) } else { None };
        let (stage, template, position, len) = match progress {
            Progress::Read { input_bytes, .. } => match input_len_bytes {
                Some(len_bytes) => (Stage::Read, READ, input_bytes, len_bytes),
                None => (Stage::Read, "{spinner} {bytes} ({bytes_per_sec}), {msg}", input_bytes, 0),
            },
            Progress::Merge { rows, rows_total } => (Stage::Merge, ROWS, rows, rows_total),
            Progress::Write { rows, rows_total } => (Stage::Write, ROWS, rows, rows_total),
            Progress::Index { done, total } => (Stage::Index, "{wide_bar} {percent} %, {eta} left", done, total),
            Progress::Verify { bytes, bytes_total } => (Stage::Verify, VERIFY, bytes, bytes_total),
            Progress::Compare { rows, rows_total } => (Stage::Verify, ROWS, rows, rows_total),
            Progress::Settle => (Stage::Settle, "{spinner} waiting for the disk", 0, 0),
            Progress::Ended(facts) => return self.print_stage(&facts),
            Progress::Inferred { types } => return self.print_types(&types),
            Progress::Warning(warning) => return self.print_warning(&warning),
            _ => return,
        };
        self.stage(stage, template, len);
        if let Some(rows) = rows_read {
            self.bar.set_message(format!("{} rows", HumanCount(rows)));
        }
        self.bar.set_position(position);
        self.bar.tick();
    }

    /// Switches the live line of the terminal to another stage of the bake, and restarts the estimates of the rate and
    /// the remaining time.
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

    fn print_types(&self, types: &str) {
        if !self.is_quiet {
            let option = shell_quoted(types);
            self.bar.suspend(|| {
                let _ = writeln!(io::stderr(), "types: --types {}", Printable(&option));
            });
        }
    }

    fn print_warning(&self, warning: &Warning) {
        if !self.is_quiet {
            let warning = explain_warning(warning);
            self.bar.suspend(|| {
                let _ = writeln!(io::stderr(), "baker: warning: {}", Printable(&warning));
            });
        }
    }

    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// Formats a completed stage in columns: name, rows, MiB, seconds, and MiB/s.
fn stage_line(facts: &StageFacts) -> String {
    let seconds = facts.took.as_secs_f64();
    let mib = facts.len_bytes.map(|len_bytes| len_bytes as f64 / MIB);
    let rows = facts.rows.map(|rows| counted(rows, "row")).unwrap_or_default();
    let len = mib.map(|mib| format!("{mib:.1} MiB")).unwrap_or_default();
    let rate = mib.filter(|_| seconds >= 0.01).map(|mib| format!("{:>7.0} MiB/s", mib / seconds)).unwrap_or_default();
    format!("{:<7}{rows:>16}{len:>14}{seconds:>8.2} s{rate}", facts.stage.name())
}
