//! A killed server: the kernel drops its lease immediately, so a process can write to the file before the client's
//! thread learns that the server has ended, and before the lease's deadline has passed.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::process::Signal;
use zero_kv::Lookup;
use zero_kv::LookupError;

use super::{SHAPE, assert_all, direct_in};
use crate::helpers::repeating::while_threads_repeat;
use crate::helpers::scenes::{Scene, is_leased};

const KEY: u64 = 7;

#[test]
fn a_direct_client_detects_a_write_immediately_after_the_server_is_killed() {
    let (scene, served, direct) = direct_in(Scene::in_shared_memory(), &["--no-watch"]);
    assert!(is_leased(&scene.db()), "tmpfs grants leases, and the server takes one");
    // Verifies every block, so that later lookups rely on the recorded verification.
    assert_all(&direct, 1);
    let value = SHAPE.value(1, KEY).unwrap();
    let bytes = std::fs::read(scene.db()).unwrap();
    let value_at = bytes.windows(value.len()).position(|window| window == value).unwrap();
    // While this process also holds the sockets, the kernel does not close the client's connection.
    let sockets = served.duplicate_sockets();
    assert!(!sockets.is_empty());
    let look_up = || {
        let found = direct.get(KEY);
        assert!(found == Ok(SHAPE.value(1, KEY)) || found == Err(LookupError::Damaged), "{found:?}");
    };
    let start = |_| look_up;
    while_threads_repeat(1, start, || {
        served.signal(Signal::KILL);
        // Waits until the kernel has dropped the lease.
        let file = File::options().write(true).open(scene.db()).unwrap();
        file.write_all_at(&vec![b'#'; value.len()], value_at as u64).unwrap();
        assert_eq!(direct.get(KEY), Err(LookupError::Damaged));
    });
    drop(sockets);
}
