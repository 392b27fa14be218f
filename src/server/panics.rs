//! Catches panics, so that each ends only one connection or one turn of a thread.
//!
//! In: a function or a future to run. Out: its result, or the place and the message of its panic. The caller discards
//! what the panic left incomplete.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::pin::pin;
use std::sync::Once;
use std::task::Poll;

thread_local! {
    /// Whether panics of this thread are caught now.
    static CATCHES: Cell<bool> = const { Cell::new(false) };
    /// The place and the message of the last caught panic.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Installs a panic hook: from now on, panics that [`catch`] catches are reported only to its caller, which logs them
/// in one line. With RUST_BACKTRACE, they are also printed. Other panics go to the previous hook.
pub(super) fn take_over() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = panic::take_hook();
        let prints = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");
        panic::set_hook(Box::new(move |info| {
            if CATCHES.get() {
                CAUGHT.set(Some(describe(info)));
            }
            if !CATCHES.get() || prints {
                others(info);
            }
        }));
    });
}

/// Runs a function and catches its panic.
///
/// # Errors
/// The place and the message of the panic. The place is only known after [`take_over`].
#[inline]
pub(super) fn catch<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    let caught_outside = CATCHES.replace(true);
    let ran = panic::catch_unwind(AssertUnwindSafe(run));
    CATCHES.set(caught_outside);
    ran.map_err(|payload| CAUGHT.take().unwrap_or_else(|| message(&*payload).to_owned()))
}

/// Polls a future until it is ready or panics, and then drops it.
///
/// # Errors
/// The place and the message of the panic: see [`catch`].
pub(super) async fn catch_in<T>(future: impl Future<Output = T>) -> Result<T, String> {
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
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("for a reason that is no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_panics_is_told_with_its_place() {
        take_over();
        assert_eq!(catch(|| 7), Ok(7));
        let (line, number) = (line!() + 1, 7);
        let told = catch(|| assert!(number > 7, "{number} is not enough")).unwrap_err();
        assert_eq!(
            told.split_once(&format!("panics.rs:{line}:")).unwrap().1.split_once(": ").unwrap().1,
            "7 is not enough"
        );
        let told = catch(|| panic::panic_any(7)).unwrap_err();
        assert!(told.ends_with("for a reason that is no text"), "{told}");
    }
}
