//! The class `Published`: a table that is followed in an object store.
//!
//! In: a URL, and a folder. Out: the lookups of `Table`, in the current generation.

use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use zero_kv::publish::{FollowOptions, Follower};
use zero_kv::slots::SlotRange;

use crate::arguments::duration;
use crate::current_table::CurrentTable;
use crate::errors::{Closed, publish_exception};
use crate::following::Following;
use crate::local_table::LocalTable;
use crate::lookup_table::Arguments;
use crate::served::fork_count;
use crate::table::{Table, table_in};

/// The shortest mean time between two polls, as that of `kv_store`.
const POLL_MIN: Duration = Duration::from_millis(10);

/// The threads of this process. A thread locks this mutex only while it holds Python's global lock, so that no child
/// process inherits a locked mutex.
static FOLLOWED: Mutex<Vec<Weak<FollowedTable>>> = Mutex::new(Vec::new());

/// A published table, which this process follows without a server.
///
/// The newest generation, or the one that the newest pin selects, is fetched into the folder `cache`, verified, and
/// mapped. A thread then polls the store every `poll_seconds` on average, and lookups use a new generation as soon as
/// it is fetched and verified, and has passed its canaries. If the folder has a complete generation, the constructor does
/// not wait for the store. If the store cannot be read, or a generation is damaged, lookups continue in the current
/// generation, and `last_error` has the reason.
///
/// One process at a time can use a folder, which keeps `keep` generations. The process reports its state to the store
/// under the name `node`, by default the machine's name, and in the zone `zone`, so that a rollout can proceed zone by zone.
/// `bandwidth_bytes_per_second` limits downloads. With `slots`, such
/// as `range(0, 8192)`, only the files that have some of these slots are fetched, and the table has only their rows.
/// `strict` is described at `LookupTable`.
///
/// `progress` is called with a `Progress` during downloads, from the thread, at most ten times per second. Its exceptions
/// end the constructor. After that, they are passed to `sys.unraisablehook`.
///
/// After a fork, the child process continues to use the generation that was current, and does not follow the table.
///
/// Raises `StoreFailed` if the folder has no complete generation and the store cannot be read, `PublishFailed` if the
/// table has no usable generation, `OSError` if the folder cannot be used, and `ValueError` for a malformed URL.
#[pyclass(frozen, extends = Table, module = "zero_kv")]
pub(crate) struct Published {
    followed: Arc<FollowedTable>,
}

/// A published table with the thread that follows it.
pub(crate) struct FollowedTable {
    table: Arc<CurrentTable>,
    /// `None` only in `drop`.
    following: Option<Following>,
    /// The number of forks before the thread was started.
    forks: u64,
}

impl FollowedTable {
    /// Returns the thread, or `None` in a child process, which has no such thread.
    fn following(&self) -> Option<&Following> {
        self.following.as_ref().filter(|_| self.forks == fork_count())
    }

    fn stop(&self, py: Python<'_>) {
        if let Some(following) = self.following() {
            following.stop(py);
        }
    }
}

impl Drop for FollowedTable {
    fn drop(&mut self) {
        if self.following().is_none() {
            // Dropping the parent's thread would lock what this thread may have locked during the fork.
            mem::forget(self.following.take());
        }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        // Python drops its objects while it holds the global lock.
        Python::attach(|py| self.followed.stop(py));
    }
}

/// Stops all threads that follow tables. Python calls this function before the process exits, because these threads may
/// run Python code.
#[pyfunction]
pub(crate) fn stop_following(py: Python<'_>) {
    let followed = mem::take(&mut *FOLLOWED.lock().unwrap_or_else(PoisonError::into_inner));
    for table in followed.iter().filter_map(Weak::upgrade) {
        table.stop(py);
    }
}

#[pymethods]
impl Published {
    #[new]
    #[pyo3(signature = (url, *, cache, poll_seconds = 5.0, progress = None, node = None, zone = None, keep = 3,
                        bandwidth_bytes_per_second = None, slots = None, strict = false))]
    #[expect(clippy::too_many_arguments, reason = "one for each keyword argument")]
    fn new(
        py: Python<'_>,
        url: String,
        cache: PathBuf,
        poll_seconds: f64,
        progress: Option<Py<PyAny>>,
        node: Option<String>,
        zone: Option<String>,
        keep: u16,
        bandwidth_bytes_per_second: Option<u64>,
        slots: Option<Bound<'_, PyAny>>,
        strict: bool,
    ) -> PyResult<PyClassInitializer<Published>> {
        let node = node.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
        let mut options = FollowOptions::new(cache, node);
        options.zone = zone.unwrap_or_default();
        options.poll = duration("poll_seconds", poll_seconds)?;
        if options.poll < POLL_MIN || keep == 0 {
            let message = format!(
                "poll_seconds is {poll_seconds} and keep is {keep}, where at least {} and 1 were expected",
                POLL_MIN.as_secs_f64()
            );
            return Err(PyValueError::new_err(message));
        }
        (options.keep, options.bandwidth_bytes_per_s) = (keep.into(), bandwidth_bytes_per_second);
        if let Some(slots) = slots {
            let bounds = py.import("zero_kv._publish")?.call_method1("slot_bounds", (slots,))?;
            let (first_slot, last_slot) = bounds.extract()?;
            options.slots = SlotRange { first_slot, last_slot };
        }
        let follower = py.detach(|| Follower::open(&url, options)).map_err(|error| publish_exception(&error))?;
        let (following, table) = Following::start(py, url, follower, progress)?;
        let followed =
            Arc::new(FollowedTable { table: Arc::clone(&table), following: Some(following), forks: fork_count() });
        let mut all = FOLLOWED.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&followed));
        let arguments = Arguments::Impossible(UNPICKLABLE);
        Ok(table_in(LocalTable::Published(table), strict, arguments).add_subclass(Published { followed }))
    }

    /// The table's URL.
    #[getter]
    fn url(&self) -> &str {
        &self.followed.table.url
    }

    /// The number of the generation that lookups use, as its publisher assigned it.
    #[getter]
    fn generation(&self) -> u64 {
        self.followed.table.number()
    }

    /// Why lookups do not use the generation that they should use, or `None`.
    #[getter]
    fn last_error(&self) -> Option<String> {
        match self.followed.following() {
            Some(following) => following.last_error(),
            None => Some(FORKED.to_owned()),
        }
    }

    /// Poll the store now, and fetch a new generation if there is one. Return whether lookups use another generation
    /// than before.
    ///
    /// Raises `StoreFailed` or `PublishFailed` if lookups do not use the generation that they should use. They continue in
    /// the current generation.
    fn refresh(&self, py: Python<'_>) -> PyResult<bool> {
        let following = self.followed.following().ok_or_else(|| Closed::new_err(FORKED))?;
        let before = self.generation();
        following.poll(py)?;
        Ok(self.generation() != before)
    }

    /// Stop following the table, and unlock the folder. Lookups continue in the current generation.
    fn close(&self, py: Python<'_>) {
        self.followed.stop(py);
    }
}

/// Why a published table cannot be pickled.
const UNPICKLABLE: &str = "a Published cannot be pickled: create one in each process, with its own cache";
/// Why a child process does not follow a table.
const FORKED: &str = "the process was forked, and the table is not followed here: open it again in this process, with \
                      another cache";
