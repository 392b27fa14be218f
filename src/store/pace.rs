//! Cancels long work on a file, and observes its progress.
//!
//! Reasons and evidence: `docs/decisions/cancellation.md`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
