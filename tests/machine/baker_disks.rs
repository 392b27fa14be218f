//! Bakes on disks that are full or read-only, on file systems without unnamed files, and across disks.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;

use rustix::process::{Pid, Signal, kill_process};

use super::requirements::{Mounter, mounts, second_disk};
use crate::helpers::baker_runs::{BAKER, Ended};
use crate::helpers::baker_scenes::{LEAST_MEMORY, Scene, rows_to_spill, shuffled_rows, sorted_rows};
use crate::helpers::trials::Missing;

const FULL: &str = "No space left on device (os error 28)";
const READ_ONLY: &str = "Read-only file system (os error 30)";
const NOTHING: &str = "nothing was put in place";
const ELSEWHERE: &str = "choose another folder (--temp-dir)";

/// Runs `baker -q` with these arguments in the scene's folder, in which `disk` is a new file system that contains the
/// old table. Asserts the exit status and that the disk contains the table alone afterwards. Returns the standard
/// error.
fn bake_on_disk(scene: &Scene, mounter: Mounter, mount_options: &str, args: &str) -> String {
    let _ = std::fs::create_dir(scene.folder.path("disk"));
    let (size, then) = mount_options.split_once(" then ").unwrap_or((mount_options, "true"));
    let script = format!(
        "mount -t tmpfs -o {size} none disk && cp storage.db disk/ && {then} || exit 99
         \"$0\" -q {args}; echo \"ended with $?\"; ls -A disk; cmp -s disk/storage.db storage.db && echo same"
    );
    let mut command = scene.folder.command(mounter[0]);
    let ended = scene.folder.run(command.arg(mounter[1]).args(["sh", "-c", &script, &BAKER]), b"");
    let expected = match ended.err.is_empty() {
        true => "ended with 0\nstorage.db\n",
        false => "ended with 1\nstorage.db\nsame\n",
    };
    assert!(ended.out.starts_with(expected), "{mount_options} {args}: {ended:?}");
    scene.assert_untouched();
    ended.err
}

#[track_caller]
fn assert_rejected_on_disk(scene: &Scene, mounter: Mounter, mount_options: &str, args: &str, message: &str) {
    let err = bake_on_disk(scene, mounter, mount_options, args);
    assert_eq!(err, format!("baker: {message}\n"), "{mount_options} {args}");
}

pub(crate) fn a_full_output_disk_is_named_wherever_the_output_is_truncated() -> Result<(), Missing> {
    let mounter = mounts()?;
    let scene = Scene::new();
    scene.folder.write("sorted.csv", sorted_rows(2000, 1000));
    scene.folder.write("shuffled.csv", shuffled_rows(2000, 1000));
    let message = format!("disk/storage.db: {FULL}: {NOTHING}");
    scene.folder.bake(&["-q", "sorted.csv", "-o", "new.db"]).succeeds();
    let pages = |name: &str| std::fs::metadata(scene.folder.path(name)).unwrap().len().div_ceil(4096);
    let enough = pages("new.db") + pages("storage.db");
    for rows in ["sorted.csv", "shuffled.csv"] {
        let args = format!("{rows} -o disk/storage.db --temp-dir temp");
        // The disk becomes full at the first records, at the last, after them, and at the last page of the file.
        for missing in [enough - 4, enough / 3, 16, 4, 2, 1] {
            let size = format!("size={}", (enough - missing) * 4096);
            assert_rejected_on_disk(&scene, mounter, &size, &args, &message);
        }
        let size = format!("size={}", enough * 4096);
        assert_eq!(bake_on_disk(&scene, mounter, &size, &args), "", "a disk that is just large enough");
    }
    assert_rejected_on_disk(&scene, mounter, "nr_inodes=2", "sorted.csv -o disk/storage.db", &message);
    Ok(())
}

pub(crate) fn a_full_disk_of_the_temporary_files_is_named_with_its_remedy() -> Result<(), Missing> {
    let mounter = mounts()?;
    let scene = Scene::new();
    scene.folder.write("rows.csv", rows_to_spill());
    let message = format!("temporary files in disk: {FULL}: {NOTHING}; {ELSEWHERE}");
    let args = format!("rows.csv --temp-dir disk {}", LEAST_MEMORY.join(" "));
    for size in ["size=64k", "size=4m"] {
        assert_rejected_on_disk(&scene, mounter, size, &args, &message);
    }
    // Without --temp-dir, the temporary files are beside the output.
    let args = format!("rows.csv -o disk/storage.db {}", LEAST_MEMORY.join(" "));
    assert_rejected_on_disk(&scene, mounter, "size=4m", &args, &message);
    Ok(())
}

pub(crate) fn a_read_only_disk_is_named() -> Result<(), Missing> {
    let mounter = mounts()?;
    let scene = Scene::new();
    scene.folder.write("rows.csv", rows_to_spill());
    let options = "size=1m then mount -o remount,ro disk";
    assert_rejected_on_disk(
        &scene,
        mounter,
        options,
        "rows.csv -o disk/storage.db",
        &format!("disk/storage.db: {READ_ONLY}: {NOTHING}"),
    );
    let args = format!("rows.csv --temp-dir disk {}", LEAST_MEMORY.join(" "));
    assert_rejected_on_disk(
        &scene,
        mounter,
        options,
        &args,
        &format!("temporary files in disk: {READ_ONLY}: {NOTHING}; {ELSEWHERE}"),
    );
    Ok(())
}

pub(crate) fn a_bake_without_unnamed_files_leaves_no_other_file() -> Result<(), Missing> {
    let mounter = mounts()?;
    let scene = Scene::new();
    scene.folder.write("rows.csv", sorted_rows(2000, 1000));
    // The baker names an unnamed file through /proc.
    let without_proc = "then mount -t tmpfs none /proc";
    let args = "rows.csv -o disk/storage.db";
    assert_rejected_on_disk(
        &scene,
        mounter,
        &format!("size=1m {without_proc}"),
        args,
        &format!("disk/storage.db: {FULL}: {NOTHING}"),
    );
    assert_eq!(bake_on_disk(&scene, mounter, &format!("size=8m {without_proc}"), args), "");
    Ok(())
}

pub(crate) fn input_output_and_temporary_files_may_be_on_different_disks() -> Result<(), Missing> {
    let scene = Scene::new();
    let other = second_disk(&scene.folder.path(""))?;
    let text = rows_to_spill();
    scene.folder.write("rows.csv", &text);
    let same = scene.folder.path("same.db");
    let args = [&["rows.csv", "-o", same.to_str().unwrap()], &LEAST_MEMORY[..]].concat();
    scene.folder.run(&mut scene.baker(&args), b"").succeeds();
    let expected = std::fs::read(&same).unwrap();
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
        // The second bake replaces the first table.
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
    Ok(())
}

pub(crate) fn without_unnamed_files_a_bake_uses_a_hidden_name_and_removes_it() -> Result<(), Missing> {
    let mounter = mounts()?;
    let Scene { folder, before } = Scene::new();
    std::fs::remove_dir(folder.path("temp")).unwrap();
    // The baker names an unnamed file through /proc.
    let mut command = folder.command(mounter[0]);
    command.args([mounter[1], "sh", "-c", "mount -t tmpfs none /proc && exec \"$0\" -", &BAKER]);
    folder.run(&mut command, b"1,one\nx,two\n");
    assert_eq!(folder.names(), ["storage.db"], "after a bake that failed");

    // One of two concurrent bakes is killed.
    let rows = sorted_rows(15_000, 80);
    let mut killed = folder.start_bake(&mut command, &rows);
    let mut other = folder.start_bake(&mut command, &rows);
    let names = folder.names();
    assert_eq!(names.len(), 3, "{names:?}");
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(folder.names(), names);
    folder.bake_text("1,one\n", &["-q", "-o", "one.db"]).succeeds();
    let left = names.iter().find(|name| name.starts_with(&format!(".baker.{}.", other.id()))).unwrap();
    assert_eq!(folder.names(), [left, "one.db", "storage.db"], "only the file of the bake that still runs is left");
    assert!(std::fs::read(folder.path("storage.db")).unwrap() == before);
    drop(other.stdin.take());
    Ended::wait_for(other).succeeds();
    assert_eq!((folder.names(), folder.rows().len()), (vec!["one.db".to_owned(), "storage.db".to_owned()], 15_000));

    for signal in [Signal::INT, Signal::TERM] {
        let child = folder.start_bake(&mut command, &rows);
        assert_eq!(folder.names().len(), 3);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ended = Ended::wait_for(child);
        assert_eq!(ended.status.signal(), Some(signal.as_raw()), "{}", ended.err);
        assert_eq!(folder.names(), ["one.db", "storage.db"]);
    }
    Ok(())
}
