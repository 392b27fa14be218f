//! Another user puts links and files at every path that a program creates in a shared folder.
//!
//! The paths are found by a run of the program under strace, so paths of new features are found, too.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::requirements::{OTHER, root};
use crate::helpers::trials::{Missing, require};
use crate::helpers::waiting::eventually;

/// What the other user puts at a path.
const PLANTED: [&str; 7] =
    ["link to a file", "dangling link", "link to a folder", "hard link", "FIFO", "writable file", "private file"];
const CALLS: &str =
    "trace=open,openat,creat,mkdir,mkdirat,link,linkat,rename,renameat,renameat2,symlink,symlinkat,bind";
const ZKV: &str = env!("CARGO_BIN_EXE_zkv");

/// A program that writes to the folder `shared`.
struct Case {
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    /// The outputs, which belong to root after the program has succeeded.
    outputs: &'static [&'static str],
    /// Whether the program runs until a signal stops it.
    is_server: bool,
}

const CASES: [Case; 8] = [
    Case {
        name: "pull",
        program: ZKV,
        args: &["pull", "URL", "1", "-o", "shared/u.db"],
        outputs: &["u.db"],
        is_server: false,
    },
    Case {
        name: "pull of shards",
        program: ZKV,
        args: &["pull", "URL", "2", "-o", "shared/u.db"],
        outputs: &["u.db"],
        is_server: false,
    },
    Case {
        name: "follow",
        program: env!("CARGO_BIN_EXE_kv_store"),
        args: &["--from", "URL", "--cache", "shared/cache", "--socket", "shared/s.sock", "--node", "a"],
        outputs: &["cache/serving.db", "cache/serving.json"],
        is_server: true,
    },
    Case {
        name: "bake",
        program: env!("CARGO_BIN_EXE_baker"),
        args: &[
            "rows.csv",
            "-o",
            "shared/t.db",
            "--report",
            "shared/r.json",
            "--bad-rows",
            "skip",
            "--bad-rows-file",
            "shared/bad.csv",
            "--temp-dir",
            "shared",
        ],
        outputs: &["t.db", "r.json", "bad.csv"],
        is_server: false,
    },
    Case {
        name: "dump",
        program: ZKV,
        args: &["dump", "table.db", "-o", "shared/rows.csv"],
        outputs: &["rows.csv"],
        is_server: false,
    },
    Case {
        name: "topology",
        program: ZKV,
        args: &["topology", "apply", "topology.json", "--to", "shared/topology.json"],
        outputs: &["topology.json"],
        is_server: false,
    },
    Case {
        name: "manual",
        program: env!("CARGO_BIN_EXE_kv_store"),
        args: &["--generate", "shared"],
        outputs: &["man1/kv_store.1", "bash/kv_store.bash"],
        is_server: false,
    },
    Case {
        name: "publish",
        program: ZKV,
        args: &["publish", "table.db", "--to", "file://ROOT/shared/users"],
        // Another publisher may be first, so the documents may belong to it.
        outputs: &[],
        is_server: false,
    },
];

/// A folder with the inputs of all cases, the folder `shared`, and files of root elsewhere.
struct Scene {
    root: TempDir,
}

impl Scene {
    /// Copies the inputs, so that a scene is created soon.
    fn new(inputs: &Path) -> Scene {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), Permissions::from_mode(0o755)).unwrap();
        for name in ["rows.csv", "table.db", "topology.json"] {
            fs::copy(inputs.join(name), root.path().join(name)).unwrap();
        }
        fs::create_dir_all(root.path().join("victim/folder")).unwrap();
        fs::write(root.path().join("victim/file"), "precious").unwrap();
        fs::set_permissions(root.path().join("victim/file"), Permissions::from_mode(0o640)).unwrap();
        fs::create_dir(root.path().join("shared")).unwrap();
        fs::set_permissions(root.path().join("shared"), Permissions::from_mode(0o1777)).unwrap();
        Scene { root }
    }

    fn shared(&self) -> PathBuf {
        self.root.path().join("shared")
    }

    /// Lets the other user put something at a path in the shared folder.
    fn plant(&self, path: &Path, what: &str) {
        let (place, victim) = (self.shared().join(path), self.root.path().join("victim"));
        let mut folder = self.shared();
        for name in path.parent().unwrap() {
            folder.push(name);
            if fs::create_dir(&folder).is_ok() {
                fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
                lchown(&folder, Some(OTHER), Some(OTHER)).unwrap();
            }
        }
        match what {
            "link to a file" => symlink(victim.join("file"), &place).unwrap(),
            "dangling link" => symlink(victim.join("folder/new"), &place).unwrap(),
            "link to a folder" => symlink(victim.join("folder"), &place).unwrap(),
            "hard link" => return fs::hard_link(victim.join("file"), &place).unwrap(),
            "FIFO" => mknodat(CWD, &place, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap(),
            _ => {
                fs::write(&place, "of another user").unwrap();
                let mode = if what == "writable file" { 0o666 } else { 0o600 };
                fs::set_permissions(&place, Permissions::from_mode(mode)).unwrap();
            }
        }
        lchown(&place, Some(OTHER), Some(OTHER)).unwrap();
    }

    fn command(&self, case: &Case, url: &str, traced_to: Option<&Path>) -> Command {
        let mut command = match traced_to {
            Some(log) => {
                let mut strace = Command::new("strace");
                // With `-D`, the program is the child of this process, and not strace.
                strace.args(["-D", "-f", "-y", "-s", "4096", "-e", CALLS, "-o"]).arg(log).arg(case.program);
                strace
            }
            None => Command::new(case.program),
        };
        let root = self.root.path().to_str().unwrap();
        command.args(case.args.iter().map(|arg| arg.replace("URL", url).replace("ROOT", root)));
        command.current_dir(self.root.path()).env("RUST_LOG", "info").stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Runs a program to its end. Stops a server once it is ready. Returns whether the program succeeded, and its log.
    fn run(&self, case: &Case, url: &str, traced_to: Option<&Path>) -> (bool, String) {
        let log = self.root.path().join("log");
        let mut child = self.command(case, url, traced_to).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
        let text = || fs::read_to_string(&log).unwrap();
        if case.is_server {
            eventually("the server has polled, or has ended", || {
                let is_settled = ["serving published generation", ": the server waits", "generation stays"]
                    .iter()
                    .any(|end| text().contains(end));
                is_settled || child.try_wait().unwrap().is_some()
            });
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        }
        let mut status = None;
        eventually(&format!("{} ends: {}", case.name, text()), || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        if let Some(trace) = traced_to {
            let pid = child.id().to_string();
            let is_end = |line: &str| line.split_ascii_whitespace().next() == Some(&pid) && line.contains("+++");
            eventually("strace has written its log", || {
                fs::read_to_string(trace).is_ok_and(|log| log.lines().any(is_end))
            });
        }
        (status.unwrap().success(), text())
    }

    /// Describes everything outside the shared folder that belongs to root.
    fn victims(&self) -> Vec<String> {
        let victim = self.root.path().join("victim");
        let mut found = Vec::new();
        for folder in [&victim, &victim.join("folder")] {
            for entry in fs::read_dir(folder).unwrap() {
                let (path, metadata) = entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
                let text = fs::read_to_string(&path).unwrap_or_default();
                found.push(format!("{} {:o} {} {text}", path.display(), metadata.mode(), metadata.uid()));
            }
        }
        found.sort();
        found
    }
}

/// Returns the paths in the folder `shared` that calls in a log of strace create, apart from random ones. The program ran in
/// `root`.
fn created_paths(log: &str, root: &Path) -> BTreeSet<PathBuf> {
    let mut paths = BTreeSet::new();
    for line in log.lines().filter(|line| !line.contains("open") || line.contains("O_CREAT")) {
        let parts: Vec<&str> = line.split('"').collect();
        for (before, name) in parts.iter().zip(&parts[1..]).step_by(2) {
            let folder = before.rsplit_once('<').and_then(|(_, path)| path.split_once('>')).map(|(path, _)| path);
            let path = root.join(folder.unwrap_or(".")).join(name);
            let path: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
            let Ok(path) = path.strip_prefix(root.join("shared")) else { continue };
            let is_random = |part: &str| {
                let is_hex = part.len() == 32 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
                is_hex || part.starts_with(".zero-kv.") || part.starts_with(".baker.")
            };
            let is_named = path.components().all(|part| !is_random(&part.as_os_str().to_string_lossy()));
            if is_named && path != Path::new("") {
                paths.insert(path.to_owned());
            }
        }
    }
    paths
}

/// Bakes the inputs, and publishes a generation with one file and one with two.
fn inputs() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{program} {args:?}: {output:?}");
        output.stdout
    };
    let rows: String = (0..100).map(|key| format!("{key},value {key}\n")).collect();
    fs::write(folder.path().join("rows.csv"), rows + "bad\n").unwrap();
    let baker = env!("CARGO_BIN_EXE_baker");
    run(baker, &["rows.csv", "-o", "table.db", "--bad-rows", "skip"]);
    let url = format!("file://{}/store/users", folder.path().display());
    run(ZKV, &["publish", "table.db", "--to", &url]);
    run(baker, &["rows.csv", "-o", "parts", "--bad-rows", "skip", "--shards", "2", "--keys", "u64", "--to", &url]);
    let topology = run(ZKV, &["topology", "plan", "--nodes", "a=127.0.0.1:7000"]);
    fs::write(folder.path().join("topology.json"), topology).unwrap();
    (folder, url)
}

pub(crate) fn nothing_that_another_user_plants_makes_a_program_change_files_elsewhere_or_hang() -> Result<(), Missing> {
    root()?;
    require("strace", "--version")?;
    let (inputs, url) = inputs();
    let mut found = BTreeSet::new();
    for case in &CASES {
        let scene = Scene::new(inputs.path());
        let trace = scene.root.path().join("trace");
        let (is_success, log) = scene.run(case, &url, Some(&trace));
        assert!(is_success, "{}: {log}", case.name);
        let paths = created_paths(&fs::read_to_string(&trace).unwrap(), scene.root.path());
        for output in case.outputs {
            assert!(paths.contains(Path::new(output)), "{}: {output} is not in {paths:?}", case.name);
        }
        for path in &paths {
            for what in PLANTED {
                let scene = Scene::new(inputs.path());
                let before = scene.victims();
                scene.plant(path, what);
                let place = format!("{}: {what} at {}", case.name, path.display());
                // Names the place if the program does not end.
                println!("{place}");
                let (is_success, log) = scene.run(case, &url, None);
                assert_eq!(scene.victims(), before, "{place}: {log}");
                assert!(!log.contains("panicked"), "{place}: {log}");
                let outputs = if is_success { case.outputs } else { &[] };
                for output in outputs {
                    let metadata = match fs::symlink_metadata(scene.shared().join(output)) {
                        // A server that cannot prepare its table waits.
                        Err(_) if log.contains(": the server waits") => continue,
                        metadata => metadata.unwrap(),
                    };
                    let found = (metadata.is_file(), metadata.uid(), metadata.mode() & 0o022);
                    assert_eq!(found, (true, 0, 0), "{place}: {output}: {log}");
                }
                assert!(is_success || log.contains(':'), "{place}: {log}");
            }
        }
        found.extend(paths.into_iter().map(|path| format!("{}: {}", case.name, path.display())));
    }
    println!("{found:#?}");
    for expected in ["follow: cache/lock", "follow: s.sock.lock", "pull: u.db", "publish: users/manifests"] {
        assert!(found.contains(expected), "{expected}: {found:#?}");
    }
    let has_part = |part: &str| found.iter().any(|path| path.contains(part));
    assert!(has_part(".partial") && has_part(".shard") && has_part(".partial.json"), "{found:#?}");
    Ok(())
}
