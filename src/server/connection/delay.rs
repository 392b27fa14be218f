//! The timer of a connection whose next response is delayed.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::time::{Sleep, sleep_until};

/// The timer of a delayed response. Allocated for the first delay of a connection.
#[derive(Default)]
pub(super) struct Delay(Option<Pin<Box<Sleep>>>);

impl Delay {
    /// Returns `Ready` if the time `until` has come. Otherwise, the task is woken at that time.
    #[cold]
    pub(super) fn poll_until(&mut self, cx: &mut Context<'_>, until: Instant) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(until.into())));
        if sleep.deadline() != until.into() {
            sleep.as_mut().reset(until.into());
        }
        sleep.as_mut().poll(cx)
    }
}
