//! The programs of `examples/native` and `examples/redis` build as their first lines say, and find the rows of a model. The
//! Java programs of the cookbook print what the page shows.

use testkit as helpers;

mod languages {
    pub(crate) mod answering;
    pub(crate) mod java_page;
    pub(crate) mod tools;
    pub(crate) mod vectors;
}

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, run};
use zero_kv::bake::Keys;

use helpers::random::random;
use helpers::scenes::Scene;
use helpers::servers::Server;
use helpers::trials::{Missing, trial, trials};
use languages::tools::{Program, SOURCES, is_native, looks_up_bytes, program};
use languages::{java_page, vectors};

const SEED: u64 = 7;

/// A key as a command-line argument, and its value.
type Row = (String, Vec<u8>);

/// Returns the expected output of a program for these keys. `rows` are in the order of their table.
fn expected(rows: &[Row], keys: &[String], is_below: impl Fn(&str, &str) -> bool) -> Vec<u8> {
    let values: BTreeMap<&str, &[u8]> = rows.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    let mut lines = Vec::new();
    for key in keys {
        let value = values.get(&key[..]).copied();
        let at = rows.partition_point(|(row, _)| row == key || is_below(row, key));
        let floor = at.checked_sub(1).map(|at| [rows[at].0.as_bytes(), b" ", &rows[at].1].concat());
        let lines_of_key = [
            ("get", value.unwrap_or(b"not found")),
            ("exists", value.map_or(&b"not found"[..], |_| b"yes")),
            ("floor", floor.as_deref().unwrap_or(b"not found")),
        ];
        for (name, said) in lines_of_key {
            lines.extend([name.as_bytes(), b" ", key.as_bytes(), b": ", said, b"\n"].concat());
        }
    }
    lines
}

/// Starts a server of these rows. Returns it after the folder of its files.
fn serve(rows: &[Row], keys: Keys) -> (Scene, Server) {
    let quoted = |(key, value): &Row| [key.as_bytes(), b",\"", value, b"\"\n"].concat();
    let scene = Scene::baked(keys, rows.iter().flat_map(quoted).collect::<Vec<u8>>());
    let server = scene.serve(&[]);
    (scene, server)
}

/// Runs a program, and compares its output and exit status with the expected ones.
#[track_caller]
fn assert_output(program: &Program, socket: &Path, keys: &[String], expected: &[u8], status: i32) {
    let output = program.command().arg(socket).args(keys).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{program:?}, seed {SEED}: {error}");
    let at = output.stdout.iter().zip(expected).position(|(found, expected)| found != expected);
    let at = at.unwrap_or(output.stdout.len().min(expected.len()));
    let around = |bytes: &[u8]| bytes[at.saturating_sub(40).min(bytes.len())..bytes.len().min(at + 40)].to_vec();
    let (found, wanted) = (around(&output.stdout), around(expected));
    assert!(
        output.stdout == expected,
        "{program:?}, seed {SEED}: {:?}, not {:?}",
        found.escape_ascii(),
        wanted.escape_ascii()
    );
}

fn numbers() -> Vec<Row> {
    let mut next = random(SEED);
    let mut keys: Vec<u64> = (0..500).map(|_| next() >> (next() % 60)).chain([7, 10, u64::MAX]).collect();
    keys.sort_unstable();
    keys.dedup();
    // Some values are empty.
    keys.iter().map(|key| (key.to_string(), vec![b'v'; (key % 300) as usize])).collect()
}

fn strings() -> Vec<Row> {
    let mut next = random(SEED);
    let word = |number: u64| "abcdefgh"[..(number % 8 + 1) as usize].repeat((number % 5 + 1) as usize);
    let mut rows: Vec<String> = (0..500).map(|_| format!("{}{}", word(next()), next() % 100)).collect();
    rows.extend(["7".to_owned(), "été".to_owned(), "k".repeat(65_535)]);
    rows.sort_unstable();
    rows.dedup();
    // Some values are empty, the others contain line ends.
    let value =
        |i: usize, key: &str| if i.is_multiple_of(9) { Vec::new() } else { format!("{}\nbytes", key.len()).into() };
    rows.iter().enumerate().map(|(i, key)| (key.clone(), value(i, key))).collect()
}

fn looks_up_numbers(source: &'static str) -> Result<(), Missing> {
    let program = program(source)?;
    let rows = numbers();
    let (_scene, server) = serve(&rows, Keys::U64);
    let socket = server.socket();
    let is_below = |row: &str, key: &str| row.parse::<u64>().unwrap() < key.parse().unwrap();
    let there = ["7".to_owned(), rows[3].0.clone()];
    let missing = ["0".to_owned(), "8".to_owned(), (u64::MAX - 1).to_string(), u64::MAX.to_string()];
    assert_output(&program, socket, &there, &expected(&rows, &there, is_below), 0);
    assert_output(&program, socket, &missing, &expected(&rows, &missing, is_below), 1);
    for refused in [&["x"][..], &["-1"], &["18446744073709551616"], &[]] {
        let output = program.command().arg(socket).args(refused).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{program:?} {refused:?}");
        assert!(!output.stderr.is_empty(), "{program:?} {refused:?} prints no error message");
    }
    Ok(())
}

fn looks_up_byte_keys(source: &'static str) -> Result<(), Missing> {
    let program = program(source)?;
    let rows = strings();
    let (_scene, server) = serve(&rows, Keys::BYTES);
    let socket = server.socket();
    let keys = [rows[4].0.clone(), "été".into(), "7".into(), "zz".into(), "-".into(), "k".repeat(65_535)];
    assert_output(&program, socket, &keys, &expected(&rows, &keys, |row, key| row < key), 1);
    Ok(())
}

/// Sends more requests than a socket holds, with longer responses. A program that sends all requests before it reads
/// would wait forever.
fn a_long_pipeline_does_not_deadlock(source: &'static str) -> Result<(), Missing> {
    let program = program(source)?;
    let rows: Vec<Row> = (0..20_000).map(|key| (key.to_string(), vec![b'v'; 100])).collect();
    let (_scene, server) = serve(&rows, Keys::U64);
    let socket = server.socket();
    let keys: Vec<String> = rows.iter().map(|(key, _)| key.clone()).collect();
    let is_below = |row: &str, key: &str| row.parse::<u64>().unwrap() < key.parse().unwrap();
    assert_output(&program, socket, &keys, &expected(&rows, &keys, is_below), 0);
    Ok(())
}

fn reports_a_missing_server(source: &'static str) -> Result<(), Missing> {
    let program = program(source)?;
    let folder = tempfile::tempdir().unwrap();
    let output = program.command().arg(folder.path().join("s.sock")).arg("7").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{program:?}");
    assert!(!output.stderr.is_empty(), "{program:?} prints no error message");
    Ok(())
}

fn no_program_is_longer_than_79_lines() {
    for program in SOURCES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(program);
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines < 80, "{program} has {lines} lines");
    }
}

fn main() -> ExitCode {
    type Test = fn(&'static str) -> Result<(), Missing>;
    let of_all: [(&str, Test); 4] = [
        ("looks_up_numbers", looks_up_numbers),
        ("looks_up_byte_keys", looks_up_byte_keys),
        ("a_long_pipeline_does_not_deadlock", a_long_pipeline_does_not_deadlock),
        ("reports_a_missing_server", reports_a_missing_server),
    ];
    let of_native: [(&str, Test); 2] = [
        ("sends_and_reads_the_bytes_of_the_vectors", vectors::sends_and_reads_the_bytes_of_the_vectors),
        ("rejects_malformed_response_headers", vectors::rejects_malformed_response_headers),
    ];
    let mut trials = trials![
        java_page::the_programs_of_the_page_print_what_it_shows,
        vectors::the_python_check_of_the_vectors_passes,
    ];
    trials.push(trial("no_program_is_longer_than_79_lines", no_program_is_longer_than_79_lines));
    for source in SOURCES {
        for (name, test) in of_all.into_iter().chain(of_native.into_iter().filter(|_| is_native(source))) {
            if name != "looks_up_byte_keys" || looks_up_bytes(source) {
                trials.push(trial(format!("{source}::{name}"), move || test(source)));
            }
        }
    }
    run(&Arguments::from_args(), trials).exit_code()
}

/// Returns whether a command runs and succeeds.
fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
