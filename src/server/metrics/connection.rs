//! The connections of clients that request metrics or health checks.
//!
//! In: accepted connections. Out: the response to one request per connection.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::{set_socket_linger, set_tcp_user_timeout};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tracing::warn;

use super::responses::Responder;
use crate::server::limits::metrics_connections_max;
use crate::server::log_limit::LogLimit;
use crate::server::newest_tasks::{NewestTasks, Place};
use crate::server::state::ServerState;
use crate::sync::unpoisoned;

/// The share of connections that may be beyond their request: 1/`ANSWERED_SHARE` of all.
const ANSWERED_SHARE: usize = 4;
/// How long a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a client may take to send its request and to receive the response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of the head of a request.
const HEAD_MAX_BYTES: usize = 8192;
const HEADERS_MAX: usize = 64;
/// The maximum number of bytes that are read and discarded after the response.
const DISCARDED_MAX_BYTES: u64 = 64 << 10;

/// A connection over TCP or a Unix socket.
pub(super) trait Stream: AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static> Stream for S {}

/// All connections. A connection is in one of two groups, so that neither clients that send no request nor clients that
/// read no response can close connections of the other group.
pub(super) struct Connections {
    state: Arc<ServerState>,
    responder: Responder,
    /// Connections that have not sent a complete request.
    waiting: Arc<NewestTasks>,
    /// Connections whose clients have not received the whole response.
    answered: Arc<NewestTasks>,
    limit_log: LogLimit,
}

impl Connections {
    pub(super) fn new(state: &Arc<ServerState>) -> Arc<Connections> {
        let max = metrics_connections_max(state.settings.connections_max);
        let answered_max = max / ANSWERED_SHARE;
        Arc::new(Connections {
            state: Arc::clone(state),
            responder: Responder::new(Arc::clone(state)),
            waiting: NewestTasks::new(max - answered_max),
            answered: NewestTasks::new(answered_max),
            limit_log: LogLimit::default(),
        })
    }

    /// Serves a connection in a task.
    pub(super) fn begin(self: &Arc<Self>, stream: impl Stream) {
        let connections = Arc::clone(self);
        let is_oldest_closed = self.waiting.spawn(|place| async move {
            let thread = &connections.state.liveness.metrics;
            // Clients that take longer are disconnected. A panic is logged, and ends only this connection.
            let served = tokio::time::timeout(CONNECTION_TIMEOUT, connections.serve(stream, place));
            let _ = thread.catch_in(served).await;
        });
        if is_oldest_closed {
            self.report_limit("it had not sent its request, and was the oldest", self.waiting.max());
        }
    }

    /// Answers the one request of a connection.
    async fn serve(&self, stream: impl Stream, place: Place) -> io::Result<()> {
        reset_at_close(&stream)?;
        let place = Mutex::new(place);
        let answer = |request: Request<Incoming>| {
            if unpoisoned(&place).move_to(&self.answered) {
                self.report_limit("it had not received its response, and was the oldest", self.answered.max());
            }
            Box::pin(async move { Ok::<Response<String>, Infallible>(self.responder.answer(&request).await) })
        };
        let mut connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_TIMEOUT)
            .keep_alive(false)
            // A client may close its side after its request.
            .half_close(true)
            .max_buf_size(HEAD_MAX_BYTES)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(stream), service_fn(answer));
        let answered = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
        let stream = connection.into_parts().io.into_inner();
        match answered {
            Err(error) if error.is_timeout() => Ok(()),
            // For a malformed request, hyper has sent a response with the status 400 or 431.
            _ => close(stream).await,
        }
    }

    /// Counts and logs a connection that was closed because of newer ones.
    fn report_limit(&self, reason: &str, max: usize) {
        self.state.statistics.totals.cut_metrics.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.limit_log.line() {
            warn!(left_out, "disconnected a client of the metrics: {reason} of {max}");
        }
    }
}

/// Makes the kernel drop unreceived responses when the connection is closed. Otherwise, clients that read nothing could
/// leave many responses in the kernel's memory. Has no effect on a Unix socket.
fn reset_at_close(stream: &impl Stream) -> io::Result<()> {
    // If the client has closed its side, the kernel keeps the response for at most this time.
    let _ = set_tcp_user_timeout(stream, CONNECTION_TIMEOUT.as_millis() as u32);
    Ok(set_socket_linger(stream, Some(Duration::ZERO))?)
}

/// Ends the response, and waits until the client closes its side. Discards what the client sends meanwhile, because the
/// client would lose the response if the connection were closed with unread bytes.
async fn close(mut stream: impl Stream) -> io::Result<()> {
    stream.shutdown().await?;
    let (mut discarded, mut discarded_bytes) = ([0; 4096], 0);
    while discarded_bytes < DISCARDED_MAX_BYTES {
        match stream.read(&mut discarded).await? {
            0 => return Ok(set_socket_linger(&stream, None)?),
            len_bytes => discarded_bytes += len_bytes as u64,
        }
    }
    Ok(())
}
