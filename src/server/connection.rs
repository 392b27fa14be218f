//! One client's connection: read, answer, send, in turns.
//!
//! A connection owns no buffer. It reads into its worker's, has its protocol
//! answer into another of its worker's, and keeps only what must wait: requests
//! that have not come whole, or whose turn has not come, and answers that the
//! client has not taken. Nothing more is read before these are sent.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;
use tokio::task::yield_now;
use tracing::{debug, error};

use super::activity::{Activity, Waits};
use super::answers::{Answers, Unsent};
use super::generations::Pinned;
use super::native;
use super::panics;
use super::pass::{Pass, Then};
use super::peer::Peer;
use super::redis;
use super::shared::{Client, Shared};
use super::steps::VERIFICATION_WORK_MAX;
use super::stream::{Stream, is_too_many, poll_send};
use super::turn::Turn;
use crate::direct::Waiter;
use crate::protocol::native::REQUEST_LEN_BYTES;
use crate::store::VerificationLimit;

/// What is read at a time. Longer than a common batch of 256 requests: a read
/// that does not fill its buffer tells that the socket is empty.
pub(super) const READ_LEN_BYTES: usize = native::PASS_REQUESTS_MAX * REQUEST_LEN_BYTES;

/// Reads in a row that fill their buffer, after which what comes next may be
/// answered from another generation: a client that never stops sending does not
/// keep one for ever.
const FULL_READS_MAX: usize = 64;

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
        Scratch { input: vec![0; READ_LEN_BYTES].into(), answers: Answers::new() }
    }
}

/// What a connection speaks. The first byte decides: native requests begin with
/// a zero, others never do.
enum Protocol {
    Unknown,
    Native,
    Redis(Box<redis::Session>),
}

impl Protocol {
    /// Answers requests, all from one state of one generation. If the file changes meanwhile, discards the answers and
    /// answers again. A request that takes too much verification is not taken: the next pass repeats it.
    fn answer(&mut self, client: &Client, generation: &Pinned, input: &[u8], answers: &mut Answers) -> Pass {
        let store = &generation.store;
        loop {
            answers.clear();
            let epoch = store.epoch();
            let limit = VerificationLimit::begin(VERIFICATION_WORK_MAX);
            let pass = match self {
                Protocol::Redis(session) => session.answer(generation, input, answers),
                Protocol::Native => native::answer(client, generation, input, answers),
                Protocol::Unknown => match input.first() {
                    None => Pass { taken_bytes: 0, then: Then::Read },
                    Some(first) => {
                        *self = Protocol::of(*first, client);
                        continue;
                    }
                },
            };
            drop(limit);
            // A pass that only waits for more input has made nothing of the file.
            let is_nothing = answers.total_len_bytes() == 0 && pass.then == Then::Read;
            if is_nothing || answers.stage_beginning(store) && store.is_unchanged_since(epoch) {
                if let Protocol::Redis(session) = self {
                    session.keep();
                }
                return pass;
            }
            client.shared.serving.control.file_has_changed();
            if let Protocol::Redis(session) = self {
                session.return_to_kept();
            }
        }
    }

    fn of(first: u8, client: &Client) -> Protocol {
        match first {
            0 => Protocol::Native,
            _ => Protocol::Redis(Box::new(redis::Session::new(client.peer, &client.shared))),
        }
    }
}

/// A connection, which is done when the client is, or the server.
pub(super) struct Connection<S> {
    stream: S,
    client: Client,
    protocol: Protocol,
    /// What is owed is answered from: kept from one turn to the next only then.
    generation: Option<Pinned>,
    /// Reads in a row that found more than they took.
    full_reads: usize,
    /// What was read and is not answered.
    held: Vec<u8>,
    /// What of that is to be looked at again before anything is read.
    then: Then,
    /// Made when a client first waits for another state.
    waiter: Option<Waiter>,
    /// Made when a client first reads late.
    unsent: Option<Box<Unsent>>,
    /// Whether the worker counts this connection among those that owe.
    owes: bool,
    /// What others see of it.
    activity: Arc<Activity>,
}

/// What ended in a turn.
enum End {
    Connection,
    /// What was owed from the generation that was kept for it.
    Kept,
}

impl<S: Stream> Connection<S> {
    pub(super) fn new(stream: S, peer: Peer, shared: Arc<Shared>) -> Self {
        let activity = shared.registry.activity(peer);
        Connection {
            stream,
            client: Client { peer, shared },
            protocol: Protocol::Unknown,
            generation: None,
            full_reads: 0,
            held: Vec::new(),
            then: Then::Read,
            waiter: None,
            unsent: None,
            owes: false,
            activity,
        }
    }

    /// One turn. What was sent together is answered from one generation, over as
    /// many turns as it takes.
    fn poll_turn(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<io::Result<()>> {
        if self.activity.is_evicted() {
            self.refuse_rest(cx);
            return Poll::Ready(Ok(()));
        }
        let mut turn = Turn::begin();
        loop {
            let kept = self.generation.take();
            let is_kept = kept.is_some();
            let generation = kept.unwrap_or_else(|| self.client.shared.pin());
            match self.poll_serve(cx, &generation, is_kept, scratch, &mut turn) {
                Poll::Ready(Ok(End::Kept)) => {}
                Poll::Ready(ended) => return Poll::Ready(ended.map(|_| ())),
                Poll::Pending => {
                    let keeps_generation = self.keeps_generation();
                    self.activity.set_waits(self.waits());
                    self.activity.set_generation(if keeps_generation { generation.number } else { 0 });
                    self.report_held(cx);
                    if keeps_generation {
                        self.generation = Some(generation);
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Whether the next turn answers or sends from the generation of this one.
    fn keeps_generation(&self) -> bool {
        let sends = self.unsent.as_ref().is_some_and(|unsent| unsent.needs_generation());
        sends || matches!(self.then, Then::Answer | Then::Yield) || self.reads_on()
    }

    /// Whether what is read next was sent with what was read before, as far as one can
    /// tell.
    fn reads_on(&self) -> bool {
        (1..FULL_READS_MAX).contains(&self.full_reads)
    }

    fn waits(&self) -> Waits {
        match &self.unsent {
            Some(unsent) if !unsent.is_empty() => Waits::Client(unsent.len_bytes()),
            _ if matches!(self.then, Then::Wait(_)) => Waits::Request,
            _ if self.then != Then::Read => Waits::Turn,
            _ if self.held.is_empty() => Waits::Request,
            _ => Waits::Rest(self.held.len()),
        }
    }

    /// Notes that bytes arrived, or that responses begin to wait.
    fn moved(&self) {
        self.client.shared.registry.moved(&self.activity);
    }

    fn poll_serve(
        &mut self,
        cx: &mut Context<'_>,
        generation: &Pinned,
        is_kept: bool,
        scratch: &mut Scratch,
        turn: &mut Turn,
    ) -> Poll<io::Result<End>> {
        let Scratch { input, answers } = scratch;
        loop {
            ready!(self.poll_unsent(cx, generation, answers, turn))?;
            match self.then {
                Then::Close => return Poll::Ready(Ok(End::Connection)),
                Then::Answer | Then::Yield => {
                    ready!(self.poll_answer_held(cx, generation, answers, turn))?;
                    continue;
                }
                Then::Wait(known) if !self.client.waits(&mut self.waiter, known, cx.waker()) => {
                    self.then = Then::Answer;
                    continue;
                }
                Then::Read | Then::Wait(_) => self.owes_no_more(),
            }
            if self.client.shared.is_stopping() {
                return Poll::Ready(Ok(End::Connection));
            }
            // A client that always owes its next batch before it has taken the last would else keep one for ever.
            if is_kept && !self.reads_on() {
                return Poll::Ready(Ok(End::Kept));
            }
            let mut buffer = ReadBuf::new(input);
            let polled = Pin::new(&mut self.stream).poll_read(cx, &mut buffer)?;
            let read = buffer.filled();
            self.full_reads = if read.len() == READ_LEN_BYTES { self.full_reads + 1 } else { 0 };
            ready!(polled);
            if read.is_empty() {
                return Poll::Ready(Ok(End::Connection));
            }
            self.client.shared.counters().read(read.len());
            self.moved();
            if self.held.is_empty() {
                let (taken_bytes, polled) = self.poll_answer(cx, generation, read, answers, turn);
                self.held.extend_from_slice(&read[taken_bytes..]);
                ready!(polled)?;
            } else {
                self.held.extend_from_slice(read);
                ready!(self.poll_answer_held(cx, generation, answers, turn))?;
            }
            self.client.shared.answered();
        }
    }

    fn poll_answer_held(
        &mut self,
        cx: &mut Context<'_>,
        generation: &Pinned,
        answers: &mut Answers,
        turn: &mut Turn,
    ) -> Poll<io::Result<()>> {
        let mut held = std::mem::take(&mut self.held);
        let (taken_bytes, polled) = self.poll_answer(cx, generation, &held, answers, turn);
        held.drain(..taken_bytes);
        // A buffer of the usual length is kept: a client that often sends in pieces costs no allocation each time.
        if held.is_empty() && held.capacity() > 2 * READ_LEN_BYTES {
            held = Vec::new();
        }
        self.held = held;
        polled
    }

    /// Answers requests until none is left whole, the socket is full or the turn is
    /// over. Tells how many bytes of them are answered.
    fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        generation: &Pinned,
        input: &[u8],
        answers: &mut Answers,
        turn: &mut Turn,
    ) -> (usize, Poll<io::Result<()>>) {
        let mut taken_bytes = 0;
        loop {
            let started = self.client.shared.counters().start();
            let pass = self.protocol.answer(&self.client, generation, &input[taken_bytes..], answers);
            taken_bytes += pass.taken_bytes;
            self.then = pass.then;
            turn.use_pass(pass.taken_bytes, answers.steps.total());
            let polled = self.poll_send(cx, generation, answers, turn);
            self.client.shared.counters().end(started);
            if !matches!(polled, Poll::Ready(Ok(()))) {
                return (taken_bytes, polled);
            }
            if turn.is_over() || pass.then == Then::Yield {
                return (taken_bytes, self.poll_others(cx));
            }
            if pass.then != Then::Answer {
                return (taken_bytes, Poll::Ready(Ok(())));
            }
        }
    }

    /// Ends the turn.
    fn poll_others(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.owe();
        // A task that wakes itself runs again, dozens of times, before the runtime looks for others' input.
        let _ = pin!(yield_now()).poll(cx);
        Poll::Pending
    }

    /// Sends answers. Keeps those that the socket does not take, or that the turn has no time for.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        generation: &Pinned,
        answers: &mut Answers,
        turn: &mut Turn,
    ) -> Poll<io::Result<()>> {
        let mut sent_bytes = 0;
        while sent_bytes < answers.total_len_bytes() {
            if turn.sent_bytes == 0 {
                answers.keep_unsent(sent_bytes, self.unsent.get_or_insert_default());
                return self.poll_others(cx);
            }
            let stream = Pin::new(&mut self.stream);
            let descriptors = match self.client.descriptors(generation, answers.hands_over && sent_bytes == 0) {
                Ok(descriptors) => descriptors,
                Err(error) => {
                    answers.replace_by(self.client.passes_nothing(&error));
                    continue;
                }
            };
            let send = |unsent: &[io::IoSlice]| poll_send(stream, cx, unsent, descriptors.as_ref());
            match answers.with_unsent(&generation.store, sent_bytes, send)? {
                Poll::Ready(Err(error)) if answers.hands_over && is_too_many(&error) => {
                    answers.replace_by(self.client.passes_nothing(&error));
                }
                Poll::Ready(sent) => {
                    let sent = sent?;
                    self.client.shared.counters().written(sent);
                    self.activity.count_sent(sent);
                    turn.use_sent(sent);
                    sent_bytes += sent;
                }
                Poll::Pending => {
                    self.moved();
                    answers.keep_unsent(sent_bytes, self.unsent.get_or_insert_default());
                    self.owe();
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the answers that were kept.
    fn poll_unsent(
        &mut self,
        cx: &mut Context<'_>,
        generation: &Pinned,
        answers: &mut Answers,
        turn: &mut Turn,
    ) -> Poll<io::Result<()>> {
        let Some(unsent) = self.unsent.as_mut().filter(|unsent| !unsent.is_empty()) else { return Poll::Ready(Ok(())) };
        while !unsent.is_empty() {
            if turn.sent_bytes == 0 {
                return self.poll_others(cx);
            }
            let stream = Pin::new(&mut self.stream);
            let descriptors = match self.client.descriptors(generation, unsent.hands_over) {
                Ok(descriptors) => descriptors,
                Err(error) => {
                    unsent.replace_by(self.client.passes_nothing(&error));
                    continue;
                }
            };
            let send = |unsent: &[io::IoSlice]| poll_send(stream, cx, unsent, descriptors.as_ref());
            let sent = match ready!(unsent.with(&generation.store, answers.stage(), send)?) {
                Err(error) if unsent.hands_over && is_too_many(&error) => {
                    unsent.replace_by(self.client.passes_nothing(&error));
                    continue;
                }
                sent => sent?,
            };
            self.client.shared.counters().written(sent);
            self.activity.count_sent(sent);
            turn.use_sent(sent);
            unsent.sent(sent);
        }
        unsent.clear();
        Poll::Ready(Ok(()))
    }

    fn owe(&mut self) {
        if !std::mem::replace(&mut self.owes, true) {
            self.client.shared.owes();
        }
    }
}

impl<S> Connection<S> {
    fn has_panicked(&self, panic: &str) {
        let serving = &self.client.shared.serving;
        serving.totals.panics.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = serving.panics_logged.line() {
            error!(peer = %self.client.peer, left_out, "a fault of this server ended a connection: panic at {panic}");
        }
    }

    fn owes_no_more(&mut self) {
        if std::mem::take(&mut self.owes) {
            self.client.shared.owes_no_more();
        }
    }
}

impl<S: Stream + Send + 'static> Connection<S> {
    /// Has it served, until it ends or its worker's registry ends it.
    pub(super) fn spawn(self) {
        let (shared, activity) = (Arc::clone(&self.client.shared), Arc::clone(&self.activity));
        shared.registry.add(activity, tokio::spawn(self).abort_handle());
    }
}

impl<S: Stream> Future for Connection<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let caught = panics::catch(|| SCRATCH.with_borrow_mut(|scratch| self.poll_turn(cx, scratch)));
        let polled = caught.unwrap_or_else(|panic| {
            // What it left half done there is not used again.
            SCRATCH.replace(Scratch::new());
            self.has_panicked(&panic);
            Poll::Ready(Ok(()))
        });
        if let Err(error) = ready!(polled) {
            debug!("a connection ended: {error}");
        }
        Poll::Ready(())
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        self.owes_no_more();
        self.client.shared.registry.remove(&self.activity);
        self.client.shared.serving.client_memory.release(&self.activity);
        self.client.shared.connection_closed();
    }
}

#[path = "connection_memory.rs"]
mod memory;

#[cfg(all(test, feature = "bake"))]
#[path = "connection_tests.rs"]
mod tests;

#[cfg(all(test, feature = "bake"))]
#[path = "connection_panics.rs"]
mod panic_tests;

#[cfg(all(test, feature = "bake"))]
#[path = "connection_turns.rs"]
mod turn_tests;

#[cfg(all(test, feature = "bake"))]
#[path = "connection_long_values.rs"]
mod long_value_tests;
