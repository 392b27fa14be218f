//! The unit files in `packaging/systemd`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::helpers::trials::{Missing, require};

/// Copies the units and replaces the installed program with the one under test.
fn units() -> Result<TempDir, Missing> {
    require("systemd-analyze", "--version")?;
    let folder = tempfile::tempdir().unwrap();
    for unit in ["zero-kv.service", "zero-kv.socket"] {
        let text =
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd").join(unit)).unwrap();
        let text = text.replace("/usr/bin/kv_store", env!("CARGO_BIN_EXE_kv_store"));
        fs::write(folder.path().join(unit), text).unwrap();
    }
    Ok(folder)
}

fn analyze(folder: &TempDir, args: &[&str]) -> Output {
    Command::new("systemd-analyze").args(args).current_dir(folder.path()).output().unwrap()
}

pub(crate) fn systemd_finds_nothing_wrong_with_the_units() -> Result<(), Missing> {
    let folder = units()?;
    let output = analyze(&folder, &["verify", "--man=no", "./zero-kv.service", "./zero-kv.socket"]);
    let complaints = String::from_utf8(output.stderr).unwrap();
    // systemd versions before 253 do not know `notify-reload`, and use the line before it, as the unit's comment
    // explains.
    let of_ours = |line: &&str| line.contains("zero-kv") && !line.ends_with("ignoring: notify-reload");
    assert_eq!(complaints.lines().find(of_ours), None);
    assert!(output.status.success(), "{complaints}");
    Ok(())
}

/// Copies the template unit with a drop-in, if one is named. Returns the folder and the name of an instance.
fn instance(drop_in: Option<&str>) -> Result<(TempDir, &'static str), Missing> {
    require("systemd-analyze", "--version")?;
    let folder = tempfile::tempdir().unwrap();
    let packaged = |name: &str| {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd").join(name)).unwrap()
    };
    let unit = packaged("kv_store@.service").replace("/usr/bin/kv_store", env!("CARGO_BIN_EXE_kv_store"));
    fs::write(folder.path().join("kv_store@.service"), &unit).unwrap();
    fs::write(folder.path().join("kv_store@users.service"), unit).unwrap();
    if let Some(name) = drop_in {
        let drop_ins = folder.path().join("kv_store@users.service.d");
        fs::create_dir(&drop_ins).unwrap();
        fs::write(drop_ins.join(name), packaged(name)).unwrap();
    }
    Ok((folder, "./kv_store@users.service"))
}

pub(crate) fn systemd_finds_nothing_wrong_with_the_template_and_its_drop_ins() -> Result<(), Missing> {
    for drop_in in [None, Some("from.conf"), Some("tls.conf"), Some("cluster.conf")] {
        let (folder, unit) = instance(drop_in)?;
        let output = analyze(&folder, &["verify", "--man=no", unit]);
        let complaints = String::from_utf8(output.stderr).unwrap();
        let of_ours = |line: &&str| line.contains("kv_store@") && !line.ends_with("ignoring: notify-reload");
        assert_eq!(complaints.lines().find(of_ours), None);
        assert!(output.status.success(), "{complaints}");
    }
    Ok(())
}

pub(crate) fn the_drop_ins_keep_the_rest_of_the_sandbox() -> Result<(), Missing> {
    for drop_in in ["from.conf", "tls.conf", "cluster.conf"] {
        let (folder, unit) = instance(Some(drop_in))?;
        let output = analyze(&folder, &["security", "--offline=yes", "--threshold=25", unit]);
        assert!(output.status.success(), "{drop_in}: {}", String::from_utf8_lossy(&output.stdout));
    }
    Ok(())
}

pub(crate) fn nightly_bakes_are_valid_units_in_a_sandbox() -> Result<(), Missing> {
    require("systemd-analyze", "--version")?;
    let folder = tempfile::tempdir().unwrap();
    for name in ["baker@.service", "baker@.timer"] {
        let text =
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd").join(name)).unwrap();
        let text = text.replace("/usr/bin/baker", env!("CARGO_BIN_EXE_baker"));
        fs::write(folder.path().join(name.replace('@', "@users")), text).unwrap();
    }
    let output = analyze(&folder, &["verify", "--man=no", "./baker@users.service", "./baker@users.timer"]);
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert_eq!(complaints.lines().find(|line| line.contains("baker@")), None);
    assert!(output.status.success(), "{complaints}");
    let output = analyze(&folder, &["security", "--offline=yes", "--threshold=25", "./baker@users.service"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

pub(crate) fn the_template_is_sandboxed() -> Result<(), Missing> {
    let (folder, unit) = instance(None)?;
    let output = analyze(&folder, &["security", "--offline=yes", "--threshold=15", unit]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

pub(crate) fn the_service_is_sandboxed() -> Result<(), Missing> {
    let folder = units()?;
    // The threshold is in tenths of the exposure score.
    let output = analyze(&folder, &["security", "--offline=yes", "--threshold=15", "./zero-kv.service"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}
