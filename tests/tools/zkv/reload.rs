//! `zkv reload`: the server reloads its file, and the outcome is printed.

use super::*;
use crate::helpers::scripted_server::{ERROR, found, response_header};
use crate::helpers::tables::{Table, bake};
use crate::helpers::waiting::PATIENCE;

fn reload(socket: &Path, args: &[&str]) -> Output {
    zkv().arg("reload").args(args).arg("--socket").arg(socket).output().unwrap()
}

#[test]
fn a_reload_ends_when_the_new_file_is_served_or_rejected() {
    let table = Table::of_rows(1000);
    let _server = table.serve_with(&["--no-watch"]);
    let reload = |args: &[&str]| reload(&table.socket(), &[args, &["--timeout", "60"]].concat());
    let get = || zkv().args(["get", "1", "--socket"]).arg(table.socket()).output().unwrap().stdout;
    let served = format!("{}: already served by generation 1\n", table.db().display());
    assert_answer(&reload(&[]), 0, served.as_bytes());
    bake(&[(1, b"new".to_vec())].into(), &table.db());
    assert_eq!(get(), table.model[&1], "the server does not watch for new files");
    assert_answer(&reload(&[]), 0, b"generation 2 is served\n");
    assert_eq!(get(), b"new");
    // Replaced by rename, so that the served file does not change.
    let bad = table.folder.path().join("bad");
    fs::write(&bad, "no baked file").unwrap();
    fs::rename(&bad, table.db()).unwrap();
    assert_damaged(&reload(&[]), "refused: ");
    assert_damaged(&reload(&[]), "generation 2 is still served");
    assert_eq!(get(), b"new");
}

#[test]
fn a_rollback_serves_the_previous_generation() {
    let table = Table::of_rows(1000);
    let _server = table.serve_with(&["--no-watch"]);
    let reload = |args: &[&str]| reload(&table.socket(), &[args, &["--timeout", "60"]].concat());
    assert_damaged(&reload(&["--rollback"]), "no earlier generation");
    bake(&[(1, b"new".to_vec())].into(), &table.db());
    assert_answer(&reload(&[]), 0, b"generation 2 is served\n");
    let rolled_back = reload(&["--rollback"]);
    let outcome = String::from_utf8(rolled_back.stdout).unwrap();
    assert_eq!(rolled_back.status.code(), Some(0));
    assert!(outcome.starts_with("generation 3 is served: the previous table; "), "{outcome}");
    assert!(outcome.contains("put another table there by rename, or remove "), "{outcome}");
    let get = || zkv().args(["get", "1", "--socket"]).arg(table.socket()).output().unwrap().stdout;
    assert_eq!(get(), table.model[&1]);
    assert_damaged(&reload(&["--rollback"]), "refused: generation 3 already serves the previous table");
    assert_eq!(get(), table.model[&1]);
    let health = zkv().args(["health", "--socket"]).arg(table.socket()).output().unwrap();
    let notes = String::from_utf8(health.stderr).unwrap();
    assert_eq!((health.status.code(), notes.lines().count()), (Some(0), 2), "{notes}");
    assert!(notes.contains("s.sock: serves the previous table, after a rollback\n"), "{notes}");
    assert!(notes.contains("was replaced by a rollback and stays refused"), "{notes}");
}

#[test]
fn a_rejected_request_or_a_missing_response_is_an_error() {
    let refused = ScriptedServer::answering(&[ERROR]);
    assert_error(&reload(&refused.socket(), &[]), &["peer.sock: ", "only root and the server's own user"]);
    assert_eq!(refused.request()[..4], [0, 0, 0, 7]);
    let refused = ScriptedServer::answering(&[ERROR]);
    assert_error(&reload(&refused.socket(), &["--rollback"]), &["only root and the server's own user"]);
    assert_eq!(refused.request()[..4], [0, 0, 0, 8]);
    // The request is attempt 5. First only attempt 4 is done, then attempt 6, which another client requested.
    let (fifth, fourth) = (found(&5_u64.to_be_bytes()), found(b"reload_done 4\nreload_last bad\n"));
    let sixth = found(b"reload_done 6\nreload_last generation 9 is served\n");
    let patience = PATIENCE.as_secs().to_string();
    let slow = ScriptedServer::answering(&[&fifth, &fourth, &fourth, &sixth]);
    assert_answer(&reload(&slow.socket(), &["--timeout", &patience]), 0, b"generation 9 is served\n");
    let stuck = ScriptedServer::answering(&[&fifth, &response_header(0, 100)]);
    assert_error(&reload(&stuck.socket(), &["--timeout", "0.2"]), &["peer.sock: not done within 0.2 s"]);
}
