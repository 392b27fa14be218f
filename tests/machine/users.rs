//! Servers and files of other users, and user namespaces.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::ioctl_fionread;
use rustix::process::Signal;
use zero_kv::Lookup;
use zero_kv::client::{Client, Options};

use super::requirements::{OTHER, root, user_namespaces};
use crate::helpers::frames::{expect, gets, request};
use crate::helpers::generations::Shape;
use crate::helpers::published::{Published, sealed, wait_for_error, wait_until_served};
use crate::helpers::scenes::Scene;
use crate::helpers::servers::{Server, failure_message};
use crate::helpers::shared_program::SharedProgram;
use crate::helpers::tables::{Table, answer_to_get};
use crate::helpers::trials::Missing;
use crate::helpers::waiting::eventually;

pub(crate) fn owner_and_group_are_set_by_number_or_by_name() -> Result<(), Missing> {
    root()?;
    let table = Table::of_rows(10);
    for (owner, group, expected) in [("4321", "4321", (OTHER, OTHER)), ("root", "root", (0, 0))] {
        let mut server = table.serve_with(&["--owner", owner, "--group", group, "--mode", "0640"]);
        let socket = fs::symlink_metadata(table.socket()).unwrap();
        assert_eq!((socket.uid(), socket.gid(), socket.mode() & 0o7777), (expected.0, expected.1, 0o640));
        server.signal(Signal::TERM);
        server.wait();
    }
    Ok(())
}

pub(crate) fn a_lock_file_of_another_user_is_named_with_its_owner_at_once() -> Result<(), Missing> {
    root()?;
    let table = Table::of_rows(10);
    let lock = table.folder.path().join("s.sock.lock");
    fs::write(&lock, "").unwrap();
    std::os::unix::fs::chown(&lock, Some(OTHER), None).unwrap();
    let message = failure_message(table.command(&[]), 1);
    assert!(message.contains("belongs to user 4321, where root or this process's user 0 was expected"), "{message}");
    assert!(message.contains("remove the file"), "{message}");
    Ok(())
}

/// Starts a kv_store as another user, with its socket in a folder where everybody can write. Requires root.
fn serve_as_other(table: &Table) -> Server {
    let program = SharedProgram::copy(env!("CARGO_BIN_EXE_kv_store"));
    fs::set_permissions(table.folder.path(), Permissions::from_mode(0o1777)).unwrap();
    let mut command = Command::new(program.path());
    command.arg("--db").arg(table.db()).arg("--socket").arg(table.socket()).uid(OTHER).gid(OTHER);
    Server::of(command, &table.socket())
}

pub(crate) fn programs_use_the_server_of_another_user_in_a_shared_folder_only_if_it_is_named() -> Result<(), Missing> {
    root()?;
    let table = Table::of_rows(10);
    let _server = serve_as_other(&table);
    let zkv = |args: &[&str], user: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zkv"));
        command.args(args).arg("--socket").arg(table.socket()).env_remove("ZERO_KV_SERVER_USER");
        user.map(|user| command.env("ZERO_KV_SERVER_USER", user));
        command
    };
    let expected = "runs as user 4321, where root or this process's user 0 was expected";
    for (args, status) in [
        (&["get", "3"][..], 2),
        (&["get", "3", "--direct"], 2),
        (&["info"], 2),
        (&["top", "--once"], 2),
        (&["reload"], 2),
        (&["health"], 1),
    ] {
        let message = failure_message(zkv(args, None), status);
        assert!(message.contains(expected) && message.contains("--server-user"), "{args:?}: {message}");
        failure_message(zkv(args, Some("4322")), status);
        for mut accepted in [zkv(args, Some("4321")), zkv(&[args, &["--server-user", "4321"]].concat(), None)] {
            let output = accepted.output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        }
    }
    for args in [&["--server-user", "4321", "verify", "x.db"][..], &["get", "3", "--db", "x", "--server-user", "4321"]]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zkv"));
        command.args(args);
        assert!(failure_message(command, 2).contains("--server-user"), "{args:?}");
    }

    let benchmarker = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_benchmarker"));
        command.args(["--seconds", "0.1", "--warmup", "0", "--clients", "2"]).args(args);
        command.arg("--db").arg(table.db()).arg("--socket").arg(table.socket()).env_remove("ZERO_KV_SERVER_USER");
        command
    };
    for args in [&[][..], &["--memory"], &["--protocol", "resp"]] {
        let message = failure_message(benchmarker(args), 1);
        assert!(message.contains(expected) && message.contains("--server-user"), "{message}");
    }
    let output = benchmarker(&["--server-user", "4321", "--memory"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Ok(())
}

pub(crate) fn another_user_may_look_up_but_not_reload() -> Result<(), Missing> {
    root()?;
    let table = Table::of_rows(10);
    fs::set_permissions(table.folder.path(), Permissions::from_mode(0o755)).unwrap();
    let _server = table.serve_with(&["--mode", "0666"]);
    let socket = table.socket();
    let of_other_user = move || {
        let other = rustix::process::Uid::from_raw(OTHER);
        // Changes the user of this thread only.
        rustix::thread::set_thread_res_uid(other, other, other).unwrap();
        let mut client = Client::connect(socket).unwrap();
        let refusals = [client.reload(), client.rollback()].map(|asked| asked.unwrap_err().to_string());
        (refusals, client.get(3).unwrap())
    };
    let (refusals, value) = std::thread::spawn(of_other_user).join().unwrap();
    for refusal in refusals {
        assert!(refusal.contains("only root and the server's own user may send it"), "{refusal}");
    }
    assert_eq!(value.as_ref(), table.model.get(&3));
    let info = Client::connect(table.socket()).unwrap().info().unwrap();
    assert_eq!(info.number::<u64>("reload_requested"), Some(0));
    Ok(())
}

pub(crate) fn a_status_or_folder_of_another_user_hides_no_other() -> Result<(), Missing> {
    root()?;
    let published = Published::new();
    (1..=2).for_each(|generation| published.publish(generation));
    fs::set_permissions(published.folder.path(), Permissions::from_mode(0o755)).unwrap();
    let status = published.table().join("status");
    let status_of = |node: &str| {
        sealed(&format!(
            r#"{{"node":"{node}","serving":1,"digest":"","prepared":0,"newest":2,"pin":0,"lag_s":0,"error":"","failed":0,
            "updated":"","tool":""}}"#
        ))
    };
    fs::create_dir_all(status.join("private")).unwrap();
    fs::create_dir_all(published.table().join("pins")).unwrap();
    for node in ["good", "secret"] {
        fs::write(status.join(format!("{node}.json")), status_of(node)).unwrap();
    }
    fs::set_permissions(status.join("secret.json"), Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(status.join("private"), Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(published.table().join("pins"), Some(OTHER), Some(OTHER)).unwrap();
    let zkv = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zkv"));
        command.args(args).arg(published.publication.url()).uid(OTHER).gid(OTHER).current_dir("/");
        let output = command.output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {err}");
        assert!(err.contains("/status/secret.json: ") && err.contains("Permission denied"), "{args:?}: {err}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(zkv(&["generations", "--json"]).contains(r#""nodes":["good"]"#));
    assert!(zkv(&["gc", "--keep", "1", "--older-than", "0s"]).starts_with("not needed: 0 files"));
    Ok(())
}

pub(crate) fn a_node_starts_from_a_cache_that_it_cannot_write_to() -> Result<(), Missing> {
    root()?;
    let published = Published::new();
    published.publish(1);
    let program = SharedProgram::copy(env!("CARGO_BIN_EXE_kv_store"));
    fs::set_permissions(published.folder.path(), Permissions::from_mode(0o1777)).unwrap();
    let start = || {
        let mut command = Command::new(program.path());
        command.args(["--from", published.publication.url(), "--node", "a", "--poll", "50ms", "--cache"]);
        command.arg(published.cache("a")).arg("--socket").arg(published.socket("a")).uid(OTHER).gid(OTHER);
        Server::of(command, &published.socket("a"))
    };
    wait_until_served(&start(), 1);
    let folders = ["", "data", "manifests"].map(|name| published.cache("a").join(name));
    let set_mode = |mode: u32| {
        folders.iter().for_each(|folder| fs::set_permissions(folder, Permissions::from_mode(mode)).unwrap());
    };
    set_mode(0o555);
    // Whoever has filled the folder may own the file that a process locks before it writes.
    let lock = published.cache("a").join("lock");
    std::os::unix::fs::chown(&lock, Some(OTHER + 1), None).unwrap();
    wait_until_served(&start(), 1);
    std::os::unix::fs::chown(&lock, Some(OTHER), None).unwrap();
    let node = start();
    wait_until_served(&node, 1);
    published.publish(2);
    wait_for_error(&node, "Permission denied");
    wait_until_served(&node, 1);
    set_mode(0o755);
    wait_until_served(&node, 2);
    Ok(())
}

/// Returns a command that runs a program in a new user namespace that maps no user.
fn without_user_numbers(program: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", program]);
    command
}

pub(crate) fn a_uid_that_several_users_share_makes_nobody_an_administrator() -> Result<(), Missing> {
    user_namespaces()?;
    let table = Table::of_rows(10);
    let mut command = without_user_numbers(env!("CARGO_BIN_EXE_kv_store"));
    command.arg("--db").arg(table.db()).arg("--socket").arg(table.socket()).args(["--mode", "0666"]);
    let server = Server::of(command, &table.socket());
    // The server sees both this process's user and its own as the overflow user.
    for arguments in [&["reload"][..], &["reload", "--rollback"]] {
        let mut zkv = Command::new(env!("CARGO_BIN_EXE_zkv"));
        zkv.args(arguments).arg("--socket").arg(table.socket());
        let message = failure_message(zkv, 2);
        assert!(message.contains("only root and the server's own user may send it"), "{message}");
    }
    let mut stream = server.connect();
    stream.write_all(&gets([3])).unwrap();
    expect(&mut stream, &answer_to_get(&table.model, 3));
    Ok(())
}

pub(crate) fn a_server_whose_user_is_unmapped_is_rejected_unless_all_unmapped_users_are_accepted() -> Result<(), Missing>
{
    user_namespaces()?;
    let table = Table::of_rows(10);
    let mut rejected = without_user_numbers(env!("CARGO_BIN_EXE_zkv"));
    let _server = table.serve();
    rejected.args(["get", "3", "--socket"]).arg(table.socket()).env_remove("ZERO_KV_SERVER_USER");
    let message = failure_message(rejected, 2);
    assert!(message.contains("has no number in this user namespace"), "{message}");

    let overflow_uid = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap();
    let mut accepted = without_user_numbers(env!("CARGO_BIN_EXE_zkv"));
    accepted.args(["get", "3", "--server-user", overflow_uid.trim(), "--socket"]).arg(table.socket());
    let output = accepted.output().unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(0), table.model[&3].clone()));
    Ok(())
}

/// The kernel limits the descriptors that a user other than root has in flight: sent, and not yet received.
pub(crate) fn clients_that_receive_no_tables_do_not_keep_others_from_receiving_them() -> Result<(), Missing> {
    root()?;
    const OPEN: u32 = 9;
    const OPEN_RESPONSE_LEN_BYTES: usize = 40;
    const SHAPE: Shape = Shape { rows: 100, len_max_bytes: 50 };
    // Twenty responses to each of 300 clients would have 12,000 descriptors in flight.
    let (descriptors_max, clients, requests) = (1024, 300, 20);
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    std::os::unix::fs::chown(scene.path(""), Some(OTHER), Some(OTHER)).unwrap();
    let program = SharedProgram::copy(env!("CARGO_BIN_EXE_kv_store"));
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {descriptors_max} && exec \"$0\" \"$@\""), program.path(), "--db"]);
    command.arg(scene.db()).arg("--socket").arg(scene.socket()).uid(OTHER).gid(OTHER);
    let served = Server::of(command, &scene.socket());
    let options = Options { server_user: Some(OTHER.to_string()), ..Options::default() };
    let direct = Client::connect_with(scene.socket(), &options).unwrap().direct().unwrap();

    let mut silent: Vec<_> = (0..clients).map(|_| served.connect()).collect();
    for stream in &mut silent {
        stream.write_all(&request(OPEN, 0).repeat(requests)).unwrap();
    }
    let mut latest = silent.pop().unwrap();
    for stream in &silent {
        eventually("the server has answered", || ioctl_fionread(stream).unwrap() > 0);
    }
    for generation in 2..10 {
        SHAPE.bake(generation, &scene.path("new.db"));
        fs::rename(scene.path("new.db"), scene.db()).unwrap();
        eventually("the direct client has the new table", || direct.generation() == generation);
        assert_eq!(direct.get(7).unwrap(), SHAPE.value(generation, 7));
    }
    assert_eq!(served.logged("was not passed to a direct client"), 0);
    for stream in &silent {
        let unread = ioctl_fionread(stream).unwrap();
        assert_eq!(unread, OPEN_RESPONSE_LEN_BYTES as u64, "only one response is in flight");
    }
    // A client that receives its responses gets all of them.
    let mut responses = vec![0; requests * OPEN_RESPONSE_LEN_BYTES];
    latest.read_exact(&mut responses).unwrap();
    assert!(responses.chunks(OPEN_RESPONSE_LEN_BYTES).all(|response| response.starts_with(&[0, 0, 0, 0, 0, 0, 0, 32])));
    Ok(())
}
