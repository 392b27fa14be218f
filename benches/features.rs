//! The load of a feature store: HGETALL of rows with 51 fields, sent to kv_store and to Redis.
//!
//! Canonical load: 200 connections, keys with a Zipf distribution (exponent 0.99), and 1 or 16 commands in flight per
//! connection. Reads stand in for the 5 % of writes that such loads have, because kv_store has no writes. A row has an
//! identifier, 20 `f32`, 20 `i32`, and 10 short texts. One thread sends the commands: it waits with poll(2), checks
//! that every reply is complete and begins like a row, and measures the latency of every command from its sending.
//! `benches/features.sh` runs this program: it starts the servers, and compares memory, too.
//!
//! | arguments | effect |
//! |---|---|
//! | `rows COUNT` | print the rows as CSV |
//! | `types` | print the option `--types` for `baker` |
//! | `fill SOCKET COUNT` | store the rows in Redis |
//! | `load SOCKET COUNT DEPTH SECONDS` | measure HGETALL, and print a row of a Markdown table |

mod support;

use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::event::{PollFd, PollFlags, poll};
use support::{is_test, warn_if_slow};
use zero_kv::protocol::resp::reply_len_bytes;

const CONNECTIONS: usize = 200;
const FLOATS: usize = 20;
const INTEGERS: usize = 20;
const TEXTS: usize = 10;
const EXPONENT: f64 = 0.99;
/// The rows whose replies are read together when Redis is filled.
const FILL_ROWS: usize = 500;
/// The beginning of the reply to HGETALL in RESP2: 51 names and values, the first of which is `entity`.
const REPLY_START: &[u8] = b"*102\r\n$6\r\nentity\r\n$";

fn main() {
    warn_if_slow();
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["rows", count] => print_rows(number(count)),
        ["types"] => {
            println!("id:u64,{}", columns().map(|(name, kind)| format!("{name}:{kind}")).collect::<Vec<_>>().join(","));
        }
        ["fill", socket, count] => fill(socket, number(count)).expect("Redis stores the rows"),
        ["load", socket, count, depth, seconds] => {
            let load = Load { rows: number(count), depth: number(depth) as usize, seconds: number(seconds) };
            load.run(socket).expect("the server replies");
        }
        _ if is_test() => check_rows(),
        _ => panic!("arguments: rows COUNT | types | fill SOCKET COUNT | load SOCKET COUNT DEPTH SECONDS"),
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

/// Returns the names and types of the columns.
fn columns() -> impl Iterator<Item = (String, &'static str)> {
    let entity = std::iter::once(("entity".to_owned(), "text"));
    let floats = (0..FLOATS).map(|i| (format!("avg_amount_{i}"), "f32"));
    let integers = (0..INTEGERS).map(|i| (format!("count_days_{i}"), "i32"));
    entity.chain(floats).chain(integers).chain((0..TEXTS).map(|i| (format!("category_{i}"), "text")))
}

/// Returns the texts of a row's cells, in the order of the columns.
fn texts(key: u64) -> impl Iterator<Item = String> {
    let mut random = SmallRng::seed_from_u64(key);
    let floats: Vec<String> =
        (0..FLOATS).map(|_| (random.random_range(0..10_000_000) as f32 / 1e3).to_string()).collect();
    let integers: Vec<String> = (0..INTEGERS).map(|_| random.random_range(0..100_000_u32).to_string()).collect();
    let texts: Vec<String> = (0..TEXTS).map(|_| format!("segment-{:04}", random.random_range(0..10_000))).collect();
    std::iter::once(format!("user-{key:010}")).chain(floats).chain(integers).chain(texts)
}

fn print_rows(count: u64) {
    let mut out = BufWriter::new(io::stdout().lock());
    let names: Vec<String> = columns().map(|(name, _)| name).collect();
    writeln!(out, "id,{}", names.join(",")).expect("standard output is open");
    for key in 0..count {
        writeln!(out, "{key},{}", texts(key).collect::<Vec<_>>().join(",")).expect("standard output is open");
    }
}

fn push_bulk(to: &mut Vec<u8>, text: &str) {
    to.extend_from_slice(format!("${}\r\n{text}\r\n", text.len()).as_bytes());
}

fn fill(socket: &str, count: u64) -> io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    let expected = format!(":{}\r\n", columns().count());
    for first in (0..count).step_by(FILL_ROWS) {
        let keys = first..count.min(first + FILL_ROWS as u64);
        let mut commands = Vec::new();
        for key in keys.clone() {
            commands.extend_from_slice(format!("*{}\r\n", 2 + 2 * columns().count()).as_bytes());
            push_bulk(&mut commands, "HSET");
            push_bulk(&mut commands, &key.to_string());
            for ((name, _), text) in columns().zip(texts(key)) {
                push_bulk(&mut commands, &name);
                push_bulk(&mut commands, &text);
            }
        }
        stream.write_all(&commands)?;
        let mut replies = vec![0; expected.len() * keys.count()];
        stream.read_exact(&mut replies)?;
        assert_eq!(replies, expected.repeat(replies.len() / expected.len()).into_bytes());
    }
    Ok(())
}

/// Checks that a row has a text for each column.
fn check_rows() {
    assert_eq!(columns().count(), 51);
    assert_eq!(texts(7).count(), 51);
    assert!(texts(7).eq(texts(7)));
}

struct Load {
    rows: u64,
    depth: usize,
    seconds: u64,
}

/// A connection with commands in flight.
struct Connection {
    stream: UnixStream,
    sent_at: Instant,
    replies: Vec<u8>,
    /// The number of complete replies to the commands in flight.
    reply_count: usize,
}

impl Load {
    fn run(&self, socket: &str) -> io::Result<()> {
        // The probability of each rank. Ranks are spread over the keys by multiplication with a prime.
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=self.rows)
            .map(|rank| {
                sum += (rank as f64).powf(-EXPONENT);
                sum
            })
            .collect();
        let mut random = SmallRng::seed_from_u64(1);
        let mut next_key = || {
            let at = random.random_range(0.0..sum);
            (sums.partition_point(|before| *before <= at) as u64).wrapping_mul(2_654_435_761) % self.rows
        };
        let mut commands = || {
            let mut bytes = Vec::new();
            (0..self.depth).for_each(|_| {
                bytes.extend_from_slice(b"*2\r\n");
                push_bulk(&mut bytes, "HGETALL");
                push_bulk(&mut bytes, &next_key().to_string());
            });
            bytes
        };
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut stream = UnixStream::connect(socket)?;
            stream.write_all(&commands())?;
            stream.set_nonblocking(true)?;
            connections.push(Connection { stream, sent_at: Instant::now(), replies: Vec::new(), reply_count: 0 });
        }
        let (mut latencies, mut read) = (Vec::new(), vec![0; 256 << 10]);
        let begin = Instant::now();
        let (warm, end) = (begin + Duration::from_secs(1), begin + Duration::from_secs(1 + self.seconds));
        while Instant::now() < end {
            let mut waiting: Vec<PollFd<'_>> =
                connections.iter().map(|connection| PollFd::new(&connection.stream, PollFlags::IN)).collect();
            poll(&mut waiting, None)?;
            let ready: Vec<bool> = waiting.iter().map(|waiting| !waiting.revents().is_empty()).collect();
            for (connection, _) in connections.iter_mut().zip(ready).filter(|(_, is_ready)| *is_ready) {
                let len_bytes = match connection.stream.read(&mut read) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(len_bytes) => len_bytes,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                    Err(error) => return Err(error),
                };
                connection.replies.extend_from_slice(&read[..len_bytes]);
                let (mut at, now) = (0, Instant::now());
                while at < connection.replies.len()
                    && let Ok(Some(reply_len_bytes)) = reply_len_bytes(&connection.replies[at..])
                {
                    assert!(connection.replies[at..].starts_with(REPLY_START), "a row with 51 fields");
                    (at, connection.reply_count) = (at + reply_len_bytes, connection.reply_count + 1);
                    if now > warm {
                        latencies.push((now - connection.sent_at).as_nanos() as u64);
                    }
                }
                connection.replies.drain(..at);
                if connection.reply_count == self.depth {
                    let commands = commands();
                    connection.stream.write_all(&commands)?;
                    (connection.reply_count, connection.sent_at) = (0, Instant::now());
                }
            }
        }
        latencies.sort_unstable();
        let micros = |part: f64| latencies[(latencies.len() as f64 * part) as usize] / 1000;
        let rate = latencies.len() as f64 / self.seconds as f64;
        println!("{} | {:.0} | {} µs | {} µs", self.depth, rate, micros(0.5), micros(0.99));
        Ok(())
    }
}
