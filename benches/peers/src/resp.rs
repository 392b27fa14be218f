//! Compares `kv_store` with Redis. Both servers have equal rows, and alternate under equal loads in the Redis protocol.
//!
//! In: the number of rows and the length of values. Out: replies per second of both servers for each load, and their
//! ratio. Keys are row numbers, which `redis-benchmark` sends with twelve digits, and the benchmarker without leading
//! zeros. Two Redis servers therefore run, one for each format of keys. Only one of them is under load at a time.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use zero_kv::bake::{Options, bake_csv};

use crate::cleanup::Process;
use crate::measure::median;
use crate::rows::{Random, Rows};
use crate::server::{CLIENTS, Plan, kv_store_command, redis_benchmark, redis_command, start_process};

/// Number of rows that are sent to Redis before the replies to them are read.
const STORE_ROWS: u64 = 500;
/// Number of rows whose values are checked before the measurement.
const COMPARED_ROWS: u64 = 10_000;
/// Number of requests of a trial run. Its rate determines the number of requests of the measured run.
const TRIAL_REQUESTS: usize = 50_000;

/// The load generator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tool {
    RedisBenchmark,
    Benchmarker,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Tool::RedisBenchmark => "redis-benchmark",
            Tool::Benchmarker => "benchmarker --protocol resp",
        }
    }

    /// Returns the key of a row in the load generator's format.
    fn key(self, row: u64) -> String {
        match self {
            Tool::RedisBenchmark => format!("{row:012}"),
            Tool::Benchmarker => row.to_string(),
        }
    }
}

/// The load generators, each with the number of requests in flight per client.
const LOADS: [(Tool, usize); 4] =
    [(Tool::RedisBenchmark, 256), (Tool::RedisBenchmark, 16), (Tool::RedisBenchmark, 1), (Tool::Benchmarker, 256)];

/// The results of one load: the replies per second of Redis and of `kv_store` in each round.
pub(crate) struct Line {
    tool: Tool,
    pub(crate) depth: usize,
    redis: Vec<f64>,
    ours: Vec<f64>,
}

impl Line {
    pub(crate) fn tool(&self) -> &'static str {
        self.tool.name()
    }

    /// Returns the median replies per second of Redis and of `kv_store`, and the median of the ratios of the rounds.
    /// Each ratio compares two consecutive runs, because the machine's speed varies.
    pub(crate) fn medians(&self) -> Option<(f64, f64, f64)> {
        let ratios: Vec<f64> = self.ours.iter().zip(&self.redis).map(|(ours, redis)| ours / redis).collect();
        Some((median(&self.redis)?, median(&self.ours)?, median(&ratios)?))
    }
}

/// The results of all loads, and the error if one ended the comparison early.
pub(crate) struct Comparison {
    pub(crate) lines: Vec<Line>,
    pub(crate) failure: Option<String>,
}

pub(crate) fn measure(plan: Plan, kv_store: &Path, folder: &Path, log: &dyn Fn(&str)) -> Comparison {
    let lines = LOADS.map(|(tool, depth)| Line { tool, depth, redis: Vec::new(), ours: Vec::new() }).into();
    let mut comparison = Comparison { lines, failure: None };
    let failure = run(&mut comparison.lines, plan, kv_store, folder, log).err();
    comparison.failure = failure.map(|error| format!("{error:#}"));
    comparison
}

fn run(lines: &mut [Line], plan: Plan, kv_store: &Path, folder: &Path, log: &dyn Fn(&str)) -> Result<()> {
    log(&format!("{} rows, start and fill both for Redis's protocol", plan.rows.count));
    let servers = Servers::start(&plan.rows, kv_store, folder)?;
    for round in 0..plan.rounds {
        for line in &mut *lines {
            log(&format!("{} rows, {}, {} in flight, round {}", plan.rows.count, line.tool(), line.depth, round + 1));
            let redis = servers.redis_for(line.tool);
            let mut run_load = |ours: bool| -> Result<()> {
                let (socket, rates) = if ours { (&servers.ours, &mut line.ours) } else { (redis, &mut line.redis) };
                rates.push(match line.tool {
                    Tool::RedisBenchmark => rate_by_redis_benchmark(socket, &plan, line.depth)?,
                    Tool::Benchmarker => rate_by_benchmarker(socket, &servers, &plan, line.depth)?,
                });
                Ok(())
            };
            // In even rounds, Redis is measured first; in odd rounds, `kv_store`.
            [round % 2 == 1, round % 2 == 0].into_iter().try_for_each(&mut run_load)?;
        }
    }
    Ok(())
}

/// One `kv_store` and two Redis servers, which have equal rows. Dropping the value stops the servers.
struct Servers {
    _processes: [Process; 3],
    ours: PathBuf,
    redis: [(Tool, PathBuf); 2],
    db: PathBuf,
    benchmarker: PathBuf,
}

impl Servers {
    fn start(rows: &Rows, kv_store: &Path, folder: &Path) -> Result<Servers> {
        let (db, ours) = (folder.join("resp.db"), folder.join("resp.sock"));
        bake(rows, &db)?;
        let kv_store_process = start_process(kv_store_command(kv_store, &db, &ours), &ours)?;
        let redis_of = |tool: Tool, name: &str| -> Result<(Process, (Tool, PathBuf))> {
            let socket = folder.join(name);
            let process = start_process(redis_command(folder, &socket), &socket)?;
            fill(&socket, rows, tool)?;
            compare(&socket, rows, tool)?;
            compare(&ours, rows, tool).context("kv_store")?;
            Ok((process, (tool, socket)))
        };
        let (first, of_redis_benchmark) = redis_of(Tool::RedisBenchmark, "padded.sock")?;
        let (second, of_benchmarker) = redis_of(Tool::Benchmarker, "plain.sock")?;
        Ok(Servers {
            _processes: [kv_store_process, first, second],
            ours,
            redis: [of_redis_benchmark, of_benchmarker],
            db,
            // The benchmarker is in the folder of `kv_store`.
            benchmarker: kv_store.with_file_name("benchmarker"),
        })
    }

    fn redis_for(&self, tool: Tool) -> &PathBuf {
        let [(first, socket), (_, other)] = &self.redis;
        if *first == tool { socket } else { other }
    }
}

/// Bakes the rows into a file, with the row numbers as keys.
fn bake(rows: &Rows, db: &Path) -> Result<()> {
    let csv = db.with_extension("csv");
    let mut writer = BufWriter::new(File::create(&csv)?);
    let mut value = Vec::new();
    for row in 0..rows.count {
        write!(writer, "{row},")?;
        writer.write_all(rows.value(row, &mut value))?;
        writer.write_all(b"\n")?;
    }
    writer.into_inner()?;
    bake_csv(File::open(&csv)?, db, &Options::default())?;
    Ok(fs::remove_file(csv)?)
}

fn fill(socket: &Path, rows: &Rows, tool: Tool) -> Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    let (mut value, mut replies) = (Vec::new(), Vec::new());
    for piece in rows.pieces(STORE_ROWS) {
        let stored = b"+OK\r\n".repeat((piece.end - piece.start) as usize);
        let mut requests = Vec::new();
        for row in piece {
            let (key, value) = (tool.key(row), rows.value(row, &mut value));
            write!(requests, "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), value.len())?;
            requests.extend_from_slice(value);
            requests.extend_from_slice(b"\r\n");
        }
        stream.write_all(&requests)?;
        replies.resize(stored.len(), 0);
        stream.read_exact(&mut replies)?;
        ensure!(replies == stored, "not stored: \"{}\"", replies.escape_ascii());
    }
    Ok(())
}

/// Checks the values of random rows byte by byte.
fn compare(socket: &Path, rows: &Rows, tool: Tool) -> Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    let mut random = Random::seeded(u64::MAX);
    let (mut value, mut reply) = (Vec::new(), Vec::new());
    for _ in 0..COMPARED_ROWS {
        let row = random.below(rows.count);
        let key = tool.key(row);
        write!(stream, "*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len())?;
        let value = rows.value(row, &mut value);
        let expected = [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat();
        reply.resize(expected.len(), 0);
        stream.read_exact(&mut reply)?;
        ensure!(reply == expected, "row {row}: not its reply: \"{}\"", reply.escape_ascii());
    }
    Ok(())
}

fn rate_by_redis_benchmark(socket: &Path, plan: &Plan, depth: usize) -> Result<f64> {
    let rows = plan.rows.count.to_string();
    let run_requests = |requests: usize| {
        let rate = redis_benchmark(socket, depth, requests, &["-r", &rows, "get", "__rand_int__"])?;
        anyhow::Ok(rate.responses_per_second)
    };
    let per_second = run_requests(TRIAL_REQUESTS)?;
    run_requests((per_second * plan.timed.as_secs_f64()) as usize)
}

fn rate_by_benchmarker(socket: &Path, servers: &Servers, plan: &Plan, depth: usize) -> Result<f64> {
    let mut command = Command::new(&servers.benchmarker);
    command.args(["--protocol", "resp", "--json"]).arg("--socket").arg(socket).arg("--db").arg(&servers.db);
    let timed = plan.timed.as_secs_f64();
    for (option, number) in
        [("--clients", CLIENTS as f64), ("--pipeline", depth as f64), ("--seconds", timed), ("--warmup", timed / 4.0)]
    {
        command.arg(option).arg(number.to_string());
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = Process::start(&mut command)?;
    let mut json = String::new();
    process.output().context("no output")?.read_to_string(&mut json)?;
    let number = |name: &str| {
        let (_, rest) = json.split_once(&format!("\"{name}\":"))?;
        rest.split([',', '}']).next()?.parse::<f64>().ok()
    };
    let errors = number("errors").with_context(|| format!("{}: {json:?}", servers.benchmarker.display()))?;
    ensure!(errors == 0.0, "{}: {errors} errors", servers.benchmarker.display());
    number("requests_per_second").context("no requests_per_second")
}
