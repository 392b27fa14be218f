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
use super::shared::Shared;
use crate::protocol::native::{REQUEST_LEN_BYTES, Request};

/// What is read at a time. Longer than a common batch of 256 requests: a read
/// that does not fill its buffer tells that the socket is empty.
const READ_LEN_BYTES: usize = PASS_REQUESTS_MAX * REQUEST_LEN_BYTES;

/// Requests that one connection has answered before the others get their turn.
const TURN_REQUESTS: usize = 4 * PASS_REQUESTS_MAX;

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
    /// Whether the worker counts this connection among those that owe.
    owes: bool,
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
        Ok(Connection { stream, shared, partial, partial_len_bytes: 0, owed: Owed::default(), owes: false })
    }

    fn poll_serve(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<io::Result<()>> {
        let Scratch { input, answers } = scratch;
        let mut answered = 0;
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
                self.owes = true;
                self.shared.owes();
            }
            self.shared.answered();
            ready!(polled)?;
            answered += whole / REQUEST_LEN_BYTES;
            if answered >= TURN_REQUESTS {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
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
            self.owes_no_more();
        }
        polled
    }

    fn owes_no_more(&mut self) {
        if std::mem::take(&mut self.owes) {
            self.shared.owes_no_more();
        }
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
        self.owes_no_more();
        self.shared.connection_closed();
    }
}

fn typed(requests: &[u8]) -> &[Request] {
    <[Request]>::ref_from_bytes(requests).expect("whole requests")
}

#[cfg(all(test, feature = "bake"))]
mod tests {
    use std::io::{Read, Write};
    use std::thread;
    use std::time::Duration;

    use rustix::net::sockopt::set_socket_send_buffer_size;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::bake::{Options, bake_csv};
    use crate::protocol::native::{Op, ResponseHeader};
    use crate::store::Store;

    /// With the smallest send buffer that the system gives, nearly every write is
    /// partial, and ends within headers, within values, and between them.
    #[test]
    fn answers_are_whole_however_little_the_socket_takes() {
        let folder = tempfile::tempdir().unwrap();
        let value =
            |key: u64| "v".repeat([0, 1, 26, 56, 57, 300, 4088, 4089, 9000][key as usize % 9] + key as usize % 5);
        let csv: String = (0..100).map(|key| format!("{key},{}\n", value(key))).collect();
        let db = folder.path().join("storage.db");
        bake_csv(csv.as_bytes(), &db, &Options::default(), &mut |_| ()).unwrap();
        let shared = Arc::new(Shared::new(Arc::new(Store::open(db).unwrap()), Duration::ZERO));

        let (mut client, server) = StdUnixStream::pair().unwrap();
        set_socket_send_buffer_size(&server, 1).unwrap();
        let keys = || (0..1500_u64).map(|i| i * 37 % 103);
        let requests: Vec<u8> = keys().flat_map(|key| Request::new(Op::Get, key).as_bytes().to_vec()).collect();
        let answers: Vec<u8> = keys()
            .flat_map(|key| match key {
                0..100 => {
                    [ResponseHeader::of_value(value(key).len()).unwrap().as_bytes(), value(key).as_bytes()].concat()
                }
                _ => vec![0, 0, 0, 1, 0, 0, 0, 0],
            })
            .collect();

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        thread::scope(|scope| {
            let mut writer = client.try_clone().unwrap();
            scope.spawn(move || {
                writer.write_all(&requests).unwrap();
                writer.shutdown(std::net::Shutdown::Write).unwrap();
            });
            scope.spawn(move || {
                let (mut at, mut buffer) = (0, [0; 7001]);
                loop {
                    let len_bytes = client.read(&mut buffer[..1 + at * 7919 % 7001]).unwrap();
                    assert!(buffer[..len_bytes] == answers[at..at + len_bytes], "bytes from {at} on");
                    at += len_bytes;
                    if len_bytes == 0 {
                        break;
                    }
                }
                assert_eq!(at, answers.len());
            });
            runtime.block_on(async { Connection::new(server, shared).unwrap().await });
        });
    }
}
