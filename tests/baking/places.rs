//! A new file replaces the old one as a whole, or not at all.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Stdio};
use zero_kv::Lookup;

use crate::helpers::baker_runs::{BAKER, Ended, Folder, rows};
use crate::helpers::random::Random;
use crate::helpers::rows::csv_row;
use crate::helpers::shared_program::SharedProgram;

/// Returns more than a megabyte of rows that do not compress well.
fn large_text() -> Vec<u8> {
    let mut random = Random(1);
    (0..15_000_u64).flat_map(|key| csv_row(&key, &random.bytes(80))).collect()
}

fn folder_with_a_table() -> (Folder, Vec<u8>) {
    let folder = Folder::new();
    folder.bake_text("1,from before\n", &[]).succeeds();
    let before = fs::read(folder.path("storage.db")).unwrap();
    (folder, before)
}

/// Starts a bake that reads this text and waits for more.
fn start_bake(folder: &Folder, text: &[u8]) -> Child {
    folder.start_bake(folder.command(&BAKER).arg("-"), text)
}

#[test]
fn the_default_output_is_storage_db_in_the_current_folder() {
    let folder = Folder::new();
    folder.write("rows.csv", "1,one\n");
    assert!(folder.bake(&["rows.csv"]).succeeds().out.starts_with("storage.db: 1 row, "));
    assert_eq!(folder.names(), ["rows.csv", "storage.db"]);
    fs::create_dir(folder.path("sub")).unwrap();
    let absolute = folder.path("absolute.db");
    for output in ["other.db", "./sub/.hidden", absolute.to_str().unwrap()] {
        folder.bake(&["rows.csv", "-o", output]).succeeds();
        assert_eq!(folder.open(output).get(1).unwrap(), Some(&b"one"[..]));
    }
    folder.bake(&["--output=sub/long.db", "rows.csv"]).succeeds();
    assert_eq!(folder.names(), ["absolute.db", "other.db", "rows.csv", "storage.db", "sub"]);
}

#[test]
fn readers_keep_the_old_table_after_a_new_bake() {
    let folder = Folder::new();
    folder.bake_text("1,old\n2,gone\n", &[]).succeeds();
    let old = folder.open("storage.db");
    let old_inode = fs::metadata(folder.path("storage.db")).unwrap().ino();
    folder.bake_text("1,new\n", &[]).succeeds();
    assert_ne!(fs::metadata(folder.path("storage.db")).unwrap().ino(), old_inode);
    assert_eq!((old.get(1).unwrap(), old.get(2).unwrap()), (Some(&b"old"[..]), Some(&b"gone"[..])));
    assert_eq!(folder.rows(), rows([(1, b"new")]));
    assert_eq!(folder.names(), ["storage.db"]);
}

#[test]
fn the_mode_of_a_replaced_file_is_kept() {
    let folder = Folder::new();
    let db = folder.path("storage.db");
    for (mode, umask) in [(0o644, "077"), (0o640, "000"), (0o600, "022"), (0o444, "022")] {
        folder.bake_text("1,old\n", &[]).succeeds();
        fs::set_permissions(&db, PermissionsExt::from_mode(mode)).unwrap();
        let script = format!("umask {umask}; exec \"$0\" - -q");
        folder.run(folder.command("sh").args(["-c", &script, &BAKER]), b"1,one\n").succeeds();
        assert_eq!(folder.rows(), rows([(1, b"one")]));
        let found = fs::metadata(&db).unwrap().permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{found:o} under {umask}");
    }
}

#[test]
fn the_mode_of_a_new_file_follows_the_umask() {
    for (umask, mode) in [("022", 0o644), ("027", 0o640), ("077", 0o600), ("000", 0o666)] {
        let folder = Folder::new();
        let script = format!("umask {umask}; exec \"$0\" - -q");
        folder.run(folder.command("sh").args(["-c", &script, &BAKER]), b"1,one\n").succeeds();
        let found = fs::metadata(folder.path("storage.db")).unwrap().permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{found:o} under {umask}");
    }
}

#[test]
fn a_write_that_fails_leaves_the_old_file_and_nothing_else() {
    let (folder, before) = folder_with_a_table();
    // A write beyond the limit on file sizes fails without killing the process.
    let script = "ulimit -f 8; exec \"$0\" -";
    let ended = folder.run(folder.command("sh").args(["-c", script, &BAKER]), &large_text());
    ended.fails("storage.db: File too large (os error 27): nothing was put in place");
    assert!(fs::read(folder.path("storage.db")).unwrap() == before);
    assert_eq!(folder.names(), ["storage.db"]);
}

#[test]
fn a_bake_that_is_killed_leaves_nothing() {
    let (folder, before) = folder_with_a_table();
    // The text exceeds a pipe's capacity, so once it is written, the bake has read most of it.
    let mut child = start_bake(&folder, &large_text());
    assert!(child.try_wait().unwrap().is_none(), "the bake waits for more rows");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(folder.names(), ["storage.db"]);
    assert!(fs::read(folder.path("storage.db")).unwrap() == before);
}

#[test]
fn the_next_bake_removes_what_a_killed_bake_left() {
    let folder = Folder::new();
    for name in [".baker.1.0.tmp", ".baker.4000000.12.tmp", ".baker.tmp", ".baker.1.0.tmp.mine"] {
        folder.write(name, "left behind");
    }
    folder.bake_text("1,one\n", &[]).succeeds();
    assert_eq!(folder.names(), [".baker.1.0.tmp.mine", ".baker.tmp", "storage.db"]);
}

#[test]
fn the_temporary_file_of_a_concurrent_bake_is_kept_and_does_not_conflict() {
    let folder = Folder::new();
    let mut child = start_bake(&folder, b"1,one\n");
    // In containers that share a folder, two bakes may have the same process ID.
    let at_work = format!(".baker.{}.0.tmp", child.id());
    folder.write("theirs", "at work");
    let theirs = fs::File::open(folder.path("theirs")).unwrap();
    rustix::fs::flock(&theirs, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    fs::rename(folder.path("theirs"), folder.path(&at_work)).unwrap();
    drop(child.stdin.take());
    Ended::wait_for(child).succeeds();
    folder.bake_text("1,uno\n", &["-o", "other.db"]).succeeds();
    assert_eq!(folder.rows(), rows([(1, b"one")]));
    assert_eq!(folder.names(), [at_work.as_str(), "other.db", "storage.db"]);
    assert_eq!(fs::read(folder.path(&at_work)).unwrap(), b"at work");
    // Closing the file would not release the lock while a process that another test starts still has its descriptor.
    rustix::fs::flock(&theirs, rustix::fs::FlockOperation::Unlock).unwrap();
    folder.bake_text("1,eins\n", &["-o", "other.db"]).succeeds();
    assert_eq!(folder.names(), ["other.db", "storage.db"]);
}

#[test]
fn concurrent_bakes_leave_the_table_of_one_of_them() {
    let folder = Folder::new();
    let children: Vec<_> = (0..4).map(|i| start_bake(&folder, format!("1,{i}\n").as_bytes())).collect();
    for mut child in children {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
    let found = folder.rows();
    assert!((0..4).any(|i| found == [(1, i.to_string().into_bytes())]), "{found:?}");
    assert_eq!(folder.names(), ["storage.db"]);
}

#[test]
fn a_symbolic_link_is_replaced_and_its_target_stays() {
    let (folder, before) = folder_with_a_table();
    std::os::unix::fs::symlink("storage.db", folder.path("link.db")).unwrap();
    folder.bake_text("1,new\n", &["-o", "link.db"]).succeeds();
    assert!(fs::read(folder.path("storage.db")).unwrap() == before);
    assert_eq!(folder.open("link.db").get(1).unwrap(), Some(&b"new"[..]));
    assert!(fs::symlink_metadata(folder.path("link.db")).unwrap().is_file());
}

#[test]
fn a_summary_that_cannot_be_printed_does_not_fail_the_bake() {
    let folder = Folder::new();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = folder.command(&BAKER);
    let ended = folder.run(command.arg("-").stdout(Stdio::from(full)), b"1,one\n");
    ended.succeeds();
    assert_eq!(folder.rows(), rows([(1, b"one")]));
}

#[test]
fn an_error_before_the_rename_leaves_the_old_file() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    let (folder, before) = folder_with_a_table();
    let root = fs::metadata(folder.path("")).unwrap().uid() == 0;
    // A folder that is writable but not readable cannot be synced.
    fs::set_permissions(folder.path(""), fs::Permissions::from_mode(0o333)).unwrap();
    let baker = SharedProgram::copy(&BAKER);
    let mut command = folder.command(baker.path());
    if root {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.arg("-").stdin(Stdio::null()).output().unwrap();
    fs::set_permissions(folder.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(err, "baker: storage.db: Permission denied (os error 13): nothing was put in place\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(fs::read(folder.path("storage.db")).unwrap() == before);
    assert_eq!(folder.names(), ["storage.db"]);
}

#[test]
fn an_output_name_may_have_the_maximum_length() {
    let folder = Folder::new();
    let name = "n".repeat(255);
    folder.bake_text("1,a\n", &["-o", &name]).succeeds();
    assert_eq!(folder.names(), [name]);
}
