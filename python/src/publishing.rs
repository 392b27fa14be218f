//! Publishes baked files.
//!
//! In: files, and the URL of a table. Out: the new generation. A thread transfers the files. Meanwhile, the calling
//! thread passes the progress to a callable, and checks signals, so Ctrl-C cancels a publication even if the store does
//! not respond.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use zero_kv::publish::{Canary, CommitOptions, Manifest, Publication, PublishError, ShardFile};
use zero_kv::slots::SlotRange;

use crate::errors::publish_exception;
use crate::progress::{Progress, ReportRate};
use crate::raised::{Raised, SIGNALS_EVERY};

/// A generation of a published table.
#[pyclass(frozen, get_all, module = "zero_kv")]
pub(crate) struct Generation {
    /// The number of the generation, counted from 1.
    number: u64,
    /// The number of the generation that was the newest one before.
    parent: u64,
    /// The number of rows.
    rows: u64,
    /// The length of all files in bytes.
    len_bytes: u64,
    /// The digest of the file, as that of `Table`. For several files, it is the digest of their digests.
    digest: String,
}

#[pymethods]
impl Generation {
    fn __repr__(&self) -> String {
        let Generation { number, rows, len_bytes, .. } = self;
        format!("<zero_kv.Generation {number}, {rows} rows, {len_bytes} bytes>")
    }
}

impl From<Manifest> for Generation {
    fn from(manifest: Manifest) -> Generation {
        Generation {
            number: manifest.number,
            parent: manifest.parent,
            rows: manifest.rows(),
            len_bytes: manifest.bytes(),
            digest: manifest.digest(),
        }
    }
}

/// A new generation that is not yet published.
struct Draft {
    shards: Vec<ShardFile>,
    to: String,
    canary: Option<PathBuf>,
    note: String,
    parent: Option<u64>,
}

/// Publishes files, each with its first and last slot. `lib/zero_kv/_publish.py` has the keyword arguments.
#[pyfunction]
#[pyo3(signature = (files, to, canary, note, parent, progress))]
pub(crate) fn publish_files(
    py: Python<'_>,
    files: Vec<(PathBuf, u16, u16)>,
    to: String,
    canary: Option<PathBuf>,
    note: String,
    parent: Option<u64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Generation> {
    let shard = |(path, first_slot, last_slot)| ShardFile { path, slots: SlotRange { first_slot, last_slot } };
    let draft = Draft { shards: files.into_iter().map(shard).collect(), to, canary, note, parent };
    let raised = Raised::default();
    let published = py.detach(|| draft.publish_watched(&raised, progress.as_ref()));
    match (raised.take(), published) {
        (None, published) => Ok(published.ok_or_else(ended)?.map_err(|error| publish_exception(&error))?.into()),
        (Some(error), published) => {
            // A signal can arrive after the commit.
            if let Some(Ok(manifest)) = published {
                let note = format!("generation {} was published before this exception", manifest.number);
                error.value(py).call_method1("add_note", (note,))?;
            }
            Err(error)
        }
    }
}

fn ended() -> PyErr {
    PyRuntimeError::new_err("the thread that publishes has panicked: see standard error")
}

/// A report, and where its recipient confirms that it was delivered.
type Report = (Progress, Sender<()>);

impl Draft {
    /// Publishes in another thread. Returns `None` if this thread panicked.
    fn publish_watched(&self, raised: &Raised, callable: Option<&Py<PyAny>>) -> Option<Result<Manifest, PublishError>> {
        let (sender, reports) = channel();
        let is_reported = callable.is_some();
        thread::scope(|scope| {
            let publishing = scope.spawn(move || self.publish(raised, &sender, is_reported));
            // The thread drops the sender when it ends.
            while let Some(report) = receive(&reports) {
                // The error needs no handling here: `guard` has stored the exception and canceled the publication.
                let _ = raised.guard(|py| {
                    if let (Some((progress, _)), Some(callable)) = (&report, callable)
                        && !raised.cancel.is_set()
                    {
                        callable.call1(py, (progress.clone(),))?;
                    }
                    py.check_signals()
                });
                if let Some((_, delivered)) = report {
                    let _ = delivered.send(());
                }
            }
            publishing.join().ok()
        })
    }

    fn publish(&self, raised: &Raised, reports: &Sender<Report>, is_reported: bool) -> Result<Manifest, PublishError> {
        let canaries = self.canary.as_deref().map(Canary::read_file).transpose()?.unwrap_or_default();
        let options = CommitOptions { parent: self.parent, canaries, note: self.note.clone() };
        ShardFile::check_coverage(&self.shards)?;
        let publication = Publication::create(&self.to)?;
        publication.check_parent(self.parent)?;
        let mut rate = ReportRate::default();
        publication.publish(&self.shards, &options, &raised.cancel, &mut |shard, progress| {
            if !is_reported || !rate.admits(progress) {
                return;
            }
            // The transfer waits for the callable, so that its exception cancels the publication before the commit.
            let (delivered, wait) = channel();
            if reports.send((Progress::new(progress, Some(shard.path.clone())), delivered)).is_ok() {
                let _ = wait.recv();
            }
        })
    }
}

/// Waits until the next report arrives, or until signals should be checked: then returns `Some(None)`. Returns `None`
/// if no more reports arrive.
fn receive(reports: &Receiver<Report>) -> Option<Option<Report>> {
    match reports.recv_timeout(SIGNALS_EVERY) {
        Ok(report) => Some(Some(report)),
        Err(RecvTimeoutError::Timeout) => Some(None),
        Err(RecvTimeoutError::Disconnected) => None,
    }
}
