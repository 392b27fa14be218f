//! The connection of one client: reads requests, answers them, and sends the responses, in turns.
//!
//! All connections of a worker share its buffers. Between turns, a connection keeps only requests that are incomplete
//! or not answered yet, and responses that the client has not received. While a client does not receive its responses,
//! the connection reads further requests up to a limit ([`read_ahead`]), but answers them only when there is room for
//! their responses.

#[cfg(all(test, feature = "bake"))]
mod cold_tests;
#[cfg(all(test, feature = "bake"))]
mod generation_tests;
#[cfg(all(test, feature = "bake"))]
mod long_value_tests;
#[cfg(all(test, feature = "bake"))]
mod panic_tests;
mod protocol;
#[cfg(all(test, feature = "bake"))]
mod tests;
#[cfg(all(test, feature = "bake"))]
mod turn_tests;
#[cfg(all(test, feature = "bake"))]
mod typed_tests;
#[cfg(all(test, feature = "bake"))]
mod worst_commands;

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{
    set_socket_linger, set_socket_recv_buffer_size, set_socket_send_buffer_size, socket_peercred,
    socket_send_buffer_size,
};
use rustix::net::{Shutdown, shutdown};
use tokio::io::ReadBuf;
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep, sleep_until};
use tracing::{debug, error, warn};

use super::clients::Waits;
use super::clients::memory::written_bytes;
use super::cold_reads::ColdWait;
use super::limits::Limits;
use super::process::newest_tasks::Place;
use super::process::panics;
use super::redis;
use super::responses::{Piece, Responses, Unsent, need_store};
use super::sockets::memory::SocketMemory;
use super::sockets::{ClientStream, Peer, is_too_many, poll_send};
use super::state::{ConnectionContext, ServerState, WorkerState};
use super::table::generations::PinnedGeneration;
use super::turns::{PASS_STEPS_MAX, READ_LEN_BYTES, TURN_STEPS_MAX, Then};
use crate::direct::Waiter;
use crate::setting::Setting;
use protocol::Protocol;

/// After a connection has answered requests of this total length from one generation, it may answer later requests from
/// a newer generation. Without this limit, a client that never stops sending would hold the old generation forever.
const GENERATION_REQUESTS_MAX_BYTES: usize = 1 << 20;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
}

/// The buffers that all connections of a worker share.
struct Scratch {
    input: Box<[u8]>,
    responses: Responses,
}

impl Scratch {
    fn new() -> Self {
        Scratch { input: vec![0; READ_LEN_BYTES].into(), responses: Responses::new() }
    }
}

/// The state that a worker needs to serve connections.
#[derive(Clone)]
pub(super) struct Connections {
    pub(super) worker: Arc<WorkerState>,
    pub(super) redis_clients: Arc<redis::Clients>,
}

impl Connections {
    /// Creates the connection of a client.
    pub(super) fn open<S: ClientStream>(&self, stream: S, peer: Peer) -> Connection<S> {
        let Connections { worker, redis_clients } = self.clone();
        worker.server.client_memory.sockets.connection_opened();
        Connection {
            stream,
            socket_use: SocketUse::new(),
            context: ConnectionContext::new(peer, worker),
            redis_clients,
            protocol: Protocol::Unknown,
            generation: None,
            answered_bytes: 0,
            is_read_full: false,
            unanswered: Unanswered::default(),
            input: Input::Open,
            then: Then::Read,
            waiter: None,
            delay: Delay::default(),
            cold: None,
            pending: None,
            is_pending: false,
            is_unfinished: false,
        }
    }
}

/// The connection of one client. It is a future that completes when the connection ends.
pub(super) struct Connection<S: ClientStream> {
    stream: S,
    socket_use: SocketUse,
    context: ConnectionContext,
    redis_clients: Arc<redis::Clients>,
    protocol: Protocol,
    /// The generation that the next turn continues with, because unanswered requests or pending responses need it.
    /// `None` if the next turn can use the current generation.
    generation: Option<PinnedGeneration>,
    /// The total length of the requests that were answered from the generation in use.
    answered_bytes: usize,
    /// Whether the last read filled the read buffer.
    is_read_full: bool,
    unanswered: Unanswered,
    input: Input,
    /// What the connection does after its pending responses are sent.
    then: Then,
    /// The registration for changes of the table's state. Created when the client first waits for a change.
    waiter: Option<Waiter>,
    delay: Delay,
    /// The records that are being read from the disk for the next pass.
    cold: Option<ColdWait>,
    /// Responses that are not sent yet. Allocated when responses first become pending.
    pending: Option<Box<PendingResponses>>,
    /// Whether the worker counts this connection as pending: see [`WorkerState::begin_pending`].
    is_pending: bool,
    /// Whether the worker counts this connection as unfinished: see [`WorkerState::begin_unfinished`].
    is_unfinished: bool,
}

/// Why [`Connection::poll_serve`] finished without an error.
enum End {
    /// The connection has ended.
    Connection,
    /// All requests and responses that needed the generation of the previous turn are finished.
    KeptGeneration,
}

impl<S: ClientStream> Connection<S> {
    /// Runs one turn. Requests that were sent together are answered from one generation, even if that takes several
    /// turns.
    fn poll_turn(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<io::Result<()>> {
        if self.context.activity.is_evicted() {
            self.refuse_unfinished(cx);
            return Poll::Ready(Ok(()));
        }
        self.limit_socket();
        self.end_unfinished();
        let mut turn = Turn::begin(self.context.worker.unfinished_connections());
        scratch.responses.limit_passes(turn.pass_steps);
        loop {
            let kept = self.generation.take();
            let is_kept = kept.is_some();
            let generation = kept.unwrap_or_else(|| {
                self.answered_bytes = 0;
                self.context.worker.pin()
            });
            match self.poll_serve(cx, &generation, is_kept, scratch, &mut turn) {
                Poll::Ready(Ok(End::KeptGeneration)) => {}
                Poll::Ready(ended) => return Poll::Ready(ended.map(|_| ())),
                Poll::Pending => {
                    self.read_ahead(cx, &mut scratch.input, &mut turn)?;
                    let keeps_generation = self.keeps_generation();
                    self.context.activity.set_waits(self.waits());
                    self.context.activity.set_generation(if keeps_generation { generation.number } else { 0 });
                    self.context.activity.set_user(self.protocol.user_number());
                    self.measure_socket();
                    self.report_held(cx);
                    if keeps_generation {
                        self.generation = Some(generation);
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Returns whether the next turn needs the same generation as this turn.
    fn keeps_generation(&self) -> bool {
        let sends = self.pending.as_ref().is_some_and(|pending| pending.needs_generation());
        // If the last read filled the buffer, the client has probably sent more bytes together with the bytes of this
        // read.
        let continues = matches!(self.then, Then::Answer | Then::Yield | Then::Load) || self.is_read_full;
        sends || self.protocol.is_in_command() || continues && self.answered_bytes < GENERATION_REQUESTS_MAX_BYTES
    }

    fn waits(&self) -> Waits {
        match &self.pending {
            Some(pending) if !pending.is_empty() => Waits::Client(pending.len_bytes()),
            _ if matches!(self.then, Then::Wait(_)) => Waits::Request,
            _ if self.input == Input::Discarded => Waits::Rest(0),
            _ if self.then != Then::Read => Waits::Turn,
            _ if self.unanswered.is_empty() => Waits::Request,
            _ => Waits::Rest(self.unanswered.len_bytes()),
        }
    }

    /// Records that bytes arrived, or that responses became pending.
    fn moved(&self) {
        self.context.worker.registry().moved(&self.context.activity);
    }

    fn poll_serve(
        &mut self,
        cx: &mut Context<'_>,
        generation: &PinnedGeneration,
        is_kept: bool,
        scratch: &mut Scratch,
        turn: &mut Turn,
    ) -> Poll<io::Result<End>> {
        let Scratch { input, responses } = scratch;
        loop {
            ready!(self.poll_pending(cx, generation, responses, turn))?;
            // Without this check, a client that always sends its next batch before it has received the responses to the
            // previous batch would hold its generation forever.
            if is_kept && !self.keeps_generation() {
                return Poll::Ready(Ok(End::KeptGeneration));
            }
            match self.then {
                Then::Close => return self.poll_close(cx, input),
                Then::Answer | Then::Yield => {
                    ready!(self.poll_answer_unanswered(cx, generation, responses, turn))?;
                    continue;
                }
                Then::Load => {
                    self.begin_pending();
                    ready!(self.cold.as_ref().map_or(Poll::Ready(()), |cold| cold.poll(cx)));
                    self.then = Then::Answer;
                    continue;
                }
                Then::Wait(known) => {
                    let table = &self.context.worker.server.table;
                    if !table.waits(&mut self.waiter, known, cx.waker()) {
                        self.then = Then::Answer;
                        continue;
                    }
                    self.end_pending();
                }
                Then::Delay(until) => {
                    self.end_pending();
                    ready!(self.delay.poll_until(cx, until));
                    self.then = Then::Answer;
                    continue;
                }
                Then::Read => {
                    if self.take_monitor_lines(cx) {
                        continue;
                    }
                    self.end_pending();
                }
            }
            if self.context.worker.is_stopping() {
                return Poll::Ready(Ok(End::Connection));
            }
            match self.input {
                Input::Open => {}
                Input::Ended => return Poll::Ready(Ok(End::Connection)),
                Input::Discarded => {
                    self.refuse_excess();
                    continue;
                }
            }
            let mut buffer = ReadBuf::new(input);
            ready!(self.poll_read(cx, &mut buffer))?;
            let read = buffer.filled();
            if read.is_empty() {
                return Poll::Ready(Ok(End::Connection));
            }
            self.context.worker.counters().read(read.len());
            self.moved();
            if self.unanswered.is_empty() {
                let (taken_bytes, polled) = self.poll_answer(cx, generation, read, responses, turn);
                self.unanswered.push(&read[taken_bytes..]);
                ready!(polled)?;
            } else {
                self.unanswered.push(read);
                ready!(self.poll_answer_unanswered(cx, generation, responses, turn))?;
            }
            // A worker whose clients wait for the disk leaves the processor to the threads that read.
            if self.then != Then::Load {
                self.context.worker.answered();
            }
        }
    }

    /// Reads bytes from the socket, and sets `is_read_full`.
    #[inline(always)]
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.is_read_full = buffer.filled().len() == READ_LEN_BYTES;
        polled
    }

    fn poll_answer_unanswered(
        &mut self,
        cx: &mut Context<'_>,
        generation: &PinnedGeneration,
        responses: &mut Responses,
        turn: &mut Turn,
    ) -> Poll<io::Result<()>> {
        let mut unanswered = std::mem::take(&mut self.unanswered);
        let (taken_bytes, polled) = self.poll_answer(cx, generation, unanswered.bytes(), responses, turn);
        unanswered.remove(taken_bytes);
        self.unanswered = unanswered;
        polled
    }

    /// Answers requests until no complete request is left, the socket is full, or the turn is over. Returns the length
    /// of the answered requests in `input`.
    fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        generation: &PinnedGeneration,
        input: &[u8],
        responses: &mut Responses,
        turn: &mut Turn,
    ) -> (usize, Poll<io::Result<()>>) {
        let mut taken_bytes = 0;
        if let Some(cold) = self.cold.take() {
            responses.cold().were_read(cold.lookup_count());
        }
        loop {
            let started = self.context.worker.counters().start();
            let rest = &input[taken_bytes..];
            let pass = self.protocol.answer(&self.context, &self.redis_clients, generation, rest, responses);
            taken_bytes += pass.taken_bytes;
            self.answered_bytes += pass.taken_bytes;
            self.then = pass.then;
            if pass.then == Then::Load {
                let lookups = responses.cold().take_waiting();
                self.cold = Some(self.context.worker.server.cold_reads.begin(generation.clone(), lookups));
            }
            turn.use_pass(pass.taken_bytes, responses.steps().total());
            let polled = self.poll_send(cx, generation, responses, turn);
            self.context.worker.counters().end(started);
            if !matches!(polled, Poll::Ready(Ok(()))) {
                return (taken_bytes, polled);
            }
            if turn.is_over() || pass.then == Then::Yield || responses.steps().is_time_over() {
                return (taken_bytes, self.poll_others(cx, turn));
            }
            if pass.then != Then::Answer {
                return (taken_bytes, Poll::Ready(Ok(())));
            }
        }
    }

    /// Ends the turn, and lets the runtime poll other connections before this one.
    fn poll_others(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Poll<io::Result<()>> {
        self.begin_pending();
        turn.has_ended = true;
        if !std::mem::replace(&mut self.is_unfinished, true) {
            self.context.worker.begin_unfinished();
        }
        // A task that wakes itself would run again dozens of times before the runtime checks for other input.
        let _ = pin!(yield_now()).poll(cx);
        Poll::Pending
    }

    /// Sends the responses of a pass until the socket is full or the turn is over. Stores the other responses as
    /// pending.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        generation: &PinnedGeneration,
        responses: &mut Responses,
        turn: &mut Turn,
    ) -> Poll<io::Result<()>> {
        let mut unsent = responses.unsent();
        let polled = self.poll_unsent(cx, generation, &mut unsent, turn);
        if polled.is_pending() {
            if turn.sent_bytes > 0 {
                self.moved();
            }
            self.pending.get_or_insert_default().keep(&unsent);
            self.begin_pending();
        }
        polled
    }

    fn poll_pending(
        &mut self,
        cx: &mut Context<'_>,
        generation: &PinnedGeneration,
        responses: &mut Responses,
        turn: &mut Turn,
    ) -> Poll<io::Result<()>> {
        let Some(mut pending) = self.pending.take_if(|pending| !pending.is_empty()) else {
            return Poll::Ready(Ok(()));
        };
        let mut unsent = pending.unsent(responses.stage());
        let polled = self.poll_unsent(cx, generation, &mut unsent, turn);
        let (sent_bytes, refusal) = (unsent.sent_bytes, unsent.refusal);
        match polled {
            Poll::Ready(_) => pending.clear(),
            Poll::Pending => pending.advance_to(sent_bytes, refusal),
        }
        self.pending = Some(pending);
        polled
    }

    /// Sends responses until all are sent, the socket is full, or the turn is over.
    fn poll_unsent(
        &mut self,
        cx: &mut Context<'_>,
        generation: &PinnedGeneration,
        unsent: &mut Unsent<'_>,
        turn: &mut Turn,
    ) -> Poll<io::Result<()>> {
        while !unsent.is_empty() {
            if turn.sent_bytes == 0 {
                return self.poll_others(cx, turn);
            }
            let stream = Pin::new(&mut self.stream);
            let descriptors = match self.context.descriptors(generation, unsent.passes_descriptors) {
                Ok(descriptors) => descriptors,
                Err(error) => {
                    unsent.refuse(self.context.refuse_descriptors(&error));
                    continue;
                }
            };
            let max_bytes = turn.sent_bytes;
            let send = |bytes: &[io::IoSlice]| poll_send(stream, cx, bytes, max_bytes, descriptors.as_ref());
            match ready!(unsent.with(&generation.store, send)?) {
                Err(error) if unsent.passes_descriptors && is_too_many(&error) => {
                    unsent.refuse(self.context.refuse_descriptors(&error));
                }
                sent => {
                    let sent_bytes = sent?;
                    self.context.worker.counters().written(sent_bytes);
                    self.context.activity.count_progress(sent_bytes);
                    self.socket_use.sent(sent_bytes);
                    turn.use_sent(sent_bytes);
                    unsent.advance(sent_bytes);
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn begin_pending(&mut self) {
        if !std::mem::replace(&mut self.is_pending, true) {
            self.context.worker.begin_pending();
        }
    }
}

impl<S: ClientStream> Connection<S> {
    fn report_panic(&self, panic: &str) {
        let server = &self.context.worker.server;
        server.statistics.totals.panics.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = server.panic_log.line() {
            error!(peer = %self.context.peer, left_out, "a bug in the server ended a connection: panic at {panic}");
        }
    }

    fn end_unfinished(&mut self) {
        if std::mem::take(&mut self.is_unfinished) {
            self.context.worker.end_unfinished();
        }
    }

    fn end_pending(&mut self) {
        if std::mem::take(&mut self.is_pending) {
            self.context.worker.end_pending();
        }
    }
}

impl<S: ClientStream + Send + 'static> Connection<S> {
    /// Serves the connection in a task, until the connection ends or the worker's registry disconnects it.
    pub(super) fn spawn(self) {
        let (worker, activity) = (Arc::clone(&self.context.worker), Arc::clone(&self.context.activity));
        // The connection removes itself from the registry before it closes its socket.
        let socket = self.stream.socket().as_raw_fd();
        worker.registry().add(activity, tokio::spawn(self).abort_handle(), Some(socket));
    }
}

impl<S: ClientStream> Future for Connection<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let caught = panics::catch(|| SCRATCH.with_borrow_mut(|scratch| self.poll_turn(cx, scratch)));
        let polled = caught.unwrap_or_else(|panic| {
            // The panic may have left the buffers half changed.
            SCRATCH.replace(Scratch::new());
            self.report_panic(&panic);
            Poll::Ready(Ok(()))
        });
        if let Err(error) = ready!(polled) {
            debug!("a connection ended: {error}");
        }
        Poll::Ready(())
    }
}

impl<S: ClientStream> Drop for Connection<S> {
    fn drop(&mut self) {
        self.end_unfinished();
        self.end_pending();
        self.stream.announce_end();
        let ConnectionContext { worker, activity, peer } = &self.context;
        worker.registry().remove(activity);
        if !worker.is_stopping() {
            linger(&worker.server, self.stream.socket(), peer.is_unix(), activity.is_evicted());
        }
        worker.server.client_memory.release(activity);
        worker.server.client_memory.sockets.connection_closed();
        worker.counters().connection_closed();
    }
}

/// The timer of a delayed response. Allocated for the first delay of a connection.
#[derive(Default)]
struct Delay(Option<Pin<Box<Sleep>>>);

impl Delay {
    /// Returns `Ready` if the time `until` has come. Otherwise, the task is woken at that time.
    #[cold]
    fn poll_until(&mut self, cx: &mut Context<'_>, until: Instant) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(until.into())));
        if sleep.deadline() != until.into() {
            sleep.as_mut().reset(until.into());
        }
        sleep.as_mut().poll(cx)
    }
}

impl<S: ClientStream> Connection<S> {
    /// Records the number of bytes that the connection holds, if it has changed since the last turn.
    #[inline]
    fn report_held(&self, cx: &Context<'_>) {
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
    fn refuse_unfinished(&mut self, cx: &mut Context<'_>) {
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

impl<S: ClientStream> Connection<S> {
    /// Takes the next lines of the output of MONITOR, and stores them as pending responses. Returns false if there are
    /// no lines. If the user has lost the permission for MONITOR, closes the connection instead.
    #[inline]
    fn take_monitor_lines(&mut self, cx: &Context<'_>) -> bool {
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

/// The state of a connection's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
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
    fn read_ahead(&mut self, cx: &mut Context<'_>, input: &mut [u8], turn: &mut Turn) -> io::Result<()> {
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
    fn poll_close(&mut self, cx: &mut Context<'_>, input: &mut [u8]) -> Poll<io::Result<End>> {
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
    fn refuse_excess(&mut self) {
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

/// The maximum capacity that an empty buffer keeps, so that a client that often sends requests in pieces does not cause
/// an allocation each time.
const KEPT_MAX_BYTES: usize = 2 * READ_LEN_BYTES;

/// Bytes that were read from a client and that are not answered yet.
#[derive(Default)]
struct Unanswered {
    bytes: Vec<u8>,
    /// The number of bytes at the start of `bytes` that are already answered. They are removed when they take at least
    /// half of `bytes`, so that every byte is moved only a few times, however long the pipeline is.
    answered_bytes: usize,
}

impl Unanswered {
    fn bytes(&self) -> &[u8] {
        &self.bytes[self.answered_bytes..]
    }

    fn len_bytes(&self) -> usize {
        self.bytes.len() - self.answered_bytes
    }

    fn is_empty(&self) -> bool {
        self.len_bytes() == 0
    }

    /// Returns the number of bytes that are allocated.
    fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Appends bytes that the client sent.
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes the first `len_bytes` bytes, which are answered.
    ///
    /// # Panics
    /// If `len_bytes` exceeds the number of unanswered bytes.
    fn remove(&mut self, len_bytes: usize) {
        assert!(len_bytes <= self.len_bytes(), "answered bytes that were not read");
        self.answered_bytes += len_bytes;
        if self.answered_bytes < self.len_bytes() {
            return;
        }
        self.bytes.drain(..self.answered_bytes);
        self.answered_bytes = 0;
        if self.bytes.capacity() > KEPT_MAX_BYTES.max(4 * self.bytes.len()) {
            self.bytes.shrink_to(2 * self.bytes.len());
        }
    }
}

/// The pause before the first check of a lingering socket. Each pause is twice as long as the one before. Most clients
/// receive their last response at once.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The first number of a duplicated descriptor, so that the duplicate never becomes a standard stream.
const DESCRIPTOR_MIN: i32 = 3;

/// A socket whose connection has ended.
struct Lingering {
    server: Arc<ServerState>,
    /// The place of the socket among the lingering sockets.
    _place: Place,
    socket: OwnedFd,
    /// The user of the client, if the socket is a Unix socket.
    user: Option<u32>,
    /// The memory that is counted for the socket.
    held_bytes: u64,
}

/// Ends the stream of a socket, but keeps the socket open while the kernel holds responses for it. The caller closes its
/// own descriptor of the socket.
///
/// With `resets`, discards the responses of a TCP socket instead, and the client gets a reset. The responses of a Unix
/// socket cannot be discarded.
fn linger(server: &Arc<ServerState>, socket: BorrowedFd<'_>, is_unix: bool, resets: bool) {
    if !is_unix && resets {
        reset(socket);
        return;
    }
    let held_bytes = SocketMemory::of(socket).send_bytes;
    if held_bytes == 0 {
        return;
    }
    // Without a runtime, the process is ending. Without a descriptor, the kernel keeps the responses uncounted.
    if Handle::try_current().is_err() {
        return;
    }
    let Ok(socket) = rustix::io::fcntl_dupfd_cloexec(socket, DESCRIPTOR_MIN) else { return };
    // Fails only if the client has closed the connection.
    let _ = shutdown(&socket, Shutdown::Both);
    let user = if is_unix { socket_peercred(&socket).ok().map(|peer| peer.uid.as_raw()) } else { None };
    server.client_memory.replace_lingering(user, 0, held_bytes);
    server
        .lingering
        .spawn(|place| Lingering { server: Arc::clone(server), _place: place, socket, user, held_bytes }.run(is_unix));
}

/// Makes the kernel discard the responses of a TCP socket when the socket is closed.
fn reset(socket: BorrowedFd<'_>) {
    // If this fails, the kernel keeps the responses for some minutes.
    let _ = set_socket_linger(socket, Some(Duration::ZERO));
}

impl Lingering {
    /// Waits until the client has received everything. A TCP client that receives nothing for the stall time-out gets a
    /// reset.
    async fn run(mut self, is_unix: bool) {
        let stall_timeout = match self.server.settings.limits.stall_timeout {
            Duration::ZERO => Limits::STALL_TIMEOUT,
            timeout => timeout,
        };
        let (mut pause, mut stalled) = (PAUSE_MIN, Duration::ZERO);
        while self.held_bytes > 0 {
            sleep(pause).await;
            let held_bytes = SocketMemory::of(self.socket.as_fd()).send_bytes;
            stalled = if held_bytes < self.held_bytes { Duration::ZERO } else { stalled + pause };
            self.server.client_memory.replace_lingering(self.user, self.held_bytes, held_bytes);
            self.held_bytes = held_bytes;
            if !is_unix && stalled >= stall_timeout {
                return reset(self.socket.as_fd());
            }
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        self.server.client_memory.replace_lingering(self.user, self.held_bytes, 0);
    }
}

/// The maximum memory that a connection keeps for later responses after the pending responses are sent.
const PENDING_KEPT_MAX_BYTES: usize = 16 << 10;

/// Responses that wait until the socket takes them.
#[derive(Default)]
pub(super) struct PendingResponses {
    copied: Vec<u8>,
    pieces: Vec<Piece>,
    /// The reply that shared pieces are ranges of. Its memory does not belong to the connection.
    shared: Option<Arc<[u8]>>,
    sent_bytes: usize,
    total_len_bytes: usize,
    passes_descriptors: bool,
}

impl PendingResponses {
    /// Stores the unsent responses of a pass.
    pub(super) fn keep(&mut self, unsent: &Unsent<'_>) {
        debug_assert!(self.copied.is_empty() && self.pieces.is_empty(), "earlier responses are still pending");
        self.copied.extend_from_slice(unsent.copied);
        self.pieces.extend_from_slice(unsent.pieces);
        self.shared = unsent.shared.cloned();
        self.sent_bytes = unsent.sent_bytes;
        self.total_len_bytes = unsent.total_len_bytes;
        self.passes_descriptors = unsent.passes_descriptors;
    }

    /// Discards all responses, and stores one response instead.
    pub(super) fn replace(&mut self, response: &[u8]) {
        self.clear();
        self.copied.extend_from_slice(response);
        (self.sent_bytes, self.total_len_bytes, self.passes_descriptors) = (0, response.len(), false);
    }

    /// Returns the unsent responses. `stage` is a buffer for bytes that are copied just before they are sent.
    pub(super) fn unsent<'a>(&'a self, stage: &'a mut Vec<u8>) -> Unsent<'a> {
        Unsent {
            copied: &self.copied,
            pieces: &self.pieces,
            shared: self.shared.as_ref(),
            sent_bytes: self.sent_bytes,
            total_len_bytes: self.total_len_bytes,
            passes_descriptors: self.passes_descriptors,
            refusal: None,
            stage,
            is_staged: false,
        }
    }

    /// Records that the first `sent_bytes` bytes of the responses are sent. If a `refusal` was sent instead of the only
    /// response (see [`Unsent::refuse`]), stores the refusal first, and `sent_bytes` counts bytes of the refusal.
    pub(super) fn advance_to(&mut self, sent_bytes: usize, refusal: Option<&[u8]>) {
        if let Some(refusal) = refusal {
            self.replace(refusal);
        }
        self.passes_descriptors &= refusal.is_none() && sent_bytes == 0;
        self.sent_bytes = sent_bytes;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent_bytes == self.total_len_bytes
    }

    /// Returns the number of unsent bytes.
    pub(super) fn len_bytes(&self) -> usize {
        self.total_len_bytes - self.sent_bytes
    }

    /// Returns whether the unsent responses need the generation that they were read from, because they borrow bytes
    /// from its file or pass its descriptors.
    pub(super) fn needs_generation(&self) -> bool {
        !self.is_empty() && (need_store(&self.pieces) || self.passes_descriptors)
    }

    /// Returns the number of bytes that are allocated for the pending responses.
    pub(super) fn capacity_bytes(&self) -> usize {
        size_of::<PendingResponses>() + self.copied.capacity() + self.pieces.capacity() * size_of::<Piece>()
    }

    /// Discards all responses. Keeps some of the memory, so that a client that often receives slowly does not cause an
    /// allocation each time.
    pub(super) fn clear(&mut self) {
        self.copied.clear();
        self.copied.shrink_to(PENDING_KEPT_MAX_BYTES);
        self.pieces.clear();
        self.shared = None;
        (self.sent_bytes, self.total_len_bytes) = (0, 0);
    }
}

/// How many times larger than its current limit a buffer must be allowed to be before it grows again. This factor keeps
/// a limit that varies between two sizes from costing a system call in every turn.
const GROWTH_MIN: u64 = 4;
/// The size of a TCP socket's buffers once they are no longer limited: the kernel's default maximum.
const TCP_BUFFER_MAX_BYTES: u64 = 4 << 20;
/// The minimum size of a TCP socket's buffers. Below this size, the kernel would still hold a whole segment. Unlike the
/// memory of a Unix socket, an eviction can release the memory of a TCP socket.
const TCP_BUFFER_MIN_BYTES: u64 = 32 << 10;

/// The use of a connection's socket.
struct SocketUse {
    /// An upper bound of the memory that the socket has taken since the last measurement.
    unmeasured_bytes: u64,
    /// The limit that applies to the socket's buffers.
    buffer_max_bytes: u64,
    /// The size of a Unix socket's send buffer before it was first limited.
    send_buffer_bytes: Option<u64>,
}

impl SocketUse {
    fn new() -> SocketUse {
        SocketUse { unmeasured_bytes: 0, buffer_max_bytes: u64::MAX, send_buffer_bytes: None }
    }

    /// Records that the socket accepted bytes in one write.
    #[inline]
    fn sent(&mut self, len_bytes: usize) {
        self.unmeasured_bytes += written_bytes(len_bytes);
    }

    /// Changes the sizes of the socket's buffers.
    ///
    /// # Errors
    /// If the system rejects a size.
    fn limit(&mut self, socket: BorrowedFd<'_>, is_unix: bool, max_bytes: u64) -> rustix::io::Result<()> {
        if max_bytes > self.buffer_max_bytes && max_bytes < self.buffer_max_bytes.saturating_mul(GROWTH_MIN) {
            return Ok(());
        }
        self.buffer_max_bytes = max_bytes;
        // The kernel doubles the sizes that it is given.
        if is_unix {
            let default_bytes = match self.send_buffer_bytes {
                Some(bytes) => bytes,
                None => socket_send_buffer_size(socket)? as u64,
            };
            if self.send_buffer_bytes.is_some() || max_bytes < default_bytes {
                self.send_buffer_bytes = Some(default_bytes);
                set_socket_send_buffer_size(socket, (max_bytes.min(default_bytes) / 2) as usize)?;
            }
            return Ok(());
        }
        let size = (max_bytes.clamp(TCP_BUFFER_MIN_BYTES, TCP_BUFFER_MAX_BYTES) / 2) as usize;
        set_socket_send_buffer_size(socket, size)?;
        set_socket_recv_buffer_size(socket, size)
    }
}

impl<S: ClientStream> Connection<S> {
    /// Limits the socket's buffers before the connection's next write, if the limit has changed.
    #[inline]
    fn limit_socket(&mut self) {
        let max_bytes = self.context.worker.server.client_memory.sockets.buffer_max_bytes();
        if max_bytes != self.socket_use.buffer_max_bytes {
            self.change_limit(max_bytes);
        }
    }

    #[cold]
    fn change_limit(&mut self, max_bytes: u64) {
        // If the system rejects a size, the socket keeps its buffers, and its memory is still counted.
        let _ = self.socket_use.limit(self.stream.socket(), self.context.peer.is_unix(), max_bytes);
    }

    /// Measures the socket if it may have taken much memory since the last measurement.
    #[inline]
    fn measure_socket(&mut self) {
        if self.socket_use.unmeasured_bytes > self.context.worker.server.client_memory.sockets.unmeasured_max_bytes() {
            self.measure_now();
        }
    }

    #[cold]
    fn measure_now(&mut self) {
        self.socket_use.unmeasured_bytes = 0;
        let measured = SocketMemory::of(self.stream.socket());
        self.context.worker.server.client_memory.record_socket(&self.context.activity, measured);
    }
}

/// The maximum number of request bytes that are answered or read ahead in a turn.
const BYTES_MAX: usize = 4 * READ_LEN_BYTES;
const PASSES_MAX: usize = 16;
/// The maximum number of response bytes that are sent in a turn.
const SENT_BYTES_MAX: usize = 2 << 20;
/// The number of connections that have turns of full length. If more have work left, they share the time of this many
/// turns, about 8 ms, so that a new request of another connection does not wait much longer.
const FULL_TURNS_MAX: usize = 4;
/// The minimum number of steps, and of response bytes, of a turn. In shorter turns, the switches between connections
/// would take a considerable part of the time.
const STEPS_MIN: usize = 1000;
const SENT_BYTES_MIN: usize = 64 << 10;

/// The remaining budget of a connection's turn.
pub(super) struct Turn {
    bytes: usize,
    passes: usize,
    steps: usize,
    /// The number of steps after which a pass ends.
    pub(super) pass_steps: usize,
    pub(super) sent_bytes: usize,
    /// Whether the turn was ended to let other connections have theirs, although this connection could continue.
    pub(super) has_ended: bool,
}

impl Turn {
    /// Begins a turn while `waiting` other connections have work left after their turns.
    #[inline]
    pub(super) fn begin(waiting: usize) -> Turn {
        let shares = (waiting + 1).div_ceil(FULL_TURNS_MAX);
        let share = |max: usize, min: usize| (max / shares).max(min);
        let steps = share(TURN_STEPS_MAX, STEPS_MIN);
        Turn {
            bytes: share(BYTES_MAX, READ_LEN_BYTES),
            passes: PASSES_MAX,
            steps,
            pass_steps: steps.min(PASS_STEPS_MAX),
            sent_bytes: share(SENT_BYTES_MAX, SENT_BYTES_MIN),
            has_ended: false,
        }
    }

    pub(super) fn use_pass(&mut self, taken_bytes: usize, steps: usize) {
        #[cfg(test)]
        super::turns::USED_ON_THREAD.set(super::turns::USED_ON_THREAD.get() + steps);
        self.bytes = self.bytes.saturating_sub(taken_bytes);
        self.passes = self.passes.saturating_sub(1);
        self.steps = self.steps.saturating_sub(steps);
    }

    /// Deducts request bytes from the budget when they are read ahead, that is, before a pass answers them.
    pub(super) fn use_input(&mut self, len_bytes: usize) {
        self.bytes = self.bytes.saturating_sub(len_bytes);
    }

    pub(super) fn use_sent(&mut self, len_bytes: usize) {
        self.sent_bytes = self.sent_bytes.saturating_sub(len_bytes);
    }

    pub(super) fn is_over(&self) -> bool {
        self.bytes == 0 || self.passes == 0 || self.steps == 0 || self.sent_bytes == 0
    }
}

#[cfg(test)]
mod unanswered_tests {
    use super::*;

    #[test]
    fn bytes_are_removed_in_the_order_in_which_they_were_added() {
        let (mut unanswered, mut expected) = (Unanswered::default(), std::collections::VecDeque::<u8>::new());
        for round in 0_usize..2000 {
            let added: Vec<u8> = (0..round * 37 % 101).map(|i| (round + i) as u8).collect();
            unanswered.push(&added);
            expected.extend(&added);
            let removed = round * 53 % 97;
            let removed = removed.min(expected.len());
            unanswered.remove(removed);
            expected.drain(..removed);
            assert_eq!(unanswered.len_bytes(), expected.len());
            assert!(expected.iter().eq(unanswered.bytes()));
        }
    }

    #[test]
    fn memory_is_released_as_a_long_pipeline_is_answered() {
        let mut unanswered = Unanswered::default();
        let mut moved_bytes = 0;
        unanswered.push(&vec![0; 8 << 20]);
        while !unanswered.is_empty() {
            let before = unanswered.answered_bytes;
            unanswered.remove(1024);
            if unanswered.answered_bytes < before {
                moved_bytes += unanswered.len_bytes();
            }
            assert!(unanswered.capacity_bytes() <= KEPT_MAX_BYTES.max(8 * unanswered.len_bytes()));
        }
        assert!(moved_bytes <= 8 << 20, "{moved_bytes} bytes were moved");
        assert!(unanswered.capacity_bytes() <= KEPT_MAX_BYTES);
    }
}

#[cfg(test)]
mod socket_use_tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::server::clients::memory::BUFFER_MIN_BYTES;

    fn size(socket: BorrowedFd<'_>) -> u64 {
        socket_send_buffer_size(socket).unwrap() as u64
    }

    #[test]
    fn the_buffer_of_a_unix_socket_shrinks_and_grows_back() {
        let (socket, _client) = UnixStream::pair().unwrap();
        let (socket, mut socket_use) = (socket.as_fd(), SocketUse::new());
        let default_bytes = size(socket);
        for (max_bytes, expected_bytes) in [
            (8 << 20, default_bytes),
            (1 << 15, 1 << 15),
            (1 << 16, 1 << 15),
            (BUFFER_MIN_BYTES, BUFFER_MIN_BYTES),
            (1 << 13, BUFFER_MIN_BYTES),
            (1 << 16, 1 << 16),
            (u64::MAX, default_bytes),
        ] {
            socket_use.limit(socket, true, max_bytes).unwrap();
            assert_eq!(size(socket), expected_bytes, "{max_bytes}");
        }
    }

    #[test]
    fn the_buffer_of_a_tcp_socket_shrinks() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, mut socket_use) = (socket.as_fd(), SocketUse::new());
        for max_bytes in [1 << 17, 1 << 16, BUFFER_MIN_BYTES] {
            socket_use.limit(socket, false, max_bytes).unwrap();
            assert_eq!(size(socket), max_bytes.max(TCP_BUFFER_MIN_BYTES));
        }
        socket_use.limit(socket, false, u64::MAX).unwrap();
        assert!(size(socket) > 1 << 17);
    }
}

#[cfg(test)]
mod turn_length_tests {
    use super::*;

    #[test]
    fn a_round_of_all_turns_is_short_however_many_connections_have_work_left() {
        for connections in 1..10_000 {
            let turn = Turn::begin(connections - 1);
            if connections <= FULL_TURNS_MAX {
                assert_eq!((turn.steps, turn.pass_steps), (TURN_STEPS_MAX, PASS_STEPS_MAX));
            }
            assert!(turn.pass_steps <= turn.steps && turn.steps >= STEPS_MIN);
            let round_steps = connections * turn.steps;
            assert!(round_steps <= (FULL_TURNS_MAX * TURN_STEPS_MAX).max(connections * STEPS_MIN), "{connections}");
        }
    }
}
