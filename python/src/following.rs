//! The thread that follows a published table.
//!
//! In: a follower of the library, which fetches and verifies generations. Out: the current table, and the result of
//! each poll. The thread runs Python code only to report progress. It does not exist in a child process of a fork:
//! no function that locks something of the thread may be called there.
//!
//! Reasons and evidence: `docs/decisions/python-published.md`.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use pyo3::prelude::*;
use zero_kv::MappedStore;
use zero_kv::cluster::SlotSet;
use zero_kv::publish::{FailureKind, FollowControl, Follower, Manifest, Polled, PublishError};

use crate::current_table::{CurrentTable, NumberedTable};
use crate::errors::{Closed, follow_exception};
use crate::progress::{Progress, ReportRate};
use crate::raised::{Raised, SIGNALS_EVERY};

/// Why a table that was followed successfully has no current generation.
const HOLDING: &str =
    "the generation is fetched, but waits for the decision of a rollout: decide it, or unpin the table";

/// A thread that follows a published table.
pub(crate) struct Following {
    control: FollowControl,
    state: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread reports.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The table, as soon as there is a generation.
    table: Option<Arc<CurrentTable>>,
    /// The number of the last poll that has ended.
    polled: u64,
    /// Why that poll failed.
    failure: Option<(FailureKind, String)>,
    has_ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until `is_done` returns a result. Signals, and exceptions in `raised`, end the wait.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        raised: &Raised,
        mut is_done: impl FnMut(&mut State) -> Option<T> + Send,
    ) -> PyResult<T> {
        loop {
            let done = py.detach(|| {
                let mut state = self.lock();
                if let Some(done) = is_done(&mut state) {
                    return Some(done);
                }
                let waited = self.changed.wait_timeout(state, SIGNALS_EVERY);
                is_done(&mut waited.unwrap_or_else(PoisonError::into_inner).0)
            });
            if let Some(error) = raised.take() {
                return Err(error);
            }
            if let Some(done) = done {
                return Ok(done);
            }
            py.check_signals()?;
        }
    }
}

impl Following {
    /// Starts a thread, and waits for the first generation: the last one in the cache, or otherwise the result of the
    /// first poll.
    pub(crate) fn start(
        py: Python<'_>,
        url: String,
        mut follower: Follower,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(Following, Arc<CurrentTable>)> {
        let (control, state, raised) = (follower.control(), Arc::new(Shared::default()), Raised::default());
        if let Some(progress) = progress {
            observe(&mut follower, progress, raised.clone(), Arc::downgrade(&state));
        }
        let shared = Arc::clone(&state);
        let run = move || {
            run(follower, url, &shared);
            shared.change(|state| state.has_ended = true);
        };
        let thread = thread::Builder::new().name("zero-kv follow".to_owned()).spawn(run)?;
        let following = Following { control, state, thread: Mutex::new(Some(thread)) };
        let opened = following.state.wait(py, &raised, |state| match (&state.table, state.polled, state.has_ended) {
            (Some(table), ..) => Some(Ok(Arc::clone(table))),
            (None, 0, false) => None,
            (None, ..) => Some(Err(state.failure.take())),
        });
        let opened = opened.and_then(|opened| {
            opened.map_err(|failure| match failure {
                Some((kind, message)) => follow_exception(kind, message),
                None => follow_exception(FailureKind::Other, HOLDING.to_owned()),
            })
        });
        match opened {
            Ok(table) => Ok((following, table)),
            Err(error) => {
                following.stop(py);
                Err(error)
            }
        }
    }

    /// Polls now, and waits for the result.
    pub(crate) fn poll(&self, py: Python<'_>) -> PyResult<()> {
        if self.control.is_stopped() {
            return Err(Closed::new_err("the table is closed, and no longer followed: open it again"));
        }
        // A poll that has begun may have read the store too early.
        let before = self.control.facts().polls;
        self.control.poll();
        let polled = self.state.wait(py, &Raised::default(), |state| match (state.polled > before, state.has_ended) {
            (true, _) => Some(Ok(state.failure.clone())),
            (false, true) => Some(Err(())),
            (false, false) => None,
        });
        match polled? {
            Ok(None) => Ok(()),
            Ok(Some((kind, message))) => Err(follow_exception(kind, message)),
            Err(()) => Err(ended()),
        }
    }

    /// Returns why the generation that should be served is not current.
    pub(crate) fn last_error(&self) -> Option<String> {
        Some(self.control.facts().status.error).filter(|error| !error.is_empty())
    }

    /// Stops the thread, and waits until it has ended and has unlocked the cache.
    pub(crate) fn stop(&self, py: Python<'_>) {
        self.control.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The callable that observes the progress runs in the thread, and may call this function.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            // A panic was already written to standard error.
            let _ = py.detach(|| thread.join());
        }
    }
}

fn ended() -> PyErr {
    Closed::new_err("the thread that follows the table has ended: open the table again")
}

/// Passes the progress of downloads to a callable. Until there is a generation, an exception ends the follower.
/// Afterward, `sys.unraisablehook` receives exceptions.
fn observe(follower: &mut Follower, progress: Py<PyAny>, raised: Raised, state: Weak<Shared>) {
    let (control, mut rate) = (follower.control(), ReportRate::default());
    follower.observe(move |report| {
        if control.is_stopped() || !rate.admits(report) {
            return;
        }
        let is_open = state.upgrade().is_some_and(|state| state.lock().table.is_some());
        let call = |py: Python<'_>| progress.call1(py, (Progress::new(report, None),)).map(drop);
        let called = raised.guard(|py| match call(py) {
            Err(error) if is_open => {
                error.write_unraisable(py, Some(progress.bind(py)));
                Ok(())
            }
            called => called,
        });
        if called.is_err() {
            control.stop();
        }
    });
}

/// Follows a table until the follower is stopped.
fn run(mut follower: Follower, url: String, shared: &Arc<Shared>) {
    let (control, served) = (follower.control(), Arc::clone(shared));
    follower.serve_with(move |path, manifest| serve_file(&served, &url, path, manifest));
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let failure = (FailureKind::Other, format!("the table cannot be followed: {error}"));
            return shared.change(|state| state.failure = Some(failure));
        }
    };
    follower.serve_from_cache();
    let polled = |result: &Result<Polled, PublishError>| {
        let polled = control.facts().polls;
        shared.change(|state| (state.polled, state.failure) = (polled, failure(result)));
    };
    runtime.block_on(follower.run(polled));
    // A request that waits for the system, such as a look-up of a name, does not delay the end.
    runtime.shutdown_background();
}

/// Makes lookups use the file at a path, if it satisfies the canaries of its generation.
fn serve_file(shared: &Shared, url: &str, path: &Path, manifest: &Manifest) -> Result<(), String> {
    let table = MappedStore::open(path).map_err(|error| error.to_string())?;
    manifest.check_canaries(&table, &SlotSet::ALL)?;
    let next = NumberedTable { number: manifest.number, table: Arc::new(table) };
    shared.change(|state| match &state.table {
        Some(current) => current.replace(next),
        None => state.table = Some(Arc::new(CurrentTable::new(url.to_owned(), next))),
    });
    Ok(())
}

/// Returns why a poll failed.
fn failure(result: &Result<Polled, PublishError>) -> Option<(FailureKind, String)> {
    let (kind, message) = match result {
        Ok(Polled::Current(_) | Polled::Served(_) | Polled::Holding(_)) => return None,
        Ok(Polled::Waiting(number)) => {
            (FailureKind::Other, format!("generation {number} failed, and is tried again later"))
        }
        // A table that Python follows is not part of a cluster, so it has all slots.
        Ok(Polled::Empty | Polled::Unassigned) => {
            (FailureKind::Missing, "the table has no generation: check the URL, or publish a file".to_owned())
        }
        Err(error) => (error.kind(), error.to_string()),
    };
    Some((kind, message))
}
