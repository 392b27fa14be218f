//! `redis-benchmark`, which stops at the first error reply.

use std::process::{Command, Stdio};

use super::served::*;
use crate::helpers::redis_replies::Reply;
use crate::helpers::redis_server::line_of;
use crate::helpers::servers::Server;
use crate::helpers::trials::{Missing, require};

#[track_caller]
fn benchmark(served: &Server, args: &[&str]) -> String {
    let mut command = Command::new("redis-benchmark");
    command.arg("-s").arg(served.socket()).args(args).stdin(Stdio::null());
    let output = command.output().unwrap();
    let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && !error.contains("rror"), "{args:?}: {out}{error}");
    out
}

fn info(served: &Server, name: &str) -> u64 {
    let replies = Reply::all(&ask(served.socket(), &["INFO stats"]));
    line_of(&replies[0].text(), name).unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

pub(crate) fn redis_benchmark_runs_with_and_without_pipelines() -> Result<(), Missing> {
    require("redis-benchmark", "--version")?;
    let (_table, served) = serve(&[]);
    let rows = PLAIN_ROWS.to_string();
    let mut asked = 0;
    for options in [&["-P", "1"][..], &["-P", "16"], &["-P", "256"], &["-P", "16", "-3"], &["--threads", "2"]] {
        let base = ["-n", "20000", "-c", "20", "-r", &rows, "--csv"];
        let out = benchmark(&served, &[&base[..], options, &["get", "__rand_int__"]].concat());
        let numbers = out.lines().last().unwrap().split(',').filter(|field| {
            let number = field.trim_matches('"').parse::<f64>();
            number.is_ok_and(|number| number > 0.0)
        });
        assert!(numbers.count() >= 4, "{out}");
        // Every key exists, so each request is answered with a value.
        asked += 20_000;
        assert!(info(&served, "keyspace_hits") >= asked, "{options:?}");
    }
    assert_eq!(info(&served, "keyspace_misses"), 0);
    benchmark(&served, &["-n", "1000", "-t", "ping_inline,ping_mbulk", "-q"]);
    Ok(())
}
