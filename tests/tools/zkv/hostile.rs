//! Names, values, and servers that try to send commands to the terminal of whoever runs `zkv`.

use super::*;
#[cfg(feature = "full")]
use crate::helpers::scripted_server::Script;
use crate::helpers::scripted_server::found;
use crate::helpers::terminal::Terminal;

/// Clears the screen, sets the title, moves the cursor, reverses text, hides text, and begins a line that looks like a
/// message of `zkv`.
const HOSTILE: &str = "n\x1b[2J\x1b]0;t\x07\u{9b}1;1H\u{202e}r\u{200b}\r\tz";

/// Checks that output has only printable text and line ends, and at most this many lines.
#[track_caller]
fn assert_printable(output: &Output, lines_max: usize) {
    for bytes in [&output.stdout, &output.stderr] {
        let text = str::from_utf8(bytes).unwrap();
        let is_bad = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{202e}' | '\u{200b}');
        assert!(!text.contains(is_bad), "{text:?}");
        assert!(text.lines().count() <= lines_max, "{text}");
    }
}

#[test]
fn reports_about_a_hostile_server_are_printable() {
    let most = u64::MAX;
    let mut info = format!("state {HOSTILE}\npid 1\nuptime_s {most}\nrequests_get {most}\nrequests_{HOSTILE} {most}\n");
    for name in ["file", "generation", "digest", "rows", "version", "published_error", "file_refused", "log_1", HOSTILE]
    {
        info += &format!("{name} {HOSTILE}{}\n", "x".repeat(3000));
    }
    info += &format!("writers_detected no: {HOSTILE}\nthread_problems {HOSTILE}\nblocks_damaged {most}\nblocks NaN\n");
    info += &format!("hits {most}\nmisses {most}\nerrors -1\nservice_ns_buckets {most}:{most} 1:{most} x:1 :\n");
    info += &format!(
        "batch_requests_buckets {most}:{most} 2:{most}\nreload_done {most}\nreload_last {HOSTILE}\nlog_dropped_lines {most}\n"
    );
    info += "resident_len_bytes NaN\nfile_len_bytes inf\nblocks_verified 18446744073709551616\n\n \n\0\n";
    let lines = info.lines().count();
    let info = found(info.as_bytes());
    let zeros = found(
        b"pid 1\nuptime_s 0\nrequests_get 0\nhits 0\nmisses 0\nservice_ns_buckets 1:0\nbatch_requests_buckets 2:0\n",
    );
    let ask = |answers: &[&[u8]], words: &[&str]| ask_peer(&ScriptedServer::answering(answers), words);
    let printed = ask(&[&info], &["info"]);
    assert_printable(&printed, lines);
    assert!(printed.status.success());
    let health = ask(&[&info], &["health", "--verbose", "--timeout", "20"]);
    assert_printable(&health, 20);
    assert_eq!(health.status.code(), Some(1));
    let reload = ask(&[&found(&7_u64.to_be_bytes()), &info], &["reload"]);
    assert_printable(&reload, 1);
    let top = ask(&[&zeros, &info], &["top", "--once", "--interval", "0.05"]);
    assert_printable(&top, 1);
    assert!(top.status.success(), "{top:?}");
    // Nothing at all, and bytes that are not text.
    for info in [&b""[..], b"\xff\xfe\x9b2J \x1b\n", &[b'\n'; 60_000]] {
        let info = found(info);
        for words in [&["info"][..], &["health"], &["top", "--once", "--interval", "0.05"]] {
            assert_printable(&ask(&[&info, &info], words), 60_000);
        }
    }
}

#[cfg(feature = "full")]
#[test]
fn the_screen_of_top_shows_hostile_facts_as_text() {
    let info = format!(
        "state {HOSTILE}\npid 1\nuptime_s 1\nfile {HOSTILE}\ngeneration 7\nreload_last {HOSTILE}\nrequests_{HOSTILE} 5\n"
    );
    let info = found(info.as_bytes());
    let server = ScriptedServer::with_scripts(vec![Script::answering(&vec![&info[..]; 1000])]);
    let mut terminal = Terminal::new();
    let mut child = terminal.start(zkv().args(["top", "--interval", "0.05", "--socket"]).arg(server.socket()));
    terminal.wait_for("generation");
    terminal.user_end.write_all(b"q").unwrap();
    let shown = terminal.wait_for_end(&mut child);
    let text = String::from_utf8_lossy(&shown);
    for sequence in ["\x1b]0;t", "\u{9b}", "\u{202e}", "\u{200b}", "\t"] {
        assert!(!text.contains(sequence), "{text:?}");
    }
}

#[test]
fn file_names_in_messages_are_printable() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("{HOSTILE}\nzkv: all is well");
    let db = folder.path().join(&name);
    bake_to(&db, &[(7, b"seven".to_vec())]);
    for words in [["inspect"], ["verify"], ["dump"]] {
        let output = zkv().args(words).arg(&db).output().unwrap();
        assert!(output.status.success());
        assert_printable(&output, 60);
    }
    let other = db.with_extension("none");
    for words in [["inspect"], ["verify"], ["dump"]] {
        assert_printable(&zkv().args(words).arg(&other).output().unwrap(), 1);
    }
    assert_printable(&ask_file(&other, &["get", "7"]), 1);
    assert_printable(&zkv().args(["get", "7", "--socket"]).arg(&other).output().unwrap(), 1);
    fs::write(&other, "damaged").unwrap();
    assert_printable(&zkv().arg("verify").arg(&other).output().unwrap(), 1);
}

/// Values are data for programs, and text for people.
#[test]
fn rows_are_unchanged_in_pipes_and_printable_on_terminals() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    let value = format!("a{HOSTILE}b\nc").into_bytes();
    bake_to(&db, &[(7, value.clone())]);
    let shown = r"an\u001b[2J\u001b]0;t\u0007\u009b1;1H\u202er\u200b\r";
    assert_eq!(ask_file(&db, &["get", "7"]).stdout, value);
    for words in [&["get", "7", "--db"][..], &["first", "--db"], &["dump"]] {
        let mut command = zkv();
        command.args(words).arg(&db);
        let piped = command.output().unwrap().stdout;
        assert!(piped.windows(4).any(|bytes| bytes == b"\x1b[2J"), "{words:?}: {}", piped.escape_ascii());
        let mut terminal = Terminal::new();
        let mut child = terminal.start(&command);
        terminal.wait_for(shown);
        assert!(child.wait().unwrap().success());
    }
}
