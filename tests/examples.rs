//! The programs in `examples/*.rs` run, and print what their first lines promise.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn example(name: &str) -> Command {
    let tests = std::env::current_exe().unwrap();
    let path: PathBuf = tests.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(
        path.exists(),
        "{} is missing: `cargo test --test examples` does not build the examples: run `cargo build --examples` first, or \
         all tests with `cargo test`",
        path.display()
    );
    Command::new(path)
}

/// Returns the output of an example.
#[track_caller]
fn output_of(name: &str, arguments: &[&dyn AsRef<OsStr>]) -> String {
    let output = example(name).args(arguments.iter().map(AsRef::as_ref)).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_example_prints_what_its_first_lines_promise() {
    let folder = tempfile::tempdir().unwrap();
    let (file, socket) = (folder.path().join("squares.db"), folder.path().join("s.sock"));
    let baked = output_of("bake", &[&file]);
    assert!(baked.ends_with(" bytes\n") && baked.contains(": 100000 rows, "), "{baked}");
    let first = "value of 12: 144\nat or below 1000000: 99999 with value 9999800001\n";
    assert_eq!(output_of("lookup", &[&file]), format!("{first}3 9\n4 16\n5 25\n"));

    let mut server = example("serve");
    let mut server = server.args([&file, &socket]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, format!("serving on {}\n", socket.display()));
    assert_eq!(output_of("client", &[&socket]), format!("{first}found 500 of 1000 keys\n"));
    let sum: u128 = (0..100_000).map(|number: u128| number * number).sum();
    let expected = format!("value of 12: 144\n100000 rows of generation 1 add up to {sum}\n");
    assert_eq!(output_of("direct", &[&socket]), expected);
    assert_eq!(output_of("async_client", &[&socket]), "8 tasks found 8000 keys\n");
    assert_eq!(output_of("pool", &[&socket]), "8 threads found 8000 keys\n");
    // The server stops at the end of its input.
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
}

#[test]
fn every_example_prints_its_usage() {
    for name in ["bake", "lookup", "serve", "client", "direct", "async_client", "pool"] {
        let output = example(name).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(&format!("usage: {name} ")), "{said}");
    }
}
