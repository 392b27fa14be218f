//! redis-py, over both kinds of socket, and against a real Redis to see that what it is
//! made to expect is right.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::clients::skip;
use crate::served::*;

/// A Python that has redis-py: the one that `.ci/run` makes, or the system's.
fn python() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let made = target.join("redis-py/bin/python");
    let mut candidates = [made, PathBuf::from("python3"), PathBuf::from("/usr/bin/python3")].into_iter();
    let has_redis_py = |python: &PathBuf| {
        let output = Command::new(python).args(["-c", "import redis"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let found = candidates.find(has_redis_py);
    if found.is_none() {
        skip("no Python has redis-py");
    }
    found
}

/// Runs the script with these arguments.
#[track_caller]
fn run(python: &Path, args: &[&str]) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis/client.py");
    let output = Command::new(python).arg("-B").arg(script).args(args).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&text));
}

#[test]
fn redis_py_gets_what_it_expects() {
    let Some(python) = python() else { return };
    let served = Served::start();
    let socket = served.socket();
    let socket = socket.to_str().unwrap();
    run(&python, &["--unix", socket, "--ours"]);
    run(&python, &["--unix", socket, "--ours", "--protocol", "3"]);
    run(&python, &["--tcp", &served.tcp().to_string(), "--ours"]);
}

#[test]
fn what_redis_py_is_made_to_expect_is_what_redis_gives() {
    let (Some(python), Some(redis)) = (python(), redis()) else { return };
    let socket = redis.socket();
    run(&python, &["--unix", socket.to_str().unwrap()]);
    run(&python, &["--unix", socket.to_str().unwrap(), "--protocol", "3"]);
}
