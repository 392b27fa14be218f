//! The log: a reader that stalls or ends, and text from elsewhere.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::io::ioctl_fionbio;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::{Pid, Signal, kill_process};
use zero_kv::client::Client;

use crate::helpers::servers::{Server, kv_store};
use crate::helpers::tables::Table;
use crate::helpers::waiting::{PATIENCE, eventually};

/// The minimum size of a pipe.
const PIPE_BYTES: usize = 4096;

/// A server whose standard error is a small pipe that only the test reads.
struct Scene {
    table: Table,
    /// The served file. Its path is long, so that a few log lines fill the log's queue.
    db: PathBuf,
    server: Child,
    log: Option<fs::File>,
    reloads: u64,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn small_pipe() -> (fs::File, OwnedFd) {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    fcntl_setpipe_size(&write, PIPE_BYTES).unwrap();
    (read.into(), write)
}

/// Starts a server with this folder below the table's folder, and these options.
fn serve(below: &Path, options: &[&str]) -> Scene {
    let table = Table::of_rows(10);
    let folder = table.folder.path().join(below);
    fs::create_dir_all(&folder).unwrap();
    let db = folder.join("storage.db");
    fs::rename(table.db(), &db).unwrap();
    let (log, stderr) = small_pipe();
    let server = kv_store(&db, &table.socket()).args(options).stderr(stderr).spawn().unwrap();
    let scene = Scene { table, db, server, log: Some(log), reloads: 0 };
    eventually("the server responds", || {
        Client::connect(scene.table.socket()).is_ok_and(|mut client| client.ping().is_ok())
    });
    scene
}

fn serve_long_path() -> Scene {
    serve(&Path::new(&"x".repeat(250)).join("y".repeat(250)).join("z".repeat(250)).join("w".repeat(250)), &[])
}

impl Scene {
    fn client(&self) -> Client {
        Client::connect(self.table.socket()).unwrap()
    }

    fn number(&self, name: &str) -> u64 {
        self.client().info().unwrap().number(name).unwrap()
    }

    /// Makes the server log the outcome of a reload.
    fn reload(&mut self) {
        let mut client = self.client();
        let attempt = client.reload().unwrap();
        self.reloads += 1;
        eventually("the reload is done", || client.info().unwrap().number::<u64>("reload_done").unwrap() >= attempt);
    }

    fn reload_until_lines_are_dropped(&mut self) {
        while self.number("log_dropped_lines") == 0 {
            assert!(self.reloads < 10_000, "no line was dropped");
            self.reload();
        }
    }

    /// Reads the log in a thread. Returns the text so far, and the thread, which ends when the server ends.
    fn read_log(&mut self) -> (Arc<Mutex<String>>, JoinHandle<()>) {
        let (mut log, text) = (self.log.take().unwrap(), Arc::new(Mutex::new(String::new())));
        let read = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; PIPE_BYTES];
            while let len @ 1.. = log.read(&mut bytes).unwrap() {
                read.lock().unwrap().push_str(str::from_utf8(&bytes[..len]).unwrap());
            }
        });
        (text, reader)
    }

    fn expect_exit(&mut self, code: i32) {
        eventually("the server ends", || {
            self.server.try_wait().unwrap().is_some_and(|status| status.code() == Some(code))
        });
    }
}

/// Replaces the file by one that the server refuses, so that each reload logs a warning.
fn break_file(scene: &Scene) {
    let broken = scene.db.with_extension("broken");
    fs::write(&broken, "not a table").unwrap();
    fs::rename(broken, &scene.db).unwrap();
}

#[test]
fn a_server_whose_log_is_not_read_serves_and_stops() {
    let mut scene = serve_long_path();
    break_file(&scene);
    scene.reload_until_lines_are_dropped();
    assert_eq!(scene.client().get(7_u64).unwrap(), Some(b"value_content_at_key_7".to_vec()));
    scene.reload();
    // `zkv health` reports the loss, and the last lines.
    let mut health = Command::new(env!("CARGO_BIN_EXE_zkv"));
    let health = health.args(["health", "--verbose", "--server"]).arg(scene.table.socket()).output().unwrap();
    let text = String::from_utf8(health.stderr).unwrap();
    assert!(health.status.success() && text.contains("lines of the log were dropped"), "{text}");
    assert!(text.lines().any(|line| line.contains(": log: ") && line.contains(" ERROR ")), "{text}");
    kill_process(Pid::from_child(&scene.server), Signal::TERM).unwrap();
    scene.expect_exit(0);
}

#[test]
fn the_number_of_dropped_lines_is_logged_when_the_log_is_read_again() {
    let mut scene = serve_long_path();
    break_file(&scene);
    scene.reload_until_lines_are_dropped();
    let (text, reader) = scene.read_log();
    eventually("the number is logged", || text.lock().unwrap().contains("log lines were dropped"));
    // Nothing waits any more, so these lines fit.
    let dropped = scene.number("log_dropped_lines");
    (0..3).for_each(|_| scene.reload());
    assert_eq!(scene.number("log_dropped_lines"), dropped);
    kill_process(Pid::from_child(&scene.server), Signal::TERM).unwrap();
    scene.expect_exit(0);
    reader.join().unwrap();
    let text = text.lock().unwrap();
    assert!(text.ends_with('\n') && text.contains("stopping"), "{text}");
    assert!(text.lines().all(|line| line.starts_with("20")), "{text}");
    let reported = text.lines().filter_map(|line| line.split_once(" log lines were dropped")?.0.rsplit(' ').next());
    assert_eq!(reported.map(|count| count.parse::<u64>().unwrap()).sum::<u64>(), dropped);
    let outcomes = text.lines().filter(|line| line.contains(" ERROR ")).count() as u64;
    // The server may also have tried the file without a request.
    assert!(outcomes + dropped >= scene.reloads, "{outcomes} and {dropped} of {}", scene.reloads);
}

#[test]
fn a_server_whose_log_is_closed_serves_and_stops() {
    let mut scene = serve_long_path();
    drop(scene.log.take());
    break_file(&scene);
    (0..20).for_each(|_| scene.reload());
    eventually("the lines are counted as dropped", || scene.number("log_dropped_lines") >= 20);
    assert!(scene.client().contains(7_u64).unwrap());
    kill_process(Pid::from_child(&scene.server), Signal::TERM).unwrap();
    scene.expect_exit(0);
}

/// A program that shares the descriptor may have made it nonblocking. The lines that the pipe cannot hold then wait, too.
#[test]
fn no_line_is_lost_in_a_nonblocking_pipe() {
    let table = Table::of_rows(10);
    let (log, stderr) = small_pipe();
    ioctl_fionbio(&stderr, true).unwrap();
    let db = table.db();
    let server = kv_store(&db, &table.socket()).stderr(stderr).spawn().unwrap();
    let mut scene = Scene { table, db, server, log: Some(log), reloads: 0 };
    eventually("the server responds", || {
        Client::connect(scene.table.socket()).is_ok_and(|mut client| client.ping().is_ok())
    });
    break_file(&scene);
    // More than the pipe holds, and less than the queue holds.
    (0..100).for_each(|_| scene.reload());
    let (text, reader) = scene.read_log();
    eventually("all lines are read", || text.lock().unwrap().matches(" ERROR ").count() >= 100);
    assert!(text.lock().unwrap().len() > 2 * PIPE_BYTES);
    assert_eq!(scene.number("log_dropped_lines"), 0);
    kill_process(Pid::from_child(&scene.server), Signal::TERM).unwrap();
    scene.expect_exit(0);
    reader.join().unwrap();
}

#[test]
fn a_server_that_cannot_start_ends_although_its_log_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let (_log, stderr) = small_pipe();
    let mut stderr = fs::File::from(stderr);
    stderr.write_all(&[b'x'; PIPE_BYTES]).unwrap();
    let mut server = kv_store(&folder.path().join("no.db"), &folder.path().join("s")).stderr(stderr).spawn().unwrap();
    eventually("the server ends", || server.try_wait().unwrap().is_some_and(|status| status.code() == Some(1)));
}

/// Log lines may name other users and their files, so only the server's administrators get them.
#[test]
fn only_administrators_get_log_lines() {
    let mut scene = serve(Path::new("f"), &["--tcp", "127.0.0.1:0"]);
    break_file(&scene);
    scene.reload();
    let info = scene.client().info().unwrap();
    assert!(info.get("log_1").unwrap().contains(" ERROR "), "{info:?}");
    let tcp = info.get("tcp").unwrap().to_owned();
    let info = Client::connect(format!("zkv://{tcp}")).unwrap().info().unwrap();
    assert!(info.get("generation").is_some() && info.get("log_1").is_none(), "{info:?}");
    let mut redis = std::net::TcpStream::connect(&tcp).unwrap();
    redis.set_read_timeout(Some(PATIENCE)).unwrap();
    redis.write_all(b"INFO\r\nQUIT\r\n").unwrap();
    let mut text = String::new();
    redis.read_to_string(&mut text).unwrap();
    assert!(text.contains("log_dropped_lines:0") && !text.contains("log_1:"), "{text}");
}

#[test]
fn text_from_elsewhere_forges_no_log_line_and_no_terminal_command() {
    let hostile = "a\n2026-01-01T00:00:00.000000Z  INFO ready \x1b[2J\u{9b}1;1H\u{202e}\r\tb";
    for format in ["text", "json"] {
        let mut scene = serve(Path::new(hostile), &["--log-format", format]);
        break_file(&scene);
        scene.reload();
        kill_process(Pid::from_child(&scene.server), Signal::TERM).unwrap();
        scene.expect_exit(0);
        let mut text = String::new();
        scene.log.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(!text.contains(|char: char| char.is_control() && char != '\n' || char == '\u{202e}'), "{text:?}");
        // The server may look at the file twice: when it is written, and when a reload is requested.
        let refusals = text.lines().filter(|line| line.contains("refused")).count();
        assert!((1..=2).contains(&refusals), "{text}");
        for line in text.lines() {
            match format {
                "json" => drop(serde_json::from_str::<serde_json::Value>(line).unwrap()),
                _ => assert!(line.starts_with("20") && !line.starts_with("2026-01-01"), "{line}"),
            }
        }
    }
}

#[test]
fn a_server_starts_without_standard_error() {
    let table = Table::of_rows(10);
    let program = kv_store(&table.db(), &table.socket());
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" 2>&-"]).arg(program.get_program()).args(program.get_args());
    let mut server = shell.spawn().unwrap();
    eventually("the server responds", || Client::connect(table.socket()).is_ok_and(|mut client| client.ping().is_ok()));
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
}

/// A service manager that hangs must not stop the server, which notifies it at the start, at each reload, and at the end.
#[test]
fn a_service_manager_that_does_not_read_stops_nothing() {
    let table = Table::of_rows(10);
    let path = table.folder.path().join("notify");
    let _manager = UnixDatagram::bind(&path).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.send_to(b"X=1", &path).is_ok() {}
    let mut command = table.command(&[]);
    command.env("NOTIFY_SOCKET", &path);
    let mut server = Server::of(command, &table.socket());
    let mut client = server.client();
    let attempt = client.reload().unwrap();
    server.wait_for("reload_done", attempt);
    assert!(client.contains(7_u64).unwrap());
    assert!(server.log().contains("the service manager cannot be notified"), "{}", server.log());
    server.signal(Signal::TERM);
    assert!(server.wait().success());
}
