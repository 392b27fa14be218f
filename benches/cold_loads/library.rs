//! Lookups of a process that has no server, or that looks keys up in direct mode.
//!
//! This program runs itself again, as a child in a control group that limits its memory. The child prints its rate.

use std::env;
use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use zero_kv::Lookup;
use zero_kv::client::{Client, Direct};
use zero_kv::{Key, LookupError, MappedStore};

use super::group::{MemoryGroup, command_in};
use super::server::Server;
use super::table::push_value;
use crate::Args;

/// The environment variable with the arguments of a child, separated by line ends.
const CHILD: &str = "ZERO_KV_BENCH_COLD_CHILD";
const BATCH_KEYS: usize = 256;

/// How a process opens the table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    Library,
    Direct,
}

/// Returns whether this process is a child.
pub(crate) fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Returns the number of lookups per second of a child.
pub(crate) fn rate(
    args: &Args,
    db: &Path,
    folder: &Path,
    mode: Mode,
    operation: &str,
    threads: usize,
) -> Result<f64, Box<dyn Error>> {
    // In direct mode, the server and its client share the memory of one group.
    let server = match mode {
        Mode::Direct => Some(Server::start(args, db, folder)?),
        Mode::Library => None,
    };
    let own_group = if server.is_none() { MemoryGroup::if_allowed(args.memory_bytes) } else { None };
    let group = server.as_ref().map_or(own_group.as_ref(), |server| server.group.as_ref());
    let path = server.as_ref().map_or(db, |server| &server.socket);
    let child_args = [
        format!("{mode:?}"),
        path.display().to_string(),
        operation.to_owned(),
        threads.to_string(),
        args.rows.to_string(),
        args.measured.as_secs_f64().to_string(),
    ];
    let output = command_in(group, &env::current_exe()?).env(CHILD, child_args.join("\n")).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// Looks random keys up, and prints the number of lookups per second.
pub(crate) fn run_child() -> Result<(), Box<dyn Error>> {
    let given = env::var(CHILD)?;
    let args: Vec<&str> = given.lines().collect();
    let &[mode, path, operation, threads, rows, measured_s] = &args[..] else { return Err("six arguments".into()) };
    let (threads, rows): (usize, u64) = (threads.parse()?, rows.parse()?);
    let measured = Duration::from_secs_f64(measured_s.parse()?);
    let table = match mode {
        "Library" => Table::Library(Box::new(MappedStore::open(path)?)),
        _ => Table::Direct(Client::connect(path)?.direct()?),
    };
    let (lookups, began) = (AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        for number in 0..threads {
            let (table, lookups) = (&table, &lookups);
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(number as u64);
                while began.elapsed() < measured {
                    let count = if operation == "get" { 1 } else { BATCH_KEYS };
                    let keys: Vec<u64> = (0..count).map(|_| random.random_range(0..rows)).collect();
                    table.look_up(operation, &keys).expect("an intact table");
                    lookups.fetch_add(count as u64, Ordering::Relaxed);
                }
            });
        }
    });
    println!("{}", lookups.into_inner() as f64 / began.elapsed().as_secs_f64());
    Ok(())
}

enum Table {
    Library(Box<MappedStore>),
    Direct(Direct),
}

impl Table {
    /// Looks keys up, and checks the values.
    fn look_up(&self, operation: &str, keys: &[u64]) -> Result<(), LookupError> {
        let check_row = |at: usize, row: Option<(Key<'_>, &[u8])>| check(keys[at], row.map(|(_, value)| value));
        let check_value = |at: usize, value: Option<&[u8]>| check(keys[at], value);
        match (self, operation) {
            (Table::Library(table), "floor_many") => table.floor_many_with(keys, check_row),
            (Table::Direct(table), "floor_many") => table.floor_many_with(keys, check_row),
            (Table::Library(table), _) => table.get_many_with(keys, check_value),
            (Table::Direct(table), _) => table.get_many_with(keys, check_value),
        }
    }
}

fn check(key: u64, value: Option<&[u8]>) {
    let mut expected = Vec::new();
    push_value(&mut expected, key);
    assert!(value == Some(&expected), "key {key}: wrong value");
}
