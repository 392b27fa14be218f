//! A connection in its steady state, and the parsing of a row, allocate nothing.
//!
//! The tests count the allocations of the whole process, so they run one after the other on the main thread.

use testkit as helpers;

mod allocation {
    pub(crate) mod bakes;
    pub(crate) mod counting_allocator;
    pub(crate) mod native;
    pub(crate) mod redis;
}

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use libtest_mimic::{Arguments, run};

use allocation::counting_allocator::ALLOCATIONS;
use allocation::{bakes, native, redis};
use helpers::trials::trials;

fn main() -> ExitCode {
    let trials = trials![
        bakes::rows_allocate_nothing_whatever_the_type_of_their_keys,
        native::a_warmed_up_connection_allocates_nothing,
        redis::hash_reads_allocate_nothing_after_warm_up,
        redis::gets_of_the_redis_protocol_allocate_nothing_after_warm_up,
    ];
    run(&Arguments { test_threads: Some(1), ..Arguments::from_args() }, trials).exit_code()
}

/// The rounds before allocations are counted.
const WARM_UP_ROUNDS: usize = 20;
const ROUNDS: usize = 100;

/// A batch of requests, and the responses to it.
struct Batch {
    requests: Vec<u8>,
    /// The length of the first of two parts in which the requests are sent. If the first part ends within a request,
    /// the connection keeps that request until the second part arrives.
    split_at: usize,
    expected: Vec<u8>,
}

/// Sends all batches in each round, and asserts that more than half of the exchanges of each batch allocated nothing:
/// background threads of the server allocate a few times per second, possibly during any exchange.
fn assert_exchanges_allocate_nothing(stream: &mut UnixStream, batches: &[Batch]) {
    let mut found: Vec<_> = batches.iter().map(|batch| vec![0; batch.expected.len()]).collect();
    let mut counts = vec![0; batches.len()];
    for round in 0..WARM_UP_ROUNDS + ROUNDS {
        for ((batch, found), count) in batches.iter().zip(&mut found).zip(&mut counts) {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            let (first, second) = batch.requests.split_at(batch.split_at);
            stream.write_all(first).unwrap();
            stream.write_all(second).unwrap();
            stream.read_exact(found).unwrap();
            let is_without = ALLOCATIONS.load(Ordering::Relaxed) == before;
            assert!(*found == batch.expected, "wrong responses");
            *count += usize::from(is_without && round >= WARM_UP_ROUNDS);
        }
    }
    let is_rare = counts.iter().all(|count| *count > ROUNDS / 2);
    assert!(is_rare, "of {ROUNDS} exchanges of each batch, these numbers allocated nothing: {counts:?}");
}
