//! Processes a file on several threads, range by range. In this module, a part is a range of the file's bytes.

use std::io;
use std::panic;
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::pace::Pace;

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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

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
