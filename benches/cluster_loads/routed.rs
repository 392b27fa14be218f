//! GETs that a client routes to 1, 2, and 4 nodes, beside a Redis cluster of the same shape.

use std::error::Error;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use zero_kv::slots::slot_of;

use super::median;
use super::pipeline::{Connection, Protocol};
use super::processors::cpu_seconds;
use super::redis;
use super::servers::{Nodes, Table};
use crate::Args;
use crate::support::is_test;

const NODE_COUNTS: [u16; 3] = [1, 2, 4];
const DEPTHS: [usize; 3] = [1, 16, 256];

/// The rates of one configuration.
#[derive(Default)]
struct Measured {
    requests_per_s: Vec<f64>,
    cpu_ns_per_request: Vec<f64>,
}

pub(crate) fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    println!("routed GETs (RESP) to nodes on one processor, medians of {} rounds:", args.rounds);
    println!("\n<!-- figures: cluster-gets -->\n");
    println!(
        "| nodes | in flight per node | kv_store, GETs/s | Redis, GETs/s | kv_store, processor ns per GET \
         | Redis, processor ns per GET |"
    );
    println!("|---:|---:|---:|---:|---:|---:|");
    for count in NODE_COUNTS {
        let table = Table::bake(args.rows)?;
        let ours = Nodes::start(&table, count)?;
        let redis = redis::start(&table, &ours.slots)?;
        for depth in DEPTHS.into_iter().filter(|depth| !is_test() || *depth < 100) {
            let mut measured = [Measured::default(), Measured::default()];
            for _ in 0..args.rounds {
                for (nodes, measured) in [Some(&ours), redis.as_ref()].into_iter().zip(&mut measured) {
                    if let Some(nodes) = nodes {
                        measure(nodes, depth, args, measured)?;
                    }
                }
            }
            print_row(count, depth, measured);
        }
    }
    println!("\nThe processor time is the sum of all servers.");
    Ok(())
}

/// Sends pipelines to all nodes, and waits for all replies, again and again.
fn measure(nodes: &Nodes, depth: usize, args: &Args, measured: &mut Measured) -> Result<(), Box<dyn Error>> {
    let mut keys: Vec<u64> = (0..args.rows).collect();
    keys.shuffle(&mut SmallRng::seed_from_u64(7));
    let connect = |at: usize| {
        let keys: Vec<u64> = keys.iter().copied().filter(|key| nodes.slots[at].has(slot_of((*key).into()))).collect();
        Connection::new(nodes.ports[at], Protocol::Redis, &keys, depth, args.rows)
    };
    let mut connections = (0..nodes.ports.len()).map(connect).collect::<Result<Vec<Connection>, _>>()?;
    exchange(&mut connections, args.measured / 4)?;
    let (began, cpu_began) = (Instant::now(), cpu_seconds(&nodes.process_ids()));
    let requests = (exchange(&mut connections, args.measured)? * depth) as f64;
    measured.requests_per_s.push(requests / began.elapsed().as_secs_f64());
    measured.cpu_ns_per_request.push((cpu_seconds(&nodes.process_ids()) - cpu_began) * 1e9 / requests);
    Ok(())
}

/// Returns the number of pipelines.
fn exchange(connections: &mut [Connection], duration: Duration) -> Result<usize, Box<dyn Error>> {
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < duration || count == 0 {
        connections.iter_mut().try_for_each(Connection::send)?;
        connections.iter_mut().try_for_each(Connection::receive)?;
        count += connections.len();
    }
    Ok(count)
}

fn print_row(count: u16, depth: usize, measured: [Measured; 2]) {
    let has_redis = !measured[1].requests_per_s.is_empty();
    let [ours, redis] = measured.map(|measured| {
        let of = |numbers: Vec<f64>| if numbers.is_empty() { f64::NAN } else { median(numbers) };
        (of(measured.requests_per_s), of(measured.cpu_ns_per_request))
    });
    print!("| {count} | {depth} | {:.0} | ", ours.0);
    match has_redis {
        true => println!("{:.0} | {:.0} | {:.0} |", redis.0, ours.1, redis.1),
        false => println!("– | {:.0} | – |", ours.1),
    }
}
