//! Reads requests while their client does not receive the responses to earlier requests.
//!
//! Most clients send a whole pipeline before they read a response. If the server stopped reading while responses are
//! pending, such a client and the server would wait for each other. So the connection keeps the requests, which are
//! usually shorter than their responses, until the socket takes the pending responses. A client that sends more than
//! the limit gets the responses to the requests within the limit, then an error, and is then disconnected.

use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;
use tracing::warn;

use super::{Connection, End};
use crate::server::pass::Then;
use crate::server::stream::ClientStream;
use crate::server::turn::Turn;
use crate::setting::Setting;

/// The state of a connection's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// The client may send more bytes.
    Open,
    /// The client has closed its sending side of the connection.
    Ended,
    /// The client has sent more unanswered requests than `Protocol::unanswered_max_bytes` allows. All further
    /// bytes from the client are discarded.
    Discarded,
}

impl<S: ClientStream> Connection<S> {
    /// Reads more requests if responses are pending because the socket does not take them.
    ///
    /// # Errors
    /// If the connection has failed.
    #[inline]
    pub(super) fn read_ahead(&mut self, cx: &mut Context<'_>, input: &mut [u8], turn: &mut Turn) -> io::Result<()> {
        match &self.pending {
            Some(pending) if !pending.is_empty() => match self.poll_read_ahead(cx, input, turn) {
                Poll::Ready(result) => result,
                Poll::Pending => Ok(()),
            },
            _ => Ok(()),
        }
    }

    #[inline(never)]
    fn poll_read_ahead(&mut self, cx: &mut Context<'_>, input: &mut [u8], turn: &mut Turn) -> Poll<io::Result<()>> {
        // While a login is delayed, nothing is read.
        let is_closing = matches!(self.then, Then::Close | Then::Delay(_)) || self.context.worker.is_stopping();
        // If the turn has ended, responses may be pending although the socket has room for them.
        if turn.has_ended || self.input == Input::Ended || is_closing {
            return Poll::Ready(Ok(()));
        }
        let max_bytes = self.context.worker.server.settings.limits.buffer_max_bytes;
        let max_bytes = self.protocol.unanswered_max_bytes(max_bytes);
        loop {
            if turn.is_over() {
                return self.poll_others(cx, turn);
            }
            let mut buffer = ReadBuf::new(input);
            ready!(self.poll_read(cx, &mut buffer))?;
            let read = buffer.filled();
            if read.is_empty() {
                if self.input == Input::Open {
                    self.input = Input::Ended;
                }
                return Poll::Ready(Ok(()));
            }
            self.context.worker.counters().read(read.len());
            turn.use_input(read.len());
            if self.input == Input::Discarded {
                continue;
            }
            if self.unanswered.len_bytes() + read.len() > max_bytes {
                self.input = Input::Discarded;
                continue;
            }
            self.unanswered.push(read);
            self.context.activity.count_progress(read.len());
            self.moved();
            if matches!(self.then, Then::Read | Then::Wait(_)) {
                self.then = Then::Answer;
            }
        }
    }

    /// Ends a connection whose last response is sent. If the input is [`Input::Discarded`], first reads and discards
    /// all bytes that the client still sends. Otherwise, the kernel would discard the last responses before the client
    /// could read them.
    pub(super) fn poll_close(&mut self, cx: &mut Context<'_>, input: &mut [u8]) -> Poll<io::Result<End>> {
        if self.input == Input::Discarded && !self.context.worker.is_stopping() {
            self.end_pending();
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            loop {
                let mut buffer = ReadBuf::new(input);
                ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
                if buffer.filled().is_empty() {
                    break;
                }
            }
        }
        Poll::Ready(Ok(End::Connection))
    }

    /// Stores an error as the last pending response of a client whose input is [`Input::Discarded`]. The caller must
    /// already have answered all complete requests that arrived before the discarded bytes.
    #[cold]
    pub(super) fn refuse_excess(&mut self) {
        let server = &self.context.worker.server;
        let max_bytes = self.protocol.unanswered_max_bytes(server.settings.limits.buffer_max_bytes);
        server.statistics.totals.cut_buffer.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = server.excess_log.line() {
            warn!(
                peer = %self.context.peer,
                left_out,
                "disconnected: the client sent more than {max_bytes} bytes of requests without receiving the responses ({})",
                Setting::BufferMax
            );
        }
        let error = self.protocol.error(&format!(
            "more than {max_bytes} bytes of commands wait for their replies to be received ({}): the rest of the \
             pipeline was not executed; receive replies while sending, or send shorter pipelines",
            Setting::BufferMax
        ));
        self.unanswered = Default::default();
        self.pending.get_or_insert_default().replace(&error);
        self.begin_pending();
        self.then = Then::Close;
    }
}
