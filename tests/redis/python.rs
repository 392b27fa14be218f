//! redis-py, over both kinds of socket, and against a real Redis to check that the script
//! expects what Redis replies.

use std::path::Path;
use std::process::Command;

use super::served::*;
use crate::helpers::redis_py::{NEWEST, PINNED, Release};
use crate::helpers::trials::Missing;

/// Runs the script with these arguments.
#[track_caller]
fn run(python: &Path, args: &[&str]) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis/client.py");
    let output = Command::new(python).arg("-B").arg(script).args(args).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&text));
}

fn script_passes_on_kv_store(release: &Release) -> Result<(), Missing> {
    let python = release.python()?;
    let (_table, served) = serve(&[]);
    let socket = served.socket().to_str().unwrap();
    run(&python, &["--unix", socket, "--ours"]);
    run(&python, &["--unix", socket, "--ours", "--protocol", "2"]);
    run(&python, &["--unix", socket, "--ours", "--protocol", "3"]);
    run(&python, &["--tcp", &served.tcp().to_string(), "--ours"]);
    Ok(())
}

fn script_passes_over_tls(release: &Release) -> Result<(), Missing> {
    let python = release.python()?;
    for requires_certificates in [false, true] {
        let served = serve_tls(requires_certificates);
        let address = served.server.tls().to_string();
        let [ca, certificate, key] = served.client_files();
        let mut args = vec!["--tcp", &address, "--ours", "--tls-ca", &ca];
        if requires_certificates {
            args.extend(["--tls-cert", &certificate, "--tls-key", &key]);
        }
        run(&python, &args);
        run(&python, &[&args[..], &["--url"]].concat());
    }
    Ok(())
}

fn script_passes_on_redis(release: &Release) -> Result<(), Missing> {
    let (python, redis) = (release.python()?, redis()?);
    let socket = redis.socket();
    run(&python, &["--unix", socket.to_str().unwrap()]);
    run(&python, &["--unix", socket.to_str().unwrap(), "--protocol", "2"]);
    run(&python, &["--unix", socket.to_str().unwrap(), "--protocol", "3"]);
    Ok(())
}

pub(crate) fn the_pinned_redis_py_script_passes_on_kv_store() -> Result<(), Missing> {
    script_passes_on_kv_store(&PINNED)
}

pub(crate) fn the_newest_redis_py_script_passes_on_kv_store() -> Result<(), Missing> {
    script_passes_on_kv_store(&NEWEST)
}

pub(crate) fn the_pinned_redis_py_script_passes_over_tls() -> Result<(), Missing> {
    script_passes_over_tls(&PINNED)
}

pub(crate) fn the_newest_redis_py_script_passes_over_tls() -> Result<(), Missing> {
    script_passes_over_tls(&NEWEST)
}

pub(crate) fn the_pinned_redis_py_script_passes_on_redis() -> Result<(), Missing> {
    script_passes_on_redis(&PINNED)
}

pub(crate) fn the_newest_redis_py_script_passes_on_redis() -> Result<(), Missing> {
    script_passes_on_redis(&NEWEST)
}
