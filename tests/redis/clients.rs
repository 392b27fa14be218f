//! Unmodified clients in other languages: startup, reads, transactions, and long pipelines.
//!
//! With `ZERO_KV_PIPELINE=1000000`, pipelines have a million GETs, and each test prints the server's memory use and the
//! latency of another connection. The default is 100,000 GETs.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::served::{ask, line};
use crate::helpers::client_programs as programs;
use crate::helpers::frames::connect;
use crate::helpers::redis_replies::Reply;
use crate::helpers::redis_server::line_of;
use crate::helpers::servers::Server;
use crate::helpers::tables::Table;
use crate::helpers::tls::{Authority, TlsFiles};
use crate::helpers::trials::{Missing, require};

/// The number of rows, which the programs in `clients/` know too.
const ROWS: u64 = 10_000;

/// The server's limit on the length of the commands that a client sends before it reads. A million GETs have 29 MB.
const BUFFER_BYTES: u64 = 64 << 20;

/// The SHA-256 hash of the password that the programs in `clients/` use, `secret`.
const SECRET_SHA256: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// Returns the value of a key, of 20 to 1000 bytes, which the programs in `clients/` compute too.
fn value(key: u64) -> Vec<u8> {
    let mut value = format!("{key}:").into_bytes();
    value.resize(20 + (key * 7919 % 981) as usize, b'a' + (key % 26) as u8);
    value
}

fn serve() -> (Table, Server) {
    let table = Table::new((0..ROWS).map(|key| (key, value(key))));
    let server = table.serve_with(&["--tcp", "127.0.0.1:0", "--buffer", "64MiB"]);
    (table, server)
}

/// Returns the number of GETs in a pipeline, if the environment sets it.
fn configured_gets() -> Option<u64> {
    let gets = std::env::var("ZERO_KV_PIPELINE").ok()?;
    Some(gets.parse().expect("ZERO_KV_PIPELINE is a number of GETs"))
}

fn gets() -> u64 {
    configured_gets().unwrap_or(100_000)
}

#[track_caller]
fn succeeds(mut command: Command) -> String {
    let output = command.output().unwrap();
    let [out, error] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{command:?}: {}: {out}{error}", output.status);
    out.into_owned()
}

/// Runs a program of `clients/`: first its reads and transactions, then its pipeline.
#[track_caller]
fn check(client: &str, program: &[OsString]) {
    let (_table, server) = serve();
    let command = || {
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).arg(server.socket()).arg(server.tcp().port().to_string());
        command
    };
    succeeds(command());
    run_pipeline(client, &server, || {
        let mut command = command();
        command.arg(gets().to_string());
        succeeds(command);
    });
}

/// Runs the reads and transactions of a program over TLS, with a user that has a password.
#[track_caller]
fn check_over_tls(program: &[OsString]) {
    let (table, authority) = (Table::new((0..ROWS).map(|key| (key, value(key)))), Authority::new());
    let files = TlsFiles::write(table.socket().parent().unwrap(), &authority, &authority.issue());
    let users = table.folder.path().join("users.acl");
    std::fs::write(&users, format!("user default off\nuser app on #{SECRET_SHA256} ~* +@all")).unwrap();
    let server = table.serve_with(&[&files.options()[..], &["--users", users.to_str().unwrap()]].concat());
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).arg("tls").arg(server.tls().port().to_string()).arg(&files.ca);
    succeeds(command);
}

/// Sets a flag when it is dropped.
struct EndOfRun<'f>(&'f AtomicBool);

impl Drop for EndOfRun<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A connection that sends one GET at a time.
struct Probe {
    stream: UnixStream,
    reply: Vec<u8>,
}

impl Probe {
    const KEY: u64 = 7;

    fn new(socket: &Path) -> Probe {
        let reply = [format!("${}\r\n", value(Probe::KEY).len()).as_bytes(), &value(Probe::KEY), b"\r\n"].concat();
        Probe { stream: connect(socket), reply }
    }

    /// Returns the duration of a GET.
    fn get(&mut self) -> Duration {
        let started = Instant::now();
        self.stream.write_all(&line(&format!("GET {}", Probe::KEY))).unwrap();
        let mut reply = vec![0; self.reply.len()];
        self.stream.read_exact(&mut reply).unwrap();
        let took = started.elapsed();
        assert_eq!(reply, self.reply);
        took
    }
}

/// Returns the duration that 99 % of the durations do not exceed.
fn p99(mut durations: Vec<Duration>) -> Duration {
    durations.sort_unstable();
    durations.get(durations.len() * 99 / 100).copied().unwrap_or_default()
}

/// Returns the number of keys that clients have looked up with Redis commands.
fn looked_up(server: &Server) -> u64 {
    let info = Reply::all(&ask(server.socket(), &["INFO stats"]))[0].text();
    let number = |name| line_of(&info, name).unwrap().parse::<u64>().unwrap();
    number("keyspace_hits") + number("keyspace_misses")
}

/// Runs a client that sends a pipeline, and checks the server's memory and counters.
#[track_caller]
fn run_pipeline(client: &str, server: &Server, run: impl FnOnce()) {
    let is_reported = configured_gets().is_some();
    let (mut alone, mut meanwhile) = (Vec::new(), Vec::new());
    let mut probe = Probe::new(server.socket());
    if is_reported {
        (0..20_000).for_each(|_| alone.push(probe.get()));
    }
    let memory_before_bytes = server.status_bytes("VmHWM");
    let looked_up_before = looked_up(server);
    let (started, is_over) = (Instant::now(), AtomicBool::new(false));
    thread::scope(|scope| {
        // If the client fails, the other thread ends too.
        let end = EndOfRun(&is_over);
        scope.spawn(|| {
            while is_reported && !is_over.load(Ordering::Relaxed) {
                meanwhile.push(probe.get());
            }
        });
        run();
        drop(end);
    });
    let took = started.elapsed();
    assert!(looked_up(server) - looked_up_before >= gets());
    let memory_max_bytes = server.status_bytes("VmHWM");
    // The file is mapped, so a part of it counts as memory of the server.
    let file_len_bytes = server.number("file_len_bytes");
    let growth_bytes = memory_max_bytes - memory_before_bytes;
    assert!(growth_bytes <= BUFFER_BYTES + file_len_bytes, "the server's memory grew by {growth_bytes} bytes");
    if is_reported {
        let [alone, meanwhile] = [alone, meanwhile].map(p99);
        let (gets, mib) = (gets(), memory_max_bytes >> 20);
        println!(
            "{client}: {gets} GETs in {took:.1?}, server memory at most {mib} MiB, \
             p99 of another connection {alone:.0?} alone, {meanwhile:.0?} meanwhile"
        );
    }
}

pub(crate) fn redis_py() -> Result<(), Missing> {
    check("redis-py", &programs::python("redis-py-newest", "sync.py")?);
    Ok(())
}

pub(crate) fn redis_py_with_asyncio() -> Result<(), Missing> {
    check("redis-py with asyncio", &programs::python("redis-py-newest", "async.py")?);
    Ok(())
}

pub(crate) fn pinned_redis_py_with_asyncio() -> Result<(), Missing> {
    check("pinned redis-py with asyncio", &programs::python("redis-py", "async.py")?);
    Ok(())
}

pub(crate) fn go_redis() -> Result<(), Missing> {
    check("go-redis", &programs::go()?);
    Ok(())
}

pub(crate) fn go_redis_over_tls() -> Result<(), Missing> {
    check_over_tls(&programs::go()?);
    Ok(())
}

pub(crate) fn node_redis() -> Result<(), Missing> {
    check("node-redis", &programs::node("node_redis.mjs")?);
    Ok(())
}

pub(crate) fn node_redis_over_tls() -> Result<(), Missing> {
    check_over_tls(&programs::node("node_redis.mjs")?);
    Ok(())
}

pub(crate) fn ioredis() -> Result<(), Missing> {
    check("ioredis", &programs::node("ioredis.mjs")?);
    Ok(())
}

pub(crate) fn ioredis_over_tls() -> Result<(), Missing> {
    check_over_tls(&programs::node("ioredis.mjs")?);
    Ok(())
}

pub(crate) fn jedis() -> Result<(), Missing> {
    check("jedis", &programs::java("JedisClient")?);
    Ok(())
}

pub(crate) fn jedis_over_tls() -> Result<(), Missing> {
    check_over_tls(&programs::java("JedisClient")?);
    Ok(())
}

pub(crate) fn lettuce() -> Result<(), Missing> {
    check("lettuce", &programs::java("LettuceClient")?);
    Ok(())
}

pub(crate) fn lettuce_over_tls() -> Result<(), Missing> {
    check_over_tls(&programs::java("LettuceClient")?);
    Ok(())
}

pub(crate) fn redis_rs() -> Result<(), Missing> {
    check("redis-rs", &programs::rust()?);
    Ok(())
}

pub(crate) fn hiredis() -> Result<(), Missing> {
    check("hiredis", &programs::c()?);
    Ok(())
}

/// Runs a program with a text as its standard input.
#[track_caller]
fn output_for(mut command: Command, input: &str) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = thread::scope(|scope| {
        // If the program ends before it has read everything, its output has the reason.
        scope.spawn(move || _ = stdin.write_all(input.as_bytes()));
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn redis_cli() -> Result<(), Missing> {
    require("redis-cli", "--version")?;
    let (_table, server) = serve();
    let cli = |option: Option<&str>| {
        let mut command = Command::new("redis-cli");
        command.arg("-s").arg(server.socket()).args(option);
        command
    };
    let text = |key| String::from_utf8(value(key)).unwrap();
    let found = output_for(cli(None), "MULTI\nGET 7\nEXISTS 10000\nEXEC\nMULTI\nSET 1 x\nEXEC\nGET 3\n");
    let lines: Vec<&str> = found.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines[..6], ["OK", "QUEUED", "QUEUED", &text(7), "0", "OK"]);
    assert!(lines[6].starts_with("READONLY") && lines[7].starts_with("EXECABORT"), "{lines:?}");
    assert_eq!(lines[8..], [text(3)]);
    let commands: String = (0..gets()).map(|i| format!("GET {}\r\n", i * 7 % (ROWS + 7))).collect();
    run_pipeline("redis-cli --pipe", &server, || {
        let found = output_for(cli(Some("--pipe")), &commands);
        assert!(found.contains(&format!("errors: 0, replies: {}", gets())), "{found}");
    });
    Ok(())
}

pub(crate) fn redis_benchmark() -> Result<(), Missing> {
    require("redis-benchmark", "--version")?;
    let (_table, server) = serve();
    let (gets, rows) = (gets().to_string(), ROWS.to_string());
    run_pipeline("redis-benchmark", &server, || {
        let mut command = Command::new("redis-benchmark");
        command.arg("-s").arg(server.socket()).args(["-c", "1", "-P", &gets, "-n", &gets, "-r", &rows, "-q"]);
        command.args(["GET", "__rand_int__"]).stdin(Stdio::null());
        let found = succeeds(command);
        assert!(!found.contains("rror"), "{found}");
    });
    Ok(())
}

pub(crate) fn memtier_benchmark() -> Result<(), Missing> {
    require("memtier_benchmark", "--version")?;
    let (_table, server) = serve();
    let (gets, last_key) = (gets().to_string(), (ROWS - 1).to_string());
    run_pipeline("memtier_benchmark", &server, || {
        let mut command = Command::new("memtier_benchmark");
        command.arg("-S").arg(server.socket()).args(["--clients", "1", "--threads", "1", "--ratio", "0:1"]);
        command.args(["--pipeline", &gets, "--requests", &gets, "--key-prefix", "", "--key-minimum", "1"]);
        command.args(["--key-maximum", &last_key, "--hide-histogram"]);
        let found = succeeds(command);
        assert!(!found.contains("rror"), "{found}");
    });
    Ok(())
}
