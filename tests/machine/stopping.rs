//! How a server starts and stops while some of its threads cannot run.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::mpsc::channel;

use rustix::process::Signal;

use super::requirements::ptrace;
use crate::helpers::frames::{expect, gets};
use crate::helpers::intercepted_calls::{Call, Calls, Verdict, require_interception, spawn};
use crate::helpers::servers::Server;
use crate::helpers::tables::{Table, answer_to_get};
use crate::helpers::trials::Missing;
use crate::helpers::waiting::{PATIENCE, eventually};

const WORKERS: usize = 3;

/// A thread of another process, which does not run until this value is dropped. Must be dropped by the thread that
/// stopped it.
pub(crate) struct StoppedThread(libc::pid_t);

impl StoppedThread {
    /// Waits until the thread has stopped.
    ///
    /// # Errors
    /// If this process may not trace the other one.
    pub(crate) fn stop(thread: libc::pid_t) -> io::Result<StoppedThread> {
        // SAFETY: Takes numbers only. The kernel rejects a thread that does not exist.
        if unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, 0, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let (stopped, mut status) = (StoppedThread(thread), 0);
        // SAFETY: As above.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0) }, 0);
        // SAFETY: Writes to `status`, which lives until the call returns.
        assert_eq!(unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) }, thread);
        assert!(libc::WIFSTOPPED(status), "{status:#x}");
        Ok(stopped)
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        // SAFETY: Takes numbers only. Fails without effect if the thread has ended.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0, 0) };
    }
}

/// Returns the ID of the thread of the server that has this name.
fn thread(server: &Server, name: &str) -> libc::pid_t {
    let mut tasks = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap().map(Result::unwrap);
    let task = tasks.find(|task| fs::read_to_string(task.path().join("comm")).unwrap().trim_end() == name);
    task.unwrap_or_else(|| panic!("no thread {name}")).file_name().to_str().unwrap().parse().unwrap()
}

pub(crate) fn workers_stop_at_the_same_time() -> Result<(), Missing> {
    ptrace()?;
    let table = Table::of_rows(10);
    for running in 0..WORKERS {
        let mut command = table.command(&[]);
        command.args(["--workers", &WORKERS.to_string()]);
        let mut server = Server::of(command, &table.socket());
        // A connection is given to the worker that has the fewest.
        let mut streams: Vec<_> = (0..WORKERS).map(|_| server.connect()).collect();
        for stream in &mut streams {
            stream.write_all(&gets([3])).unwrap();
            expect(stream, &answer_to_get(&table.model, 3));
            stream.set_nonblocking(true).unwrap();
        }
        let others = (0..WORKERS).filter(|worker| *worker != running);
        let stopped: Vec<_> =
            others.map(|worker| StoppedThread::stop(thread(&server, &format!("worker-{worker}"))).unwrap()).collect();
        server.signal(Signal::TERM);
        // Only this worker can close a connection.
        let closed = || {
            let mut read = streams.iter_mut().map(|stream| stream.read(&mut [0]));
            read.any(|read| read.map_err(|error| error.kind()) != Err(ErrorKind::WouldBlock))
        };
        eventually(&format!("worker {running} stops before the others"), closed);
        assert!(server.is_alive());
        drop(stopped);
        assert_eq!(server.wait().code(), Some(0));
        let ended: Vec<_> = streams.iter_mut().map(|stream| stream.read(&mut [0]).unwrap()).collect();
        assert_eq!(ended, [0; WORKERS]);
    }
    Ok(())
}

/// For a file of a terabyte, the system takes seconds to report which pages are in memory. In this test, it never does.
pub(crate) fn a_server_is_ready_and_stops_while_the_resident_pages_are_counted() -> Result<(), Missing> {
    require_interception()?;
    let table = Table::of_rows(10);
    for memory in ["map", "copy", "sealed"] {
        let (counting, has_begun) = channel();
        let (end_of_count, ends) = channel::<()>();
        let decide = move |_: &Call| {
            let _ = counting.send(());
            // Returns when the test drops the sender.
            let _ = ends.recv();
            Verdict::Run
        };
        let started = |command| Ok(spawn(command, &Calls::Only(&[libc::SYS_mincore]), decide)?.0);
        let command = table.command(&["--memory", memory]);
        let mut server = Server::spawn_by(command, &table.socket(), started);
        server.wait_for_log("ready on ");
        has_begun.recv_timeout(PATIENCE).expect("a count of the resident pages");
        let mut stream = server.connect();
        stream.write_all(&gets([3])).unwrap();
        expect(&mut stream, &answer_to_get(&table.model, 3));
        let info = server.info();
        assert_eq!((info.get("resident_len_bytes"), info.get("thread_problems")), (Some("0"), Some("")));
        server.signal(Signal::TERM);
        eventually(&format!("the server with --memory {memory} stops"), || !server.is_alive());
        assert_eq!(server.wait().code(), Some(0));
        drop(end_of_count);
    }
    Ok(())
}
