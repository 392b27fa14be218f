//! Runs the thread that replaces the table of a [`Direct`](super::Direct) with the server's next generation.
//!
//! While the thread is connected, it has a pending request for the next generation. The thread sleeps until the server
//! responds or disconnects, or until a lookup detects that the file was changed.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::DirectOptions;
use super::generation::Generation;
use super::transfer::TransferConnection;
use crate::client::ClientError;
use crate::direct::BEAT_MISSED;
use crate::sync::{Pending, unpoisoned};

/// Initial pause between attempts to connect. Each failed attempt doubles the pause.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(10);
/// Maximum pause between attempts to connect.
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Pause after each transfer. It limits how much time of the processor a server can use in the
/// client by replying to every request at once.
const TRANSFER_EVERY: Duration = Duration::from_millis(1);

/// State shared by lookups and the thread that watches the server.
pub(super) struct DirectState {
    path: PathBuf,
    options: DirectOptions,
    pub(super) current: ArcSwap<Generation>,
    /// Locked while a thread replaces `current`.
    replacing: Mutex<()>,
    is_connected: AtomicBool,
    /// The wake-up of the thread by a lookup.
    wake: Pending,
}

impl DirectState {
    /// Receives the first generation and starts the thread that watches the server. Returns the shared state, and a
    /// socket that wakes the thread. Closing this socket ends the thread.
    pub(super) fn start(path: &Path, options: &DirectOptions) -> Result<(Arc<DirectState>, UnixStream), ClientError> {
        let mut connection = TransferConnection::new(path, options)?;
        let generation = connection.transfer_current(path, options)?;
        connection.request_next(path, generation.witness.state)?;
        let shared = Arc::new(DirectState {
            path: path.to_path_buf(),
            options: options.clone(),
            current: ArcSwap::from_pointee(generation),
            replacing: Mutex::default(),
            is_connected: AtomicBool::new(true),
            wake: Pending::default(),
        });
        let thread_state = Arc::clone(&shared);
        let start = || -> io::Result<UnixStream> {
            let (wake_sender, wake_receiver) = UnixStream::pair()?;
            wake_sender.set_nonblocking(true)?;
            wake_receiver.set_nonblocking(true)?;
            thread::Builder::new()
                .name("zero-kv-direct".to_owned())
                .spawn(move || thread_state.watch(&wake_receiver, connection))?;
            Ok(wake_sender)
        };
        let wake_sender = start().map_err(|error| ClientError::Direct {
            server: path.into(),
            problem: format!("the thread that watches the server cannot be started: {error}"),
        })?;
        Ok((shared, wake_sender))
    }

    /// Wakes the thread that watches the server, unless an earlier wake-up is pending.
    pub(super) fn wake_thread(&self, mut wake_sender: &UnixStream) {
        if self.wake.request() {
            // The buffer is never full, and an error means that the thread has ended.
            let _ = wake_sender.write(&[1]);
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    /// Replaces the current generation with the generation that the server serves now. Does nothing if this process is
    /// connected, and neither the table's state in the shared page nor the table's file has changed since the transfer.
    pub(super) fn refresh(&self) -> Result<(), ClientError> {
        let _replacing = self.replacing();
        if !self.is_connected() || !self.current.load().is_unchanged() {
            self.replace(
                &mut TransferConnection::new(&self.path, &self.options)?,
                TransferConnection::transfer_current,
            )?;
        }
        Ok(())
    }

    fn replacing(&self) -> MutexGuard<'_, ()> {
        unpoisoned(&self.replacing)
    }

    /// Replaces the current generation with the one that `receive` returns. The old generation is freed when no lookup
    /// or snapshot uses it anymore.
    fn replace(
        &self,
        connection: &mut TransferConnection,
        receive: impl FnOnce(&mut TransferConnection, &Path, &DirectOptions) -> Result<Generation, ClientError>,
    ) -> Result<(), ClientError> {
        self.current.store(Arc::new(receive(connection, &self.path, &self.options)?));
        Ok(())
    }

    fn watch(&self, wake_receiver: &UnixStream, connection: TransferConnection) {
        let (mut connection, mut pause) = (Some(connection), RETRY_PAUSE_MIN);
        let mut heartbeat = Heartbeat::read(&self.current.load());
        let wait = |server: Option<&TransferConnection>, pause| {
            let woken = wait(wake_receiver, server.map(TransferConnection::stream), pause);
            // Every wait consumes the wake-ups, and ends the request before the thread examines what lookups have
            // found.
            self.wake.take();
            woken
        };
        loop {
            let woken = wait(connection.as_ref(), pause);
            if let WakeReason::Closed = woken {
                return;
            }
            heartbeat.update(&self.current.load());
            connection = match (connection, woken) {
                (Some(connection), WakeReason::Response) => {
                    let connection = self.receive_next(connection).ok();
                    heartbeat = Heartbeat::read(&self.current.load());
                    thread::sleep(TRANSFER_EVERY);
                    connection
                }
                // A change that no lookup has found is left to the server, which may have a lease.
                (Some(connection), WakeReason::TimedOut) if !self.has_ended_epoch() => Some(connection),
                // After a wake-up, the table may already have been replaced, or its file rechecked.
                (Some(connection), WakeReason::Lookup | WakeReason::TimedOut)
                    if self.current.load().table.is_trusted() =>
                {
                    Some(connection)
                }
                (_, woken) => {
                    // If lookups keep reading an unreadable memory page of the file, this pause limits how often the
                    // thread reconnects.
                    if let WakeReason::Lookup = woken
                        && let WakeReason::Closed = wait(None, RETRY_PAUSE_MIN)
                    {
                        return;
                    }
                    let connection = self.reconnect().ok();
                    heartbeat = Heartbeat::read(&self.current.load());
                    connection
                }
            };
            pause = if connection.is_some() { RETRY_PAUSE_MIN } else { (2 * pause).min(RETRY_PAUSE_MAX) };
            self.is_connected.store(connection.is_some() && heartbeat.is_recent(), Ordering::Relaxed);
        }
    }

    /// Returns whether a lookup has found that the file was changed.
    fn has_ended_epoch(&self) -> bool {
        self.current.load().table.unverified().epoch().is_distrust()
    }

    fn receive_next(&self, mut connection: TransferConnection) -> Result<TransferConnection, ClientError> {
        let _replacing = self.replacing();
        self.replace(&mut connection, TransferConnection::receive_next)?;
        self.request_next(connection)
    }

    fn reconnect(&self) -> Result<TransferConnection, ClientError> {
        let _replacing = self.replacing();
        let mut connection = TransferConnection::new(&self.path, &self.options)?;
        self.replace(&mut connection, TransferConnection::transfer_current)?;
        self.request_next(connection)
    }

    fn request_next(&self, mut connection: TransferConnection) -> Result<TransferConnection, ClientError> {
        connection.request_next(&self.path, self.current.load().witness.state)?;
        Ok(connection)
    }
}

/// The server's count of heartbeats, and the time when this count was first observed.
struct Heartbeat {
    count: u64,
    observed_at: Instant,
}

impl Heartbeat {
    fn read(generation: &Generation) -> Heartbeat {
        Heartbeat { count: generation.witness.notice.beat(), observed_at: Instant::now() }
    }

    /// If the server's count of heartbeats has changed, stores the new count and the current time.
    fn update(&mut self, generation: &Generation) {
        if self.count != generation.witness.notice.beat() {
            *self = Heartbeat::read(generation);
        }
    }

    fn is_recent(&self) -> bool {
        self.observed_at.elapsed() < BEAT_MISSED
    }
}

/// The reason why the thread that watches the server woke up.
#[derive(Clone, Copy)]
enum WakeReason {
    /// The last clone of the `Direct` was dropped.
    Closed,
    /// A lookup detected that the file was changed.
    Lookup,
    /// The server responded.
    Response,
    /// The server closed the connection.
    Disconnected,
    /// The maximum time of the wait has passed: the thread must reconnect, or check the heartbeat.
    TimedOut,
}

/// Waits for a wake-up from a lookup, an event on the server's socket, or the time of the next check of the heartbeat.
/// Without a connection (`server` is `None`), waits until `pause` has passed. Dropping the last clone of the `Direct`
/// always ends the wait.
fn wait(wake_receiver: &UnixStream, server: Option<&UnixStream>, pause: Duration) -> WakeReason {
    let pause = if server.is_some() { BEAT_MISSED / 4 } else { pause };
    let pause = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
    // Without a server, only dropping the last `Direct` shortens the pause before the next attempt. Lookups do not
    // shorten the pause.
    let events = if server.is_some() { PollFlags::IN } else { PollFlags::empty() };
    let mut polled = vec![PollFd::new(wake_receiver, events)];
    polled.extend(server.map(|server| PollFd::new(server, PollFlags::IN)));
    // A signal ends the wait early, which is harmless.
    let _ = poll(&mut polled, Some(&pause));
    let server_events = polled.get(1).map_or(PollFlags::empty(), PollFd::revents);
    let mut wake_ups = [0; 64];
    let mut is_woken = false;
    loop {
        match (&mut &*wake_receiver).read(&mut wake_ups) {
            Ok(0) => return WakeReason::Closed,
            Ok(_) => is_woken = true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    match is_woken {
        _ if server_events.intersects(PollFlags::HUP | PollFlags::ERR) => WakeReason::Disconnected,
        _ if !server_events.is_empty() => WakeReason::Response,
        true => WakeReason::Lookup,
        false => WakeReason::TimedOut,
    }
}
