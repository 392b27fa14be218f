//! The thread that keeps the mapping up to date.
//!
//! It has always asked the server for the next generation, and sleeps until that is
//! handed over, the server is gone, or a lookup has found that the file was changed.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::DirectOptions;
use super::generation::Generation;
use super::handover::Connection;
use crate::client::ClientError;
use crate::direct::BEAT_MISSED;

/// The pauses between attempts that fail: from the first to the last, doubled each
/// time.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_LAST: Duration = Duration::from_millis(500);

/// What lookups and the thread share.
pub(super) struct Shared {
    path: PathBuf,
    options: DirectOptions,
    pub(super) current: ArcSwap<Generation>,
    /// Locked while another generation is put there.
    replacing: Mutex<()>,
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
        connection.ask_for_next(path, generation.word.state)?;
        let shared = Arc::new(Shared {
            path: path.to_path_buf(),
            options: options.clone(),
            current: ArcSwap::from_pointee(generation),
            replacing: Mutex::default(),
            is_connected: AtomicBool::new(true),
            is_rung: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        let start = || -> io::Result<UnixStream> {
            let (bell, door) = UnixStream::pair()?;
            bell.set_nonblocking(true)?;
            door.set_nonblocking(true)?;
            thread::Builder::new()
                .name("zero-kv-direct".to_owned())
                .spawn(move || of_thread.watch(&door, connection))?;
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
        let _replacing = self.replacing();
        if !self.is_connected() || !self.current.load().is_as_handed_over() {
            self.replace(&mut Connection::new(&self.path, &self.options)?, Connection::ask)?;
        }
        Ok(())
    }

    fn replacing(&self) -> MutexGuard<'_, ()> {
        self.replacing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts in place what a connection gives. The last of its borrowers lets go of the
    /// one before.
    fn replace(
        &self,
        connection: &mut Connection,
        take: impl FnOnce(&mut Connection, &Path, &DirectOptions) -> Result<Generation, ClientError>,
    ) -> Result<(), ClientError> {
        self.current.store(Arc::new(take(connection, &self.path, &self.options)?));
        Ok(())
    }

    fn watch(&self, door: &UnixStream, connection: Connection) {
        let (mut connection, mut pause) = (Some(connection), RETRY_FIRST);
        let mut pulse = Pulse::of(&self.current.load());
        loop {
            let woken = wait(door, connection.as_ref().map(Connection::stream), pause);
            if let Wake::End = woken {
                return;
            }
            self.is_rung.store(false, Ordering::Relaxed);
            pulse.update(&self.current.load());
            connection = match (connection, woken) {
                (Some(connection), Wake::Server) => {
                    let connection = self.take_next(connection).ok();
                    pulse = Pulse::of(&self.current.load());
                    connection
                }
                (Some(connection), Wake::Time) => Some(connection),
                // What a lookup found is not so any more.
                (Some(connection), Wake::Bell) if self.current.load().table.is_trusted() => Some(connection),
                (_, woken) => {
                    // However often lookups find a page gone.
                    if let Wake::Bell = woken
                        && let Wake::End = wait(door, None, RETRY_FIRST)
                    {
                        return;
                    }
                    let connection = self.begin_anew().ok();
                    pulse = Pulse::of(&self.current.load());
                    connection
                }
            };
            pause = if connection.is_some() { RETRY_FIRST } else { (2 * pause).min(RETRY_LAST) };
            self.is_connected.store(connection.is_some() && pulse.is_fresh(), Ordering::Relaxed);
        }
    }

    fn take_next(&self, mut connection: Connection) -> Result<Connection, ClientError> {
        let _replacing = self.replacing();
        self.replace(&mut connection, Connection::take)?;
        self.ask_for_next(connection)
    }

    fn begin_anew(&self) -> Result<Connection, ClientError> {
        let _replacing = self.replacing();
        let mut connection = Connection::new(&self.path, &self.options)?;
        self.replace(&mut connection, Connection::ask)?;
        self.ask_for_next(connection)
    }

    fn ask_for_next(&self, mut connection: Connection) -> Result<Connection, ClientError> {
        connection.ask_for_next(&self.path, self.current.load().word.state)?;
        Ok(connection)
    }
}

/// Whether the server runs.
struct Pulse {
    beat: u64,
    felt: Instant,
}

impl Pulse {
    fn of(generation: &Generation) -> Pulse {
        Pulse { beat: generation.word.notice.beat(), felt: Instant::now() }
    }

    /// Notes whether the server has counted its beat up.
    fn update(&mut self, generation: &Generation) {
        if self.beat != generation.word.notice.beat() {
            *self = Pulse::of(generation);
        }
    }

    fn is_fresh(&self) -> bool {
        self.felt.elapsed() < BEAT_MISSED
    }
}

/// What the thread was woken by.
#[derive(Clone, Copy)]
enum Wake {
    /// Nobody looks up any more.
    End,
    /// A lookup.
    Bell,
    /// An answer.
    Server,
    /// The end of the server.
    Gone,
    /// The end of a pause, or the time to see whether the server runs.
    Time,
}

/// Waits for the bell, or the server, for some time; without one, for the end of a pause.
fn wait(door: &UnixStream, server: Option<&UnixStream>, pause: Duration) -> Wake {
    let pause = if server.is_some() { BEAT_MISSED / 4 } else { pause };
    let pause = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
    // However many lookups find that there is need of an attempt, the next one has its time. Only the end is heard before.
    let heard = if server.is_some() { PollFlags::IN } else { PollFlags::empty() };
    let mut polled = vec![PollFd::new(door, heard)];
    polled.extend(server.map(|server| PollFd::new(server, PollFlags::IN)));
    // A signal ends the wait early, which does no harm.
    let _ = poll(&mut polled, Some(&pause));
    let of_server = polled.get(1).map_or(PollFlags::empty(), PollFd::revents);
    let mut rings = [0; 64];
    let mut is_rung = false;
    loop {
        match (&mut &*door).read(&mut rings) {
            Ok(0) => return Wake::End,
            Ok(_) => is_rung = true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    match is_rung {
        _ if of_server.intersects(PollFlags::HUP | PollFlags::ERR) => Wake::Gone,
        _ if !of_server.is_empty() => Wake::Server,
        true => Wake::Bell,
        false => Wake::Time,
    }
}
