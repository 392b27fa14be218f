//! The cost of checking whether a node serves a key's slot.

use std::error::Error;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use super::median;
use super::pipeline::{Connection, Protocol};
use super::processors::cpu_seconds;
use super::servers::{Process, Table, free_ports, primary, serve, write_topology};
use crate::Args;
use crate::support::is_test;

const DEPTH: usize = 256;

pub(crate) fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let table = Table::bake(args.rows)?;
    let ports = free_ports(2)?;
    let topology = write_topology(&table, "alone.json", &[primary(0, ports[1], "0-16383")])?;
    let cluster = (&topology, 0, "0-16383".to_owned());
    let servers = [
        serve(&table, &table.whole(), ports[0], "without.sock", None)?,
        serve(&table, &table.whole(), ports[1], "with.sock", Some(&cluster))?,
    ];
    let depth = if is_test() { 16 } else { DEPTH };
    println!("processor time per GET with {depth} in flight, medians of {} pairs:", 3 * args.rounds);
    println!("\n<!-- figures: cluster-slot-check -->\n");
    println!("| protocol | keys | without `--cluster` | with `--cluster` | ratio |");
    println!("|---|---|---:|---:|---:|");
    for (protocol, name) in [(Protocol::Native, "native"), (Protocol::Redis, "RESP")] {
        for (first, keys_name) in [(0, "found"), (args.rows, "missing")] {
            let mut keys: Vec<u64> = (first..first + args.rows).collect();
            keys.shuffle(&mut SmallRng::seed_from_u64(7));
            let (mut times, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
            for round in 0..3 * args.rounds {
                // The order alternates, because the machine's speed changes with time.
                let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
                let mut found = [0.0; 2];
                for at in order {
                    let mut connection = Connection::new(ports[at], protocol, &keys, depth, args.rows)?;
                    found[at] = cpu_ns(&servers[at], &mut connection, depth, args.measured)?;
                    times[at].push(found[at]);
                }
                ratios.push(found[1] / found[0]);
            }
            let [without, with] = times.map(median);
            println!("| {name} | {keys_name} | {without:.1} ns | {with:.1} ns | {:.3} |", median(ratios));
        }
    }
    Ok(())
}

/// Returns the processor time of a server per request, in nanoseconds.
fn cpu_ns(
    server: &Process,
    connection: &mut Connection,
    depth: usize,
    duration: Duration,
) -> Result<f64, Box<dyn Error>> {
    let mut exchange = |duration: Duration| -> Result<usize, Box<dyn Error>> {
        let (began, mut count) = (Instant::now(), 0);
        while began.elapsed() < duration || count == 0 {
            connection.send()?;
            connection.receive()?;
            count += depth;
        }
        Ok(count)
    };
    exchange(duration / 4)?;
    let began = cpu_seconds(&[server.id()]);
    let requests = exchange(duration)? as f64;
    Ok((cpu_seconds(&[server.id()]) - began) * 1e9 / requests)
}
