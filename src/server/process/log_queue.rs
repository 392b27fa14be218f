//! The log of a server: lines wait in memory, and a thread writes them.
//!
//! In: lines. Out: the same lines in order, the number of lines that were lost, and the last warnings. A thread that
//! logs never waits for the reader of the log: lines that do not fit into the queue are dropped and counted.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::printable::shortened;
use crate::sync::unpoisoned;

/// The maximum length of the lines that wait. A pipe holds 64 KiB more.
const QUEUE_MAX_BYTES: usize = 256 << 10;
const RECENT_MAX: usize = 10;
/// The maximum length of a retained line.
const RECENT_LINE_MAX_CHARS: usize = 400;

/// A queue of log lines, and the thread that writes them. Clones share the queue.
#[derive(Clone, Debug)]
pub struct LogQueue {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Wakes the thread up when there is something to write.
    is_pending: Condvar,
    /// Wakes up threads that wait until everything is written.
    is_written: Condvar,
    dropped_lines: AtomicU64,
    recent: Mutex<VecDeque<String>>,
}

#[derive(Debug, Default)]
struct State {
    /// Complete lines.
    pending: Vec<u8>,
    is_writing: bool,
}

impl LogQueue {
    /// Starts the thread that writes to `output`. After lines were dropped and others could be written again, the
    /// thread calls `report_dropped` with the number of dropped lines.
    ///
    /// # Errors
    /// If the system cannot start the thread.
    pub fn start(
        output: impl Write + Send + 'static,
        report_dropped: impl Fn(u64) + Send + 'static,
    ) -> io::Result<LogQueue> {
        let queue = LogQueue { shared: Arc::default() };
        let shared = Arc::clone(&queue.shared);
        thread::Builder::new().name("log".to_owned()).spawn(move || shared.write_to(output, report_dropped))?;
        Ok(queue)
    }

    /// Appends one or more complete lines, or drops them if they do not fit.
    pub fn push(&self, lines: &[u8]) {
        let mut state = unpoisoned(&self.shared.state);
        if state.pending.len() + lines.len() > QUEUE_MAX_BYTES {
            drop(state);
            self.shared.drop_lines(lines);
            return;
        }
        state.pending.extend_from_slice(lines);
        drop(state);
        self.shared.is_pending.notify_one();
    }

    /// Retains a line for [`LogQueue::recent`], and forgets the oldest one if there are too many.
    pub fn retain(&self, line: &str) {
        let line = shortened(line.trim_end(), RECENT_LINE_MAX_CHARS);
        let mut recent = unpoisoned(&self.shared.recent);
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(line);
    }

    /// Returns the last warnings and errors, the newest last.
    pub fn recent(&self) -> Vec<String> {
        unpoisoned(&self.shared.recent).iter().cloned().collect()
    }

    /// Returns the number of lines that were dropped because the queue was full, or because they could not be written.
    pub fn dropped_lines(&self) -> u64 {
        self.shared.dropped_lines.load(Ordering::Relaxed)
    }

    /// Waits until all lines are written, but not longer than `timeout`.
    pub fn flush(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut state = unpoisoned(&self.shared.state);
        while state.is_writing || !state.pending.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.shared.is_written.wait_timeout(state, left);
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}

impl Shared {
    fn drop_lines(&self, lines: &[u8]) {
        let count = lines.iter().filter(|byte| **byte == b'\n').count().max(1);
        self.dropped_lines.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Writes lines as they arrive. Never returns.
    fn write_to(&self, mut output: impl Write, report_dropped: impl Fn(u64)) {
        let mut reported = 0;
        loop {
            let lines = self.next_lines();
            // A closed pipe or a full disk fails again and again. There is one attempt for each batch of lines, so the
            // thread does not spin.
            let (written_bytes, outcome) = write_all(&mut output, &lines);
            match outcome {
                Ok(()) => {
                    let dropped = self.dropped_lines.load(Ordering::Relaxed);
                    // The report is a line, too, so it waits until there is room.
                    if dropped > reported && unpoisoned(&self.state).pending.len() <= QUEUE_MAX_BYTES / 2 {
                        report_dropped(dropped - reported);
                        reported = dropped;
                    }
                }
                // A line of which only a part was written counts as dropped.
                Err(_) if written_bytes < lines.len() => self.drop_lines(&lines[written_bytes..]),
                Err(_) => {}
            }
        }
    }

    /// Waits for lines, and returns all lines that are pending.
    fn next_lines(&self) -> Vec<u8> {
        let mut state = unpoisoned(&self.state);
        state.is_writing = false;
        while state.pending.is_empty() {
            self.is_written.notify_all();
            state = self.is_pending.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        state.is_writing = true;
        std::mem::take(&mut state.pending)
    }
}

/// Writes bytes, and returns how many of them were written before an error.
fn write_all(output: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written_bytes = 0;
    while written_bytes < bytes.len() {
        match output.write(&bytes[written_bytes..]) {
            Ok(0) => return (written_bytes, Err(io::ErrorKind::WriteZero.into())),
            Ok(len_bytes) => written_bytes += len_bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written_bytes, Err(error)),
        }
    }
    (written_bytes, output.flush())
}

const PAUSE: Duration = Duration::from_secs(1);

/// Limits one kind of log line to one line per second.
#[derive(Default)]
pub(in crate::server) struct LogLimit(Mutex<LogState>);

#[derive(Default)]
struct LogState {
    last: Option<Instant>,
    left_out: u64,
}

impl LogLimit {
    /// If a line may be logged now, returns the number of lines that were omitted since the last logged line.
    /// Otherwise, counts an omitted line and returns `None`.
    pub(in crate::server) fn line(&self) -> Option<u64> {
        self.line_at(Instant::now())
    }

    fn line_at(&self, now: Instant) -> Option<u64> {
        let mut state = unpoisoned(&self.0);
        if state.last.is_some_and(|last| now.duration_since(last) < PAUSE) {
            state.left_out += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;

    use super::*;

    /// More than one second, so that a slow machine does not fail a test, although a flush returns much earlier.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Writes what the test permits.
    struct Gate {
        permits: mpsc::Receiver<io::Result<()>>,
        written: mpsc::Sender<String>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.permits.recv().map_err(|_| io::ErrorKind::BrokenPipe)??;
            let _ = self.written.send(String::from_utf8(bytes.to_vec()).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Scene {
        queue: LogQueue,
        permits: mpsc::Sender<io::Result<()>>,
        written: mpsc::Receiver<String>,
        reported: mpsc::Receiver<u64>,
    }

    fn scene() -> Scene {
        let (permits, permitted) = mpsc::channel();
        let (sends_written, written) = mpsc::channel();
        let (sends_reported, reported) = mpsc::channel();
        let report = move |count| {
            let _ = sends_reported.send(count);
        };
        let queue = LogQueue::start(Gate { permits: permitted, written: sends_written }, report).unwrap();
        Scene { queue, permits, written, reported }
    }

    #[test]
    fn lines_beyond_the_limit_are_dropped_and_counted_while_the_reader_stalls() {
        let Scene { queue, permits, written, reported } = scene();
        let line = [vec![b'x'; 999], b"\n".to_vec()].concat();
        queue.push(b"first\n");
        // The thread takes the first line, and waits for its permit.
        while !unpoisoned(&queue.shared.state).pending.is_empty() {
            thread::yield_now();
        }
        (0..1000).for_each(|_| queue.push(&line));
        let fit = QUEUE_MAX_BYTES / line.len();
        assert_eq!(queue.dropped_lines(), 1000 - fit as u64);
        queue.flush(Duration::from_millis(1));
        permits.send(Ok(())).unwrap();
        assert_eq!(written.recv_timeout(PATIENCE).unwrap(), "first\n");
        permits.send(Ok(())).unwrap();
        assert_eq!(written.recv_timeout(PATIENCE).unwrap().len(), fit * line.len());
        assert_eq!(reported.recv_timeout(PATIENCE), Ok(1000 - fit as u64));
        queue.flush(PATIENCE);
        queue.push(b"last\n");
        permits.send(Ok(())).unwrap();
        assert_eq!(written.recv_timeout(PATIENCE).unwrap(), "last\n");
        assert!(reported.try_recv().is_err());
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_reported_later() {
        let Scene { queue, permits, written, reported } = scene();
        for _ in 0..3 {
            permits.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
            queue.push(b"a\n");
            queue.flush(PATIENCE);
        }
        assert_eq!(queue.dropped_lines(), 3);
        permits.send(Ok(())).unwrap();
        queue.push(b"b\n");
        assert_eq!(written.recv_timeout(PATIENCE).unwrap(), "b\n");
        assert_eq!(reported.recv_timeout(PATIENCE), Ok(3));
        // A closed output, such as a pipe without readers.
        drop(permits);
        queue.push(b"c\nd\n");
        queue.flush(PATIENCE);
        assert_eq!(queue.dropped_lines(), 5);
    }

    /// Takes a number of bytes, and then fails.
    struct Disk {
        free_bytes: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let len_bytes = bytes.len().min(self.free_bytes);
            self.free_bytes -= len_bytes;
            if len_bytes == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(len_bytes) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_lines_that_were_not_written_whole_count_as_dropped() {
        // Two bytes per line. The lines are pushed at once, so they are one batch.
        for (free_bytes, dropped) in [(0, 4), (1, 4), (2, 3), (3, 3), (4, 2), (7, 1), (8, 0)] {
            let queue = LogQueue::start(Disk { free_bytes }, |_| ()).unwrap();
            queue.push(b"a\nb\nc\nd\n");
            queue.flush(PATIENCE);
            assert_eq!(queue.dropped_lines(), dropped, "{free_bytes} bytes are free");
        }
    }

    #[test]
    fn threads_log_whole_lines_to_a_slow_reader() {
        let (output, input) = UnixStream::pair().unwrap();
        let queue = LogQueue::start(output, |_| ()).unwrap();
        thread::scope(|scope| {
            for number in 0..4 {
                let queue = &queue;
                scope.spawn(move || (0..100).for_each(|line| queue.push(format!("{number} {line}\n").as_bytes())));
            }
        });
        let mut next = [0; 4];
        for line in io::BufRead::lines(io::BufReader::new(input)).take(400) {
            let line = line.unwrap();
            let (number, at) = line.split_once(' ').unwrap();
            let next = &mut next[number.parse::<usize>().unwrap()];
            assert_eq!(at, next.to_string());
            *next += 1;
        }
        assert_eq!((next, queue.dropped_lines()), ([100; 4], 0));
    }

    #[test]
    fn the_last_retained_lines_are_short_and_printable() {
        let Scene { queue, .. } = scene();
        (0..30).for_each(|number| queue.retain(&format!("WARN {number}\x1b[2J{}\n", "x".repeat(1000))));
        let recent = queue.recent();
        assert_eq!(recent.len(), RECENT_MAX);
        assert!(recent[9].starts_with(r"WARN 29\u001b[2Jxxx"), "{}", recent[9]);
        assert!(recent.iter().all(|line| line.len() <= RECENT_LINE_MAX_CHARS + 3));
    }
}

#[cfg(test)]
mod log_limit_tests {
    use super::*;

    #[test]
    fn one_line_per_second_is_logged_with_the_number_of_omitted_lines() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        assert_eq!(limit.line_at(start), Some(0));
        assert_eq!(limit.line_at(start + PAUSE / 4), None);
        assert_eq!(limit.line_at(start + PAUSE / 2), None);
        assert_eq!(limit.line_at(start + PAUSE), Some(2));
        assert_eq!(limit.line_at(start + PAUSE * 2), Some(0));
    }
}
