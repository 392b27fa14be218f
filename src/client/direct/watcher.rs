//! The thread that keeps the mapping up to date.
//!
//! It sleeps until a lookup has seen that another generation is served, the server
//! is gone, or a second is over, after which an idle process too gives the memory of
//! an old generation back.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::DirectOptions;
use super::generation::Generation;
use super::handover::Connection;
use crate::client::ClientError;

/// How long an old generation is kept that is not asked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The pauses between attempts that fail: from the first to the last, doubled each
/// time.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_LAST: Duration = Duration::from_millis(500);

/// What lookups and the thread share.
pub(super) struct Shared {
    path: PathBuf,
    options: DirectOptions,
    pub(super) current: ArcSwap<Generation>,
    /// `None` if the server was found to be gone.
    connection: Mutex<Option<Connection>>,
    is_connected: AtomicBool,
    /// Whether the thread was woken and has not looked yet.
    is_rung: AtomicBool,
}

impl Shared {
    /// Has the first generation handed over, and starts the thread, which ends when the
    /// stream that is given is closed.
    pub(super) fn start(path: &Path, options: &DirectOptions) -> Result<(Arc<Shared>, UnixStream), ClientError> {
        let mut connection = Connection::new(path, options)?;
        let generation = connection.ask(path, options)?;
        let shared = Arc::new(Shared {
            path: path.to_path_buf(),
            options: options.clone(),
            current: ArcSwap::from_pointee(generation),
            connection: Mutex::new(Some(connection)),
            is_connected: AtomicBool::new(true),
            is_rung: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        let start = || -> io::Result<UnixStream> {
            let (bell, door) = UnixStream::pair()?;
            bell.set_nonblocking(true)?;
            door.set_nonblocking(true)?;
            thread::Builder::new().name("zero-kv-direct".to_owned()).spawn(move || of_thread.watch(&door))?;
            Ok(bell)
        };
        let bell = start().map_err(|error| ClientError::Direct {
            path: path.to_path_buf(),
            problem: format!("starting the thread that watches the server: {error}"),
        })?;
        Ok((shared, bell))
    }

    /// Wakes the thread, once until it looks.
    pub(super) fn ring(&self, mut bell: &UnixStream) {
        if !self.is_rung.load(Ordering::Relaxed) && !self.is_rung.swap(true, Ordering::Relaxed) {
            // A full buffer is not possible; a thread that is gone serves nobody.
            let _ = bell.write(&[1]);
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    /// Has the generation handed over that is served, unless it is the current one.
    pub(super) fn refresh(&self) -> Result<(), ClientError> {
        self.update(&mut self.connection())
    }

    fn connection(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, connection: &mut Option<Connection>) -> Result<(), ClientError> {
        let is_new = connection.as_ref().is_none_or(|connection| is_gone(connection.stream()));
        if !is_new && !self.current.load().is_to_be_replaced() {
            return Ok(());
        }
        if is_new {
            *connection = None;
        }
        let updated = self.ask(connection);
        // In what order its next answer comes nobody knows, unless it has only refused.
        if updated.as_ref().is_err_and(|error| !matches!(error, ClientError::Direct { .. })) {
            *connection = None;
        }
        self.is_connected.store(connection.is_some(), Ordering::Relaxed);
        updated
    }

    fn ask(&self, connection: &mut Option<Connection>) -> Result<(), ClientError> {
        let connection = match connection {
            Some(connection) => connection,
            None => connection.insert(Connection::new(&self.path, &self.options)?),
        };
        let generation = connection.ask(&self.path, &self.options)?;
        // The last of its borrowers lets go of the one before.
        self.current.store(Arc::new(generation));
        Ok(())
    }

    fn watch(&self, door: &UnixStream) {
        let mut pause = None;
        loop {
            let updated = {
                let mut connection = self.connection();
                let updated = self.update(&mut connection);
                let stream = connection.as_ref().map(|connection| Arc::clone(connection.stream()));
                updated.map(|()| stream)
            };
            pause = match &updated {
                Ok(_) => None,
                Err(_) => Some(pause.map_or(RETRY_FIRST, |pause: Duration| (2 * pause).min(RETRY_LAST))),
            };
            // Behind a failed attempt, the next one has its time: however many lookups see that there is need of it.
            let wakers = if pause.is_none() { updated.ok().flatten() } else { None };
            if !wait(door, wakers.as_deref(), pause.unwrap_or(LOOK_EVERY), pause.is_none()) {
                return;
            }
            self.is_rung.store(false, Ordering::Relaxed);
        }
    }
}

/// Waits for the bell, the end of the server's stream, or the end of a time. Tells
/// whether the thread is to go on.
fn wait(door: &UnixStream, server: Option<&UnixStream>, time: Duration, hears_bell: bool) -> bool {
    let bell = if hears_bell { PollFlags::IN } else { PollFlags::empty() };
    let mut wakers = vec![PollFd::new(door, bell)];
    wakers.extend(server.map(|server| PollFd::new(server, PollFlags::IN)));
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    // A signal ends the wait early, which does no harm.
    let _ = poll(&mut wakers, Some(&time));
    let mut rings = [0; 64];
    loop {
        match (&mut &*door).read(&mut rings) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => {
                return error.kind() == io::ErrorKind::WouldBlock || error.kind() == io::ErrorKind::Interrupted;
            }
        }
    }
}

/// Whether a server has closed a connection: nothing else comes from it without being
/// asked for.
fn is_gone(stream: &UnixStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
}
