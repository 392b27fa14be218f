//! Limits and blocked signals, which a program inherits from the process that starts it.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use super::requirements::root;
use crate::helpers::baker_runs::BAKER;
use crate::helpers::baker_scenes::shuffled_rows;
use crate::helpers::generations::Shape;
use crate::helpers::scenes::Scene;
use crate::helpers::shared_program::SharedProgram;
use crate::helpers::trials::{Missing, missing};
use crate::helpers::waiting::eventually;

/// A user that runs nothing else, so that the limit counts only the bake's threads.
const UNUSED: u32 = 4323;

/// Returns whether any thread runs as this user.
fn runs_threads(user: u32) -> bool {
    let folders = |path: &Path| std::fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut threads = folders(Path::new("/proc")).flat_map(|process| folders(&process.join("task")));
    threads.any(|thread| {
        // A thread may have ended since it was listed.
        let status = std::fs::read_to_string(thread.join("status")).unwrap_or_default();
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        users.is_some_and(|users| users.split_whitespace().any(|found| found == user.to_string()))
    })
}

pub(crate) fn a_bake_without_enough_threads_is_an_error() -> Result<(), Missing> {
    root()?;
    eventually("the user runs nothing", || !runs_threads(UNUSED));
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(folder.path(), Some(UNUSED), Some(UNUSED)).unwrap();
    std::fs::write(folder.path().join("rows.csv"), shuffled_rows(2000, 100)).unwrap();
    let baker = SharedProgram::copy(&BAKER);
    let bake = |limit: u32| {
        let script = format!("ulimit -u {limit} && exec \"$0\" -q rows.csv -o new.db --threads 4 --memory 16MiB");
        let mut command = Command::new("bash");
        command.args(["-c", &script, baker.path()]).current_dir(folder.path()).env("HOME", folder.path());
        command.uid(UNUSED).gid(UNUSED).output().unwrap()
    };
    let outputs = (1..20).map(bake);
    let mut failures = 0;
    for output in outputs {
        let stderr = String::from_utf8(output.stderr).unwrap();
        match output.status.code() {
            Some(0) => assert_eq!(stderr, ""),
            Some(1) => {
                assert!(
                    stderr.starts_with("baker: ") && stderr.contains("Resource temporarily unavailable"),
                    "{stderr}"
                );
                failures += 1;
            }
            _ => panic!("{}: {stderr}", output.status),
        }
        let _ = std::fs::remove_file(folder.path().join("new.db"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "only the rows are left");
    }
    assert!((1..19).contains(&failures), "some limits are too low, and some are not: {failures}");
    Ok(())
}

pub(crate) fn signals_that_the_parent_has_blocked_stop_a_server() -> Result<(), Missing> {
    const BLOCK: &str = "--block-signal=TERM,INT,HUP";
    let can_block = Command::new("env").args([BLOCK, "true"]).output().is_ok_and(|output| output.status.success());
    if !can_block {
        return Err(missing("block-signal", "`env` of GNU coreutils 8.32 or later"));
    }
    let scene = Scene::new();
    Shape { rows: 10, len_max_bytes: 10 }.bake(1, &scene.db());
    for signal in [Signal::TERM, Signal::INT] {
        let plain = scene.command(&[]);
        let mut command = Command::new("env");
        command.arg(BLOCK).arg(plain.get_program()).args(plain.get_args()).current_dir(scene.path(""));
        command.env("RUST_LOG", "info");
        let mut served = scene.run(command);
        served.signal(signal);
        eventually("the server ends", || !served.is_alive());
    }
    Ok(())
}
