//! Disks that are full, that may not be written to, and that are not the same.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Child;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::*;

const FULL: &str = "No space left on device (os error 28)";
const READ_ONLY: &str = "Read-only file system (os error 30)";
const NOTHING: &str = "nothing was put in place";
const ELSEWHERE: &str = "give another folder with --temp-dir";

/// What to run a script with that mounts a disk which goes when it ends. `None` where nobody may.
fn mounter() -> Option<[&'static str; 2]> {
    let may = |command: &[&str]| {
        let mut tried = Command::new(command[0]);
        tried.args(&command[1..]).args(["mount", "-t", "tmpfs", "none", "/proc"]);
        tried.output().is_ok_and(|output| output.status.success())
    };
    let mounter = [["unshare", "-m"], ["unshare", "-rm"]].into_iter().find(|command| may(command));
    if mounter.is_none() {
        // Not by a macro, whose output is shown only of tests that fail.
        let _ =
            writeln!(io::stderr(), "nothing can be mounted here: full disks are tried as limits of file sizes alone");
    }
    mounter
}

/// Runs `"$0" -q` and these arguments in the folder of the scene, where `disk` is a file system of its own, with the table from
/// before in it. Gives what it says and with which code it ends, and holds what is on the disk then to these names.
fn bake_on_disk(scene: &Scene, mount_options: &str, args: &str, names: &str) -> Option<String> {
    let mounter = mounter()?;
    let _ = std::fs::create_dir(scene.folder.path("disk"));
    // What is mounted over the folder while files are made can still be written to.
    let (size, then) = mount_options.split_once(" then ").unwrap_or((mount_options, "true"));
    let script = format!(
        "mount -t tmpfs -o {size} none disk && cp storage.db disk/ && {then} || exit 99
         \"$0\" -q {args}; echo \"ended with $?\"; ls -A disk; cmp -s disk/storage.db storage.db && echo same"
    );
    let mut command = scene.folder.command(mounter[0]);
    let ended = scene.folder.run(command.arg(mounter[1]).args(["sh", "-c", &script, BAKER]), b"");
    let expected = match ended.err.is_empty() {
        true => format!("ended with 0\n{names}\n"),
        false => format!("ended with 1\n{names}\nsame\n"),
    };
    assert!(ended.out.starts_with(&expected), "{mount_options} {args}: {ended:?}");
    scene.assert_untouched();
    Some(ended.err)
}

#[track_caller]
fn assert_refused_on_disk(scene: &Scene, mount_options: &str, args: &str, message: &str) {
    if let Some(err) = bake_on_disk(scene, mount_options, args, "storage.db") {
        assert_eq!(err, format!("baker: {message}\n"), "{mount_options} {args}");
    }
}

#[test]
fn a_full_disk_of_the_output_is_named_at_whatever_byte_it_is_full() {
    let scene = Scene::new();
    scene.folder.write("sorted.csv", sorted_rows(2000, 1000));
    scene.folder.write("shuffled.csv", shuffled_rows(2000, 1000));
    let message = format!("disk/storage.db: {FULL}: {NOTHING}");
    scene.folder.bake(&["-q", "sorted.csv", "-o", "new.db"]).succeeds();
    let pages = |name: &str| std::fs::metadata(scene.folder.path(name)).unwrap().len().div_ceil(4096);
    let enough = pages("new.db") + pages("storage.db");
    for rows in ["sorted.csv", "shuffled.csv"] {
        let args = format!("{rows} -o disk/storage.db --temp-dir temp");
        // At the first records, at the last, behind them, and at the last page of all.
        for missing in [enough - 4, enough / 3, 16, 4, 2, 1] {
            let size = format!("size={}", (enough - missing) * 4096);
            assert_refused_on_disk(&scene, &size, &args, &message);
        }
        let size = format!("size={}", enough * 4096);
        if let Some(err) = bake_on_disk(&scene, &size, &args, "storage.db") {
            assert_eq!(err, "", "a disk that is just large enough");
        }
    }
    assert_refused_on_disk(&scene, "nr_inodes=2", "sorted.csv -o disk/storage.db", &message);
}

#[test]
fn a_full_disk_of_the_temporary_files_is_named_with_its_remedy() {
    let scene = Scene::new();
    scene.folder.write("rows.csv", rows_to_spill());
    let message = format!("temporary files in disk: {FULL}: {NOTHING}; {ELSEWHERE}");
    let args = format!("rows.csv --temp-dir disk {}", LEAST_MEMORY.join(" "));
    for size in ["size=64k", "size=4m"] {
        assert_refused_on_disk(&scene, size, &args, &message);
    }
    // Without --temp-dir they are beside the output.
    let args = format!("rows.csv -o disk/storage.db {}", LEAST_MEMORY.join(" "));
    assert_refused_on_disk(&scene, "size=4m", &args, &message);
}

#[test]
fn a_disk_that_may_not_be_written_to_is_named() {
    let scene = Scene::new();
    scene.folder.write("rows.csv", rows_to_spill());
    let options = "size=1m then mount -o remount,ro disk";
    assert_refused_on_disk(
        &scene,
        options,
        "rows.csv -o disk/storage.db",
        &format!("disk/storage.db: {READ_ONLY}: {NOTHING}"),
    );
    let args = format!("rows.csv --temp-dir disk {}", LEAST_MEMORY.join(" "));
    assert_refused_on_disk(
        &scene,
        options,
        &args,
        &format!("temporary files in disk: {READ_ONLY}: {NOTHING}; {ELSEWHERE}"),
    );
}

#[test]
fn where_files_cannot_be_unnamed_a_bake_leaves_no_other_name() {
    let scene = Scene::new();
    scene.folder.write("rows.csv", sorted_rows(2000, 1000));
    // A file without a name is given one through /proc.
    let without_proc = "then mount -t tmpfs none /proc";
    let args = "rows.csv -o disk/storage.db";
    assert_refused_on_disk(
        &scene,
        &format!("size=1m {without_proc}"),
        args,
        &format!("disk/storage.db: {FULL}: {NOTHING}"),
    );
    if let Some(err) = bake_on_disk(&scene, &format!("size=8m {without_proc}"), args, "storage.db") {
        assert_eq!(err, "");
    }
}

/// A bake from standard input that can write files of no more than a megabyte, and has not read anything.
fn limited(scene: &Scene, args: &[&str]) -> Child {
    let child = scene.baker(args).arg("-").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let limit = Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) };
    prlimit(Some(Pid::from_child(&child)), Resource::Fsize, limit).unwrap();
    child
}

#[test]
fn a_limit_of_file_sizes_is_told_as_an_error() {
    let scene = Scene::new();
    let too_large = "File too large (os error 27)";
    let cases = [
        (sorted_rows(2000, 1000), format!("storage.db: {too_large}: {NOTHING}")),
        (shuffled_rows(2000, 1000), format!("storage.db: {too_large}: {NOTHING}")),
        (rows_to_spill(), format!("temporary files in temp: {too_large}: {NOTHING}; {ELSEWHERE}")),
    ];
    for (text, message) in cases {
        let mut child = limited(&scene, &[&LEAST_MEMORY[..], &["--temp-dir", "temp"]].concat());
        feed(&mut child, &text);
        end_of(child).fails(&message);
        scene.assert_untouched();
    }
}

/// A folder on another disk than these, if there is one.
fn other_disk(than: &Path) -> Option<tempfile::TempDir> {
    let device = std::fs::metadata(than).unwrap().dev();
    let folders = ["/dev/shm", env!("CARGO_TARGET_TMPDIR"), "/run", "/var/tmp"].into_iter();
    let mut others = folders.filter(|folder| std::fs::metadata(folder).is_ok_and(|found| found.dev() != device));
    others.find_map(|folder| tempfile::tempdir_in(folder).ok())
}

#[test]
fn input_output_and_temporary_files_may_be_on_different_disks() {
    let scene = Scene::new();
    let text = rows_to_spill();
    scene.folder.write("rows.csv", &text);
    let same = scene.folder.path("same.db");
    let args = [&["rows.csv", "-o", same.to_str().unwrap()], &LEAST_MEMORY[..]].concat();
    scene.folder.run(&mut scene.baker(&args), b"").succeeds();
    let expected = std::fs::read(&same).unwrap();
    let Some(other) = other_disk(&scene.folder.path("")) else {
        let _ = writeln!(io::stderr(), "there is no second disk here: none was tried");
        return;
    };
    let (input, output) = (other.path().join("rows.csv"), other.path().join("storage.db"));
    std::fs::write(&input, &text).unwrap();
    let there = other.path().to_str().unwrap();
    for (input, output, temp_dir) in [
        ("rows.csv", output.to_str().unwrap(), "temp"),
        (input.to_str().unwrap(), "other.db", "temp"),
        ("rows.csv", "other.db", there),
        (input.to_str().unwrap(), output.to_str().unwrap(), "temp"),
    ] {
        let args = [&[input, "-o", output, "--temp-dir", temp_dir], &LEAST_MEMORY[..]].concat();
        // The second time it replaces the first.
        for _ in 0..2 {
            scene.folder.run(&mut scene.baker(&args), b"").succeeds();
            assert!(std::fs::read(scene.folder.path(output)).unwrap() == expected, "{args:?}");
        }
        scene.assert_untouched();
    }
    let mut names: Vec<_> = std::fs::read_dir(other.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["rows.csv", "storage.db"]);
    File::open(&output).unwrap();
}
