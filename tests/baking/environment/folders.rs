//! Outputs and folders that cannot be used.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use zero_kv::Lookup;

use super::*;

const NOBODY: u32 = 65534;

/// Returns a bake by a user whose permissions the kernel checks.
fn without_root(scene: &Scene, baker: &SharedProgram, args: &[&str]) -> Command {
    let mut command = scene.folder.command(baker.path());
    command.arg("-q").args(args);
    if std::fs::metadata(scene.folder.path("")).unwrap().uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

#[test]
fn the_error_for_an_unusable_folder_names_it() {
    let scene = Scene::new();
    scene.folder.write("rows.csv", rows_to_spill());
    // Not even root can create a file below /proc.
    let why = "No such file or directory (os error 2)";
    scene.assert_fails(
        &["rows.csv", "-o", "/proc/table.db"],
        b"",
        &format!("/proc/table.db: {why}: nothing was put in place"),
    );
    for (temp_dir, why) in [
        ("/proc", why),
        ("missing", why),
        ("rows.csv", "Not a directory (os error 20)"),
        ("storage.db/temp", "Not a directory (os error 20)"),
    ] {
        let args = [&["rows.csv", "--temp-dir", temp_dir], &LEAST_MEMORY[..]].concat();
        let message = format!(
            "temporary files in {temp_dir}: {why}: nothing was put in place; choose another folder (--temp-dir)"
        );
        scene.assert_fails(&args, b"", &message);
    }
}

#[test]
fn the_error_for_a_folder_without_write_permission_names_it() {
    let scene = Scene::new();
    scene.folder.write("rows.csv", rows_to_spill());
    let set_mode = |name, mode| {
        std::fs::set_permissions(scene.folder.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode("", 0o555);
    set_mode("temp", 0o777);
    std::fs::write(scene.folder.path("temp/old.db"), &scene.before).unwrap();
    set_mode("temp/old.db", 0o444);
    let baker = SharedProgram::copy(&BAKER);
    let refused = |args: &[&str]| scene.folder.run(&mut without_root(&scene, &baker, args), b"");
    let denied = "Permission denied (os error 13): nothing was put in place";
    refused(&["rows.csv"]).fails(&format!("storage.db: {denied}"));
    let args = [&["rows.csv", "-o", "temp/new.db", "--temp-dir", "."], &LEAST_MEMORY[..]].concat();
    refused(&args).fails(&format!("temporary files in .: {denied}; choose another folder (--temp-dir)"));
    // The permissions of the folder, not of the file, decide who may replace the file.
    let args = [&["rows.csv", "-o", "temp/old.db"], &LEAST_MEMORY[..]].concat();
    refused(&args).succeeds();
    assert_eq!(scene.folder.open("temp/old.db").len(), 4200);
    std::fs::remove_file(scene.folder.path("temp/old.db")).unwrap();
    set_mode("", 0o755);
    scene.assert_untouched();
    assert_eq!(scene.folder.names(), ["rows.csv", "storage.db", "temp"]);
}

/// Without the old table, the rules for a replacement could not be checked.
#[test]
fn a_table_without_read_permission_is_not_replaced() {
    let scene = Scene::new();
    let set_mode = |name, mode| {
        std::fs::set_permissions(scene.folder.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode("", 0o777);
    set_mode("storage.db", 0);
    let baker = SharedProgram::copy(&BAKER);
    let ended = scene.folder.run(&mut without_root(&scene, &baker, &["-"]), b"2,two\n");
    ended.fails("storage.db: Permission denied (os error 13): nothing was put in place");
    set_mode("storage.db", 0o644);
    scene.assert_untouched();
}

#[test]
fn an_output_that_is_not_a_file_is_not_replaced() {
    let scene = Scene::new();
    make_fifo(&scene.folder, "fifo");
    let socket = std::os::unix::net::UnixListener::bind(scene.folder.path("socket")).unwrap();
    for output in ["fifo", "socket", "/dev/full"] {
        let message = format!("{output}: is not a regular file, so it is not replaced: nothing was put in place");
        scene.assert_fails(&["-", "-o", output], b"2,two\n", &message);
    }
    drop(socket);
    scene.assert_fails(
        &["-", "-o", "temp"],
        b"2,two\n",
        "temp: is a folder: name a file in it: nothing was put in place",
    );
    scene.assert_fails(
        &["-", "-o", "temp/"],
        b"2,two\n",
        "temp/: is a folder: name a file in it: nothing was put in place",
    );
}

/// As root, a rename would replace the system's own link /dev/stdout.
#[test]
fn a_link_to_a_descriptor_of_a_process_is_not_replaced() {
    let scene = Scene::new();
    let link = scene.folder.path("stdout");
    symlink("/proc/self/fd/1", &link).unwrap();
    let message =
        "stdout: is a link to a file of a process, so it is not replaced: name a file: nothing was put in place";
    scene.assert_fails(&["-", "-o", "stdout"], b"2,two\n", message);
    assert_eq!(std::fs::read_link(link).unwrap().to_str(), Some("/proc/self/fd/1"));
}

#[test]
fn a_link_is_replaced_whatever_its_target_is() {
    let scene = Scene::new();
    for target in ["missing.db", "temp", "storage.db", "link.db"] {
        symlink(target, scene.folder.path("link.db")).unwrap();
        let ended = scene.folder.run(&mut scene.baker(&["-", "-o", "link.db"]), b"2,two\n");
        ended.succeeds();
        assert!(std::fs::symlink_metadata(scene.folder.path("link.db")).unwrap().is_file(), "{target}");
        assert_eq!(scene.folder.open("link.db").get(2).unwrap(), Some(&b"two"[..]));
        std::fs::remove_file(scene.folder.path("link.db")).unwrap();
        scene.assert_untouched();
    }
    assert_eq!(scene.folder.names(), ["storage.db", "temp"]);
}
