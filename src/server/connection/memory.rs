//! Reports the memory that a connection holds between turns, and refuses the unfinished request of a connection that is
//! evicted (closed to free memory).

use std::pin::Pin;
use std::task::Context;

use super::Connection;
use super::protocol::Protocol;
use crate::server::pass::Then;
use crate::server::stream::ClientStream;
use crate::setting::Setting;

impl<S: ClientStream> Connection<S> {
    /// Records the number of bytes that the connection holds, if it has changed since the last turn.
    #[inline]
    pub(super) fn report_held(&self, cx: &Context<'_>) {
        let held_bytes = self.held_bytes();
        let before_bytes = self.context.activity.held_bytes();
        if held_bytes != before_bytes {
            self.report_changed(held_bytes, held_bytes > before_bytes, cx);
        }
    }

    /// Returns the number of bytes that are allocated for the connection: for unanswered requests, pending responses, and
    /// the sessions of both protocols and of TLS, and by the kernel for its socket.
    fn held_bytes(&self) -> u64 {
        let pending_bytes = self.pending.as_ref().map_or(0, |pending| pending.capacity_bytes());
        let session_bytes = match &self.protocol {
            Protocol::Redis(session) => session.held_bytes(),
            Protocol::Native(session) => session.held_bytes(),
            Protocol::Unknown => 0,
        };
        let own_bytes = self.stream.held_bytes() + self.unanswered.capacity_bytes() + pending_bytes + session_bytes;
        own_bytes as u64 + self.context.activity.socket_bytes()
    }

    #[cold]
    fn report_changed(&self, held_bytes: u64, has_grown: bool, cx: &Context<'_>) {
        let server = &self.context.worker.server;
        // A connection that holds memory may be evicted. The eviction wakes the connection's task.
        self.context.activity.set_waker(cx.waker());
        server.client_memory.record(&self.context.activity, held_bytes);
        if has_grown {
            server.evict_if_over_limit();
        }
    }

    /// Answers the unfinished request of an evicted connection with an error, if the socket takes the error at once.
    /// Sends no error if a response is partly sent, because the client would mistake the error for the rest of the
    /// response.
    pub(super) fn refuse_unfinished(&mut self, cx: &mut Context<'_>) {
        let is_pending = self.pending.as_ref().is_some_and(|pending| !pending.is_empty());
        if self.unanswered.is_empty() || is_pending || self.then != Then::Read {
            return;
        }
        let max_bytes = self.context.worker.server.client_memory.max_bytes;
        let error = self.protocol.error(&format!(
            "all connections together hold more than {max_bytes} bytes ({}), and this one is among those that hold the \
             most: send shorter commands, or try again later",
            Setting::ClientMemoryMax
        ));
        // The connection ends, whether or not the client learns the reason.
        let _ = Pin::new(&mut self.stream).poll_write(cx, &error);
    }
}
