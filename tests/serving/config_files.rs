//! Configuration files that are not regular, too long, or exposed to other users.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use crate::helpers::servers::{Server, kv_store};
use crate::helpers::tables::Table;
use crate::helpers::tls::{Authority, TlsFiles};
use crate::helpers::waiting::eventually;

fn fifo(path: &Path) {
    let _ = fs::remove_file(path);
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// Returns paths of files that are not regular, or much too long, each with the error that a program prints.
fn unusable(folder: &Path) -> Vec<(PathBuf, &'static str)> {
    let (pipe, long, link) = (folder.join("pipe"), folder.join("long"), folder.join("link"));
    fifo(&pipe);
    fs::File::create(&long).unwrap().set_len(1 << 36).unwrap();
    std::os::unix::fs::symlink(&pipe, &link).unwrap();
    vec![
        (pipe, "found a pipe, expected a regular file"),
        (link, "found a pipe, expected a regular file"),
        (folder.to_path_buf(), "found a directory, expected a regular file"),
        ("/dev/zero".into(), "found a device, expected a regular file"),
        (long, "bytes, expected fewer: is this the right file?"),
    ]
}

/// Runs a program that must end on its own.
fn ended(mut command: Command) -> Output {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the program ends", || child.try_wait().unwrap().is_some());
    child.wait_with_output().unwrap()
}

#[test]
fn a_server_whose_files_are_not_regular_does_not_start() {
    let table = Table::of_rows(10);
    let folder = table.folder.path();
    let authority = Authority::new();
    let tls = TlsFiles::write(folder, &authority, &authority.issue());
    let tls = tls.options().map(str::to_owned);
    let node = ["--cluster", "--node", "a", "--announce", "127.0.0.1:1"].map(str::to_owned);
    for (path, expected) in unusable(folder) {
        let path = path.to_str().unwrap().to_owned();
        for (option, others) in
            [("--users", &[][..]), ("--tls-cert", &tls), ("--tls-key", &tls), ("--tls-ca", &tls), ("--topology", &node)]
        {
            let mut options = others.to_vec();
            match options.iter().position(|other| other == option) {
                Some(at) => options[at + 1].clone_from(&path),
                None => options.extend([option.to_owned(), path.clone()]),
            }
            let mut command = table.command(&[]);
            command.args(options);
            let output = ended(command);
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{option} {path}: {message}");
            assert!(message.contains(expected), "{option} {path}: {message}");
        }
        // The table fails its canaries, so the server does not start either.
        let output = ended(table.command(&["--canary", &path]));
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && message.contains(expected), "--canary {path}: {message}");
    }
    assert!(!table.socket().exists());
}

#[test]
fn a_pipe_that_replaces_a_file_delays_neither_reloads_nor_the_end() {
    let table = Table::of_rows(10);
    let folder = table.folder.path();
    let (users, topology) = (folder.join("users.acl"), folder.join("topology.json"));
    fs::write(&users, "user default off").unwrap();
    let node = r#"{"id": "a", "host": "127.0.0.1", "port": 1, "role": "primary", "slots": ["0-16383"]}"#;
    fs::write(&topology, format!(r#"{{"format": 1, "number": 1, "nodes": [{node}]}}"#)).unwrap();
    let authority = Authority::new();
    let tls = TlsFiles::write(folder, &authority, &authority.issue());
    let mut command = table.command(&tls.options());
    command.arg("--users").arg(&users).args(["--cluster", "--node", "a", "--announce", "127.0.0.1:1", "--topology"]);
    command.arg(&topology);
    let mut server = Server::of(command, &table.socket());
    for path in [&users, &topology, &tls.certificate, &tls.key] {
        fifo(path);
    }
    server.signal(Signal::HUP);
    server.wait_for("refused_users_files", 1);
    server.wait_for("tls_reloads_refused", 1);
    eventually("the topology is refused", || server.logged("topology.json") > 0);
    assert!(server.info().get("users_refused").unwrap().contains("found a pipe, expected a regular file"));
    server.signal(Signal::TERM);
    assert!(server.wait().success(), "{}", server.log());
}

#[test]
fn a_signal_ends_a_server_that_waits_for_its_configuration() {
    let table = Table::of_rows(10);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = table.command(&["--config", "/dev/stdin"]);
    command.stdin(reader);
    let mut server = Server::spawn(command, &table.socket());
    server.signal(Signal::TERM);
    assert!(!server.wait().success());
    drop(writer);
}

#[test]
fn a_fifo_that_nobody_writes_to_is_rejected_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let [pipe, db] = ["pipe", "storage.db"].map(|name| folder.path().join(name));
    fifo(&pipe);
    let pipe = pipe.to_str().unwrap();
    let mut server = kv_store(&db, &folder.path().join("s.sock"));
    server.args(["--config", pipe]);
    let mut zkv = Command::new(env!("CARGO_BIN_EXE_zkv"));
    zkv.args(["topology", "check", pipe]);
    for command in [server, zkv] {
        let output = ended(command);
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && err.contains("found a pipe, expected a regular file"), "{err}");
    }
    // A process substitution is a pipe without a name.
    let mut shell = Command::new("bash");
    let script = "exec \"$0\" topology check <(printf '{')";
    shell.args(["-c", script, env!("CARGO_BIN_EXE_zkv")]);
    let output = ended(shell);
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("the document is malformed"), "{err}");
}

#[test]
fn a_server_reads_its_configuration_from_a_pipe() {
    let table = Table::of_rows(10);
    let mut command = kv_store(&table.db(), &table.socket());
    let (reader, mut writer) = std::io::pipe().unwrap();
    command.args(["--config", "/dev/stdin", "--print-config"]).stdin(reader);
    std::io::Write::write_all(&mut writer, b"workers = 3\n").unwrap();
    drop(writer);
    let output = command.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("workers = \"3\"  # /dev/stdin"), "{printed}");
}

#[test]
fn a_file_that_other_users_can_read_or_change_is_reported_with_the_remedy() {
    let table = Table::of_rows(10);
    let folder = table.folder.path();
    let users = folder.join("users.acl");
    fs::write(&users, "user default off").unwrap();
    let authority = Authority::new();
    let tls = TlsFiles::write(folder, &authority, &authority.issue());
    let options = [&tls.options()[..], &["--tls-ca", tls.ca.to_str().unwrap()]].concat();
    let others = "every user of this machine can";
    for (mode, of_users, of_key, of_other) in [
        (0o600, [0; 3], [0; 3], [0; 3]),
        (0o644, [1, 0, 0], [1, 0, 0], [0; 3]),
        (0o664, [1, 0, 1], [1, 0, 1], [0, 0, 1]),
        (0o602, [0, 1, 0], [0, 1, 0], [0, 1, 0]),
    ] {
        for path in [&users, &tls.key, &tls.certificate, &tls.ca] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        let mut command = table.command(&options);
        command.arg("--users").arg(&users);
        let server = Server::of(command, &table.socket());
        let expect = |path: &Path, expected: [usize; 3]| {
            let log = server.log();
            let lines: Vec<&str> = log.lines().filter(|line| line.contains(path.to_str().unwrap())).collect();
            let count = |text: &str| lines.iter().filter(|line| line.contains("WARN") && line.contains(text)).count();
            let found = [
                count(&format!("{others} read")).min(count("chmod o-r")),
                count(&format!("{others} change")).min(count("chmod o-w")),
                count("members of the group").min(count("chmod g-w")),
            ];
            assert_eq!(found, expected, "{} {mode:o}: {log}", path.display());
        };
        expect(&users, of_users);
        expect(&tls.key, of_key);
        expect(&tls.certificate, of_other);
        expect(&tls.ca, of_other);
    }
    // Only root can give a file to another user.
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        fs::set_permissions(&users, Permissions::from_mode(0o600)).unwrap();
        chown(&users, Some(4321), None).unwrap();
        let mut command = table.command(&[]);
        command.arg("--users").arg(&users);
        let server = Server::of(command, &table.socket());
        server.expect_logged("the user 4321 owns the file and can change the users", 1);
    }
}
