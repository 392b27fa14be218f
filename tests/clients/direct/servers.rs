//! Servers that end, hang, and restart.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use zero_kv::Lookup;
use zero_kv::client::{Client, ClientError, DirectOptions, Options};

use super::{SHAPE, assert_all, direct};
use crate::helpers::waiting::{PATIENCE, eventually};

#[test]
fn lookups_continue_after_the_server_ends_and_use_the_next_server() {
    for (memory, signal) in [("map", Signal::KILL), ("sealed", Signal::KILL), ("sealed", Signal::TERM)] {
        let (scene, mut served, direct) = direct(&["--memory", memory]);
        assert!(direct.is_connected());
        served.signal(signal);
        eventually("the server is gone", || !served.is_alive());
        eventually("the client detects that the server has ended", || !direct.is_connected());
        assert_all(&direct, 1);
        assert!(direct.refresh().is_err());
        assert_all(&direct, 1);
        // The next server counts generations from 1 again, and serves another file.
        SHAPE.bake(5, &scene.path("new.db"));
        std::fs::rename(scene.path("new.db"), scene.db()).unwrap();
        let _served = scene.serve(&["--memory", memory]);
        eventually("the next server is found", || direct.is_connected() && direct.get(1).unwrap() == SHAPE.value(5, 1));
        assert_all(&direct, 5);
        assert_eq!(direct.generation(), 1);
    }
}

#[test]
fn a_hung_server_delays_no_lookup() {
    let (scene, served, direct) = direct(&["--memory", "sealed"]);
    super::put(&scene, 2);
    served.wait_for("generation", 2);
    served.signal(Signal::STOP);
    assert!((0..SHAPE.rows).all(|key| {
        let value = direct.get(key).unwrap();
        [1, 2].iter().any(|generation| value == SHAPE.value(*generation, key))
    }));
    eventually("the client detects that the server does not run", || !direct.is_connected());
    served.signal(Signal::CONT);
    eventually("the client detects that the server runs", || direct.is_connected());
    eventually("the client detects the swap", || direct.get(1).unwrap() == SHAPE.value(2, 1));
}

/// A killed server has lost its lease and writes nothing to the shared page.
#[test]
fn a_file_written_to_after_the_server_ended_gives_errors() {
    for signal in [Signal::KILL, Signal::TERM] {
        let (scene, mut served, direct) = direct(&[]);
        assert_all(&direct, 1);
        let snapshot = direct.snapshot();
        served.signal(signal);
        eventually("the server is gone", || !served.is_alive());
        eventually("the client detects that the server has ended", || !direct.is_connected());
        assert_all(&direct, 1);
        assert!(snapshot.is_unchanged());
        let (bytes, value) = (std::fs::read(scene.db()).unwrap(), SHAPE.value(1, 7).unwrap());
        let at = bytes.windows(value.len()).position(|window| window == value).unwrap();
        let file = File::options().write(true).open(scene.db()).unwrap();
        file.write_all_at(&[value[0] ^ 1], at as u64).unwrap();
        assert_eq!(direct.get(7), Err(zero_kv::LookupError::Damaged), "{signal:?}");
        assert!(!snapshot.is_unchanged(), "{signal:?}");
    }
}

#[test]
fn a_slow_transfer_of_a_table_times_out() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("peer.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        // The first connection is the client's own.
        let (_client, _) = listener.accept().unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 16]).unwrap();
        // Each byte arrives before a single read times out.
        for byte in [0, 0, 0, 0, 0, 0, 0, 32].into_iter().chain([0; 31]) {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        thread::sleep(PATIENCE);
    });
    let client = Options { call_timeout: Some(Duration::from_millis(200)), ..Options::default() };
    let options = DirectOptions { client, ..DirectOptions::default() };
    let error = Client::connect(&socket).unwrap().direct_with(&options).unwrap_err();
    let ClientError::TimedOut { after, .. } = error else { panic!("{error:?}") };
    // All bytes together would take two seconds.
    assert!(after < Duration::from_secs(2), "{after:?}");
}
