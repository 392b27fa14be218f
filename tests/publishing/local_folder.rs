//! Stores in folders to which other users can write: links, and files that are not regular.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

use super::stores::{Ran, Store};
use crate::helpers::intercepted_calls::{Call, Calls, Verdict, require_interception, spawn};
use crate::helpers::published::{health_within, sealed, start_node};
use crate::helpers::servers::Server;
use crate::helpers::trials::Missing;
use crate::helpers::waiting::eventually;

const JOB: &str = "0123456789abcdef0123456789abcdef";

/// Returns the name of a file that an upload can have created.
fn file_name(number: u64) -> String {
    format!("0-16383-{number:032x}.zkv")
}

/// Creates a folder beside the store, with a file of each name that an upload can have created, and with others.
fn victim(store: &Store) -> PathBuf {
    let victim = store.path("victim");
    fs::create_dir_all(victim.join(JOB)).unwrap();
    for name in ["a", "b.zkv", &file_name(1), &format!("{JOB}/{}", file_name(2)), &format!("{JOB}/c")] {
        fs::write(victim.join(name), "precious").unwrap();
    }
    victim
}

fn assert_precious(victim: &Path) {
    let names =
        ["a", "b.zkv", &file_name(1), &format!("{JOB}/{}", file_name(2)), &format!("{JOB}/c")].map(str::to_owned);
    for name in names {
        assert_eq!(fs::read_to_string(victim.join(&name)).unwrap_or_default(), "precious", "{name}");
    }
    assert_eq!(fs::read_dir(victim).unwrap().count(), 4, "nothing was created in the folder");
    assert_eq!(fs::read_dir(victim.join(JOB)).unwrap().count(), 2, "nothing was created in the folder");
}

/// Puts things into `status/` that this user cannot read, also if it is root: none of them hides the other statuses.
pub(crate) fn a_status_that_is_no_readable_file_hides_no_other() {
    let store = Store::folder();
    (1..=3).for_each(|generation| store.publish(generation));
    let status = store.path("published/users/status");
    let good = r#"{"node":"good","serving":2,"digest":"","prepared":0,"newest":3,"pin":0,"lag_s":0,"error":"",
        "failed":0,"updated":"","tool":""}"#;
    store.write("status/good.json", sealed(good));
    symlink("loop.json", status.join("loop.json")).unwrap();
    symlink("good.json", status.join("link.json")).unwrap();
    fs::create_dir(status.join("folder.json")).unwrap();
    mknodat(CWD, status.join("fifo.json"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    symlink("..", status.join("up")).unwrap();
    fs::create_dir_all(status.join("deep/deep/deep")).unwrap();
    let nodes = ["loop", "link", "folder", "fifo"];
    let expect_warnings = |ran: &Ran| {
        for node in nodes {
            let expected = format!("/status/{node}.json: is not a regular file: the status is skipped");
            assert!(ran.err.contains(&expected), "{node}: {}", ran.err);
        }
    };
    let listed = store.zkv(&["generations", "URL", "--json"]);
    expect_warnings(&listed);
    assert_eq!(listed.json()["generations"][1]["nodes"], serde_json::json!(["good"]));
    let pinned = store.zkv(&["pin", "URL", "3", "--node", "good"]);
    expect_warnings(&pinned);
    pinned.succeeds();
    store.zkv(&["unpin", "URL"]).succeeds();
    let gc = || store.zkv(&["gc", "URL", "--keep", "1", "--older-than", "0s", "--json"]);
    let collected = gc();
    expect_warnings(&collected);
    assert!(collected.err.contains("4 statuses cannot be read: make them readable, or delete them"), "{collected:?}");
    let report = collected.json();
    assert_eq!((&report["objects"], &report["unreadable_statuses"]), (&serde_json::json!([]), &serde_json::json!(4)));
    for node in nodes {
        let path = status.join(format!("{node}.json"));
        fs::remove_dir(&path).or_else(|_| fs::remove_file(&path)).unwrap();
    }
    let report = gc().json();
    assert_eq!(report["objects"].as_array().unwrap().len(), 1, "generation 1, which no node serves: {report}");

    // The whole folder is something else.
    fs::rename(&status, store.path("moved")).unwrap();
    for replace in [|path: &Path| symlink("status", path).unwrap(), |path: &Path| fs::write(path, "x").unwrap()] {
        replace(&status);
        store.zkv(&["generations", "URL"]).succeeds();
        store.zkv(&["pin", "URL", "3", "--node", "good"]).succeeds();
        store.zkv(&["unpin", "URL"]).succeeds();
        let report = gc().json();
        assert_eq!(
            (&report["objects"], &report["unreadable_statuses"]),
            (&serde_json::json!([]), &serde_json::json!(1))
        );
        fs::remove_file(&status).unwrap();
    }
}

/// Replaces each folder of a table in turn by a link out of the store, and runs every command that reads or writes.
pub(crate) fn links_in_a_store_lead_nobody_out_of_it() {
    for linked in ["data", "data/JOB", "data/JOB/FILE", "manifests", "pins", "status", "probe"] {
        let store = Store::folder();
        store.publish(1);
        let root = store.path("published/users");
        let victim = victim(&store);
        let place = root.join(linked.replace("JOB", JOB).replace("FILE", &file_name(1)));
        if place.exists() {
            fs::rename(&place, store.path("moved")).unwrap();
        }
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        match linked {
            "data/JOB/FILE" => symlink(victim.join(file_name(1)), &place).unwrap(),
            _ => symlink(&victim, &place).unwrap(),
        }
        store.bake("next.db", "1,one\n2,two\n");
        for args in [
            &["gc", "URL", "--keep", "1", "--older-than", "0s", "--delete"][..],
            &["publish", "next.db", "--to", "URL"],
            &["pull", "URL", "-o", "copy.db"],
            &["generations", "URL"],
            &["pin", "URL", "1"],
            &["unpin", "URL"],
            &["store", "check", "URL"],
            &["gc", "URL", "--keep", "1", "--older-than", "0s", "--delete"],
        ] {
            let ran = store.zkv(args);
            let is_fatal = matches!(
                (linked, args[0]),
                ("manifests", "publish" | "pull" | "generations" | "gc") | ("data", "publish") | ("pins", "pin")
            );
            assert!(!is_fatal || ran.output.status.code() == Some(2), "{linked}, {args:?}: {ran:?}");
            assert!(!is_fatal || ran.err.contains("is a symbolic link, which is not followed"), "{ran:?}");
            assert_precious(&victim);
        }
        assert!(fs::symlink_metadata(&place).unwrap().is_symlink(), "{linked}");
    }
}

pub(crate) fn only_files_of_uploads_are_garbage() {
    let store = Store::folder();
    store.publish(1);
    let data = store.path("published/users/data");
    let hidden = format!(".zero-kv.{JOB}.tmp");
    let garbage = [format!("{JOB}/{}", file_name(1)), format!("{JOB}/{hidden}")];
    let others = [
        file_name(2),
        "notes.txt".to_owned(),
        format!("{JOB}/README"),
        format!("{JOB}/0-16383-x.zkv"),
        format!("job/{}", file_name(3)),
        format!("{JOB}/{JOB}/{}", file_name(4)),
        format!("{JOB}/data/{JOB}/{}", file_name(5)),
    ];
    for name in garbage.iter().chain(&others) {
        fs::create_dir_all(data.join(name).parent().unwrap()).unwrap();
        fs::write(data.join(name), "x").unwrap();
    }
    mknodat(CWD, data.join(JOB).join(file_name(6)), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let before = store.objects("data").len();
    let report = store.zkv(&["gc", "URL", "--keep", "3", "--older-than", "0s", "--delete", "--json"]).json();
    let mut deleted: Vec<&str> =
        report["objects"].as_array().unwrap().iter().map(|object| object.as_str().unwrap()).collect();
    deleted.sort_unstable();
    let mut expected = garbage.map(|name| format!("data/{name}"));
    expected.sort();
    assert_eq!(deleted, expected);
    assert_eq!(store.objects("data").len(), before - 2, "{:?}", store.objects("data"));
    for name in others {
        assert!(data.join(&name).exists(), "{name}");
    }
}

/// A FIFO takes the place of each document in turn.
pub(crate) fn special_files_in_a_store_block_no_program() {
    for document in ["manifests/00000000000000000001.json", "pins/00000000000000000001.json", "status/a.json"] {
        let store = Store::folder();
        store.publish(1);
        let place = store.path("published/users").join(document);
        let _ = fs::remove_file(&place);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        mknodat(CWD, &place, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for args in [
            &["generations", "URL"][..],
            &["pull", "URL", "-o", "copy.db"],
            &["pin", "URL", "1"],
            &["gc", "URL", "--keep", "1"],
            &["publish", "table.db", "--to", "URL"],
        ] {
            let ran = store.zkv(args);
            if document.starts_with("manifests") {
                ran.fails(2, &["00000000000000000001.json: is not a regular file"]);
            }
        }
    }
}

/// A network file system that does not respond blocks every call that opens one of its files.
pub(crate) fn a_signal_ends_a_download_while_the_folder_hangs() -> Result<(), Missing> {
    require_interception()?;
    let store = Store::folder();
    store.publish(1);
    let data = store.path("published/users/data").canonicalize().unwrap();
    let (entered, has_entered) = channel();
    let (responds, until_it_responds) = channel::<()>();
    let hang = move |call: &Call| {
        if call.number == libc::SYS_openat && call.path(Some(0), 1).starts_with(&data) {
            let _ = entered.send(());
            // Ends when the test does.
            let _ = until_it_responds.recv();
        }
        Verdict::Run
    };
    let command = store.zkv_command(&["pull", "URL", "-o", "copy.db"]);
    let (child, supervisor) = spawn(command, &Calls::Only(&[libc::SYS_openat]), hang).unwrap();
    has_entered.recv().unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ran = Ran::new(child.wait_with_output().unwrap());
    assert_eq!(ran.output.status.signal(), Some(Signal::TERM.as_raw()), "{ran:?}");
    drop(responds);
    supervisor.join().unwrap();
    Ok(())
}

pub(crate) fn a_node_with_a_complete_cache_serves_while_the_folder_hangs() -> Result<(), Missing> {
    require_interception()?;
    let store = Store::folder();
    store.publish(1);
    let socket = store.path("a.sock");
    let command = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kv_store"));
        command.args(["--from", store.url(), "--node", "a", "--poll", "50ms", "--cache"]).arg(store.path("cache"));
        command.arg("--socket").arg(&socket).env("RUST_LOG", "info");
        command
    };
    drop(start_node(command(), &socket));
    let (folder, count) = (store.path("published").canonicalize().unwrap(), Arc::new(AtomicU64::new(0)));
    let hung = Arc::clone(&count);
    let hang = move |call: &Call| match call.number != libc::SYS_execve && call.path(Some(0), 1).starts_with(&folder) {
        true => {
            hung.fetch_add(1, Ordering::Relaxed);
            Verdict::Hang
        }
        false => Verdict::Run,
    };
    let opens = Calls::Only(&[libc::SYS_openat, libc::SYS_openat2]);
    let spawn_hanging = |command| spawn(command, &opens, hang).map(|(child, _)| child);
    let mut node = Server::spawn_by(command(), &socket, spawn_hanging);
    node.wait_for_log("ready on ");
    eventually("a read of the folder hangs", || count.load(Ordering::Relaxed) > 0);
    node.wait_for("published_poll_age_s", 2);
    assert_eq!(node.client().get(1).unwrap().unwrap(), b"generation 1");
    assert_eq!(node.number("published_generation"), 1);
    let (status, text) = health_within(&node, "1");
    assert!(status == Some(1) && text.contains(" was not read successfully for "), "{text}");
    // A restart would not help, so the default leaves time for the store to come back.
    assert_eq!(health_within(&node, "86400").0, Some(0));
    node.signal(Signal::TERM);
    assert!(node.wait().success());
    Ok(())
}

/// Whoever can write statuses must not keep publishers and operators from their work.
pub(crate) fn statuses_that_cannot_be_listed_do_not_stop_publishers() {
    let store = Store::folder();
    store.publish(1);
    fs::write(store.path("published/users/status"), "x").unwrap();
    for args in [&["publish", "table.db", "--to", "URL"][..], &["pin", "URL", "2"]] {
        let ran = store.zkv(args);
        assert!(ran.err.contains("warning: ") && ran.err.contains(": no status is read"), "{ran:?}");
        ran.succeeds();
    }
}
