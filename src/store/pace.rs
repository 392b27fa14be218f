//! Long work on a file: cancels it, observes its progress, and divides it among threads.
//!
//! Reasons and evidence: `docs/decisions/cancellation.md`.

use std::fmt;
use std::io;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A callback that observes and cancels long work on a file: reading, copying, and checking. The work calls the
/// callback before each window of at most 8 MiB. Once the callback returns `false`, the work ends with
/// [`StoreError::Canceled`](super::StoreError::Canceled). All later work with this `Pace`, or with a clone of it, also
/// ends with this error. The default `Pace` never cancels.
///
/// # Example
/// ```
/// # #[cfg(feature = "bake")] {
/// # use zero_kv::bake::{self, Options};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("storage.db");
/// # bake::bake_csv("7,seven\n".as_bytes(), &path, &Options::default())?;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// use zero_kv::{OpenOptions, Pace, Store, StoreError};
///
/// let stop = Arc::new(AtomicBool::new(false));
/// let flag = Arc::clone(&stop);
/// let options = OpenOptions { pace: Pace::new(move || !flag.load(Ordering::Relaxed)), ..OpenOptions::default() };
/// assert!(Store::open_with(&path, &options).is_ok());
/// stop.store(true, Ordering::Relaxed);
/// assert!(matches!(Store::open_with(&path, &options), Err(StoreError::Canceled { .. })));
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Pace(Option<Arc<Observer>>);

struct Observer {
    goes_on: Box<dyn Fn() -> bool + Send + Sync>,
    is_canceled: AtomicBool,
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("is_canceled", &self.is_canceled()).finish_non_exhaustive()
    }
}

impl Pace {
    /// Returns a `Pace` that calls `goes_on` before each window of at most 8 MiB, on the thread that does the work. The
    /// work is canceled when `goes_on` first returns `false`.
    pub fn new(goes_on: impl Fn() -> bool + Send + Sync + 'static) -> Pace {
        Pace(Some(Arc::new(Observer { goes_on: Box::new(goes_on), is_canceled: AtomicBool::new(false) })))
    }

    /// Returns whether the work may continue with the next window of bytes. After the first `false`, the caller must
    /// discard the result of the work.
    pub(crate) fn goes_on(&self) -> bool {
        let Some(observer) = &self.0 else { return true };
        if !observer.is_canceled.load(Ordering::Relaxed) && !(observer.goes_on)() {
            observer.is_canceled.store(true, Ordering::Relaxed);
        }
        !observer.is_canceled.load(Ordering::Relaxed)
    }

    /// Returns whether the work was canceled. If so, the caller must discard the result of the work.
    pub(crate) fn is_canceled(&self) -> bool {
        self.0.as_ref().is_some_and(|observer| observer.is_canceled.load(Ordering::Relaxed))
    }
}

/// The maximum number of threads that work on a file.
const THREADS_MAX: usize = 16;

/// Calls `work` for each item of `parts`, on one thread per processor, but at most [`THREADS_MAX`] threads. The threads
/// take the items in order until none is left or `pace` cancels the work. If a call of `work` fails, the thread that
/// made the call takes no more items, but the other threads continue.
pub(super) fn for_each_part<T>(
    parts: impl Iterator<Item = T> + Send,
    pace: &Pace,
    work: impl Fn(T) -> io::Result<()> + Sync,
) -> io::Result<()> {
    let parts = Mutex::new(parts.take_while(|_| pace.goes_on()));
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work_on = || {
        while let Some(part) = next() {
            work(part)?;
        }
        Ok(())
    };
    let helpers = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX) - 1;
    thread::scope(|scope| {
        // If the system cannot start a thread, the remaining threads process all parts.
        let helpers: Vec<_> =
            (0..helpers).filter_map(|_| thread::Builder::new().spawn_scoped(scope, work_on).ok()).collect();
        let mut done = work_on();
        for helper in helpers {
            done = done.and(helper.join().unwrap_or_else(|payload| panic::resume_unwind(payload)));
        }
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn every_part_is_processed_once_and_a_failure_is_returned() {
        let processed = Mutex::new(Vec::new());
        let work = |part: u32| {
            processed.lock().unwrap().push(part);
            if part == 700 { Err(io::Error::other("the 700th")) } else { Ok(()) }
        };
        for_each_part(0..500, &Pace::default(), work).unwrap();
        let mut parts = std::mem::take(&mut *processed.lock().unwrap());
        parts.sort_unstable();
        assert!(parts.into_iter().eq(0..500));
        assert_eq!(for_each_part(500..1000, &Pace::default(), work).unwrap_err().to_string(), "the 700th");
    }

    #[test]
    fn canceled_work_ends_after_the_parts_that_were_started() {
        for goes_on in [0, 1, 7, 99] {
            let calls = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&calls);
            let pace = Pace::new(move || counter.fetch_add(1, Ordering::Relaxed) < goes_on);
            let done = AtomicUsize::new(0);
            for_each_part(0..100, &pace, |_| {
                done.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
            assert!(pace.is_canceled());
            assert_eq!((done.into_inner(), calls.load(Ordering::Relaxed)), (goes_on, goes_on + 1));
        }
    }
}
