//! One client's connection: read, answer, send, in turns.
//!
//! A connection owns no buffer. It reads into its worker's, answers out of it,
//! and keeps only what must wait: a request that has not come whole, and the
//! requests whose answers the client has not taken. Answers follow from their
//! requests, so what is kept stays small however long the answers are, and
//! nothing more is read before they are sent.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tracing::debug;
use zerocopy::FromBytes;

use super::answers::{Answers, PASS_REQUESTS_MAX};
use super::worker::Shared;
use crate::protocol::native::{REQUEST_LEN_BYTES, Request};

/// What is read at a time. Longer than a common batch of 256 requests: a read
/// that does not fill its buffer tells that the socket is empty.
const READ_LEN_BYTES: usize = PASS_REQUESTS_MAX * REQUEST_LEN_BYTES;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
}

/// A worker's buffers.
struct Scratch {
    input: Box<[u8]>,
    answers: Answers,
}

impl Scratch {
    fn new() -> Self {
        Scratch { input: vec![0; REQUEST_LEN_BYTES + READ_LEN_BYTES].into(), answers: Answers::new() }
    }
}

/// A connection, which is done when the client is, or the server.
pub(super) struct Connection {
    stream: UnixStream,
    shared: Arc<Shared>,
    /// The beginning of a request.
    partial: [u8; REQUEST_LEN_BYTES],
    partial_len_bytes: usize,
    owed: Owed,
}

/// Requests that were read, and whose answers are not sent.
#[derive(Default)]
struct Owed {
    requests: Vec<u8>,
    /// What was sent of the first one's answer.
    sent_bytes: usize,
}

impl Connection {
    pub(super) fn new(stream: StdUnixStream, shared: Arc<Shared>) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let stream = UnixStream::from_std(stream)?;
        let partial = [0; REQUEST_LEN_BYTES];
        Ok(Connection { stream, shared, partial, partial_len_bytes: 0, owed: Owed::default() })
    }

    fn poll_serve(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<io::Result<()>> {
        let Scratch { input, answers } = scratch;
        loop {
            if !self.owed.requests.is_empty() {
                ready!(self.poll_owed(cx, answers))?;
            }
            if self.shared.is_stopping() {
                return Poll::Ready(Ok(()));
            }
            let held = self.partial_len_bytes;
            let mut buffer = ReadBuf::new(&mut input[held..held + READ_LEN_BYTES]);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
            let end = held + buffer.filled().len();
            if end == held {
                return Poll::Ready(Ok(()));
            }
            input[..held].copy_from_slice(&self.partial[..held]);
            let whole = end - end % REQUEST_LEN_BYTES;
            self.partial_len_bytes = end - whole;
            self.partial[..end - whole].copy_from_slice(&input[whole..end]);

            let requests = typed(&input[..whole]);
            let (unanswered, sent_bytes, polled) = self.poll_answer(cx, requests, 0, answers);
            if polled.is_pending() {
                // All that a read can bring, so that the buffer never grows again.
                self.owed.requests.reserve_exact(READ_LEN_BYTES);
                self.owed.requests.extend_from_slice(&input[unanswered * REQUEST_LEN_BYTES..whole]);
                self.owed.sent_bytes = sent_bytes;
                self.shared.owes();
            }
            ready!(polled)?;
        }
    }

    /// Sends the answers that are owed.
    fn poll_owed(&mut self, cx: &mut Context<'_>, answers: &mut Answers) -> Poll<io::Result<()>> {
        let Owed { requests, sent_bytes } = std::mem::take(&mut self.owed);
        let (unanswered, sent_bytes, polled) = self.poll_answer(cx, typed(&requests), sent_bytes, answers);
        // The buffer is kept: a client that often reads late costs no allocation each time.
        self.owed = Owed { requests, sent_bytes };
        if polled.is_pending() {
            self.owed.requests.drain(..unanswered * REQUEST_LEN_BYTES);
        } else {
            self.owed.requests.clear();
            self.shared.owes_no_more();
        }
        polled
    }

    /// Answers requests until all answers are sent or the socket is full. Tells
    /// how many are answered, and how much of the next one's answer is sent.
    fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        requests: &[Request],
        mut sent_bytes: usize,
        answers: &mut Answers,
    ) -> (usize, usize, Poll<io::Result<()>>) {
        let store = &*self.shared.store;
        let mut answered = 0;
        while answered < requests.len() {
            answers.assemble(store, &requests[answered..]);
            while sent_bytes < answers.total_len_bytes() {
                let stream = Pin::new(&mut self.stream);
                let polled = answers.with_unsent(store, sent_bytes, |unsent| match unsent {
                    [piece] => stream.poll_write(cx, piece),
                    pieces => stream.poll_write_vectored(cx, pieces),
                });
                match polled {
                    Poll::Ready(Ok(0)) => return (answered, 0, Poll::Ready(Err(io::ErrorKind::WriteZero.into()))),
                    Poll::Ready(Ok(len_bytes)) => sent_bytes += len_bytes,
                    Poll::Ready(Err(error)) => return (answered, 0, Poll::Ready(Err(error))),
                    Poll::Pending => {
                        let (whole, rest_bytes) = answers.sent(sent_bytes);
                        return (answered + whole, rest_bytes, Poll::Pending);
                    }
                }
            }
            answered += answers.count();
            sent_bytes = 0;
        }
        (answered, 0, Poll::Ready(Ok(())))
    }
}

impl Future for Connection {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let served = ready!(SCRATCH.with_borrow_mut(|scratch| self.poll_serve(cx, scratch)));
        if let Err(error) = served {
            debug!("a connection ended: {error}");
        }
        Poll::Ready(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.owed.requests.is_empty() {
            self.shared.owes_no_more();
        }
        self.shared.connection_closed();
    }
}

fn typed(requests: &[u8]) -> &[Request] {
    // The length is a whole number of requests.
    <[Request]>::ref_from_bytes(requests).unwrap_or_default()
}
