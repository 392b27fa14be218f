//! The output of MONITOR.

use std::task::Context;

use super::Connection;
use crate::server::pass::Then;
use crate::server::stream::ClientStream;

impl<S: ClientStream> Connection<S> {
    /// Takes the next lines of the output of MONITOR, and stores them as pending responses. Returns false if there are
    /// no lines. If the user has lost the permission for MONITOR, closes the connection instead.
    #[inline]
    pub(super) fn take_monitor_lines(&mut self, cx: &Context<'_>) -> bool {
        let Some(monitor) = self.protocol.monitor() else { return false };
        // The waker is set before the queue is checked. Otherwise, lines that arrive right after the check would not
        // wake the task.
        self.context.activity.set_waker(cx.waker());
        let Some(lines) = monitor.next_lines() else { return false };
        if !self.protocol.may_monitor() {
            self.then = Then::Close;
            return true;
        }
        self.pending.get_or_insert_default().replace(&lines);
        self.begin_pending();
        self.moved();
        true
    }
}
