//! Lookups that give equal results on a server and in a file.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::*;
use crate::helpers::random::random;
use crate::helpers::scenes::Scene;
use crate::helpers::servers::Server;

/// Exit status, standard output and standard error.
type Outcome = (Option<i32>, Vec<u8>, String);

/// A table, read as a file, over a socket, and in direct mode.
pub(super) struct Both {
    pub(super) scene: Scene,
    _server: Server,
}

impl Both {
    pub(super) fn new(keys: Keys, csv: &[u8]) -> Both {
        let scene = Scene::baked(keys, csv);
        Both { _server: scene.serve(&[]), scene }
    }

    /// Returns the common outcome. Only standard error may differ.
    #[track_caller]
    fn ask<S: AsRef<OsStr>>(&self, command_line: &[S]) -> Outcome {
        self.ask_with(command_line, b"")
    }

    /// Returns the common outcome with this standard input.
    #[track_caller]
    pub(super) fn ask_with<S: AsRef<OsStr>>(&self, command_line: &[S], input: &[u8]) -> Outcome {
        let ways: [(&[&str], &str); 3] =
            [(&["--db"], "storage.db"), (&["--socket"], "s.sock"), (&["--direct", "--socket"], "s.sock")];
        let [file, server, direct] = ways.map(|(options, name)| {
            let mut command = zkv();
            command.args(options).arg(self.scene.path(name)).args(command_line);
            let output = output_with(command, input);
            (output.status.code(), output.stdout, String::from_utf8(output.stderr).unwrap())
        });
        for other in [&file, &direct] {
            assert_eq!((&other.0, &other.1), (&server.0, &server.1), "{} {}", other.2, server.2);
        }
        server
    }

    #[track_caller]
    pub(super) fn assert<S: AsRef<OsStr>>(&self, command_line: &[S], status: i32, stdout: &str) {
        let (code, found, stderr) = self.ask(command_line);
        assert_eq!((code, str::from_utf8(&found).unwrap(), &*stderr), (Some(status), stdout, ""));
    }
}

#[test]
fn numbers_have_equal_results_on_a_server_and_in_a_file() {
    let table = Both::new(Keys::U64, b"10,ten\n20,\"twenty, quoted\"\n30,\n");
    table.assert(&["floor", "19"], 0, "10,ten\n");
    table.assert(&["floor", "9"], 1, "");
    table.assert(&["ceiling", "11"], 0, "20,\"twenty, quoted\"\n");
    table.assert(&["ceiling", "31"], 1, "");
    table.assert(&["first"], 0, "10,ten\n");
    table.assert(&["last"], 0, "30,\n");
    table.assert(&["range"], 0, "10,ten\n20,\"twenty, quoted\"\n30,\n");
    table.assert(&["range", "--reverse"], 0, "30,\n20,\"twenty, quoted\"\n10,ten\n");
    table.assert(&["range", "--limit", "1"], 0, "10,ten\n");
    table.assert(&["range", "--limit", "1", "--reverse"], 0, "30,\n");
    table.assert(&["range", "--limit", "0"], 1, "");
    table.assert(&["range", "--from", "10", "--before", "20"], 0, "10,ten\n");
    table.assert(&["range", "--after", "10", "--to", "30", "--limit", "5"], 0, "20,\"twenty, quoted\"\n30,\n");
    table.assert(&["range", "--after", "30"], 1, "");
    table.assert(&["range", "--from", "30", "--to", "10"], 1, "");
    table.assert(&["count"], 0, "3\n");
    table.assert(&["count", "--after", "10"], 0, "2\n");
    table.assert(&["count", "--before", "10"], 1, "0\n");
    for command_line in [["range", "--prefix", "1"], ["count", "--prefix", "1"]] {
        let (status, stdout, stderr) = table.ask(&command_line);
        assert_eq!((status, &stdout[..]), (Some(2), &b""[..]));
        assert!(stderr.contains("keys may be of the other kind"), "{stderr}");
    }
}

#[test]
fn keys_that_are_bytes_have_equal_results_on_a_server_and_in_a_file() {
    let table = Both::new(Keys::BYTES, b"ant,1\nbee,22\nbumblebee,\n-5,minus five\n7,seven\n");
    table.assert(&["get", "7"], 0, "seven");
    table.assert(&["get", "-5"], 0, "minus five");
    table.assert(&["exists", "--", "--bee"], 1, "");
    table.assert(&["floor", "bean"], 0, "ant,1\n");
    table.assert(&["ceiling", "bean"], 0, "bee,22\n");
    table.assert(&["range", "--prefix", "b"], 0, "bee,22\nbumblebee,\n");
    table.assert(&["range", "--prefix", "b", "--reverse", "--limit", "1"], 0, "bumblebee,\n");
    table.assert(&["range", "--prefix", "c"], 1, "");
    table.assert(&["count", "--prefix", ""], 0, "5\n");
    table.assert(&["range", "--from", "7", "--before", "bee"], 0, "7,seven\nant,1\n");
    table.assert(&["count", "--from", "bee", "--to", "bumblebee"], 0, "2\n");
    let not_utf8 = OsStr::from_bytes(b"b\xff");
    table.assert(&[OsStr::new("floor"), not_utf8], 0, "bumblebee,\n");
    table.assert(&[OsStr::new("count"), OsStr::new("--before"), not_utf8], 0, "5\n");
}

#[test]
fn an_impossible_key_is_an_error_on_a_server_and_in_a_file() {
    let table = Both::new(Keys::BYTES, b"ant,1\n");
    let long = "k".repeat(65_536);
    for key in ["", &long] {
        let expected = format!("zkv: a key of {} bytes, where 1 to 65535 are allowed\n", key.len());
        for subcommand in ["get", "exists", "floor", "ceiling"] {
            assert_eq!(table.ask(&[subcommand, key]), (Some(2), Vec::new(), expected.clone()));
        }
    }
    for bound in ["--from", "--after", "--to", "--before", "--prefix"] {
        for subcommand in ["range", "count"] {
            assert_eq!(table.ask(&[subcommand, bound, &long]).0, Some(2));
            assert_ne!(table.ask(&[subcommand, bound, ""]).0, Some(2));
        }
    }
}

#[test]
fn baker_reads_written_rows_back() {
    let folder = tempfile::tempdir().unwrap();
    let (db, again) = (folder.path().join("table.db"), folder.path().join("again.db"));
    let seed = 0xc57;
    println!("seed {seed}");
    let mut random = random(seed);
    let mut field = |least: u64| -> Vec<u8> {
        let len = least + random() % 6;
        (0..len).map(|_| b"a,\"\n\r \0\xff;\xef\xbb\xbf7"[(random() % 13) as usize]).collect()
    };
    // In some tables, the smallest key begins with a byte order mark.
    for marked in [false, true] {
        let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = (0..500).map(|_| (field(1), field(0))).collect();
        if marked {
            rows.retain(|key, _| key[0] > 0xef);
            rows.insert(b"\xef\xbb\xbfmark".to_vec(), b"v".to_vec());
        }
        bake_to(&db, &Vec::from_iter(rows));
        let output = ask_file(&db, &["range"]);
        assert_eq!(output.status.code(), Some(0));
        bake_text(&again, Keys::BYTES, &output.stdout);
        assert!(fs::read(&db).unwrap() == fs::read(&again).unwrap());
    }
}

#[test]
fn rows_of_several_keys_are_written_in_the_order_of_the_keys() {
    let table = Both::new(Keys::U64, b"10,ten\n20,\"twenty, quoted\"\n30,\n");
    table.assert(&["get", "30", "10", "10"], 0, "30,\n10,ten\n10,ten\n");
    table.assert(&["get", "20", "7", "10"], 1, "20,\"twenty, quoted\"\n10,ten\n");
    table.assert(&["get", "7", "8"], 1, "");
    let (status, stdout, stderr) = table.ask(&["get", "10", "ten"]);
    assert_eq!((status, &stdout[..]), (Some(2), &b""[..]), "all keys are parsed before the first lookup");
    assert!(stderr.contains("the key is \"ten\""), "{stderr}");
    let table = Both::new(Keys::BYTES, b"ant,1\nbee,22\n");
    table.assert(&["get", "bee", "ant"], 0, "bee,22\nant,1\n");
}
