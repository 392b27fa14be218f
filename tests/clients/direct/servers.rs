//! Servers that end, hang, and come back.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use zero_kv::client::{Client, ClientError, DirectOptions, Options};

use super::{SHAPE, assert_all, direct};
use crate::helpers::waiting::{PATIENCE, eventually};

#[test]
fn when_the_server_ends_lookups_go_on_and_the_next_server_is_found() {
    for (memory, signal) in [("map", Signal::KILL), ("sealed", Signal::KILL), ("sealed", Signal::TERM)] {
        let (scene, mut served, direct) = direct(&["--memory", memory]);
        assert!(direct.is_connected());
        served.signal(signal);
        eventually("the server is gone", || !served.is_alive());
        eventually("that is seen", || !direct.is_connected());
        assert_all(&direct, 1);
        assert!(direct.refresh().is_err());
        assert_all(&direct, 1);
        // The next one counts from 1 again, and serves another file.
        SHAPE.bake(5, &scene.path("new.db"));
        std::fs::rename(scene.path("new.db"), scene.db()).unwrap();
        let _served = scene.serve(&["--memory", memory]);
        eventually("the next server is found", || direct.is_connected() && direct.get(1).unwrap() == SHAPE.value(5, 1));
        assert_all(&direct, 5);
        assert_eq!(direct.generation(), 1);
    }
}

#[test]
fn a_server_that_hangs_holds_no_lookup_up() {
    let (scene, served, direct) = direct(&["--memory", "sealed"]);
    super::put(&scene, 2);
    served.wait_for("generation", 2);
    served.signal(Signal::STOP);
    assert!((0..SHAPE.rows).all(|key| {
        let value = direct.get(key).unwrap();
        [1, 2].iter().any(|generation| value == SHAPE.value(*generation, key))
    }));
    eventually("that it does not run is seen", || !direct.is_connected());
    served.signal(Signal::CONT);
    eventually("that it runs is seen", || direct.is_connected());
    eventually("the swap is seen", || direct.get(1).unwrap() == SHAPE.value(2, 1));
}

/// A server that is killed has given its lease back and says nothing of it.
#[test]
fn a_file_that_is_written_to_behind_a_server_that_has_ended_gives_errors() {
    for signal in [Signal::KILL, Signal::TERM] {
        let (scene, mut served, direct) = direct(&[]);
        assert_all(&direct, 1);
        let snapshot = direct.snapshot();
        served.signal(signal);
        eventually("the server is gone", || !served.is_alive());
        eventually("that is seen", || !direct.is_connected());
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
fn a_table_whose_handing_over_drips_in_is_given_up_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("peer.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        // The first is the client's own.
        let (_client, _) = listener.accept().unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 16]).unwrap();
        // One byte is always on its way before the time-out of a single wait.
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
    // Every byte would take two seconds.
    assert!(after < Duration::from_secs(2), "{after:?}");
}
