//! Catches panics, so that a panic ends only one connection or one unit of a thread's work.
//!
//! In: a function or a future to run. Out: its result, or the location and the message of its panic. The caller
//! discards the data that the panic left incomplete.
//!
//! Reasons and evidence: `docs/decisions/panics.md`.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::pin::pin;
use std::sync::Once;
use std::task::Poll;

thread_local! {
    /// Whether this thread runs inside [`catch`].
    static CATCHES: Cell<bool> = const { Cell::new(false) };
    /// The location and the message of the last panic that was caught.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Installs a panic hook. After this call, a panic inside [`catch`] is reported only to the caller of [`catch`], which
/// logs the panic in one line. If RUST_BACKTRACE is set, the previous hook prints the panic, too. All other panics go
/// to the previous hook.
pub(in crate::server) fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        let prints = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");
        panic::set_hook(Box::new(move |info| {
            if CATCHES.get() {
                CAUGHT.set(Some(describe(info)));
            }
            if !CATCHES.get() || prints {
                previous(info);
            }
        }));
    });
}

/// Runs a function and catches its panic.
///
/// # Errors
/// The location and the message of the panic. The location is known only after [`install_hook`] was called.
#[inline]
pub(in crate::server) fn catch<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    let caught_outside = CATCHES.replace(true);
    let ran = panic::catch_unwind(AssertUnwindSafe(run));
    CATCHES.set(caught_outside);
    ran.map_err(|payload| CAUGHT.take().unwrap_or_else(|| message(&*payload).to_owned()))
}

/// Polls a future until it is ready or panics, and then drops it.
///
/// # Errors
/// The location and the message of the panic: see [`catch`].
pub(in crate::server) async fn catch_in<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| match catch(|| future.as_mut().poll(cx)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let message = message(info.payload()).replace('\n', " ");
    match info.location() {
        Some(place) => format!("{place}: {message}"),
        None => message,
    }
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a payload that is not text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caught_panic_is_returned_with_its_location_and_message() {
        install_hook();
        assert_eq!(catch(|| 7), Ok(7));
        let (line, number) = (line!() + 1, 7);
        let caught = catch(|| assert!(number > 7, "{number} is not enough")).unwrap_err();
        assert_eq!(
            caught.split_once(&format!("panics.rs:{line}:")).unwrap().1.split_once(": ").unwrap().1,
            "7 is not enough"
        );
        let caught = catch(|| panic::panic_any(7)).unwrap_err();
        assert!(caught.ends_with("a payload that is not text"), "{caught}");
    }
}
