//! A panic in a thread of the server is reported, and ends only the thread's current task.
//!
//! The server is the one that users run, without a test hook. Most panics are injected by a log subscriber when the
//! server logs certain lines.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use zero_kv::client::{Client, Info};
use zero_kv::server::{Config, Limits, MetricsAddress, Server, ServerError};
use zero_kv::store::{LeaseState, MappedStore, Memory};

use crate::helpers::tables::{Model, bake};
use crate::helpers::waiting::{PATIENCE, eventually};

/// The text of the log lines at which the injector panics, and the number of panics that are left.
static TEXT: Mutex<&str> = Mutex::new("");
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Returns a guard that allows one server at a time, because injected panics affect the whole process.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| {
        tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Injector)).unwrap();
        log::set_logger(&Injector).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
    });
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn inject(count: usize, text: &'static str) {
    *TEXT.lock().unwrap() = text;
    COUNT.store(count, Ordering::SeqCst);
}

/// Panics at the wanted lines, and collects the lines that report a caught panic.
struct Injector;

/// The lines that report a caught panic.
static PANIC_LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Injector {
    fn log(message: &str) {
        if message.starts_with("panic in the ") {
            PANIC_LINES.lock().unwrap().push(message.to_owned());
        }
        let is_wanted = message.contains(*TEXT.lock().unwrap());
        if is_wanted && COUNT.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            panic!("injected");
        }
    }
}

impl<S: Subscriber> Layer<S> for Injector {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut LogMessage);
    }
}

/// Passes the message of an event to the injector.
struct LogMessage;

impl Visit for LogMessage {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            Injector::log(&format!("{value:?}"));
        }
    }
}

/// Dependencies of the server log with the crate `log`.
impl log::Log for Injector {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        Injector::log(&record.args().to_string());
    }

    fn flush(&self) {}
}

/// A server in this process, with its own folder.
struct Scene {
    folder: TempDir,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<Result<(), ServerError>>>,
}

impl Scene {
    /// Serves generation 1 from copies of its files, so that the server logs a line for each copy.
    fn serve(limits: Limits) -> Scene {
        let config = Config { memory: Memory::Copy, limits, ..Config::default() };
        Scene::serve_in(tempfile::tempdir().unwrap(), config, |_| ())
    }

    /// Serves generation 1 in a folder. Calls `before_run` after the server has bound its sockets.
    fn serve_in(folder: TempDir, config: Config, before_run: impl FnOnce(&Scene)) -> Scene {
        let mut scene = Scene { folder, stop: None, server: None };
        scene.put_in_place(1);
        let config = Config { socket: scene.path("s.sock"), ..config };
        let mut server = Server::bind(scene.path("storage.db"), &config).unwrap();
        server.serve_metrics(&MetricsAddress::Unix(scene.path("m.sock")), false).unwrap();
        before_run(&scene);
        let (stop, stopped) = oneshot::channel::<()>();
        scene.stop = Some(stop);
        scene.server = Some(thread::spawn(|| server.run(async { stopped.await.unwrap_or_default() })));
        scene
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a table in place by renaming, in which the value of key 7 is the number.
    fn put_in_place(&self, number: u64) {
        let model: Model = [(7, number.to_string().into_bytes())].into();
        bake(&model, &self.path("next.db"));
        fs::rename(self.path("next.db"), self.path("storage.db")).unwrap();
    }

    fn client(&self) -> Client {
        Client::connect(self.path("s.sock")).unwrap()
    }

    fn value(&self) -> String {
        String::from_utf8(self.client().get(7).unwrap().unwrap()).unwrap()
    }

    fn info(&self) -> Info {
        self.client().info().unwrap()
    }

    /// Requests a reload, and waits for the outcome.
    fn reload(&self) -> Info {
        let attempt = self.client().reload().unwrap();
        let done = || self.info().number::<u64>("reload_done").unwrap() >= attempt;
        eventually("the reload is answered", done);
        self.info()
    }

    /// Asserts that `zkv health` and `/readyz` report a problem.
    fn assert_unhealthy(&self, problem: &str) {
        let sick = self.health();
        let note = String::from_utf8(sick.stderr).unwrap();
        assert!(sick.status.code() == Some(1) && note.contains(problem), "{note}");
        let ready = http_get(&self.path("m.sock"), "/readyz");
        assert!(ready.starts_with("HTTP/1.1 503 ") && ready.contains(problem), "{ready}");
        self.assert_metrics(&["zero_kv_thread_problems 1"]);
    }

    /// Asserts that a number of panics of a thread is logged, counted, and reported as a problem.
    fn assert_panics_reported(&self, thread: &str, count: u64, place: &str) {
        self.assert_unhealthy(&format!("the {thread} thread has panicked {count} times, most recently at {place}:"));
        self.assert_metrics(&[&format!("zero_kv_thread_panics_total{{thread=\"{thread}\"}} {count}")]);
        let line = format!("panic in the {thread} thread, which continues: {place}:");
        let lines = PANIC_LINES.lock().unwrap();
        assert!(lines.iter().any(|logged| logged.starts_with(&line)), "{lines:?}");
    }

    fn assert_metrics(&self, lines: &[&str]) {
        let metrics = http_get(&self.path("m.sock"), "/metrics");
        for line in lines {
            assert!(metrics.lines().any(|metric| metric == *line), "{line:?} is missing in {metrics}");
        }
    }

    fn health(&self) -> Output {
        let mut zkv = Command::new(env!("CARGO_BIN_EXE_zkv"));
        zkv.args(["health", "--timeout", "60", "--socket"]).arg(self.path("s.sock")).output().unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        inject(0, "");
        drop(self.stop.take());
        let ended = self.server.take().unwrap().join();
        if !thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

fn http_get(socket: &Path, path: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_panic_in_the_check_rejects_the_file_and_the_next_file_is_served() {
    let _one = one_at_a_time();
    let scene = Scene::serve(Limits::default());
    assert_eq!(scene.value(), "1");
    inject(1, "copied into memory");
    scene.put_in_place(2);
    eventually("the file is rejected", || scene.info().get("file_refused") != Some(""));
    let info = scene.info();
    let refused = info.get("file_refused").unwrap();
    assert!(refused.contains("storage.db: the check of this file panicked at tests/serving/panics.rs:"), "{refused}");
    assert_eq!((info.get("thread_panics"), info.get("generation")), (Some("1"), Some("1")));
    assert_eq!(scene.value(), "1");
    let healthy = scene.health();
    let note = String::from_utf8(healthy.stderr).unwrap();
    assert_eq!(healthy.status.code(), Some(0), "{note}");
    assert!(note.contains("the file at the path is refused: "), "{note}");
    let ready = http_get(&scene.path("m.sock"), "/readyz");
    assert!(ready.starts_with("HTTP/1.1 200 ") && ready.contains("\nrefused: "), "{ready}");

    scene.put_in_place(3);
    eventually("the next file is served", || scene.value() == "3");
    assert_eq!(scene.info().get("file_refused"), Some(""));
    assert_eq!(scene.health().stderr, b"");
}

#[test]
fn a_reload_that_panics_is_answered() {
    let _one = one_at_a_time();
    let scene = Scene::serve(Limits::default());
    inject(1, "copied into memory");
    scene.put_in_place(2);
    eventually("the file is rejected", || scene.info().get("file_refused") != Some(""));
    inject(1, "copied into memory");
    let last = scene.reload().get("reload_last").unwrap().to_owned();
    assert!(last.starts_with("refused: ") && last.contains("panicked at tests/serving/panics.rs:"), "{last}");
    // A reload is also answered after a panic outside the check.
    inject(1, "serving generation");
    let last = scene.reload().get("reload_last").unwrap().to_owned();
    assert!(last.starts_with("refused: a panic at tests/serving/panics.rs:"), "{last}");
    scene.put_in_place(3);
    eventually("the next file is served", || scene.value() == "3");
}

#[test]
fn a_thread_that_panics_repeatedly_makes_the_server_unhealthy() {
    let _one = one_at_a_time();
    let scene = Scene::serve(Limits::default());
    inject(usize::MAX, "copied into memory");
    for number in 2..5 {
        scene.put_in_place(number);
        eventually("the panic happens", || scene.info().number::<u64>("thread_panics") == Some(number - 1));
    }
    eventually("the last file is rejected", || scene.info().get("file_refused") != Some(""));
    scene.assert_panics_reported("supervisor", 3, "tests/serving/panics.rs");
    scene.assert_metrics(&["zero_kv_file_refused 1"]);
    assert_eq!(scene.value(), "1");
}

#[test]
fn connections_are_accepted_after_a_panic_of_the_accepting_thread() {
    let _one = one_at_a_time();
    let connections_max = std::num::NonZeroUsize::new(1);
    let scene = Scene::serve(Limits { connections_max, ..Limits::default() });
    let mut only = scene.client();
    only.ping().unwrap();
    inject(1, "refused: the server already has");
    let mut rejected = UnixStream::connect(scene.path("s.sock")).unwrap();
    assert_eq!(rejected.read(&mut [0]).unwrap(), 0);
    drop(only);
    eventually("a connection is accepted", || {
        let info = Client::connect(scene.path("s.sock")).and_then(|mut client| client.info());
        info.is_ok_and(|info| info.number::<u64>("thread_panics") == Some(1))
    });
}

#[test]
fn idle_connections_are_disconnected_after_a_panic_of_the_disconnecting_task() {
    let _one = one_at_a_time();
    let scene = Scene::serve(Limits { idle_timeout: Duration::from_secs(1), ..Limits::default() });
    inject(1, "disconnected: idle");
    let connect = || {
        let idle = UnixStream::connect(scene.path("s.sock")).unwrap();
        idle.set_read_timeout(Some(PATIENCE)).unwrap();
        idle
    };
    let assert_disconnected = |mut idle: UnixStream| assert_eq!(idle.read(&mut [0]).unwrap(), 0);
    // The log reports the first one after both are disconnected.
    for idle in [connect(), connect()] {
        assert_disconnected(idle);
    }
    assert_disconnected(connect());
    let metrics = http_get(&scene.path("m.sock"), "/metrics");
    let panics = metrics.lines().filter(|line| line.starts_with("zero_kv_thread_panics_total{thread=\"worker-"));
    let panics = panics.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
    assert_eq!(panics.sum::<u64>(), 1, "{metrics}");
}

#[test]
fn a_folder_watch_thread_that_ends_is_reported_and_the_next_file_is_served() {
    let _one = one_at_a_time();
    let scene = Scene::serve(Limits::default());
    // The crate `notify` logs this line on its own thread, where the server catches no panics.
    inject(1, "inotify event: ");
    scene.put_in_place(2);
    // The next file may be served before the panicking thread has ended, because the path is also checked periodically.
    eventually("the next file is served", || scene.value() == "2");
    eventually("a problem is reported", || scene.health().status.code() == Some(1));
    scene.assert_unhealthy("the folder watch thread has ended");
    scene.put_in_place(3);
    eventually("the file after that is served", || scene.value() == "3");
}

/// Sets whether the listening socket with a path, which this process has open, blocks.
fn set_blocking(path: &Path, blocks: bool) {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    let socket = sockets.lines().find(|line| line.ends_with(path.to_str().unwrap())).expect("a socket with this path");
    let inode: u64 = socket.split_whitespace().nth(6).unwrap().parse().unwrap();
    let mut open_files = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let is_socket = |path: &std::path::PathBuf| fs::metadata(path).is_ok_and(|metadata| metadata.ino() == inode);
    let number = open_files.find(is_socket).expect("a descriptor of the socket");
    let number = number.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let process = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let socket = pidfd_getfd(process, number, PidfdGetfdFlags::empty()).unwrap();
    let mut flags = fcntl_getfl(&socket).unwrap();
    flags.set(OFlags::NONBLOCK, !blocks);
    fcntl_setfl(&socket, flags).unwrap();
}

/// The thread panics because tokio rejects a listening socket that blocks, in builds with debug assertions.
#[cfg(debug_assertions)]
#[test]
fn metrics_are_served_after_panics_of_the_metrics_thread() {
    let _one = one_at_a_time();
    let metrics_socket = |scene: &Scene| scene.path("m.sock");
    let block = |scene: &Scene| set_blocking(&metrics_socket(scene), true);
    let scene = Scene::serve_in(tempfile::tempdir().unwrap(), Config::default(), block);
    let panics = || scene.info().number::<u64>("thread_panics").unwrap();
    eventually("the thread panics repeatedly", || panics() >= 3);
    assert_eq!(scene.value(), "1");
    scene.put_in_place(2);
    eventually("the next file is served", || scene.value() == "2");
    set_blocking(&metrics_socket(&scene), false);
    let ready = http_get(&metrics_socket(&scene), "/readyz");
    assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
    scene.assert_panics_reported("metrics", panics(), "src/server/metrics.rs");
}

/// Runs the body of a test in a process of its own.
fn in_own_process(test: &str, body: impl FnOnce()) {
    const IS_OWN: &str = "ZERO_KV_TEST_IN_OWN_PROCESS";
    if std::env::var_os(IS_OWN).is_some() {
        return body();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", "--nocapture", test]).env(IS_OWN, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains(" 1 passed;"), "{output:?}");
}

/// The lease thread belongs to the process, so its panics would appear in the reports of the other tests' servers.
#[test]
fn leases_are_renewed_after_panics_of_the_lease_thread() {
    let test = "serving::panics::leases_are_renewed_after_panics_of_the_lease_thread";
    in_own_process(test, || {
        let _one = one_at_a_time();
        // Linux mounts a tmpfs there by default, which has leases.
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let scene = Scene::serve_in(folder, Config::default(), |_| ());
        fs::copy(scene.path("storage.db"), scene.path("other.db")).unwrap();
        let other = MappedStore::open(scene.path("other.db")).unwrap();
        let other = other.watched_file().unwrap();
        other.lease();
        let (panics_left, trusted_until_ns) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
        let report = {
            let (panics_left, trusted_until_ns) = (Arc::clone(&panics_left), Arc::clone(&trusted_until_ns));
            move |state| {
                let LeaseState::TrustedUntil(until_ns) = state else { return };
                trusted_until_ns.store(until_ns, Ordering::SeqCst);
                let left = panics_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                assert!(left.is_err(), "injected");
            }
        };
        other.report_lease(report);
        panics_left.store(3, Ordering::SeqCst);
        eventually("the panics happen", || scene.info().number::<u64>("thread_panics") == Some(3));
        let before_ns = trusted_until_ns.load(Ordering::SeqCst);
        eventually("the lease is renewed", || trusted_until_ns.load(Ordering::SeqCst) > before_ns);
        scene.assert_panics_reported("leases", 3, "tests/serving/panics.rs");
        scene.put_in_place(2);
        eventually("the next file is served", || scene.value() == "2");
    });
}
