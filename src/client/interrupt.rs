//! Lets the host of this library end calls of blocking clients when a signal arrives.
//!
//! In: one function per process. Out: whether a wait that a signal interrupted continues.

use std::sync::OnceLock;

static CHECK: OnceLock<fn() -> bool> = OnceLock::new();

/// Sets the function that blocking clients call when a signal interrupts their wait for a server. If the function returns
/// true, the call fails with [`ClientError::Io`](super::ClientError::Io) and an error of kind
/// [`Interrupted`](std::io::ErrorKind::Interrupted), and the connection is closed. Otherwise, or without a function, the
/// call continues to wait.
///
/// The function is for hosts with their own handling of signals, such as the interpreter of another language. It applies
/// to all clients of the process. Returns false, and changes nothing, if a function was already set.
pub fn set_interrupt_check(check: fn() -> bool) -> bool {
    CHECK.set(check).is_ok()
}

/// Returns whether a call that a signal has interrupted must end.
pub(super) fn is_requested() -> bool {
    CHECK.get().is_some_and(|check| check())
}
