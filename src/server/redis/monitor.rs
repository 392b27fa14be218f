//! MONITOR, which shows an administrator the commands of all connections that use the Redis protocol.
//!
//! In: the commands that sessions execute. Out: lines, which the connection of each monitor sends. A session collects
//! the lines of a pass, and delivers them when the pass is committed. Each monitor has a queue of limited length. A
//! client that reads more slowly than commands arrive is disconnected. While there are no monitors, sessions only read
//! the number of monitors, once per pass.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::warn;

use super::{Out, Replied, Session};
use crate::protocol::resp::Command;
use crate::protocol::resp::commands::{Id, Spec};
use crate::server::clients::Activity;
use crate::server::clients::registry::Registry;
use crate::server::process::log_queue::LogLimit;
use crate::server::stats::Totals;
use crate::sync::unpoisoned;

const MONITORS_MAX: usize = 8;
/// The maximum length of a monitor's queue, which has the lines that its connection has not sent yet.
const QUEUE_MAX_BYTES: usize = 16 << 20;
/// A monitor's queue may have at most 1/`CLIENT_MEMORY_SHARE` of the limit on client memory, because a queue that grows
/// is counted only when its connection sends lines.
const CLIENT_MEMORY_SHARE: u64 = 64;
/// The length up to which the last chunk of a queue grows. Lines that do not fit into this chunk begin a new chunk.
const CHUNK_BYTES: usize = 64 << 10;
/// The maximum number of bytes of a command that a line shows.
const SHOWN_MAX_BYTES: usize = 4096;
/// The fixed cost of a line, in steps. The steps of its bytes are added.
const LINE_STEPS: usize = 5;

#[derive(Default)]
pub(super) struct Monitors {
    count: AtomicUsize,
    monitors: Mutex<Vec<Arc<Monitor>>>,
    slow_log: LogLimit,
}

/// The queue of the lines for one client.
pub(in crate::server) struct Monitor {
    activity: Arc<Activity>,
    registry: Arc<Registry>,
    queue_max_bytes: usize,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    chunks: VecDeque<Vec<u8>>,
    len_bytes: usize,
    is_disconnected: bool,
}

impl Monitors {
    #[inline]
    pub(super) fn are_active(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Adds a monitor. `client_memory_max_bytes` is the limit on client memory.
    pub(super) fn add(
        &self,
        activity: &Arc<Activity>,
        registry: &Arc<Registry>,
        client_memory_max_bytes: u64,
    ) -> Arc<Monitor> {
        let queue_max_bytes = (client_memory_max_bytes / CLIENT_MEMORY_SHARE).min(QUEUE_MAX_BYTES as u64) as usize;
        let (activity, registry) = (Arc::clone(activity), Arc::clone(registry));
        let monitor = Arc::new(Monitor { activity, registry, queue_max_bytes, queue: Mutex::default() });
        let mut monitors = unpoisoned(&self.monitors);
        monitors.push(Arc::clone(&monitor));
        self.count.store(monitors.len(), Ordering::Relaxed);
        monitor
    }

    fn remove(&self, monitor: &Arc<Monitor>) {
        let mut monitors = unpoisoned(&self.monitors);
        monitors.retain(|listed| !Arc::ptr_eq(listed, monitor));
        self.count.store(monitors.len(), Ordering::Relaxed);
    }

    /// Delivers lines to all monitors. Disconnects the clients that read too slowly.
    fn publish(&self, lines: &[u8], totals: &Totals) {
        let monitors = unpoisoned(&self.monitors).clone();
        for monitor in monitors {
            let Delivery::Full = monitor.deliver(lines) else { continue };
            if monitor.registry.disconnect_one(&monitor.activity) {
                totals.cut_slow.fetch_add(1, Ordering::Relaxed);
                if let Some(left_out) = self.slow_log.line() {
                    warn!(
                        peer = %monitor.activity.peer,
                        left_out,
                        "disconnected: a client in MONITOR mode reads too slowly: {} bytes are queued",
                        monitor.queue_max_bytes
                    );
                }
            }
        }
    }
}

enum Delivery {
    Queued,
    Full,
}

impl Monitor {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        unpoisoned(&self.queue)
    }

    fn deliver(&self, lines: &[u8]) -> Delivery {
        let mut queue = self.queue();
        if queue.is_disconnected {
            return Delivery::Queued;
        }
        if queue.len_bytes + lines.len() > self.queue_max_bytes {
            *queue = Queue { is_disconnected: true, ..Queue::default() };
            return Delivery::Full;
        }
        let was_empty = queue.len_bytes == 0;
        queue.len_bytes += lines.len();
        match queue.chunks.back_mut() {
            Some(chunk) if chunk.len() + lines.len() <= CHUNK_BYTES => chunk.extend_from_slice(lines),
            _ => queue.chunks.push_back(lines.to_vec()),
        }
        drop(queue);
        if was_empty {
            self.activity.wake();
        }
        Delivery::Queued
    }

    /// Removes and returns the next lines to send, or returns `None` if there are none.
    pub(in crate::server) fn next_lines(&self) -> Option<Vec<u8>> {
        let mut queue = self.queue();
        let chunk = queue.chunks.pop_front()?;
        queue.len_bytes -= chunk.len();
        Some(chunk)
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.queue().len_bytes
    }
}

impl Session {
    /// Returns the queue of the lines that the client gets, if it is a monitor.
    #[inline]
    pub(in crate::server) fn monitor(&self) -> Option<&Monitor> {
        self.monitor.as_deref()
    }

    /// Executes MONITOR. The client becomes a monitor when the pass is committed.
    ///
    /// # Errors
    /// If the command is part of a transaction, or if there are too many monitors.
    pub(super) fn start_monitor(&mut self, out: &mut Out<'_>) -> Replied {
        if self.state.transaction.is_executing() {
            return Err("ERR MONITOR isn't allowed for DENY BLOCKING client".to_owned());
        }
        if self.state.is_monitor {
            // Redis does not reply either.
            return Ok(());
        }
        if self.clients.monitors.count.load(Ordering::Relaxed) >= MONITORS_MAX {
            return Err(format!(
                "ERR too many clients are in MONITOR mode, the limit is {MONITORS_MAX}: end another one"
            ));
        }
        (self.state.is_monitor, self.is_monitored) = (true, true);
        out.ok();
        Ok(())
    }

    /// Adds the line of a command to the lines of the pass. Skips administrative commands, as Redis does.
    #[cold]
    pub(super) fn show_command(&mut self, spec: &Spec, command: &Command<'_>, out: &mut Out<'_>) {
        // EXEC is shown after the commands of its transaction.
        if spec.flags.contains(&"admin") || spec.id == Id::Exec {
            return;
        }
        let shown_before_bytes = self.shown.len();
        self.push_line(spec.id, command.args());
        out.sink().steps().add(LINE_STEPS);
        // Each monitor gets a copy.
        out.sink().steps().add_bytes((1 + MONITORS_MAX) * (self.shown.len() - shown_before_bytes));
    }

    fn push_line<'a>(&mut self, id: Id, args: impl Iterator<Item = &'a [u8]>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let settings = &self.worker.server.settings;
        let address = match self.peer.address() {
            Some(address) => address.to_string(),
            None => format!("unix:{}", settings.socket.display()),
        };
        let shown = &mut self.shown;
        // Writing to a vector cannot fail.
        let _ = write!(shown, "+{}.{:06} [0 {address}]", now.as_secs(), now.subsec_micros());
        let (mut left_bytes, mut hidden) = (SHOWN_MAX_BYTES, 0);
        let mut args = args.enumerate();
        while let Some((at, arg)) = args.next() {
            if left_bytes == 0 {
                let _ = write!(shown, " \"... ({} more arguments)\"", 1 + args.count());
                break;
            }
            if id == Id::Auth && at > 0 {
                hidden = 1;
            }
            shown.extend_from_slice(b" \"");
            if hidden > 0 {
                hidden -= 1;
                shown.extend_from_slice(b"(redacted)");
            } else {
                let part = &arg[..arg.len().min(left_bytes)];
                push_escaped(part, shown);
                if part.len() < arg.len() {
                    let _ = write!(shown, "... ({} more bytes)", arg.len() - part.len());
                }
                if id == Id::Hello && at > 1 && arg.eq_ignore_ascii_case(b"AUTH") {
                    hidden = 2;
                }
            }
            shown.push(b'"');
            left_bytes = left_bytes.saturating_sub(arg.len() + 3);
        }
        shown.extend_from_slice(b"\r\n");
    }

    /// Adds the line of an EXEC to the lines of the pass, if all commands of its transaction have been executed.
    pub(super) fn show_exec(&mut self) {
        if !self.is_monitored || self.state.transaction.is_executing() {
            return;
        }
        self.push_line(Id::Exec, std::iter::once(&b"EXEC"[..]));
    }

    /// Delivers the lines of a pass, and adds or removes this client as a monitor.
    #[cold]
    pub(super) fn commit_monitoring(&mut self) {
        let clients = Arc::clone(&self.clients);
        if self.state.is_monitor && self.monitor.is_none() {
            let max_bytes = self.worker.server.client_memory.max_bytes;
            self.monitor = Some(clients.monitors.add(&self.activity, self.worker.registry(), max_bytes));
            self.client.set_monitor(true);
        }
        if !self.shown.is_empty() {
            clients.monitors.publish(&self.shown, &self.worker.server.statistics.totals);
            self.shown.clear();
            self.shown.shrink_to(CHUNK_BYTES);
        }
        if !self.state.is_monitor {
            self.end_monitor();
        }
    }

    /// Ends MONITOR mode. The client gets no more lines, not even those that are queued.
    pub(super) fn end_monitor(&mut self) {
        if let Some(monitor) = self.monitor.take() {
            self.clients.monitors.remove(&monitor);
            self.client.set_monitor(false);
        }
    }
}

/// Appends bytes as Redis quotes them.
fn push_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            7 => out.extend_from_slice(b"\\a"),
            8 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.push(byte),
            // Writing to a vector cannot fail.
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::limits::Limits;
    use crate::server::sockets::Peer;
    use crate::server::users::Users;

    fn monitors() -> (Arc<Registry>, Monitors, Arc<Monitor>) {
        let (registry, monitors) =
            (Arc::new(Registry::new(&Limits::default(), &Arc::new(Users::new(None).unwrap()))), Monitors::default());
        let monitor = monitors.add(&registry.activity(Peer::default()), &registry, u64::MAX);
        (registry, monitors, monitor)
    }

    #[test]
    fn lines_are_delivered_in_order_and_in_chunks_of_limited_length() {
        let (_registry, monitors, monitor) = monitors();
        let lines: Vec<Vec<u8>> = (0..20_000).map(|number| format!("+{number}\r\n").into_bytes()).collect();
        lines.iter().for_each(|line| monitors.publish(line, &Totals::default()));
        assert_eq!(monitor.held_bytes(), lines.concat().len());
        let chunks: Vec<Vec<u8>> = std::iter::from_fn(|| monitor.next_lines()).collect();
        assert!(chunks.len() > 1 && chunks.iter().all(|chunk| chunk.len() <= CHUNK_BYTES));
        assert_eq!(chunks.concat(), lines.concat());
        assert_eq!(monitor.held_bytes(), 0);
    }

    #[test]
    fn a_full_queue_is_released_and_gets_no_more_lines() {
        let (_registry, monitors, monitor) = monitors();
        let lines = vec![b'x'; CHUNK_BYTES];
        for _ in 0..QUEUE_MAX_BYTES / CHUNK_BYTES {
            monitors.publish(&lines, &Totals::default());
        }
        assert_eq!(monitor.held_bytes(), QUEUE_MAX_BYTES);
        for _ in 0..2 {
            monitors.publish(b"+1\r\n", &Totals::default());
            assert_eq!((monitor.held_bytes(), monitor.next_lines()), (0, None));
        }
    }

    #[test]
    fn a_queue_is_shorter_if_the_limit_on_client_memory_is_low() {
        let (registry, monitors, _) = monitors();
        let monitor = monitors.add(&registry.activity(Peer::default()), &registry, 64 << 16);
        let lines = vec![b'x'; 1 << 16];
        monitors.publish(&lines, &Totals::default());
        assert_eq!(monitor.held_bytes(), 1 << 16);
        monitors.publish(b"+1\r\n", &Totals::default());
        assert_eq!((monitor.held_bytes(), monitor.next_lines()), (0, None));
    }

    #[test]
    fn there_are_active_monitors_until_the_last_one_ends() {
        let (registry, monitors, first) = monitors();
        let second = monitors.add(&registry.activity(Peer::default()), &registry, u64::MAX);
        monitors.remove(&first);
        assert!(monitors.are_active());
        monitors.remove(&second);
        assert!(!monitors.are_active());
    }

    #[test]
    #[cfg(feature = "bake")]
    fn a_pass_that_is_repeated_shows_its_commands_once() {
        let (_folder, worker, mut session) = super::super::tests::session(10);
        let activity = worker.registry().activity(Peer::default());
        let monitor = session.clients.monitors.add(&activity, worker.registry(), u64::MAX);
        let mut responses = crate::server::responses::Responses::new();
        for _ in 0..3 {
            session.answer(&worker.pin(), b"GET 1\r\nMULTI\r\nGET 2\r\nEXEC\r\n", &mut responses);
            session.undo();
        }
        session.answer(&worker.pin(), b"GET 1\r\nMULTI\r\nGET 2\r\nEXEC\r\n", &mut responses);
        assert_eq!(monitor.next_lines(), None);
        session.commit();
        let lines = String::from_utf8(monitor.next_lines().unwrap()).unwrap();
        let commands: Vec<&str> = lines.lines().map(|line| line.split_once("] ").unwrap().1).collect();
        assert_eq!(commands, [r#""GET" "1""#, r#""MULTI""#, r#""GET" "2""#, r#""EXEC""#]);
    }
}
