//! Shards that an engine such as Spark bakes in many processes, and commits in one.
//!
//! In: the rows of some slots, as the buffers of Arrow arrays. Out: an uploaded file and its entry, which can be sent
//! to another process. `lib/zero_kv/_shards.py` has the keyword arguments.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Instant;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyRange, PyTuple, PyType};
use zero_kv::bake::{self, Input, Options, RowPiece, TypedColumns};
use zero_kv::counted::counted;
use zero_kv::publish::{self, BakedShard, Canary, CommitOptions, Publication, PublishError};
use zero_kv::slots::SlotRange;

use crate::arguments::duplicates;
use crate::arrow_rows::ArrowRows;
use crate::bake::DeclaredColumns;
use crate::cells::columns_from;
use crate::errors::publish_exception;
use crate::publishing::{Generation, changes, committed};
use crate::raised::{Raised, SIGNALS_EVERY};
use crate::typed_key::parsed_key_type;
use crate::watched::run_watched;

/// An uploaded shard, which `write_shard` returns and `commit` publishes. Entries can be pickled and compared.
#[pyclass(frozen, eq, module = "zero_kv")]
#[derive(Clone, PartialEq)]
pub(crate) struct Entry(publish::Entry);

#[pymethods]
impl Entry {
    /// The slots of the shard's keys.
    #[getter]
    fn slots<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyRange>> {
        PyRange::new(py, self.0.slots.first_slot as isize, self.0.slots.last_slot as isize + 1)
    }

    /// The name of the object, relative to the table's URL.
    #[getter]
    fn object(&self) -> &str {
        &self.0.object
    }

    /// The number of rows.
    #[getter]
    fn rows(&self) -> u64 {
        self.0.rows
    }

    /// The length of the file in bytes.
    #[getter]
    fn len_bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The digest of the file.
    #[getter]
    fn digest(&self) -> &str {
        &self.0.digest
    }

    /// The type of the keys, such as `"u64"`, `"ip"`, or, for keys of two parts, `"bytes,date"`.
    #[getter]
    fn key_type(&self) -> &str {
        &self.0.key_kind
    }

    /// The columns of a typed table, as `name:type` text.
    #[getter]
    fn schema(&self) -> Vec<String> {
        self.0.schema.clone()
    }

    /// The name of the key's column in a typed table, or an empty text.
    #[getter]
    fn key_name(&self) -> &str {
        &self.0.key_name
    }

    /// Return the entry as JSON text.
    fn to_json(&self) -> String {
        self.0.to_json()
    }

    /// Return the entry that `to_json` wrote. Raises `ValueError` for other text.
    #[classmethod]
    fn from_json(_class: &Bound<'_, PyType>, text: &str) -> PyResult<Entry> {
        publish::Entry::from_json(text).map(Entry).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Return the entry as a dict of numbers and text.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        Ok(py.import("json")?.call_method1("loads", (self.to_json(),))?.cast_into()?)
    }

    /// Return the entry that `to_dict` made. Raises `ValueError` for another dict.
    #[classmethod]
    fn from_dict(class: &Bound<'_, PyType>, fields: &Bound<'_, PyAny>) -> PyResult<Entry> {
        let text: String = class.py().import("json")?.call_method1("dumps", (fields,))?.extract()?;
        Entry::from_json(class, &text)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        Ok((py.get_type::<Entry>().getattr("from_json")?, (self.to_json(),).into_pyobject(py)?))
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.object.hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("<zero_kv.Entry slots {}, {}, {} bytes>", self.0.slots, counted(self.0.rows, "row"), self.0.bytes)
    }
}

/// Bakes rows, and uploads the file.
///
/// `batches` has the buffers of batches: see `arrow_rows`. `has_numbers` is whether the arrays of keys have numbers.
#[pyfunction]
#[pyo3(signature = (batches, slots, to, keys, has_numbers, typed, options, temp_dir, progress))]
#[expect(clippy::too_many_arguments, reason = "one for each option; lib/zero_kv/_shards.py has keyword arguments")]
pub(crate) fn upload_shard(
    py: Python<'_>,
    batches: &Bound<'_, PyIterator>,
    slots: (u16, u16),
    to: &str,
    keys: &str,
    has_numbers: bool,
    typed: Option<DeclaredColumns>,
    options: (String, Option<u64>, Option<NonZero<usize>>),
    temp_dir: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Entry> {
    let (duplicates_name, memory_bytes, threads) = options;
    let raised = Raised::default();
    let mut options = Options::default();
    let key_type = parsed_key_type(keys)?;
    options.keys = key_type.into();
    options.duplicates = duplicates(&duplicates_name)?;
    (options.memory_bytes, options.threads, options.temp_dir) = (memory_bytes, threads, temp_dir);
    options.cancel = raised.cancel.clone();
    if let Some((types, key_name, _)) = typed {
        let mut columns = TypedColumns::default();
        columns.types = columns_from(types)?;
        (options.typed, options.key) = (Some(columns), key_name.map(bake::Column::Name));
    }
    let columns = options.typed.as_ref().map(|typed| &typed.types[..]);
    let rows = ArrowRows::new(batches.clone().unbind(), columns, key_type, has_numbers)?;
    let slots = SlotRange { first_slot: slots.0, last_slot: slots.1 };
    // The URL is checked before the first row is read.
    let publication = py.detach(|| Publication::create(to)).map_err(|error| publish_exception(&error))?;
    let baked = py.detach(|| bake_shard(rows, slots, &options, &raised));
    if let Some(raised) = raised.take() {
        return Err(raised);
    }
    let baked = baked.map_err(|error| publish_exception(&error))?;
    let uploaded = run_watched(py, &raised, progress.as_ref(), |reporter| {
        baked.upload(&publication, raised.cancel.with_progress(&mut |progress| reporter.report(progress, None)))
    })?;
    finished(&raised, uploaded).map(Entry)
}

fn bake_shard(
    mut rows: ArrowRows,
    slots: SlotRange,
    options: &Options,
    raised: &Raised,
) -> Result<BakedShard, PublishError> {
    let fill = |piece: &mut RowPiece| raised.guard(|py| rows.fill(py, piece));
    let mut checked = Instant::now();
    let mut check_signals = |_| {
        if checked.elapsed() >= SIGNALS_EVERY {
            checked = Instant::now();
            // The error needs no handling here: `guard` has stored the exception and canceled the bake.
            let _ = raised.guard(|py| py.check_signals());
        }
    };
    BakedShard::bake(vec![Input::rows("rows", fill)], slots, options.with_progress(&mut check_signals))
}

/// Creates the next generation from entries, and from the ranges of slots without rows.
#[pyfunction]
#[pyo3(signature = (entries, empty, to, canary, note, parent, allow))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn commit_entries(
    py: Python<'_>,
    entries: Vec<PyRef<'_, Entry>>,
    empty: Vec<(u16, u16)>,
    to: &str,
    canary: Option<PathBuf>,
    note: String,
    parent: Option<u64>,
    allow: Vec<String>,
) -> PyResult<Generation> {
    let allow = changes(&allow)?;
    let entries: Vec<publish::Entry> = entries.iter().map(|entry| entry.0.clone()).collect();
    let empty: Vec<_> = empty.iter().map(|slots| SlotRange { first_slot: slots.0, last_slot: slots.1 }).collect();
    let raised = Raised::default();
    let manifest = run_watched(py, &raised, None, |_| {
        let canaries = canary.as_deref().map(Canary::read_file).transpose()?.unwrap_or_default();
        let options = CommitOptions { parent, canaries, allow, note, ..CommitOptions::default() };
        Publication::create(to)?.commit_shards(entries, &empty, &options, &raised.cancel)
    });
    committed(py, &raised, manifest?)
}

/// Returns the number of the newest generation, or 0 if there is none.
#[pyfunction]
pub(crate) fn newest_generation(py: Python<'_>, url: &str) -> PyResult<u64> {
    let raised = Raised::default();
    let newest = run_watched(py, &raised, None, |_| Publication::create(url)?.newest())?;
    finished(&raised, newest)
}

/// Returns the number of a generation, by default of the newest one, and the entries of its shards.
#[pyfunction]
pub(crate) fn read_generation(py: Python<'_>, url: &str, number: Option<u64>) -> PyResult<(u64, Vec<Entry>)> {
    let raised = Raised::default();
    let manifest = run_watched(py, &raised, None, |_| Publication::open(url)?.manifest(number))?;
    let manifest = finished(&raised, manifest)?;
    Ok((manifest.number, manifest.entries.into_iter().map(Entry).collect()))
}

/// Downloads the file of a shard to `path`.
#[pyfunction]
pub(crate) fn pull_shard(py: Python<'_>, url: &str, entry: &Entry, path: PathBuf) -> PyResult<()> {
    let raised = Raised::default();
    let pulled =
        run_watched(py, &raised, None, |_| Publication::open(url)?.pull_shard(&entry.0, &path, &raised.cancel))?;
    finished(&raised, pulled)
}

/// Returns the result of an operation, or the exception that canceled it.
fn finished<T>(raised: &Raised, result: Result<T, PublishError>) -> PyResult<T> {
    match raised.take() {
        Some(raised) => Err(raised),
        None => result.map_err(|error| publish_exception(&error)),
    }
}
