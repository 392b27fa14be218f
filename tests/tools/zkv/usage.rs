//! The command line, closed pipes, and full disks.

use std::ffi::OsStr;
use std::io::Read;
use std::process::Stdio;

use super::*;
use crate::helpers::scripted_server::{NO_SCHEMA, NOT_FOUND, U64_KEYS};
use crate::helpers::tables::Table;

#[test]
fn options_come_before_or_after_the_subcommand() {
    let (_folder, db) = baked();
    let before = zkv().arg("--db").arg(&db).args(["get", "7"]).output().unwrap();
    assert_answer(&before, 0, b"seven");
    let between = zkv().arg("get").arg("--db").arg(&db).arg("7").output().unwrap();
    assert_answer(&between, 0, b"seven");
    let peer = ScriptedServer::answering(&[U64_KEYS, NO_SCHEMA, NOT_FOUND, U64_KEYS]);
    let before = zkv().arg("--socket").arg(peer.socket()).args(["get", "7"]).output().unwrap();
    assert_answer(&before, 1, b"");
}

#[test]
fn the_environment_variable_names_the_socket_if_no_option_does() {
    let (folder, db) = baked();
    let none = folder.path().join("none.sock");
    let zkv_in = |socket: &Path| {
        let mut command = zkv();
        command.env("ZERO_KV_SOCKET", socket);
        command
    };
    let peer = ScriptedServer::answering(&[U64_KEYS, NO_SCHEMA, NOT_FOUND, U64_KEYS]);
    assert_answer(&zkv_in(&peer.socket()).args(["get", "7"]).output().unwrap(), 1, b"");
    let peer = ScriptedServer::answering(&[U64_KEYS, NO_SCHEMA, NOT_FOUND, U64_KEYS]);
    let output = zkv_in(&none).args(["get", "7", "--socket"]).arg(peer.socket()).output().unwrap();
    assert_answer(&output, 1, b"");
    assert_error(&zkv_in(&none).args(["get", "7"]).output().unwrap(), &["none.sock: cannot connect"]);
    assert_error(&zkv_in(&none).arg("info").output().unwrap(), &["none.sock: cannot connect"]);
    // Commands that need no server ignore it.
    assert_answer(&zkv_in(&none).args(["get", "7", "--db"]).arg(&db).output().unwrap(), 0, b"seven");
    assert_eq!(zkv_in(&none).arg("verify").arg(&db).status().unwrap().code(), Some(0));
}

#[test]
fn a_server_that_does_not_respond_in_time_is_an_error() {
    for command_line in [&["get", "7"][..], &["floor", "7"], &["range"], &["info"], &["ping"], &["bench"]] {
        // The peer sends an incomplete response.
        let peer = ScriptedServer::answering(&[&[0; 3]]);
        let output = zkv().args(["--timeout", "0.05"]).args(command_line).arg("--socket").arg(peer.socket()).output();
        assert_error(&output.unwrap(), &["peer.sock: timed out after "]);
    }
    let (_folder, db) = baked();
    assert_usage_error(&ask_file(&db, &["get", "7", "--direct"]), "--direct and --db cannot be used together");
    assert_usage_error(&zkv().args(["info", "--direct"]).output().unwrap(), "--direct cannot be used with");
    let expected = "--timeout and --db cannot be used together";
    assert_usage_error(&ask_file(&db, &["get", "7", "--timeout", "1"]), expected);
    assert_usage_error(
        &zkv().args(["verify", "--timeout", "1"]).arg(&db).output().unwrap(),
        "--timeout cannot be used with",
    );
    assert_usage_error(&zkv().args(["--timeout", "1", "top"]).output().unwrap(), "--timeout cannot be used with");
    assert_usage_error(&zkv().args(["--timeout", "0", "info"]).output().unwrap(), "expected 0.01 to 1000000 seconds");
}

#[test]
fn get_accepts_a_baked_file_before_the_keys() {
    let (folder, db) = baked();
    let get = |args: &[&OsStr]| zkv().arg("get").args(args).output().unwrap();
    let [seven, eight, ten] = ["7", "8", "10"].map(OsStr::new);
    assert_answer(&get(&[db.as_os_str(), seven]), 0, b"seven");
    assert_answer(&get(&[db.as_os_str(), eight, seven]), 0, b"8,\n7,seven\n");
    assert_answer(&get(&[db.as_os_str(), ten]), 1, b"");
    // With --db or --socket, all arguments are keys.
    assert_error(&get(&[OsStr::new("--db"), db.as_os_str(), db.as_os_str(), seven]), &["the key is \""]);
    let socket = folder.path().join("none.sock");
    assert_error(&get(&[OsStr::new("--socket"), socket.as_os_str(), db.as_os_str(), seven]), &["none.sock"]);
    // A damaged file is recognized as a file and rejected.
    let mut bytes = fs::read(&db).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&db, bytes).unwrap();
    assert_error(&get(&[db.as_os_str(), seven]), &["table.db: ", "damaged"]);
}

#[test]
fn invalid_command_lines_are_rejected() {
    let (_folder, db) = baked();
    for key in ["", "-1", "+7", " 7", "0x7", "seven", "18446744073709551616"] {
        for command_line in [["get", key], ["exists", key], ["floor", key], ["ceiling", key]] {
            assert_error(
                &ask_file(&db, &command_line),
                &[&format!("the key is \"{key}\""), "an unsigned 64-bit decimal"],
            );
            assert_error(
                &ask_peer(&ScriptedServer::answering(&[U64_KEYS]), &command_line),
                &["an unsigned 64-bit decimal"],
            );
        }
    }
    for bound in ["--from=x", "--after=", "--to=-1", "--before=0x7"] {
        for subcommand in ["range", "count"] {
            assert_error(&ask_file(&db, &[subcommand, bound]), &["an unsigned 64-bit decimal"]);
        }
    }
    for both in
        [["--from=1", "--after=1"], ["--to=1", "--before=1"], ["--prefix=1", "--to=1"], ["--after=1", "--prefix=1"]]
    {
        assert_usage_error(&ask_file(&db, &["range", both[0], both[1]]), "cannot be used with");
        assert_usage_error(&ask_file(&db, &["count", both[0], both[1]]), "cannot be used with");
    }
    assert_usage_error(&ask_file(&db, &["range", "--limit=-1"]), "invalid value");
    assert_error(&ask_file(&db, &["range", "--prefix", "1"]), &["keys of this table are unsigned 64-bit numbers"]);
    assert_usage_error(&ask_file(&db, &["get"]), "<KEY>");
    assert_usage_error(&ask_file(&db, &["put", "7"]), "put");
    for both in [["--socket", "s", "get", "7"], ["get", "7", "--socket", "s"]] {
        assert_usage_error(&ask_file(&db, &both), "--socket and --db cannot be used together");
    }
}

#[test]
fn the_help_states_the_exit_status_and_the_default_socket() {
    let version = zkv().arg("--version").output().unwrap();
    assert_answer(&version, 0, concat!("zkv ", env!("CARGO_PKG_VERSION"), "\n").as_bytes());
    let output = zkv().arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(help.contains("Exit status: 0") && help.contains("[default: /tmp/zero-kv.sock]"), "{help}");
}

#[test]
fn a_closed_pipe_is_not_an_error_and_does_not_change_the_exit_status() {
    let (folder, db) = baked();
    let other = folder.path().join("other.db");
    bake_text(&other, Keys::U64, b"7,seven\n");
    let (db, other) = (db.to_str().unwrap(), other.to_str().unwrap());
    let of_db: [&[&str]; 9] = [
        &["get", "7"],
        &["get", "7", "8"],
        &["floor", "7"],
        &["ceiling", "7"],
        &["first"],
        &["last"],
        &["range"],
        &["count"],
        &["count", "--from", "1", "--to", "2"],
    ];
    let commands = of_db.iter().map(|command_line| [command_line, &["--db", db][..]].concat());
    let files: [&[&str]; 7] = [
        &["inspect", db],
        &["inspect", "--json", db],
        &["verify", db],
        &["dump", db],
        &["diff", db, db],
        &["diff", db, other],
        &["canary", db, "7", "6"],
    ];
    for args in commands.chain(files.iter().map(|args| args.to_vec())) {
        let read = zkv().args(&args).output().unwrap();
        assert!(!read.stdout.is_empty(), "{args:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let unread = zkv().args(&args).stdout(writer).output().unwrap();
        assert_eq!((unread.status.code(), &*unread.stderr), (read.status.code(), &b""[..]), "{args:?}");
    }
}

#[test]
fn a_pipe_that_is_closed_between_rows_is_not_an_error() {
    // The text exceeds the capacity of the pipe and the buffers.
    let table = Table::new((0..2000).map(|key| (key, vec![b'v'; 1000])));
    let (server, db) = (table.serve(), table.db());
    for target in [["--db".as_ref(), db.as_os_str()], ["--socket".as_ref(), table.socket().as_os_str()]] {
        for command_line in [&["range"][..], &["range", "--reverse"]] {
            let mut command = zkv();
            command.args(command_line).args(target).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            // Once the first byte is written, a row was found.
            child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
            let output = child.wait_with_output().unwrap();
            assert_answer(&output, 0, b"");
        }
    }
    drop(server);
}

#[test]
fn a_full_disk_is_an_error() {
    let (_folder, db) = baked();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = zkv().args(["get", "7", "--db"]).arg(&db).stdout(full).output().unwrap();
    assert_error(&output, &["standard output", "No space left"]);
}

#[test]
fn an_error_message_to_a_closed_pipe_does_not_panic() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = zkv().args(["get", "7", "--db", "/no/such/file"]).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn commands_for_files_name_them_as_arguments() {
    let (_folder, db) = baked();
    let db = db.to_str().unwrap();
    for file in [&["inspect", db][..], &["verify", db], &["dump", db], &["diff", db, db]] {
        assert_eq!(zkv().args(file).output().unwrap().status.code(), Some(0));
        for option in ["--db", "--socket"] {
            let expected = format!("{option} cannot be used with");
            assert_usage_error(&zkv().args(file).args([option, db]).output().unwrap(), &expected);
            assert_usage_error(&zkv().args([option, db]).args(file).output().unwrap(), &expected);
            let help = zkv().args([file[0], "--help"]).output().unwrap().stdout;
            assert!(!String::from_utf8(help).unwrap().contains(option), "{} {option}", file[0]);
        }
    }
}
