//! A panic in a thread of the server is reported, and ends only the thread's current task.
//!
//! A log subscriber injects the panics when the server logs certain lines. The server is therefore the one that users
//! run, without a test hook.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use zero_kv::client::{Client, Info};
use zero_kv::server::{Config, Limits, MetricsAddress, Server, ServerError};
use zero_kv::store::Memory;

use crate::helpers::tables::{Model, bake};
use crate::helpers::waiting::{PATIENCE, eventually};

/// The text of the log lines that panic, and the number of lines that will panic.
static TEXT: Mutex<&str> = Mutex::new("");
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Returns a guard that allows one server at a time, because injected panics affect the whole process.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| {
        tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Injector)).unwrap();
    });
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn inject(count: usize, text: &'static str) {
    *TEXT.lock().unwrap() = text;
    COUNT.store(count, Ordering::SeqCst);
}

struct Injector;

impl<S: Subscriber> Layer<S> for Injector {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut is_wanted = Contains(*TEXT.lock().unwrap(), false);
        event.record(&mut is_wanted);
        if is_wanted.1 && COUNT.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            panic!("injected");
        }
    }
}

/// A text, and whether the message of an event contains it.
struct Contains(&'static str, bool);

impl Visit for Contains {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.1 = format!("{value:?}").contains(self.0);
        }
    }
}

/// A server in this process, with its own folder.
struct Scene {
    folder: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<Result<(), ServerError>>>,
}

impl Scene {
    /// Serves generation 1 from copies of its files, so that the server logs a line for each copy.
    fn serve(limits: Limits) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let mut scene = Scene { folder, stop: None, server: None };
        scene.put_in_place(1);
        let config = Config { socket: scene.path("s.sock"), memory: Memory::Copy, limits, ..Config::default() };
        let mut server = Server::bind(scene.path("storage.db"), &config).unwrap();
        server.serve_metrics(&MetricsAddress::Unix(scene.path("m.sock")), false).unwrap();
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
    let expected = "the supervisor thread has panicked 3 times, most recently at tests/serving/panics.rs:";
    let sick = scene.health();
    assert_eq!(sick.status.code(), Some(1));
    assert!(String::from_utf8(sick.stderr).unwrap().contains(expected));
    let ready = http_get(&scene.path("m.sock"), "/readyz");
    assert!(ready.starts_with("HTTP/1.1 503 ") && ready.contains(expected), "{ready}");
    let metrics = http_get(&scene.path("m.sock"), "/metrics");
    for line in [
        "\nzero_kv_thread_panics_total{thread=\"supervisor\"} 3\n",
        "\nzero_kv_thread_problems 1\n",
        "\nzero_kv_file_refused 1\n",
    ] {
        assert!(metrics.contains(line), "{line:?} is missing in {metrics}");
    }
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
