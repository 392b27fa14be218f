//! A power loss at any moment of a run.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use zero_kv::Lookup;
use zero_kv::Store;

use super::cases::{CASES, Case, Scene};
use super::crash::Disk;
use super::record::{Files, Inode, Op, Recording, record};
use crate::helpers::intercepted_calls::require_interception;
use crate::helpers::random::Random;
use crate::helpers::trials::Missing;
use crate::{random, report, wants_all};

/// The number of disk states that are drawn for each moment.
const STATES: usize = 24;
const STATES_OF_ALL: usize = 1000;

/// How many outputs were found in their old and new states.
#[derive(Debug, Default)]
struct Seen {
    before: usize,
    after: usize,
}

fn recording(case: &Case) -> (Scene, Recording) {
    let scene = Scene::for_case(case);
    let (recording, output) = record(scene.command(case), scene.folder(), case.has_unnamed_files)
        .unwrap_or_else(|error| panic!("{}: {error}", case.name));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {err}", case.name);
    (scene, recording)
}

/// Replays the operations and simulates a power loss after each of them. Returns the counts of states, or the first
/// invalid state.
fn replay(recording: &Recording, outputs: &[&str], states: usize, random: &mut Random) -> Result<Seen, String> {
    let outputs: Vec<&Path> = outputs.iter().map(Path::new).collect();
    let mut disk = Disk::new(&recording.before);
    let mut seen = Seen::default();
    for (done, op) in [None].into_iter().chain(recording.ops.iter().map(Some)).enumerate() {
        op.into_iter().for_each(|op| disk.apply(op));
        let reported = recording.ops[..done].contains(&Op::Reported);
        for _ in 0..states {
            let files = disk.after_power_loss(random);
            for (number, output) in outputs.iter().enumerate() {
                // The report is written after the summary.
                let must_be_new = done == recording.ops.len() || reported && number == 0;
                let found = files.get(*output).map(Vec::as_slice);
                let (old, new) = (recording.before.content(output), recording.after.content(output));
                if found == new {
                    seen.after += 1;
                } else if found == old && !must_be_new {
                    seen.before += 1;
                } else {
                    let found = if found == old { "as before".to_owned() } else { described(found) };
                    let op = op.map_or_else(|| "nothing".to_owned(), named);
                    return Err(format!("{} is {found} after operation {done}, {op}", output.display()));
                }
            }
            check_others(&files, &recording.before, &outputs)
                .map_err(|what| format!("{what} after operation {done}"))?;
        }
    }
    Ok(seen)
}

/// Checks that other files are unchanged, or have names that the next run removes.
fn check_others(
    files: &std::collections::BTreeMap<std::path::PathBuf, Vec<u8>>,
    before: &Files,
    outputs: &[&Path],
) -> Result<(), String> {
    for (name, found) in files.iter().filter(|(name, _)| !outputs.contains(&name.as_path())) {
        let text = name.to_string_lossy();
        let is_temporary = text.starts_with('.') && text.contains("tmp");
        if before.content(name) != Some(found) && !is_temporary {
            return Err(format!("{text} is {}", described(Some(found))));
        }
    }
    match before.names.keys().find(|name| !files.contains_key(*name)) {
        Some(missing) => Err(format!("{} is missing", missing.display())),
        None => Ok(()),
    }
}

fn described(found: Option<&[u8]>) -> String {
    found.map_or_else(|| "missing".to_owned(), |bytes| format!("{} bytes of neither file", bytes.len()))
}

fn named(op: &Op) -> String {
    match op {
        Op::Write { at_bytes, bytes, .. } => format!("a write of {} bytes at {at_bytes}", bytes.len()),
        op => format!("{op:?}"),
    }
}

pub(crate) fn after_a_power_loss_at_any_moment_the_old_or_the_new_file_is_complete() -> Result<(), Missing> {
    require_interception()?;
    let mut random = random("power losses");
    for case in CASES {
        let (scene, recording) = recording(case);
        let states = if wants_all() { STATES_OF_ALL } else { STATES };
        let seen = replay(&recording, case.outputs, states, &mut random)
            .unwrap_or_else(|error| panic!("{}: {error}\n{}", case.name, listed(&recording)));
        assert!(seen.before > states && seen.after > states, "{}: {seen:?}", case.name);
        for output in case.outputs.iter().filter(|output| output.ends_with(".db")) {
            // `Store::open` verifies every byte.
            assert!(Store::open(scene.path(output)).unwrap().len() >= 1400, "{}", case.name);
        }
        if wants_all() {
            report(&format!("{}: {} operations, {seen:?}", case.name, recording.ops.len()));
        }
    }
    Ok(())
}

fn listed(recording: &Recording) -> String {
    let ops = recording.ops.iter().enumerate();
    ops.map(|(number, op)| format!("{:4} {}\n", number + 1, named(op))).collect()
}

pub(crate) fn replaying_a_recording_gives_the_actual_files() -> Result<(), Missing> {
    require_interception()?;
    for case in CASES {
        let (_scene, recording) = recording(case);
        let mut disk = Disk::new(&recording.before);
        recording.ops.iter().for_each(|op| disk.apply(op));
        let after = recording.after.names.iter();
        let after = after.map(|(name, inode)| (name.clone(), recording.after.contents[inode].clone())).collect();
        assert!(disk.current() == after, "{}: the recording misses a change of the files", case.name);
    }
    Ok(())
}

/// Returns the inodes of the files that have the names of outputs at the end of the run.
fn output_inodes(recording: &Recording, case: &Case) -> HashSet<Inode> {
    case.outputs.iter().map(|output| recording.after.names[Path::new(output)]).collect()
}

pub(crate) fn a_missing_or_late_sync_is_detected() -> Result<(), Missing> {
    require_interception()?;
    let mut random = random("missing syncs");
    for case in CASES {
        let (_scene, recording) = recording(case);
        let inodes = output_inodes(&recording, case);
        for inode in inodes {
            // Removes all syncs of the file, because a concurrent sync may happen to come after the last write.
            let mut without = recording.clone();
            without.ops.retain(|op| *op != Op::Sync { inode });
            assert!(without.ops.len() < recording.ops.len(), "{}: an output is not synced", case.name);
            assert!(replay(&without, case.outputs, STATES, &mut random).is_err(), "{}: without sync", case.name);

            let mut late = without;
            late.ops.push(Op::Sync { inode });
            assert!(replay(&late, case.outputs, STATES, &mut random).is_err(), "{}: with a late sync", case.name);
        }
        let mut without = recording.clone();
        without.ops.retain(|op| !matches!(op, Op::SyncFolder { .. }));
        assert!(replay(&without, case.outputs, STATES, &mut random).is_err(), "{}: without folder sync", case.name);
    }
    Ok(())
}

pub(crate) fn an_operation_that_the_recorder_does_not_know_is_an_error() -> Result<(), Missing> {
    require_interception()?;
    let scene = Scene::for_case(&CASES[0]);
    for script in
        ["cp one.db copy.db", "mkdir folder", "ln -s one.db link", "truncate -s 5 /dev/shm/$$ && rm /dev/shm/$$"]
    {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(scene.folder());
        let error = record(command, scene.folder(), true).map(drop).expect_err(script).to_string();
        assert!(error.starts_with("the recorder does not know "), "{script}: {error}");
    }
    Ok(())
}
