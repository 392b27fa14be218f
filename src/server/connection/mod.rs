//! The connection of one client: reads requests, answers them, and sends the responses, in turns.
//!
//! All connections of a worker share its buffers. Between turns, a connection keeps only requests that are incomplete
//! or not answered yet, and responses that the client has not received. While a client does not receive its responses,
//! the connection reads further requests up to a limit (`read_ahead`), but answers them only when there is room for
//! their responses.

mod buffers;
mod closing;
#[cfg(all(test, feature = "bake"))]
mod cold_tests;
#[cfg(all(test, feature = "bake"))]
mod long_value_tests;
mod protocol;
mod socket_use;
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
use std::os::fd::AsRawFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::ReadBuf;
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep_until};
use tracing::debug;

use super::clients::Waits;
use super::cold_reads::ColdWait;
use super::process::panics;
use super::redis;
use super::responses::{Responses, Unsent};
use super::sockets::{ClientStream, Peer, is_too_many, poll_send};
use super::state::{ConnectionContext, WorkerState};
use super::table::PinnedGeneration;
use super::turns::{READ_LEN_BYTES, Then, Turn};
use crate::direct::Waiter;
use buffers::{PendingResponses, Unanswered};
use closing::linger;
use protocol::Protocol;
use socket_use::SocketUse;

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

#[derive(Clone)]
pub(super) struct Connections {
    pub(super) worker: Arc<WorkerState>,
    pub(super) redis_clients: Arc<redis::Clients>,
}

impl Connections {
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
            discarded_bytes: 0,
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
    /// The number of bytes that were discarded since the input is [`Input::Discarded`].
    discarded_bytes: usize,
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

/// The state of a connection's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// The client may send more bytes.
    Open,
    /// The client has closed its sending side of the connection.
    Ended,
    /// The client has sent more unanswered requests than `Protocol::unanswered_max_bytes` allows, or bytes that are not
    /// a request. All further bytes from the client are discarded.
    Discarded,
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
        // The work is counted in steps, not in time: reading the clock for each pass would cost as much as a lookup.
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
                Then::Close | Then::Refuse => return self.poll_close(cx, input),
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
                    if self.protocol.has_message(&self.context, generation, cx.waker()) {
                        self.then = Then::Answer;
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
            // Complete requests are answered from the worker's buffer. Only the rest is copied, so an idle connection
            // holds no buffer.
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
            if pass.then == Then::Refuse {
                self.discard_rest();
            }
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

    /// Records the number of bytes that the connection holds, if it has changed since the last turn.
    #[inline]
    fn report_held(&self, cx: &Context<'_>) {
        let held_bytes = self.held_bytes();
        let before_bytes = self.context.activity.held_bytes();
        if held_bytes != before_bytes {
            self.report_changed(held_bytes, held_bytes > before_bytes, cx);
        }
    }

    /// Returns the number of bytes that are allocated for the connection: for unanswered requests, pending responses,
    /// and the sessions of both protocols and of TLS, and by the kernel for its socket.
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

    /// Reads more requests if responses are pending because the socket does not take them.
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
        let is_closing = match self.then {
            Then::Close => self.input == Input::Open,
            Then::Delay(_) => true,
            _ => false,
        };
        let is_closing = is_closing || self.context.worker.is_stopping();
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
            let read_len_bytes = read.len();
            self.context.worker.counters().read(read_len_bytes);
            turn.use_input(read_len_bytes);
            if self.input == Input::Discarded {
                if self.discard(read_len_bytes) {
                    return Poll::Ready(Ok(()));
                }
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
