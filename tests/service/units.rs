//! The units in packaging/systemd.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::clients::skip;

/// A copy of the units in which the program is the one that was built; `None` if
/// there is no systemd-analyze.
fn units() -> Option<TempDir> {
    let is_there = Command::new("systemd-analyze").arg("--version").stdout(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        skip("systemd-analyze is not installed");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    for unit in ["zero-kv.service", "zero-kv.socket"] {
        let text =
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd").join(unit)).unwrap();
        let text = text.replace("/usr/bin/kv_store", env!("CARGO_BIN_EXE_kv_store"));
        fs::write(folder.path().join(unit), text).unwrap();
    }
    Some(folder)
}

fn analyze(folder: &TempDir, args: &[&str]) -> Output {
    Command::new("systemd-analyze").args(args).current_dir(folder.path()).output().unwrap()
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    let Some(folder) = units() else { return };
    let output = analyze(&folder, &["verify", "--man=no", "./zero-kv.service", "./zero-kv.socket"]);
    let complaints = String::from_utf8(output.stderr).unwrap();
    // Before version 253; they go by the line above it, as the unit says.
    let of_ours = |line: &&str| line.contains("zero-kv") && !line.ends_with("ignoring: notify-reload");
    assert_eq!(complaints.lines().find(of_ours), None);
    assert!(output.status.success(), "{complaints}");
}

#[test]
fn the_service_is_shut_in() {
    let Some(folder) = units() else { return };
    // In hundredths of what a service may be exposed to.
    let output = analyze(&folder, &["security", "--offline=yes", "--threshold=15", "./zero-kv.service"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
