//! Several keys, as arguments and from standard input.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};

use rustix::process::Signal;

use super::both::Both;
use super::*;
use crate::helpers::random::random;
use crate::helpers::scenes::Scene;

#[test]
fn keys_from_standard_input_end_with_a_line_end_or_with_nul() {
    let table = Both::new(Keys::BYTES, b"ant,1\nbee,22\n\"two\nlines\",3\n");
    let assert = |args: &[&str], input: &[u8], status: i32, stdout: &str| {
        let (code, found, stderr) = table.ask_with(args, input);
        assert_eq!((code, str::from_utf8(&found).unwrap(), &*stderr), (Some(status), stdout, ""), "{args:?}");
    };
    assert(&["get", "-"], b"bee\nant\n", 0, "bee,22\nant,1\n");
    assert(&["get", "-"], b"bee", 0, "bee,22\n");
    assert(&["get", "-"], b"bee\ncat\nant", 1, "bee,22\nant,1\n");
    assert(&["get", "-"], b"", 0, "");
    assert(&["get", "-", "-z", "-f", "raw", "--only", "values"], b"two\nlines\0ant\0", 0, "3\x001\0");
    assert(&["get", "-", "--escapes", "-f", "escaped"], b"two\\nlines\n\\x61nt\n", 0, "two\\nlines\t3\nant\t1\n");
    assert(&["exists", "-"], b"bee\nant\n", 0, "");
    assert(&["exists", "-"], b"bee\ncat\n", 1, "");
    assert(&["exists", "-", "--print", "absent"], b"bee\ncat\ndog\n", 1, "cat\ndog\n");
    assert(&["exists", "--print", "present", "cat", "bee"], b"", 1, "bee\n");
    assert(&["exists", "--print", "present", "-z", "-"], b"two\nlines\0bee\0", 0, "two\nlines\0bee\0");
    // After `--`, a single dash is a key.
    assert(&["get", "-e", "\\x2d"], b"", 1, "");
}

#[test]
fn with_several_keys_each_neighbor_is_preceded_by_its_requested_key() {
    let table = Both::new(Keys::U64, b"10,ten\n20,twenty\n");
    table.assert(&["floor", "11", "25", "10"], 0, "11,10,ten\n25,20,twenty\n10,10,ten\n");
    table.assert(&["floor", "11", "9"], 1, "11,10,ten\n");
    table.assert(&["ceiling", "11", "21"], 1, "11,20,twenty\n");
    let (status, stdout, _) = table.ask_with(&["ceiling", "-", "-f", "json"], b"11\n9\n");
    assert_eq!(status, Some(0));
    let expected = "{\"asked\":11,\"key\":20,\"value\":\"twenty\"}\n{\"asked\":9,\"key\":10,\"value\":\"ten\"}\n";
    assert_eq!(str::from_utf8(&stdout).unwrap(), expected);
}

#[test]
fn an_invalid_key_is_an_error_that_names_its_line() {
    let table = Both::new(Keys::U64, b"10,ten\n");
    for (args, input, expected) in [
        (&["get", "-"][..], &b"10\n\n"[..], "zkv: standard input, line 2: the key is \"\", but"),
        (&["floor", "-"], b"10\n10\n10 \n", "zkv: standard input, line 3: the key is \"10 \", but"),
        (&["exists", "-", "-z"], b"10\0ten\0", "zkv: standard input, key 2: the key is \"ten\", but"),
        (&["get", "-", "-e"], b"1\\q", "zkv: standard input, line 1: \"1\\\\q\" has a backslash"),
    ] {
        let (status, stdout, stderr) = table.ask_with(args, input);
        assert_eq!((status, &stdout[..]), (Some(2), &b""[..]));
        assert!(stderr.starts_with(expected), "{stderr}");
    }
}

#[test]
fn rows_of_many_keys_are_in_the_order_of_the_keys() {
    let rows: u64 = 30_000;
    let line = |key: u64| format!("{key},value {key}\n");
    let csv: String = (1..=rows).map(line).collect();
    let table = Both::new(Keys::U64, csv.as_bytes());
    let seed = 0x2eaf;
    println!("seed {seed:#x}");
    let mut random = random(seed);
    let keys: Vec<u64> = (0..100_000).map(|_| random() % (rows + 100)).collect();
    let mut input = String::new();
    keys.iter().for_each(|key| writeln!(input, "{key}").unwrap());
    let is_there = |key: &&u64| (1..=rows).contains(*key);
    let expected: String = keys.iter().filter(is_there).map(|key| line(*key)).collect();
    let (status, stdout, stderr) = table.ask_with(&["get", "-"], input.as_bytes());
    assert_eq!((status, &*stderr), (Some(1), ""));
    assert!(stdout == expected.as_bytes());
    let expected: String = keys.iter().filter(|key| !is_there(key)).map(|key| format!("{key}\n")).collect();
    let (status, stdout, _) = table.ask_with(&["exists", "-", "--print", "absent"], input.as_bytes());
    assert_eq!(status, Some(1));
    assert!(stdout == expected.as_bytes());
}

#[test]
fn keys_are_not_looked_up_in_a_table_of_another_type() {
    for options in [&["--socket"][..], &["--direct", "--socket"]] {
        let scene = Scene::new();
        bake_text(&scene.db(), Keys::U64, "7,seven\n");
        let server = scene.serve(&["--allow-key-type-change"]);
        let mut command = zkv();
        command.args(["get", "-"]).args(options).arg(server.socket());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut answers = BufReader::new(output).lines();
        writeln!(input, "7").unwrap();
        assert_eq!(answers.next().unwrap().unwrap(), "7,seven");
        // The stored number of this address is 7.
        let new = scene.path("new.db");
        bake_text(&new, Keys::Type("ipv4".parse().unwrap()), "0.0.0.7,an address\n");
        fs::rename(new, scene.db()).unwrap();
        server.signal(Signal::HUP);
        server.wait_for("generation", 2);
        // In direct mode, the program may find out about the new table after some lookups.
        while writeln!(input, "7").is_ok()
            && let Some(answer) = answers.next()
        {
            assert_eq!(answer.unwrap(), "7,seven", "{options:?}");
        }
        drop(input);
        let output = child.wait_with_output().unwrap();
        assert_ne!(output.status.code(), Some(0), "{output:?}");
        assert!(!output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn a_program_that_writes_a_key_and_waits_gets_its_row() {
    let table = Both::new(Keys::U64, b"10,ten\n20,twenty\n");
    for target in [["--db", "storage.db"], ["--socket", "s.sock"]] {
        let mut command = zkv();
        command.args(["get", "-", target[0]]).arg(table.scene.path(target[1]));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut answers = BufReader::new(output).lines();
        for (key, answer) in [("20", "20,twenty"), ("10", "10,ten"), ("20", "20,twenty")] {
            writeln!(input, "{key}").unwrap();
            assert_eq!(answers.next().unwrap().unwrap(), answer);
        }
        drop(input);
        assert!(answers.next().is_none());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}
