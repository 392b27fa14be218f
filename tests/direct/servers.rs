//! Servers that end, hang, and come back.

use rustix::process::Signal;

use crate::common::eventually;
use crate::{SHAPE, assert_all, direct};

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
    crate::put(&scene, 2);
    served.wait_for("generation", 2);
    served.signal(Signal::STOP);
    assert!((0..SHAPE.rows).all(|key| {
        let value = direct.get(key).unwrap();
        [1, 2].iter().any(|generation| value == SHAPE.value(*generation, key))
    }));
    served.signal(Signal::CONT);
    eventually("the swap is seen", || direct.get(1).unwrap() == SHAPE.value(2, 1));
}
