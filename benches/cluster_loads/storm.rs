//! Many clients that reconnect and ask for the topology at the same time.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::pipeline::{Connection, Protocol};
use super::processors::cpu_seconds;
use super::redis;
use super::servers::{Nodes, Table, free_ports, primary, serve, write_topology};
use crate::Args;

/// The threads that open connections.
const THREADS: usize = 32;
/// The pause between two GETs.
const GET_EVERY: Duration = Duration::from_millis(1);
/// The nodes of the large topology.
const MANY_NODES: usize = 500;

struct Storm {
    /// The time until all connections have got their replies.
    total: Duration,
    /// The times from opening a connection to the end of its reply, in ascending order.
    replies: Vec<Duration>,
    cpu_seconds: f64,
    reply_len_bytes: usize,
    /// The times of GETs on another connection, in ascending order.
    gets: Vec<Duration>,
}

pub(crate) fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let table = Table::bake(args.rows)?;
    println!("{} connections, each with one command:", args.connections);
    println!("\n<!-- figures: cluster-reconnects -->\n");
    println!(
        "| server | command | reply | until all replies arrived | p99 of the replies | processor time per connection \
         | p99 of the GETs |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|");
    let four = Nodes::start(&table, 4)?;
    let redis = redis::start(&table, &four.slots)?;
    let (many, process) = serve_many(&table)?;
    let many = Nodes::new(vec![process], vec![many], vec![four.slots[0]]);
    let servers =
        [("kv_store, 4 nodes", Some(&four)), ("Redis, 4 nodes", redis.as_ref()), ("kv_store, 500 nodes", Some(&many))];
    for (name, nodes) in servers {
        let Some(nodes) = nodes else { continue };
        for command in ["CLUSTER SLOTS", "CLUSTER NODES"] {
            print_row(name, command, &storm(nodes, command, args)?);
        }
    }
    Ok(())
}

/// Serves the first of four shards as a node of a large topology. Returns its port.
fn serve_many(table: &Table) -> Result<(u16, super::servers::Process), Box<dyn Error>> {
    let port = free_ports(1)?[0];
    let last_slot = |number: usize| number * 16384 / MANY_NODES;
    let node = |number: usize| {
        let slots = format!("{}-{}", last_slot(number), last_slot(number + 1) - 1);
        // The other ports are not used.
        primary(number, if number == 0 { port } else { number as u16 }, &slots)
    };
    let nodes: Vec<String> = (0..MANY_NODES).map(node).collect();
    let topology = write_topology(table, "many.json", &nodes)?;
    let cluster = (&topology, 0, "0-16383".to_owned());
    Ok((port, serve(table, &table.whole(), port, "many.sock", Some(&cluster))?))
}

fn storm(nodes: &Nodes, command: &str, args: &Args) -> Result<Storm, Box<dyn Error>> {
    let port = nodes.ports[0];
    // The slots of the large topology begin with those of a key that every server has.
    let key = (0..args.rows).find(|key| zero_kv::slots::slot_of((*key).into()) < 32).ok_or("no key has a low slot")?;
    let mut reader = Connection::new(port, Protocol::Redis, &[key], 1, args.rows)?;
    let reply_len_bytes = reply_len_bytes(port, command)?;
    let process = nodes.process_ids()[0];
    let (is_over, cpu_began, began) = (AtomicBool::new(false), cpu_seconds(&[process]), Instant::now());
    let (mut replies, mut gets, per_thread) = (Vec::new(), Vec::new(), args.connections.div_ceil(THREADS));
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let getting = scope.spawn(|| -> Result<Vec<Duration>, String> {
            let mut gets = Vec::new();
            while !is_over.load(Ordering::Relaxed) || gets.is_empty() {
                let began = Instant::now();
                reader.send().and_then(|()| reader.receive()).map_err(|error| error.to_string())?;
                gets.push(began.elapsed());
                // The GETs should take little of the server's processor time.
                thread::sleep(GET_EVERY);
            }
            Ok(gets)
        });
        let connect_some = || some(port, command, reply_len_bytes, per_thread).map_err(|error| error.to_string());
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(connect_some)).collect();
        let joined: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        is_over.store(true, Ordering::Relaxed);
        gets = getting.join().expect("no panic")?;
        for some in joined {
            replies.extend(some?);
        }
        Ok(())
    })?;
    let (total, cpu_seconds) = (began.elapsed(), cpu_seconds(&[process]) - cpu_began);
    replies.sort();
    gets.sort();
    Ok(Storm { total, replies, cpu_seconds, reply_len_bytes, gets })
}

/// Opens `count` connections, sends the command on each, and then reads all replies.
fn some(port: u16, command: &str, len_bytes: usize, count: usize) -> Result<Vec<Duration>, Box<dyn Error>> {
    let mut open = Vec::new();
    for _ in 0..count {
        let began = Instant::now();
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        open.push((began, stream));
    }
    let mut times = Vec::new();
    let mut reply = vec![0; len_bytes];
    for (began, stream) in &mut open {
        stream.read_exact(&mut reply)?;
        times.push(began.elapsed());
    }
    Ok(times)
}

/// Returns the length of a reply.
fn reply_len_bytes(port: u16, command: &str) -> Result<usize, Box<dyn Error>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    match reply.first() {
        Some(b'*' | b'$') => Ok(reply.len()),
        _ => Err(format!("{command}: {}", String::from_utf8_lossy(&reply)).into()),
    }
}

fn print_row(name: &str, command: &str, storm: &Storm) {
    let at = |times: &[Duration], share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64();
    println!(
        "| {name} | `{command}` | {} bytes | {:.2} s | {:.2} s | {:.1} µs | {:.1} ms |",
        storm.reply_len_bytes,
        storm.total.as_secs_f64(),
        at(&storm.replies, 0.99),
        storm.cpu_seconds * 1e6 / storm.replies.len() as f64,
        at(&storm.gets, 0.99) * 1e3,
    );
}
