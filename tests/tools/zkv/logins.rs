//! Servers that are reached over TCP, with TLS and a login.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use super::zkv;
use crate::helpers::servers::Server;
use crate::helpers::tables::Table;
use crate::helpers::tls::{Authority, TlsFiles};

/// The password of the user `reader`. No output and no command line may contain it.
const PASSWORD: &str = "5up3r-secret";
const USERS: &str = "user default off\nuser reader on HASH ~* +@all\n";

struct Scene {
    table: Table,
    files: TlsFiles,
    server: Server,
}

impl Scene {
    fn new() -> Scene {
        let (table, authority) = (Table::of_rows(100), Authority::new());
        let files = TlsFiles::write(table.folder.path(), &authority, &authority.issue());
        let users = table.folder.path().join("users.acl");
        std::fs::write(&users, USERS.replace("HASH", HASH)).unwrap();
        let server = table.serve_with(&[&files.options()[..], &["--users", users.to_str().unwrap()]].concat());
        Scene { table, files, server }
    }

    fn address(&self) -> String {
        format!("zkv+tls://reader@localhost:{}", self.server.tls().port())
    }

    fn password_file(&self) -> PathBuf {
        let path = self.table.folder.path().join("password");
        std::fs::write(&path, format!("{PASSWORD}\n")).unwrap();
        path
    }

    /// Returns a command that trusts the server's certificate, and has no password.
    fn program(&self, mut command: Command) -> Command {
        command.arg("--tls-ca").arg(&self.files.ca).args(["--socket", &self.address()]);
        command.env_remove("ZERO_KV_PASSWORD").env_remove("ZERO_KV_PASSWORD_FILE");
        command
    }

    fn zkv(&self, words: &[&str]) -> Command {
        let mut command = self.program(zkv());
        command.args(words);
        command
    }
}

/// The SHA-256 hash of the password.
const HASH: &str = "#a8cb0a45d92bc7688df577b07e3281cae43e2007947fa8ef5e5f2e8e3f4fcadb";

#[track_caller]
fn stdout_of(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    expect_no_password(&output);
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn error_of(mut command: Command, status: i32) -> String {
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(status), 0), "{output:?}");
    expect_no_password(&output);
    String::from_utf8(output.stderr).unwrap()
}

#[track_caller]
fn expect_no_password(output: &Output) {
    for bytes in [&output.stdout, &output.stderr] {
        assert!(!String::from_utf8_lossy(bytes).contains(PASSWORD), "{output:?}");
    }
}

#[test]
fn lookups_and_commands_for_servers_work_over_tls_with_a_login() {
    let scene = Scene::new();
    let file = scene.password_file();
    let zkv = |words: &[&str]| {
        let mut command = scene.zkv(words);
        command.arg("--password-file").arg(&file);
        stdout_of(command)
    };
    assert_eq!(zkv(&["get", "7"]), "value_content_at_key_7");
    assert_eq!(zkv(&["range", "--from", "7", "--limit", "2"]), "7,value_content_at_key_7\n8,value_content_at_key_8\n");
    assert_eq!(zkv(&["count"]), "100\n");
    assert!(zkv(&["bench", "--seconds", "0.01", "--threads", "2", "--json"]).contains("\"not_found\":0"));
    assert!(zkv(&["health", "--verbose"]).contains("100 rows"));
    assert!(zkv(&["info"]).contains("state serving\n"));
    assert!(zkv(&["ping"]).contains("response in"));
    assert!(zkv(&["top", "--once"]).ends_with('\n'));
    // A server reloads its file only at the request of a client of its Unix socket.
    let mut reload = scene.zkv(&["reload"]);
    reload.arg("--password-file").arg(&file);
    assert!(error_of(reload, 2).contains("on the server's Unix socket"));
}

#[test]
fn the_password_may_be_in_the_environment() {
    let scene = Scene::new();
    let file = scene.password_file();
    let with = |variables: &[(&str, &str)]| {
        let mut command = scene.zkv(&["get", "7"]);
        command.envs(variables.iter().copied());
        command
    };
    let path = file.to_str().unwrap();
    for variables in [
        &[("ZERO_KV_PASSWORD", PASSWORD)][..],
        &[("ZERO_KV_PASSWORD_FILE", path)],
        &[("ZERO_KV_PASSWORD", PASSWORD), ("ZERO_KV_PASSWORD_FILE", "missing")],
        &[("ZERO_KV_PASSWORD", ""), ("ZERO_KV_PASSWORD_FILE", path)],
    ] {
        assert_eq!(stdout_of(with(variables)), "value_content_at_key_7");
    }
    let mut from_option = with(&[("ZERO_KV_PASSWORD", "wrong")]);
    from_option.arg("--password-file").arg(&file);
    assert_eq!(stdout_of(from_option), "value_content_at_key_7");
    let missing = error_of(with(&[]), 2);
    for remedy in ["ZERO_KV_PASSWORD", "--password-file", "ZERO_KV_PASSWORD_FILE"] {
        assert!(missing.contains(remedy), "{missing}");
    }
    let wrong = error_of(with(&[("ZERO_KV_PASSWORD", "wrong-password")]), 2);
    assert!(wrong.contains("the login of user \"reader\" failed") && !wrong.contains("wrong-password"), "{wrong}");
    // The address can be in the environment, too.
    let mut command = zkv();
    command.args(["get", "7"]).arg("--tls-ca").arg(&scene.files.ca);
    command.env("ZERO_KV_SOCKET", scene.address()).env("ZERO_KV_PASSWORD", PASSWORD);
    assert_eq!(stdout_of(command), "value_content_at_key_7");
}

#[test]
fn a_password_in_an_address_is_rejected_and_not_repeated() {
    let scene = Scene::new();
    for (words, status) in [(&["get", "7"][..], 2), (&["health"], 2), (&["top", "--once"], 2), (&["reload"], 2)] {
        let mut command = zkv();
        command.args(words).arg("--server").arg(scene.address().replace("reader", &format!("reader:{PASSWORD}")));
        let error = error_of(command, status);
        assert!(error.contains("contains a password") && error.contains("ZERO_KV_PASSWORD_FILE"), "{error}");
    }
}

#[test]
fn options_for_other_servers_are_usage_errors() {
    let scene = Scene::new();
    let mut command = zkv();
    command.args(["get", "7", "--socket"]).arg(scene.table.socket()).args(["--password-file", "x"]);
    assert!(error_of(command, 2).contains("--password-file needs a user in the address"));
    let mut command = zkv();
    command.args(["get", "7", "--socket"]).arg(scene.table.socket()).arg("--tls-ca").arg(&scene.files.ca);
    assert!(error_of(command, 2).contains("an address that starts with zkv+tls://"));
    for option in ["--password-file", "--tls-ca", "--tls-cert", "--tls-key", "--tls-server-name"] {
        let mut command = zkv();
        command.args(["get", "7", option, "x", "--db"]).arg(scene.table.db());
        assert!(error_of(command, 2).contains(&format!("{option} and --db cannot be used together")));
        let mut command = zkv();
        command.args(["verify", option, "x"]).arg(scene.table.db());
        assert!(error_of(command, 2).contains("cannot be used with a command for files"));
    }
    let mut command = zkv();
    command.args(["get", "7", "--socket", &scene.address()]).env("ZERO_KV_PASSWORD", PASSWORD);
    let untrusted = error_of(command, 2);
    assert!(untrusted.contains("not signed by an authority that the system trusts"), "{untrusted}");
    assert!(untrusted.contains("--tls-ca"), "{untrusted}");
}

#[test]
fn the_password_is_not_on_the_command_line_of_a_running_program() {
    let scene = Scene::new();
    let mut command = scene.zkv(&["get", "-", "--password-file"]);
    command.arg(scene.password_file()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The connection is logged in while the program waits for keys.
    scene.server.wait_for("requests_auth", 1);
    let command_line = std::fs::read_to_string(format!("/proc/{}/cmdline", child.id())).unwrap();
    assert!(command_line.contains("--password-file") && !command_line.contains(PASSWORD), "{command_line}");
    child.stdin.take().unwrap().write_all(b"7\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "7,value_content_at_key_7\n");
    assert!(!scene.server.log().contains(PASSWORD));
}

#[test]
fn the_benchmarker_measures_over_tls_with_a_login() {
    let scene = Scene::new();
    for (more, protocol) in [(&["--verify"][..], "native"), (&[], "resp")] {
        let mut command = scene.program(Command::new(env!("CARGO_BIN_EXE_benchmarker")));
        command.arg("--db").arg(scene.table.db()).args(["--clients", "3", "--seconds", "0.05", "--warmup", "0"]);
        command.args(["--protocol", protocol, "--json"]).args(more).env("ZERO_KV_PASSWORD", PASSWORD);
        if protocol == "native" {
            assert!(stdout_of(command).contains("\"errors\":0"));
            assert_eq!(scene.server.number("requests_auth"), 3);
        } else {
            assert!(error_of(command, 1).contains("--protocol resp cannot log in"));
        }
    }
    let mut command = scene.program(Command::new(env!("CARGO_BIN_EXE_benchmarker")));
    command.arg("--db").arg(scene.table.db()).arg("--memory").env("ZERO_KV_PASSWORD", PASSWORD);
    assert!(error_of(command, 1).contains("--memory needs the server's Unix socket"));
}

#[test]
fn a_user_of_some_keys_needs_no_permission_to_count_them() {
    let table = Table::of_rows(100);
    let users = table.folder.path().join("users.acl");
    std::fs::write(&users, "user default off\nuser some on nopass ~1* +get +exists\n").unwrap();
    let server = table.serve_with(&["--tcp", "127.0.0.1:0", "--users", users.to_str().unwrap()]);
    let address = format!("zkv://some@127.0.0.1:{}", server.tcp().port());
    let run = |words: &[&str]| {
        let output = zkv().args(["--socket", &address]).args(words).env("ZERO_KV_PASSWORD", "any").output().unwrap();
        (output.status.code(), output.stdout, String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(run(&["get", "17"]), (Some(0), table.model[&17].clone(), String::new()));
    assert_eq!(run(&["exists", "17", "18"]), (Some(0), Vec::new(), String::new()));
    let (status, _, error) = run(&["get", "27"]);
    assert!(status == Some(2) && error.contains("key 27"), "{error}");
}
