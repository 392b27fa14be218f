//! What is told while a bake lasts, on standard error: on a terminal one live
//! line, elsewhere one line a stage when it has ended.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use zero_kv::bake::{Progress, StageFacts};

const MIB: f64 = (1 << 20) as f64;

/// Clones show the same line.
#[derive(Clone)]
pub(crate) struct Live {
    bar: ProgressBar,
    /// Whether stages that have ended are told.
    tells_stages: bool,
}

impl Live {
    pub(crate) fn new(quiet: bool) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let bar = if quiet || !is_terminal { ProgressBar::hidden() } else { ProgressBar::new(0) };
        Live { bar, tells_stages: !quiet && !is_terminal }
    }

    /// The inputs together have so many bytes, if that is known.
    pub(crate) fn show(&self, progress: Progress, input_len_bytes: Option<u64>) {
        match progress {
            Progress::Read { input_bytes, rows } => {
                match input_len_bytes {
                    Some(len_bytes) => self.style(
                        "read    {wide_bar} {bytes}/{total_bytes} ({bytes_per_sec}), {msg}, {eta} left",
                        len_bytes,
                    ),
                    None => self.style("read    {spinner} {bytes} ({bytes_per_sec}), {msg}", 0),
                }
                self.bar.set_message(format!("{rows} rows"));
                self.bar.set_position(input_bytes);
            }
            Progress::Merge { rows, rows_total } => {
                self.style("merge   {wide_bar} {human_pos}/{human_len} rows ({per_sec}), {eta} left", rows_total);
                self.bar.set_position(rows);
            }
            Progress::Write { rows, rows_total } => {
                self.style("write   {wide_bar} {human_pos}/{human_len} rows ({per_sec}), {eta} left", rows_total);
                self.bar.set_position(rows);
            }
            Progress::Index { done, total } => {
                self.style("index   {wide_bar} {percent} %, {eta} left", total);
                self.bar.set_position(done);
            }
            Progress::Verify { bytes, bytes_total } => {
                self.style("verify  {wide_bar} {bytes}/{total_bytes} ({bytes_per_sec}), {eta} left", bytes_total);
                self.bar.set_position(bytes);
            }
            Progress::Settle => self.style("settle  {spinner} waiting for the disk", 0),
            Progress::Ended(facts) => {
                // The next stage may be as long.
                self.bar.unset_length();
                self.tell(&facts);
            }
            _ => {}
        }
        self.bar.tick();
    }

    /// Changes to another stage's line; its rate and time left begin anew.
    fn style(&self, template: &str, len: u64) {
        if self.bar.length() != Some(len) {
            self.bar.set_style(ProgressStyle::with_template(template).expect("a valid template"));
            self.bar.set_position(0);
            self.bar.set_length(len);
            self.bar.reset_eta();
        }
    }

    fn tell(&self, facts: &StageFacts) {
        if self.tells_stages {
            // The bake goes on, whether anybody reads this or not.
            let _ = writeln!(io::stderr(), "{}", line(facts));
        }
    }

    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// What a stage took, in columns.
fn line(facts: &StageFacts) -> String {
    let seconds = facts.took.as_secs_f64();
    let mut line = format!("{:<7}", facts.stage.name());
    match facts.rows {
        Some(rows) => write!(line, "{rows:>11} rows"),
        None => write!(line, "{:>16}", ""),
    }
    .expect("a string takes all");
    let mib = facts.len_bytes.map(|len_bytes| len_bytes as f64 / MIB);
    match mib {
        Some(mib) => write!(line, "{mib:>10.1} MiB"),
        None => write!(line, "{:>14}", ""),
    }
    .expect("a string takes all");
    write!(line, "{seconds:>8.2} s").expect("a string takes all");
    if let Some(mib) = mib.filter(|_| seconds >= 0.01) {
        write!(line, "{:>7.0} MiB/s", mib / seconds).expect("a string takes all");
    }
    line
}
