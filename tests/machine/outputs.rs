//! Every output of a program replaces a symbolic link at its path, because anyone who can write to the folder could
//! have put the link there.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::requirements::{OTHER, root};
use crate::helpers::tables::Table;
use crate::helpers::trials::Missing;

/// Runs each program that writes files, with a link at the path of each file. Returns the paths. `target` creates the
/// target of the next link.
fn run_all(table: &Table, mut target: impl FnMut() -> PathBuf, owner: Option<u32>) -> Vec<PathBuf> {
    let folder = tempfile::tempdir_in(table.folder.path()).unwrap().keep();
    let mut place = |name: &str| {
        let place = folder.join(name);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        symlink(target(), &place).unwrap();
        lchown(&place, owner, owner).unwrap();
        place
    };
    let rows = folder.join("rows.csv");
    fs::write(&rows, "1,one\nbad\n").unwrap();
    let run = |program: &str, args: &[&Path]| {
        let output = Command::new(program).args(args).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{program} {args:?}: {output:?}");
    };
    let [dump, report, bad_rows, page, hdr, manual, completion] =
        ["dump.csv", "report.json", "bad.csv", "page.html", "run.hdr", "man1/zkv.1", "bash/zkv.bash"].map(&mut place);
    let path = Path::new;
    run(env!("CARGO_BIN_EXE_zkv"), &[path("dump"), &table.db(), path("-o"), &dump]);
    let arguments = ["--report", "--bad-rows-file", "--bad-rows", "skip"].map(path);
    let [report_option, bad_rows_option, bad_rows_mode, skip] = arguments;
    let baker = [&rows, report_option, &report, bad_rows_option, &bad_rows, bad_rows_mode, skip];
    run(env!("CARGO_BIN_EXE_baker"), &baker);
    let (db, socket) = (table.db(), table.socket());
    let load = ["--seconds=0.1", "--warmup=0", "--clients=1", "--db"].map(path);
    let files = [&db, path("--socket"), &socket, path("--report"), &page, path("--hdr"), &hdr];
    run(env!("CARGO_BIN_EXE_benchmarker"), &[&load[..], &files[..]].concat());
    run(env!("CARGO_BIN_EXE_zkv"), &[path("--generate"), &folder]);
    vec![dump, report, bad_rows, page, hdr, manual, completion]
}

pub(crate) fn links_at_output_paths_are_replaced_and_their_targets_kept() {
    let table = Table::of_rows(10);
    let _server = table.serve();
    let mut targets = Vec::new();
    let places = run_all(
        &table,
        || {
            let target = table.folder.path().join(format!("target {}", targets.len()));
            fs::write(&target, "kept").unwrap();
            targets.push(target.clone());
            target
        },
        None,
    );
    assert_eq!(places.len(), targets.len());
    for (place, target) in places.iter().zip(targets) {
        assert_eq!(fs::read(&target).unwrap(), b"kept", "{}", place.display());
        assert!(fs::symlink_metadata(place).unwrap().is_file(), "{}", place.display());
    }
}

pub(crate) fn links_of_other_users_are_not_followed_to_devices_either() -> Result<(), Missing> {
    root()?;
    let table = Table::of_rows(10);
    let _server = table.serve();
    for place in run_all(&table, || "/dev/null".into(), Some(OTHER)) {
        assert!(fs::symlink_metadata(&place).unwrap().is_file(), "{}", place.display());
    }
    Ok(())
}

pub(crate) fn a_replaced_file_keeps_its_owner_unless_another_user_may_have_planted_it() -> Result<(), Missing> {
    root()?;
    let folder = tempfile::tempdir().unwrap();
    let (rows, db, dump) = (folder.path().join("rows.csv"), folder.path().join("t.db"), folder.path().join("t.csv"));
    fs::write(&rows, "1,one\n").unwrap();
    let write_both = || {
        let run = |program: &str, args: &[&Path]| {
            let output = Command::new(program).args(args).current_dir(folder.path()).output().unwrap();
            assert!(output.status.success(), "{program} {args:?}: {output:?}");
        };
        run(env!("CARGO_BIN_EXE_baker"), &[&rows, Path::new("-o"), &db]);
        run(env!("CARGO_BIN_EXE_zkv"), &[Path::new("dump"), &db, Path::new("-o"), &dump]);
        [&db, &dump].map(|path| {
            let found = fs::metadata(path).unwrap();
            (found.uid(), found.gid(), found.permissions().mode() & 0o777)
        })
    };
    write_both();
    for path in [&db, &dump] {
        chown(path, Some(OTHER), Some(OTHER)).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(0o640)).unwrap();
    }
    assert_eq!(write_both(), [(OTHER, OTHER, 0o640); 2]);
    for mode in [0o777, 0o1777, 0o770] {
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
        [&db, &dump].into_iter().for_each(|path| chown(path, Some(OTHER), Some(OTHER)).unwrap());
        assert!(write_both().iter().all(|(owner, group, _)| (*owner, *group) == (0, 0)), "{mode:o}");
    }
    Ok(())
}
