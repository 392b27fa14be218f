//! Publishes baked files.
//!
//! In: files, and the URL of a table. Out: the new generation.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use zero_kv::counted::counted;
use zero_kv::publish::{Canary, Change, CommitOptions, Manifest, Publication, PublishError, ShardFile};
use zero_kv::slots::SlotRange;

use crate::errors::publish_exception;
use crate::raised::Raised;
use crate::watched::{Reporter, run_watched};

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
        format!("<zero_kv.Generation {number}, {}, {len_bytes} bytes>", counted(rows, "row"))
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
    allow: Vec<Change>,
}

/// Publishes files, each with its first and last slot. `lib/zero_kv/_publish.py` has the keyword arguments.
#[pyfunction]
#[pyo3(signature = (files, to, canary, note, parent, allow, progress))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn publish_files(
    py: Python<'_>,
    files: Vec<(PathBuf, u16, u16)>,
    to: String,
    canary: Option<PathBuf>,
    note: String,
    parent: Option<u64>,
    allow: Vec<String>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Generation> {
    let allow = changes(&allow)?;
    let shard = |(path, first_slot, last_slot)| ShardFile { path, slots: SlotRange { first_slot, last_slot } };
    let draft = Draft { shards: files.into_iter().map(shard).collect(), to, canary, note, parent, allow };
    let raised = Raised::default();
    let published = run_watched(py, &raised, progress.as_ref(), |reporter| draft.publish(&raised, reporter));
    committed(py, &raised, published?)
}

/// Returns the changes with some names.
pub(crate) fn changes(names: &[String]) -> PyResult<Vec<Change>> {
    let change = |name: &String| {
        Change::from_name(name).ok_or_else(|| {
            let expected = Change::ALL.map(Change::name).join(", ");
            PyValueError::new_err(format!("allow has {name:?}, where a list of these was expected: {expected}"))
        })
    };
    names.iter().map(change).collect()
}

/// Returns a new generation, or the exception that canceled its publication.
pub(crate) fn committed(
    py: Python<'_>,
    raised: &Raised,
    published: Result<Manifest, PublishError>,
) -> PyResult<Generation> {
    match (raised.take(), published) {
        (None, published) => Ok(published.map_err(|error| publish_exception(&error))?.into()),
        (Some(error), published) => {
            // A signal can arrive after the commit.
            if let Ok(manifest) = published {
                let note = format!("generation {} was published before this exception", manifest.number);
                error.value(py).call_method1("add_note", (note,))?;
            }
            Err(error)
        }
    }
}

impl Draft {
    fn publish(&self, raised: &Raised, reporter: &mut Reporter) -> Result<Manifest, PublishError> {
        let canaries = self.canary.as_deref().map(Canary::read_file).transpose()?.unwrap_or_default();
        let (allow, note) = (self.allow.clone(), self.note.clone());
        let options = CommitOptions { parent: self.parent, canaries, allow, note, ..CommitOptions::default() };
        ShardFile::check_coverage(&self.shards)?;
        let publication = Publication::create(&self.to)?;
        publication.check_parent(self.parent)?;
        let mut report = |(at, progress): (usize, _)| reporter.report(progress, Some(&self.shards[at].path));
        publication.publish(&self.shards, &options, raised.cancel.with_progress(&mut report))
    }
}
