//! Progress of transfers, as Python objects at a bounded rate.
//!
//! In: the progress that the library reports. Out: the reports that a callable receives: the first and the last one of
//! each phase, and one per interval between them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use zero_kv::publish::Stage;

/// The interval between two reports of one phase, besides the first and the last one.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// The progress of the transfer of one file.
#[derive(Clone)]
#[pyclass(frozen, get_all, module = "zero_kv")]
pub(crate) struct Progress {
    /// `"verify"`, `"upload"`, `"read back"`, or `"download"`.
    phase: &'static str,
    /// The number of bytes that are complete.
    done_bytes: u64,
    /// The length of the file in bytes.
    total_bytes: u64,
    /// The path of the file that is published, or `None` for a download.
    path: Option<PathBuf>,
}

impl Progress {
    pub(crate) fn new(progress: zero_kv::publish::TransferProgress, path: Option<PathBuf>) -> Progress {
        let zero_kv::publish::TransferProgress { stage, done_bytes, total_bytes, .. } = progress;
        Progress { phase: stage.name(), done_bytes, total_bytes, path }
    }
}

#[pymethods]
impl Progress {
    fn __repr__(&self) -> String {
        let Progress { phase, done_bytes, total_bytes, .. } = self;
        format!("<zero_kv.Progress {phase}, {done_bytes} of {total_bytes} bytes>")
    }
}

/// Selects the reports that a callable receives.
#[derive(Default)]
pub(crate) struct ReportRate {
    last: Option<(Stage, Instant)>,
}

impl ReportRate {
    /// Returns whether this report is delivered.
    pub(crate) fn admits(&mut self, progress: zero_kv::publish::TransferProgress) -> bool {
        let zero_kv::publish::TransferProgress { stage, done_bytes, total_bytes, .. } = progress;
        let is_due = match self.last {
            Some((last, at)) => last != stage || done_bytes == total_bytes || at.elapsed() >= REPORT_EVERY,
            None => true,
        };
        if is_due {
            self.last = Some((stage, Instant::now()));
        }
        is_due
    }
}
