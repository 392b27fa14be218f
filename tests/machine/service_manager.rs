//! Notifications to the service manager.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command};

use rustix::process::Signal;

use crate::helpers::frames::{expect, gets};
use crate::helpers::servers::Server;
use crate::helpers::tables::{Table, answer_to_get, bake};
use crate::helpers::trials::{Missing, require};
use crate::helpers::waiting::{PATIENCE, eventually};

/// A watchdog interval that is long enough for a busy machine and short enough for a test.
const WATCHDOG_US: &str = "2000000";

/// A socket of a service manager, and its server.
struct Service {
    manager: UnixDatagram,
    server: Server,
}

impl Service {
    fn start(table: &Table, watchdog: bool) -> Service {
        let path = table.folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = table.command(&[]);
        command.args(["--workers", "2"]).env("NOTIFY_SOCKET", &path);
        if watchdog {
            command.env("WATCHDOG_USEC", WATCHDOG_US);
        }
        Service { manager, server: Server::spawn(command, &table.socket()) }
    }

    /// Returns the next notification that is not only a status.
    fn next_notification(&self) -> String {
        let mut datagram = [0; 4096];
        loop {
            let len = self.manager.recv(&mut datagram).unwrap();
            if !datagram.starts_with(b"STATUS=") {
                return String::from_utf8(datagram[..len].to_vec()).unwrap();
            }
        }
    }

    /// Returns the number of watchdog notifications since the last call.
    fn watchdog_notifications(&self) -> usize {
        self.manager.set_nonblocking(true).unwrap();
        let mut datagram = [0; 4096];
        let received = std::iter::from_fn(|| match self.manager.recv(&mut datagram) {
            Ok(len) => Some(datagram[..len].starts_with(b"WATCHDOG=1")),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                None
            }
        });
        let signs = received.filter(|is_sign| *is_sign).count();
        self.manager.set_nonblocking(false).unwrap();
        signs
    }
}

pub(crate) fn the_service_manager_is_notified_when_the_server_is_ready_and_when_it_stops() {
    let table = Table::of_rows(10);
    let mut service = Service::start(&table, false);
    let ready = service.next_notification();
    assert!(ready.lines().any(|line| line == "READY=1"), "{ready}");
    assert!(ready.lines().any(|line| line.starts_with("STATUS=serves 10 rows")), "{ready}");
    let mut stream = service.server.connect();
    stream.write_all(&gets([3])).unwrap();
    expect(&mut stream, &answer_to_get(&table.model, 3));
    service.server.signal(Signal::TERM);
    assert_eq!(service.next_notification(), "STOPPING=1\n");
    assert_eq!(service.server.wait().code(), Some(0));
}

pub(crate) fn the_service_manager_is_notified_of_each_reload_whether_or_not_it_succeeds() {
    let table = Table::of_rows(10);
    let service = Service::start(&table, false);
    assert!(service.next_notification().contains("READY=1"));
    let reload = || {
        service.server.signal(Signal::HUP);
        let began = service.next_notification();
        let time =
            began.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").and_then(|time| time.trim_end().parse::<u64>().ok());
        assert!(time.is_some(), "{began}");
        let ended = service.next_notification();
        assert!(ended.starts_with("READY=1\nSTATUS="), "{ended}");
        ended
    };
    assert!(reload().contains("already served by generation 1"));
    fs::remove_file(table.db()).unwrap();
    assert!(reload().contains("generation 1 is still served"));
    bake(&table.model, &table.db());
    // If the server detected the file before the request, it serves the file already.
    assert!(reload().contains("generation 2"));
}

pub(crate) fn the_watchdog_is_notified_while_the_server_is_idle_or_busy() {
    let table = Table::of_rows(10);
    let service = Service::start(&table, true);
    assert!(service.next_notification().contains("READY=1"));
    assert_eq!(service.next_notification(), "WATCHDOG=1\n");
    let mut stream = service.server.connect();
    eventually("the watchdog is notified while the server responds", || {
        stream.write_all(&gets([3])).unwrap();
        expect(&mut stream, &answer_to_get(&table.model, 3));
        service.watchdog_notifications() > 0
    });
}

/// Delays a thread of a process at its next call of some system calls.
struct DelayedThread(Child);

impl DelayedThread {
    fn start(process: u32, name: &str, calls: &str) -> Result<DelayedThread, Missing> {
        require("strace", "-V")?;
        let mut found = None;
        // A thread sets its name when it first runs, and other threads end meanwhile.
        eventually("the thread runs", || {
            let mut tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap().map(|task| task.unwrap());
            let has_name = |comm: String| comm.trim() == name;
            found = tasks.find(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(has_name));
            found.is_some()
        });
        let task = found.unwrap();
        let mut strace = Command::new("strace");
        strace.args(["-qq", "-o", "/dev/null", "-p", task.file_name().to_str().unwrap()]);
        let inject = format!("inject={calls}:delay_enter=3600000000");
        strace.args(["-e", &format!("trace={calls}"), "-e", &inject]);
        Ok(DelayedThread(strace.spawn().unwrap()))
    }
}

impl Drop for DelayedThread {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn a_hung_thread_suspends_the_watchdog_notifications() -> Result<(), Missing> {
    let epoll = "?epoll_wait,?epoll_pwait";
    for (thread, calls) in [("worker-1", epoll), ("supervisor", "futex"), ("leases", "?recvfrom,?read")] {
        let table = Table::of_rows(10);
        let mut service = Service::start(&table, true);
        assert!(service.next_notification().contains("READY=1"));
        let delayed = DelayedThread::start(service.server.id(), thread, calls)?;
        let line = format!("the {thread} thread makes no progress");
        service.server.wait_for_log(&line);
        service.watchdog_notifications();
        service.server.wait_for_log(&line);
        assert_eq!(service.watchdog_notifications(), 0);
        drop(delayed);
        eventually("the watchdog is notified again", || service.watchdog_notifications() > 0);
    }
    Ok(())
}
