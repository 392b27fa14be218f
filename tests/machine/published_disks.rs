//! The disk of a cache is full while a server follows a published table.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::statvfs;

use super::requirements::{Mounter, mounts};
use super::served_disks::fill;
use crate::helpers::mixed_load::MixedLoad;
use crate::helpers::published::{Published, SHAPE, health, names, wait_for_error, wait_until_served};
use crate::helpers::servers::Server;
use crate::helpers::trials::Missing;
use crate::helpers::waiting::eventually;

/// The options of a node whose fetches take seconds.
const SLOWLY: &[&str] = &["--fetch-bandwidth", "200KB"];

/// Returns a command that runs a node whose cache is on a disk of 32 MiB.
fn on_small_disk(mounter: Mounter, command: &Command, cache: &Path) -> Command {
    let script = "mount -t tmpfs -o size=32m none \"$CACHE\" && exec \"$0\" \"$@\"";
    let mut mounting = Command::new(mounter[0]);
    mounting.args([mounter[1], "sh", "-c", script]).arg(command.get_program()).args(command.get_args());
    mounting.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("CACHE", cache);
    mounting
}

/// Publishes generation 1, and starts a node with these options whose cache is on a small disk. Returns the path of the
/// disk in the node's mount namespace, too.
fn scene(mounter: Mounter, options: &[&str]) -> (Published, Server, PathBuf) {
    let published = Published::new();
    published.publish(1);
    let cache = published.cache("a");
    fs::create_dir(&cache).unwrap();
    let mut command = published.node_command("a", published.publication.url());
    command.args(options);
    let node = Server::of(on_small_disk(mounter, &command, &cache), &published.socket("a"));
    let disk = PathBuf::from(format!("/proc/{}/root{}", node.id(), cache.display()));
    (published, node, disk)
}

/// Checks that a full disk is reported everywhere, while generation 1 is served.
fn expect_full_disk(published: &Published, node: &Server, load: &MixedLoad) {
    let reason = "free bytes, and the file needs";
    wait_for_error(node, reason);
    assert_eq!(node.number("published_generation"), 1);
    let (status, lines) = health(node);
    assert!(status == Some(0) && lines.contains(reason), "{status:?}: {lines}");
    eventually("the status in the store has the reason", || {
        let statuses = published.publication.statuses().unwrap();
        statuses.iter().any(|status| (status.serving, status.failed) == (1, 2) && status.error.contains(reason))
    });
    assert!(node.logged(reason) > 0, "{}", node.log());
    assert!(node.logged(", and 16777216 must stay free: free space") > 0, "{}", node.log());
    load.wait_for_right(1000);
}

/// Checks that the node serves generation 2 without a request, and that the failed attempts left no files.
fn expect_convergence(node: &Server, load: MixedLoad, disk: &Path) {
    wait_until_served(node, 2);
    load.expect_at_least(2);
    load.wait_for_right(1000);
    assert_eq!(load.finish(), 0);
    assert_eq!(node.info().get("published_error"), Some(""));
    assert_eq!(names(&disk.join("data")).len(), 2);
    assert_eq!(names(&disk.join("manifests")).len(), 2);
}

pub(crate) fn a_disk_that_fills_during_a_fetch_keeps_the_served_generation() -> Result<(), Missing> {
    let (published, node, disk) = scene(mounts()?, SLOWLY);
    let load = MixedLoad::start(&node, SHAPE, 1);
    let fetched = node.number("published_fetched_bytes");
    published.publish(2);
    node.wait_for("published_fetched_bytes", fetched + 1);
    fill(&File::create_new(disk.join("filler")).unwrap());
    expect_full_disk(&published, &node, &load);
    assert_eq!(node.logged("No space left on device"), 0, "{}", node.log());
    load.allow(2);
    fs::remove_file(disk.join("filler")).unwrap();
    expect_convergence(&node, load, &disk);
    Ok(())
}

pub(crate) fn a_fetch_does_not_start_on_a_full_disk() -> Result<(), Missing> {
    let (published, node, disk) = scene(mounts()?, SLOWLY);
    let load = MixedLoad::start(&node, SHAPE, 1);
    let fetched = node.number("published_fetched_bytes");
    fill(&File::create_new(disk.join("filler")).unwrap());
    published.publish(2);
    expect_full_disk(&published, &node, &load);
    assert_eq!(node.number("published_fetched_bytes"), fetched);
    load.allow(2);
    fs::remove_file(disk.join("filler")).unwrap();
    expect_convergence(&node, load, &disk);
    Ok(())
}

pub(crate) fn a_disk_without_room_for_merged_rows_keeps_the_served_generation() -> Result<(), Missing> {
    // No key has slot 16383, but the node must write a file without it.
    let (published, node, disk) = scene(mounts()?, &["--slots", "0-16382"]);
    let load = MixedLoad::start(&node, SHAPE, 1);
    // There is room for the download, and not for the merged file. A node leaves 16 MiB free.
    let len_bytes = fs::metadata(published.data_file(1)).unwrap().len();
    let found = statvfs(&disk).unwrap();
    let filled_bytes = found.f_bavail * found.f_frsize - (16 << 20) - len_bytes * 3 / 2;
    fs::write(disk.join("filler"), vec![1; filled_bytes as usize]).unwrap();
    published.publish(2);
    expect_full_disk(&published, &node, &load);
    load.allow(2);
    fs::remove_file(disk.join("filler")).unwrap();
    expect_convergence(&node, load, &disk);
    Ok(())
}

pub(crate) fn a_full_or_read_only_folder_of_a_store_is_named_with_its_remedy() -> Result<(), Missing> {
    let mounter = mounts()?;
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    SHAPE.bake(1, &db);
    let publish_on = |options: &str| {
        let disk = folder.path().join("disk");
        fs::create_dir_all(&disk).unwrap();
        let script = "mount -t tmpfs -o size=1m none \"$1\" && mkdir \"$1/users\" && mount -o \"remount,$2\" \"$1\" && \
                      exec \"$3\" publish \"$4\" --to \"file://$1/users\"";
        let mut command = Command::new(mounter[0]);
        command.args([mounter[1], "sh", "-c", script, "sh"]).arg(&disk).arg(options);
        let output = command.arg(env!("CARGO_BIN_EXE_zkv")).arg(&db).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (options, problem) in [
        ("size=128k", "No space left on device (os error 28): free space on the disk"),
        ("ro", "Read-only file system (os error 30): mount the file system for writing, or use another folder"),
    ] {
        let (status, text) = publish_on(options);
        assert!(status == Some(2) && text.contains(problem) && !text.contains("network"), "{status:?}: {text}");
    }
    Ok(())
}
