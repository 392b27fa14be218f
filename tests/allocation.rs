//! A connection in its steady state allocates nothing.
//!
//! The tests count the allocations of the whole process, so they run one after the other on the main thread.

mod helpers;

mod allocation {
    pub(crate) mod counting_allocator;
    pub(crate) mod native;
    pub(crate) mod redis;
}

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use libtest_mimic::{Arguments, run};

use allocation::{native, redis};
use helpers::trials::trials;

fn main() -> ExitCode {
    let trials = trials![
        native::a_warmed_up_connection_allocates_nothing,
        redis::gets_of_the_redis_protocol_allocate_nothing_after_warm_up,
    ];
    run(&Arguments { test_threads: Some(1), ..Arguments::from_args() }, trials).exit_code()
}

/// Sends a batch, reads the responses into existing memory, and compares them.
fn exchange(stream: &mut UnixStream, requests: &[u8], expected: &[u8], found: &mut [u8]) {
    stream.write_all(requests).unwrap();
    stream.read_exact(found).unwrap();
    assert!(found == expected, "wrong answers");
}
