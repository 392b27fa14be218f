//! `zkv info`: what a server reports about itself.

use serde_json::{Value, json};
use zero_kv::Store;

use super::*;
use crate::helpers::scripted_server::{ERROR, found};
use crate::helpers::tables::Table;

#[test]
fn info_has_the_served_file_and_the_counters() {
    let table = Table::of_rows(1000);
    let server = table.serve();
    let info = |args: &[&str]| {
        let output = zkv().arg("info").args(args).arg("--socket").arg(table.socket()).output().unwrap();
        assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(zkv().args(["get", "7", "--socket"]).arg(table.socket()).status().unwrap().code(), Some(0));
    let lines = info(&[]);
    let value = |name| {
        let value = lines.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        value.unwrap_or_else(|| panic!("{name} in {lines}"))
    };
    let digest = format!("{:032x}", Store::open(table.db()).unwrap().digest());
    assert_eq!((value("digest"), value("rows"), value("generation")), (&*digest, "1000", "1"));
    assert_eq!((value("requests_get"), value("hits"), value("state")), ("1", "1", "serving"));
    assert_eq!(value("pid"), server.id().to_string());

    let object = info(&["--json"]);
    assert_eq!(object.lines().count(), 1);
    let object: Value = serde_json::from_str(&object).unwrap();
    assert_eq!((&object["digest"], &object["rows"], &object["hits"]), (&json!(digest), &json!(1000), &json!(1)));
    // Every field has one line.
    assert_eq!(object.as_object().unwrap().len(), lines.lines().count());
}

#[test]
fn json_keeps_text_fields_as_text_and_includes_unknown_fields() {
    let lines = b"version 7\nfile 007\ndigest 00000000000000000000000000000001\nstate\nrows 12\nratio 1.5\nnew a b\nnot 1.2.3\n";
    let output = ask_peer(&ScriptedServer::answering(&[&found(lines)]), &["info", "--json"]);
    let json = r#"{"version":"7","file":"007","digest":"00000000000000000000000000000001","state":"","rows":12,"ratio":1.5,"new":"a b","not":"1.2.3"}"#;
    assert_answer(&output, 0, format!("{json}\n").as_bytes());
    assert_answer(&ask_peer(&ScriptedServer::answering(&[&found(lines)]), &["info"]), 0, lines);
}

#[test]
fn a_server_that_does_not_support_info_is_an_error() {
    assert_error(&ask_peer(&ScriptedServer::answering(&[ERROR]), &["info"]), &["peer.sock: ", "older version"]);
    let (_folder, db) = baked();
    for command in ["info", "health", "top", "reload"] {
        assert_usage_error(&ask_file(&db, &[command]), "--db cannot be used with");
        let help = zkv().args([command, "--help"]).output().unwrap().stdout;
        let help = String::from_utf8(help).unwrap();
        assert!(help.contains("--socket") && !help.contains("--db"), "{help}");
    }
}
