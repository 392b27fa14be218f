//! Faults in runs: one system call fails.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use super::cases::{CASES, Case, SPILLING, Scene};
use super::faults::{Fault, Injector, KINDS, draw_faults, kind_of, numbers, resolved};
use super::record::Files;
use crate::helpers::intercepted_calls::{Call, Calls, Verdict, ends_within, require_interception, spawn};
use crate::helpers::trials::Missing;
use crate::helpers::waiting::PATIENCE;
use crate::{random, report, wants_all};

/// The number of faults that are drawn for each case.
const FAULTS_PER_CASE: usize = 5;
/// The number of faults that are drawn for the case that has too many faults to try all of them.
const FAULTS_OF_SPILLING: usize = 3;
const FAULTS_OF_SPILLING_OF_ALL: usize = 60;

struct Ran {
    output: Output,
    ended_in_time: bool,
    injector: Injector,
}

/// Runs a case with a fault, or without one to count its calls.
fn run(case: &'static Case, scene: &Scene, fault: Option<Fault>) -> std::io::Result<Ran> {
    let root = scene.folder().canonicalize()?;
    let injector = Arc::new(Mutex::new(Injector::new(fault)));
    let decide = {
        let injector = Arc::clone(&injector);
        move |call: &Call| {
            let Some((kind, path)) = kind_of(call) else { return Verdict::Run };
            let path = resolved(path);
            if !path.starts_with(&root) {
                return Verdict::Run;
            }
            let is_unnamed =
                call.number == libc::SYS_openat && call.args[2] as i32 & libc::O_TMPFILE == libc::O_TMPFILE;
            if is_unnamed && !case.has_unnamed_files {
                return Verdict::Fail(Errno::OPNOTSUPP);
            }
            let mut injector = injector.lock().unwrap();
            injector.count(kind, &path).map_or(Verdict::Run, Verdict::Fail)
        }
    };
    let (mut child, supervisor) = spawn(scene.command(case), &Calls::Only(&numbers()), decide)?;
    let ended_in_time = ends_within(&child, PATIENCE);
    if !ended_in_time {
        child.kill()?;
    }
    let output = child.wait_with_output()?;
    supervisor.join().expect("a supervisor that does not panic");
    let injector = std::mem::take(&mut *injector.lock().unwrap());
    Ok(Ran { output, ended_in_time, injector })
}

/// Returns the files of a scene, by name.
fn files(scene: &Scene) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let files = Files::in_folder(scene.folder());
    files.names.iter().map(|(name, inode)| (name.clone(), files.contents[inode].clone())).collect()
}

/// Runs a case with a fault, and checks that the fault is reported and that every output is either old or new.
fn check(case: &'static Case, fault: Fault, expected: &Files) -> Result<Outcome, String> {
    let scene = Scene::for_case(case);
    let before = files(&scene);
    let ran = run(case, &scene, Some(fault)).map_err(|error| error.to_string())?;
    let Some(failed) = &ran.injector.failed else { return Ok(Outcome::NotReached) };
    let (err, code) = (String::from_utf8_lossy(&ran.output.stderr), ran.output.status.code());
    let of = |what: &str| format!("{what}: {}, file {}: {code:?}: {err}", fault.name(), failed.display());
    if !ran.ended_in_time {
        return Err(of("it did not end"));
    }
    if err.contains("panicked") || ![Some(0), Some(1), Some(2)].contains(&code) {
        return Err(of("it neither succeeded nor failed with a message"));
    }
    let after = files(&scene);
    let outputs: BTreeSet<PathBuf> = case.outputs.iter().map(PathBuf::from).collect();
    if let Some(left) = after.keys().find(|name| !before.contains_key(*name) && !outputs.contains(*name)) {
        return Err(of(&format!("{} is left", left.display())));
    }
    if before.iter().any(|(name, content)| !outputs.contains(name) && after.get(name) != Some(content)) {
        return Err(of("another file has changed"));
    }
    let succeeded = code == Some(0);
    for output in &outputs {
        let (found, old) = (after.get(output), before.get(output));
        let is_new = found.is_some_and(|found| is_new(output, found, expected));
        let is_table = output.extension().is_some_and(|extension| extension == "db");
        let right = match (succeeded, is_table) {
            (true, _) => is_new,
            (false, true) => {
                if err.contains("is in place") {
                    is_new
                } else {
                    found == old
                }
            }
            // Other outputs may be in place before the table.
            (false, false) => is_new || found == old,
        };
        if !right {
            return Err(of(&format!("{} is neither what it was nor what it is to be", output.display())));
        }
    }
    if succeeded && KINDS[fault.kind].is_vital && fault.errno != Errno::INTR && !is_examination_of_table(failed, fault)
    {
        return Err(of("the error was ignored"));
    }
    if !succeeded && fault.errno == Errno::INTR && KINDS[fault.kind].is_vital {
        return Err(of("a call that was interrupted was not repeated"));
    }
    match succeeded {
        true => Ok(Outcome::Succeeded),
        false => check_message(case, &err, failed, fault).map(|()| Outcome::Failed).map_err(|what| of(&what)),
    }
}

enum Outcome {
    Succeeded,
    Failed,
    /// The fault did not occur: the order of threads varies, so a run may have one call less than another.
    NotReached,
}

/// Checks that the last line names the file, the error of the kernel, and the state of the output.
fn check_message(case: &Case, err: &str, failed: &Path, fault: Fault) -> Result<(), String> {
    const CONSEQUENCES: [&str; 3] = ["nothing was put in place", "is in place, but ", "the file was not written"];
    let line = err.lines().last().unwrap_or_default();
    if is_examination_of_table(failed, fault) && line.contains("depends on damaged bytes of the file") {
        return Ok(());
    }
    let system = format!("(os error {})", fault.errno.raw_os_error());
    if !line.contains(&system) {
        return Err(format!("the message lacks {system:?}"));
    }
    let concerns_output =
        line.contains("temporary files in .") || case.outputs.iter().any(|output| line.contains(output));
    let name = failed.file_name().unwrap_or_default().to_string_lossy();
    if !concerns_output && !line.contains(&*name) {
        return Err("the message names no file".to_owned());
    }
    if concerns_output && !CONSEQUENCES.iter().any(|consequence| line.contains(consequence)) {
        return Err("the message does not say what became of the output".to_owned());
    }
    Ok(())
}

/// Returns whether the call that failed reads or examines a table. In the first moments after a table was created, lookups
/// copy the pages that they need. A lookup whose copy fails, or that cannot examine the file, is repeated, and if that
/// fails, too, reports damage, as for a page that cannot be read.
fn is_examination_of_table(failed: &Path, fault: Fault) -> bool {
    let is_table = failed.extension().is_some_and(|extension| extension == "db");
    is_table && ["read ", "fstat "].iter().any(|call| fault.name().starts_with(call))
}

/// Returns whether an output is new. Reports contain times, so only their form is checked.
fn is_new(output: &Path, found: &[u8], expected: &Files) -> bool {
    match output.extension().is_some_and(|extension| extension == "json") {
        true => serde_json::from_slice::<serde_json::Value>(found).is_ok() && found.ends_with(b"}\n"),
        false => expected.content(output) == Some(found),
    }
}

/// The outcomes of the faults that were tried.
#[derive(Default)]
struct Tally {
    reached: usize,
    not_reached: usize,
    problems: Vec<String>,
}

/// Runs a case with some of its possible faults.
fn try_case(case: &'static Case, choose: impl FnOnce(Vec<Fault>) -> Vec<Fault>, tally: &mut Tally) {
    let scene = Scene::for_case(case);
    let ran = run(case, &scene, None).unwrap();
    let err = String::from_utf8_lossy(&ran.output.stderr);
    assert!(ran.output.status.success(), "{}: {err}", case.name);
    let expected = Files::in_folder(scene.folder());
    let (mut failed, mut succeeded, mut not_reached) = (0, 0, 0);
    for fault in choose(ran.injector.possible_faults()) {
        match check(case, fault, &expected) {
            Ok(Outcome::Failed) => failed += 1,
            Ok(Outcome::Succeeded) => succeeded += 1,
            Ok(Outcome::NotReached) => not_reached += 1,
            Err(problem) => tally.problems.push(format!("{}: {problem}", case.name)),
        }
    }
    tally.reached += failed + succeeded;
    tally.not_reached += not_reached;
    if wants_all() {
        report(&format!("{}: {failed} faults reported, {succeeded} survived, {not_reached} not reached", case.name));
    }
}

pub(crate) fn an_error_of_any_system_call_is_reported_and_changes_nothing() -> Result<(), Missing> {
    require_interception()?;
    let mut random = random("I/O errors");
    let mut tally = Tally::default();
    for case in CASES {
        let choose = |possible: Vec<Fault>| match wants_all() {
            true => possible,
            false => draw_faults(&possible, FAULTS_PER_CASE, &mut random),
        };
        try_case(case, choose, &mut tally);
    }
    let count = if wants_all() { FAULTS_OF_SPILLING_OF_ALL } else { FAULTS_OF_SPILLING };
    try_case(&SPILLING, |possible: Vec<Fault>| draw_faults(&possible, count, &mut random), &mut tally);
    let Tally { reached, not_reached, problems } = tally;
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    assert!(not_reached < reached, "{not_reached} faults were not reached, {reached} were");
    Ok(())
}
