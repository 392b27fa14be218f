//! Starts servers on sockets in the run's folder, fills the servers with rows, measures them alternately, and stops
//! them.

mod load;
mod wire;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::cleanup::Process;
use crate::engine::zero_kv::bake;
use crate::machine::{locked_version, package_version, resident_bytes};
use crate::measure::median;
use crate::rows::Rows;
use load::{Load, Rate};
use wire::Protocol;

pub(crate) const CLIENTS: usize = 100;
/// Numbers of requests in flight per client.
pub(crate) const DEPTHS: [usize; 3] = [1, 16, 256];

/// Number of rows whose values are checked before the measurement.
const COMPARED_ROWS: usize = 10_000;
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// The parameters of the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) rows: Rows,
    pub(crate) rounds: usize,
    pub(crate) timed: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    ZeroKv,
    Redis,
    Memcached,
    /// Redis under the load of `redis-benchmark`.
    RedisBenchmark,
}

const KINDS: [Kind; 4] = [Kind::ZeroKv, Kind::Redis, Kind::Memcached, Kind::RedisBenchmark];

/// The results of one server.
pub(crate) struct Line {
    kind: Kind,
    pub(crate) name: &'static str,
    pub(crate) version: String,
    pub(crate) resident_bytes: Option<u64>,
    /// The rates of all rounds, for each number of requests in flight.
    rates: [Vec<Rate>; DEPTHS.len()],
    pub(crate) failure: Option<String>,
}

impl Line {
    fn new(kind: Kind) -> Line {
        let (name, version) = match kind {
            Kind::ZeroKv => ("Zero-KV (kv_store)", locked_version("zero-kv")),
            Kind::Redis => ("Redis", package_version("redis-server")),
            Kind::Memcached => ("memcached", package_version("memcached")),
            Kind::RedisBenchmark => ("Redis, by redis-benchmark", package_version("redis-tools")),
        };
        Line { kind, name, version, resident_bytes: None, rates: Default::default(), failure: None }
    }

    /// Returns the median responses per second and microseconds per pipeline, with `depth` requests in flight per
    /// client.
    pub(crate) fn medians(&self, depth: usize) -> Option<(f64, f64)> {
        let at = DEPTHS.iter().position(|each| *each == depth)?;
        let median_of = |part: fn(&Rate) -> f64| median(&self.rates[at].iter().map(part).collect::<Vec<_>>());
        median_of(|rate| rate.responses_per_second).zip(median_of(|rate| rate.pipeline_us))
    }
}

/// A running server that stores the rows.
struct Running {
    process: Process,
    socket: PathBuf,
    protocol: Protocol,
}

/// Measures all servers with equal rows.
pub(crate) fn measure(
    plan: Plan,
    is_selected: &dyn Fn(&str) -> bool,
    kv_store: &Path,
    folder: &Path,
    log: &dyn Fn(&str),
) -> Vec<Line> {
    let mut lines: Vec<Line> = KINDS.map(Line::new).into_iter().filter(|line| is_selected(line.name)).collect();
    let mut servers = Vec::new();
    for line in lines.iter_mut().filter(|line| line.kind != Kind::RedisBenchmark) {
        log(&format!("{} rows, start and fill {}", plan.rows.count, line.name));
        match start(line.kind, &plan.rows, kv_store, folder) {
            Ok(server) => servers.push((line.kind, server)),
            Err(error) => line.failure = Some(format!("{error:#}")),
        }
    }

    for round in 0..plan.rounds {
        let count = lines.len();
        for at in (0..count).map(|i| (i + round) % count) {
            if lines[at].failure.is_some() {
                continue;
            }
            log(&format!("{} rows, gets, round {}, {}", plan.rows.count, round + 1, lines[at].name));
            if let Err(error) = take_turn(&mut lines, at, &servers, &plan, round) {
                lines[at].failure = Some(format!("{error:#}"));
            }
        }
    }
    for (kind, server) in &servers {
        let resident_bytes = resident_bytes(server.process.id()).ok();
        lines.iter_mut().filter(|line| line.kind == *kind).for_each(|line| line.resident_bytes = resident_bytes);
    }
    lines
}

fn take_turn(lines: &mut [Line], at: usize, servers: &[(Kind, Running)], plan: &Plan, round: usize) -> Result<()> {
    let server_of = |kind| servers.iter().find(|(each, _)| *each == kind).map(|(_, server)| server);
    for (depth_at, depth) in DEPTHS.into_iter().enumerate() {
        let rate = match lines[at].kind {
            Kind::RedisBenchmark => {
                let redis = server_of(Kind::Redis).context("Redis is not running")?;
                let own = lines.iter().find(|line| line.kind == Kind::Redis).and_then(|line| line.medians(depth));
                let (responses_per_second, _) = own.context("Redis was not measured")?;
                let requests = (responses_per_second * plan.timed.as_secs_f64()) as usize;
                let [rows, len_bytes] =
                    [plan.rows.count, plan.rows.value_len_bytes as u64].map(|each| each.to_string());
                redis_benchmark(&redis.socket, depth, requests, &["-t", "get", "-r", &rows, "-d", &len_bytes])?
            }
            kind => {
                let Running { socket, protocol, .. } = server_of(kind).context("not started")?;
                let warm_up = plan.timed / 4;
                let seed = round as u64;
                load::run(
                    socket,
                    *protocol,
                    &plan.rows,
                    Load { clients: CLIENTS, depth, warm_up, timed: plan.timed, seed },
                )?
            }
        };
        lines[at].rates[depth_at].push(rate);
    }
    Ok(())
}

/// Starts a server, stores all rows in it, and checks some of their values.
fn start(kind: Kind, rows: &Rows, kv_store: &Path, folder: &Path) -> Result<Running> {
    let megabytes = (rows.len_bytes() + 128 * rows.count) / (1 << 20) + 64;
    let (name, protocol) = match kind {
        Kind::ZeroKv => ("kv_store", Protocol::Native),
        Kind::Redis | Kind::RedisBenchmark => ("redis-server", Protocol::Resp),
        Kind::Memcached => ("memcached", Protocol::Meta),
    };
    let socket = folder.join(format!("{name}.sock"));
    let command = match kind {
        Kind::ZeroKv => {
            let db = folder.join("served.db");
            bake(rows, &db)?;
            kv_store_command(kv_store, &db, &socket)
        }
        Kind::Redis | Kind::RedisBenchmark => redis_command(folder, &socket),
        Kind::Memcached => {
            let threads = thread::available_parallelism().map_or(1, usize::from);
            let mut command = Command::new(name);
            command.args(["-m", &megabytes.to_string(), "-t", &threads.to_string(), "-R", "256"]);
            command.arg("-s").arg(&socket);
            if rustix::process::geteuid().is_root() {
                command.args(["-u", "root"]);
            }
            command
        }
    };
    let process = start_process(command, &socket)?;
    if protocol != Protocol::Native {
        load::store(&socket, protocol, rows)?;
    }
    load::compare(&socket, protocol, rows, COMPARED_ROWS)?;
    Ok(Running { process, socket, protocol })
}

pub(crate) fn kv_store_command(kv_store: &Path, db: &Path, socket: &Path) -> Command {
    let mut command = Command::new(kv_store);
    command.arg("--db").arg(db).arg("--socket").arg(socket);
    command
}

pub(crate) fn redis_command(folder: &Path, socket: &Path) -> Command {
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--appendonly", "no"]);
    command.arg("--dir").arg(folder).arg("--unixsocket").arg(socket);
    command
}

/// Starts a server with a log in the folder of its socket, and waits until it accepts connections.
pub(crate) fn start_process(mut command: Command, socket: &Path) -> Result<Process> {
    let log = socket.with_extension("log");
    let log_file = File::create(&log)?;
    command.stdin(Stdio::null()).stdout(log_file.try_clone()?).stderr(log_file);
    let process = Process::start(&mut command)?;
    wait_for(&process, socket).with_context(|| last_line(&log))?;
    Ok(process)
}

/// Waits until the server accepts connections. Returns an error if the server exits or the wait takes too long.
fn wait_for(process: &Process, socket: &Path) -> Result<()> {
    let start = Instant::now();
    while let Err(error) = UnixStream::connect(socket) {
        if let Some(status) = process.ended() {
            bail!("ended with {status}");
        }
        ensure!(start.elapsed() < START_TIME_MAX, "{}: {error}", socket.display());
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().next_back().unwrap_or("its log is empty").to_owned()
}

/// Runs `redis-benchmark` with these arguments, and returns its result.
pub(crate) fn redis_benchmark(socket: &Path, depth: usize, requests: usize, arguments: &[&str]) -> Result<Rate> {
    let mut command = Command::new("redis-benchmark");
    command.arg("-s").arg(socket).arg("--csv");
    for (option, number) in [("-c", CLIENTS), ("-P", depth), ("-n", requests.max(CLIENTS * depth))] {
        command.arg(option).arg(number.to_string());
    }
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = Process::start(&mut command)?;
    let mut csv = String::new();
    process.output().context("no output")?.read_to_string(&mut csv)?;
    // The output is `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms",...` and a line of numbers.
    let line = csv.lines().last().and_then(|line| line.split_once("\",\""));
    let (_, line) = line.with_context(|| format!("redis-benchmark: no line of numbers in {csv:?}"))?;
    let numbers: Vec<f64> = line.split(',').map_while(|field| field.trim_matches('"').parse().ok()).collect();
    let [responses_per_second, _, _, p50_ms, ..] = numbers[..] else { bail!("redis-benchmark: {line:?}") };
    Ok(Rate { responses_per_second, pipeline_us: p50_ms * 1e3 })
}
