//! A server that is stopped (SIGSTOP) for longer than the kernel makes writers wait for its lease.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use zero_kv::Lookup;
use zero_kv::client::Client;

use super::requirements::leases;
use crate::helpers::generations::Shape;
use crate::helpers::scenes::{Scene, is_leased};
use crate::helpers::servers::Server;
use crate::helpers::trials::Missing;
use crate::helpers::waiting::{configured_duration, eventually};

/// The kernel counts `/proc/sys/fs/lease-break-time` in whole seconds, so no writer can continue before this time.
pub(crate) const LEASE_BREAK_TIME_MIN: Duration = Duration::from_millis(1100);

/// How the server loses its lease while it is stopped.
#[derive(Clone, Copy)]
enum LeaseEnds {
    /// The test removes the lease, without a delay.
    Removed,
    /// The kernel breaks the lease while the writer waits.
    TimedOut,
}

/// Reads the beginning of a long MGET, stops the server, overwrites its file with generation 3,
/// continues the server, and reads the rest.
fn overwrite_during_mget(len_max_bytes: u64, lease_ends: LeaseEnds) {
    let scene = Scene::new();
    let shape = Shape { rows: 2000, len_max_bytes };
    shape.bake(1, &scene.db());
    shape.bake(3, &scene.path("other.db"));
    let served = scene.serve(&["--no-watch"]);
    assert!(is_leased(&scene.db()));
    // Verifies every block, so that later requests rely on the recorded verification.
    assert_eq!(right_values_of_mget(&served, shape, &mut || ()), shape.rows);
    let right = right_values_of_mget(&served, shape, &mut || {
        served.signal(Signal::STOP);
        match lease_ends {
            LeaseEnds::Removed => {
                served.remove_lease(&scene.db());
                thread::sleep(LEASE_BREAK_TIME_MIN);
            }
            LeaseEnds::TimedOut => {}
        }
        let other = std::fs::read(scene.path("other.db")).unwrap();
        let file = File::options().write(true).open(scene.db()).unwrap();
        file.write_all_at(&other, 0).unwrap();
        drop(file);
        served.signal(Signal::CONT);
    });
    // All values would be right if the server had sent them all before it was stopped.
    assert!(right < shape.rows);
    eventually("the server has noticed the change", || served.logged("was changed in place") == 1);
}

/// Sends one MGET of all keys, calls `pause` once the first value has arrived, and asserts that every
/// value that arrives is a value of generation 1. Returns how many arrive.
fn right_values_of_mget(served: &Server, shape: Shape, pause: &mut dyn FnMut()) -> u64 {
    let mut stream = served.connect();
    let keys: Vec<String> = (1..=shape.rows).map(|key| format!("${}\r\n{key}\r\n", key.to_string().len())).collect();
    write!(stream, "*{}\r\n$4\r\nMGET\r\n{}", keys.len() + 1, keys.concat()).unwrap();
    let mut reply = BufReader::with_capacity(512, stream);
    let mut line = String::new();
    reply.read_line(&mut line).unwrap();
    assert_eq!(line, format!("*{}\r\n", shape.rows));
    let mut right = 0;
    for key in 1..=shape.rows {
        if key == 2 {
            pause();
        }
        line.clear();
        // The server closes a connection whose reply it cannot complete.
        if reply.read_line(&mut line).unwrap_or(0) == 0 {
            break;
        }
        let Some(len_bytes) = line.strip_prefix('$') else {
            assert!(line.starts_with('-'), "key {key}: {line:?}");
            continue;
        };
        let mut value = vec![0; len_bytes.trim_end().parse().unwrap()];
        if reply.read_exact(&mut value).is_err() || reply.read_exact(&mut [0; 2]).is_err() {
            break;
        }
        assert!(Some(&value) == shape.value(1, key).as_ref(), "key {key}: {}", String::from_utf8_lossy(&value));
        right += 1;
    }
    right
}

pub(crate) fn a_server_sends_no_value_that_was_written_while_it_was_stopped() -> Result<(), Missing> {
    leases()?;
    let mut ways = vec![LeaseEnds::Removed];
    // A lease times out after /proc/sys/fs/lease-break-time, which is 45 s unless it was changed.
    if configured_duration().is_some_and(|time| time >= Duration::from_secs(100)) {
        ways.push(LeaseEnds::TimedOut);
    }
    for lease_ends in ways {
        // Values that are copied into the response, and values of more than 4 KiB, which are staged.
        for len_max_bytes in [1000, 20_000] {
            overwrite_during_mget(len_max_bytes, lease_ends);
        }
    }
    Ok(())
}

/// A stopped server cannot report that the kernel has broken its lease.
pub(crate) fn a_file_written_to_while_the_server_is_stopped_gives_errors() -> Result<(), Missing> {
    leases()?;
    let scene = Scene::new();
    let shape = Shape { rows: 2000, len_max_bytes: 300 };
    shape.bake(1, &scene.db());
    shape.bake(3, &scene.path("other.db"));
    let served = scene.serve(&["--no-watch"]);
    assert!(is_leased(&scene.db()));
    let direct = Client::connect(served.socket()).unwrap().direct().unwrap();
    let assert_all_served = || {
        let keys: Vec<u64> = (1..=shape.rows).collect();
        let expected: Vec<_> = keys.iter().map(|key| shape.value(1, *key)).collect();
        assert!(direct.get_many(&keys).unwrap() == expected);
    };
    assert_all_served();
    let snapshot = direct.snapshot();
    served.signal(Signal::STOP);
    served.remove_lease(&scene.db());
    thread::sleep(LEASE_BREAK_TIME_MIN);
    assert_all_served();
    let other = std::fs::read(scene.path("other.db")).unwrap();
    File::options().write(true).open(scene.db()).unwrap().write_all_at(&other, 0).unwrap();
    for key in 1..=shape.rows {
        assert_eq!(direct.get(key), Err(zero_kv::LookupError::Damaged), "key {key}");
    }
    assert!(!snapshot.is_unchanged());
    served.signal(Signal::CONT);
    Ok(())
}
