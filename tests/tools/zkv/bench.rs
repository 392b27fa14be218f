//! `zkv bench` and `zkv ping`.

use std::ffi::OsStr;

use super::both::Both;
use super::*;
use crate::helpers::scripted_server::ERROR;

#[test]
fn servers_and_files_are_measured_with_their_own_keys() {
    for (keys, csv) in [(Keys::U64, "10,ten\n20,twenty\n"), (Keys::BYTES, "ant,1\nbee,22\ncow,\n")] {
        let rows = csv.lines().count() as u64;
        let table = Both::new(keys, csv.as_bytes());
        let args = ["bench", "--seconds", "0.05", "--batch", "7", "--threads", "2"];
        let (file, socket) = (table.scene.db(), table.scene.socket());
        let target: [&[&OsStr]; 3] = [
            &["--db".as_ref(), file.as_os_str()],
            &["--socket".as_ref(), socket.as_os_str()],
            &["--direct".as_ref(), "--socket".as_ref(), socket.as_os_str()],
        ];
        for target in target {
            let output = zkv().args(args).args(target).arg("--json").output().unwrap();
            assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let number = |name: &str| report[name].as_f64().unwrap();
            assert_eq!((report["rows"].as_u64(), report["keys"].as_u64()), (Some(rows), Some(rows)));
            assert_eq!((report["threads"].as_u64(), report["batch"].as_u64()), (Some(2), Some(7)));
            assert_eq!(report["not_found"].as_u64(), Some(0));
            assert!(number("lookups") >= 14.0 && number("value_len_bytes") >= 14.0, "{report}");
            // Every thread runs until the end.
            let (per_s, ns) = (number("lookups_per_s"), number("ns_per_lookup"));
            assert!(0.0 < per_s && per_s * 0.05 <= number("lookups") && ns > 0.0, "{report}");
            assert!(
                number("batch_us_p50") <= number("batch_us_p99") && number("batch_us_p99") <= number("batch_us_max")
            );
            let output = zkv().args(args).args(target).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let first = format!("all of {rows} keys in random order, batches of 7, 2 threads\n");
            assert!(text.starts_with(&first) && text.contains(" lookups/s, ") && text.contains("p99.9"), "{text}");
        }
    }
}

#[test]
fn measuring_an_empty_table_is_an_error() {
    let table = Both::new(Keys::U64, b"");
    let (status, stdout, stderr) = table.ask_with(&["bench"], b"");
    assert_eq!((status, &*stdout), (Some(2), &b""[..]));
    assert_eq!(stderr, "zkv: the table is empty, so there is no key to look up: bake a table with rows\n");
}

#[test]
fn ping_succeeds_if_the_server_responds_and_fails_otherwise() {
    let table = Both::new(Keys::BYTES, b"ant,1\n");
    let ping = |socket: &Path| zkv().args(["ping", "--socket"]).arg(socket).output().unwrap();
    let output = ping(&table.scene.socket());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
    assert!(text.starts_with("response in ") && text.ends_with(" µs\n"), "{text}");
    assert_error(&ping(&table.scene.path("none.sock")), &["none.sock: cannot connect"]);
    assert_error(&ping(&ScriptedServer::answering(&[ERROR]).socket()), &["peer.sock: "]);
}
