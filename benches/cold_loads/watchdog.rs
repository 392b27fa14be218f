//! A service manager with a watchdog.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The time without a notification after which a service manager would end the server.
const PERIOD: Duration = Duration::from_secs(2);
/// The time after which the thread that receives notifications checks whether it must end.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Receives the notifications of one server, and measures the time between them.
pub(crate) struct Watchdog {
    path: PathBuf,
    longest_us: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    pub(crate) fn start(folder: &Path) -> io::Result<Watchdog> {
        let path = folder.join("notify");
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path)?;
        socket.set_read_timeout(Some(CHECK_EVERY))?;
        let (longest_us, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (longest, over) = (Arc::clone(&longest_us), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            let (mut datagram, mut last) = ([0; 4096], None::<Instant>);
            while !over.load(Ordering::Relaxed) {
                let Ok(len) = socket.recv(&mut datagram) else { continue };
                // The first period begins when the server is ready.
                let is_alive = datagram[..len].starts_with(b"WATCHDOG=1");
                if is_alive || last.is_none() {
                    let now = Instant::now();
                    let gap = last.map_or(Duration::ZERO, |last| now - last);
                    longest.fetch_max(gap.as_micros() as u64, Ordering::Relaxed);
                    last = Some(now);
                }
            }
        });
        Ok(Watchdog { path, longest_us, is_over, thread: Some(thread) })
    }

    /// Makes a process notify the watchdog.
    pub(crate) fn add_to(&self, command: &mut Command) {
        command.env("NOTIFY_SOCKET", &self.path).env("WATCHDOG_USEC", PERIOD.as_micros().to_string());
    }

    /// Returns a sentence about the longest time between two notifications.
    pub(crate) fn report(&self) -> String {
        let longest_ms = self.longest_us.load(Ordering::Relaxed) as f64 / 1e3;
        format!("watchdog: at most {longest_ms:.0} ms between notifications, of {} ms", PERIOD.as_millis())
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
