//! Programs that write files, and the folders that they run in.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use zero_kv::bake::{Options, bake_csv};

use crate::helpers::random::Random;

const BAKER: &str = env!("CARGO_BIN_EXE_baker");
const ZKV: &str = env!("CARGO_BIN_EXE_zkv");

/// A run of a program.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    /// Whether the folder's file system has unnamed files (`O_TMPFILE`).
    pub(crate) has_unnamed_files: bool,
    /// Whether the outputs exist before the run.
    is_over_old: bool,
    pub(crate) outputs: &'static [&'static str],
}

const fn baker(name: &'static str, args: &'static [&'static str]) -> Case {
    Case { name, program: BAKER, args, has_unnamed_files: true, is_over_old: false, outputs: &["storage.db"] }
}

impl Case {
    const fn over_old_outputs(self) -> Case {
        Case { is_over_old: true, ..self }
    }

    const fn without_unnamed_files(self) -> Case {
        Case { has_unnamed_files: false, ..self }
    }
}

const REPORTING: &[&str] =
    &["dirty.csv", "--bad-rows", "skip", "--bad-rows-file", "bad-rows.csv", "--report", "report.json"];
const REPORTING_OUTPUTS: &[&str] = &["storage.db", "bad-rows.csv", "report.json"];

pub(crate) const CASES: &[Case] = &[
    baker("a bake of shuffled rows", &["shuffled.csv"]),
    baker("a bake of sorted rows over an old file", &["sorted.csv"]).over_old_outputs(),
    baker("an update in place", &["--base", "storage.db", "sorted.csv"]).over_old_outputs(),
    baker("a merge", &["merge", "one.db", "other.db", "--duplicates", "last"]),
    baker("a merge over one of its tables", &["merge", "storage.db", "other.db", "--duplicates", "last"])
        .over_old_outputs(),
    baker("a bake without unnamed files", &["shuffled.csv"]).without_unnamed_files(),
    baker("a bake without unnamed files over an old file", &["sorted.csv"]).over_old_outputs().without_unnamed_files(),
    Case { outputs: REPORTING_OUTPUTS, ..baker("a bake with a report and bad rows", REPORTING) },
    Case {
        outputs: REPORTING_OUTPUTS,
        ..baker("a second bake with a report and bad rows", REPORTING).over_old_outputs()
    },
    Case {
        program: ZKV,
        outputs: &["dump.csv"],
        ..baker("a dump over an old file", &["dump", "other.db", "-o", "dump.csv"]).over_old_outputs()
    },
    Case { program: ZKV, outputs: &["dump.csv"], ..baker("a dump", &["dump", "other.db", "-o", "dump.csv"]) },
];

/// A bake whose rows do not fit into its memory. It makes too many calls, of too many bytes, to try all of them.
pub(crate) const SPILLING: Case =
    baker("a bake that spills over an old file", &["spilling.csv", "--memory", "16MiB", "--threads", "1"])
        .over_old_outputs();
/// More rows than the least memory holds.
const SPILLING_ROWS: usize = 4500;

/// A folder in which a case can run.
pub(crate) struct Scene {
    folder: TempDir,
}

impl Scene {
    pub(crate) fn for_case(case: &Case) -> Scene {
        let scene = Scene { folder: tempfile::tempdir().unwrap() };
        let mut random = Random(case.args.len() as u64);
        let sorted = rows(&mut random, 0..1500);
        let mut shuffled = sorted.clone();
        random.shuffle(&mut shuffled);
        std::fs::write(scene.path("sorted.csv"), sorted.concat()).unwrap();
        std::fs::write(scene.path("shuffled.csv"), shuffled.concat()).unwrap();
        shuffled.insert(700, "no number,a bad row\n".to_owned());
        std::fs::write(scene.path("dirty.csv"), shuffled.concat()).unwrap();
        if case.args.contains(&"spilling.csv") {
            let row = |at: usize| format!("{},{}\n", at * 7919 % SPILLING_ROWS, "value ".repeat(270));
            std::fs::write(scene.path("spilling.csv"), (0..SPILLING_ROWS).map(row).collect::<String>()).unwrap();
        }
        scene.bake("one.db", &rows(&mut random, 0..600));
        scene.bake("other.db", &rows(&mut random, 400..1400));
        for output in case.outputs.iter().filter(|_| case.is_over_old) {
            match output.ends_with(".db") {
                true => scene.bake(output, &rows(&mut random, 900..2500)),
                false => std::fs::write(scene.path(output), "from before\n".repeat(1000)).unwrap(),
            }
        }
        scene
    }

    fn bake(&self, name: &str, rows: &[String]) {
        bake_csv(rows.concat().as_bytes(), &self.path(name), &Options::default()).unwrap();
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, case: &Case) -> Command {
        let mut command = Command::new(case.program);
        command.args(case.args).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

fn rows(random: &mut Random, keys: std::ops::Range<u64>) -> Vec<String> {
    keys.map(|key| format!("{key},{:x}{}\n", random.next(), " and so on".repeat(random.below(15)))).collect()
}
