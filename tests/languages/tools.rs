//! Builds the example programs with the installed tools, and returns the command line of each program.
//!
//! Modules and packages are where `.ci/run` puts them, in the target folder. Nothing is downloaded, and nothing is
//! written beside the sources.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::helpers::trials::{Missing, missing, require};
use crate::succeeds;

/// The sources of all programs, relative to `examples`.
pub(crate) const SOURCES: [&str; 9] = [
    "native/c/lookup.c",
    "native/go/lookup.go",
    "native/java/Lookup.java",
    "native/node/lookup.mjs",
    "native/python/lookup.py",
    "redis/c/lookup.c",
    "redis/go/lookup.go",
    "redis/node/lookup.mjs",
    "redis/python/lookup.py",
];

/// A program that can be run.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    words: Vec<OsString>,
}

impl Program {
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        command
    }
}

/// Returns whether the program of a source uses the native protocol.
pub(crate) fn is_native(source: &str) -> bool {
    source.starts_with("native/")
}

/// Returns whether the program of a source can also look up byte keys.
pub(crate) fn looks_up_bytes(source: &str) -> bool {
    source != "native/go/lookup.go"
}

/// Returns the program of a source. The first call builds it.
pub(crate) fn program(source: &'static str) -> Result<Program, Missing> {
    static BUILT: Mutex<BTreeMap<&str, Result<Program, Missing>>> = Mutex::new(BTreeMap::new());
    // A build that panicked fails only the tests of its own program.
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(program) = built.get(source) {
        return program.clone();
    }
    let words = match source.rsplit_once('.').unwrap().1 {
        "c" => c(source),
        "go" => go(source),
        "java" => java(source),
        "mjs" => node(source),
        _ => python(source),
    };
    let program = words.map(|words| Program { words });
    built.insert(source, program.clone());
    program
}

fn source_path(source: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(source)
}

/// Returns a folder in the target folder.
fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join(name)
}

/// Returns the path of the program that is built from a source.
fn output(source: &str) -> PathBuf {
    let folder = built("languages");
    fs::create_dir_all(&folder).unwrap();
    folder.join(source.replace('/', "-"))
}

#[track_caller]
fn build(command: &mut Command) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    // A warning is a failure.
    assert!(output.status.success() && said.is_empty(), "{command:?}: {}", String::from_utf8_lossy(&said));
}

fn c(source: &str) -> Result<Vec<OsString>, Missing> {
    require("cc", "--version")?;
    let is_native = is_native(source);
    if !is_native && !Path::new("/usr/include/hiredis/hiredis.h").exists() {
        return Err(missing("hiredis", "hiredis (package libhiredis-dev) is not installed"));
    }
    let mut command = Command::new("cc");
    command.args(["-O2", "-Wall", "-Wextra", "-o"]).arg(output(source)).arg(source_path(source));
    build(command.args((!is_native).then_some("-lhiredis")));
    Ok(vec![output(source).into()])
}

fn go(source: &str) -> Result<Vec<OsString>, Missing> {
    let folder = source_path(source);
    let folder = folder.parent().unwrap();
    // Go without other toolchains rejects a module that requires a newer Go.
    let command = || {
        let mut command = Command::new("go");
        command.env("GOTOOLCHAIN", "local").current_dir(folder);
        command
    };
    if !succeeds(command().args(["list", "-m"])) {
        return Err(missing("go", "go is not installed, or older than go.mod requires"));
    }
    let modules = built("languages/go-modules");
    if source.starts_with("redis/") && !modules.join("cache/download/github.com/redis/go-redis").exists() {
        return Err(missing("go-redis", "go-redis is not downloaded (.ci/run does it)"));
    }
    // gofmt lists files that are not formatted.
    build(Command::new("gofmt").arg("-l").arg(folder));
    let mut command = command();
    command.args(["build", "-o"]).arg(output(source)).arg(".");
    command.env("GOMODCACHE", modules).env("GOCACHE", built("languages/go-cache"));
    // Uses the pinned versions that were downloaded before.
    build(command.envs([("GOFLAGS", "-mod=readonly"), ("GOPROXY", "off")]));
    Ok(vec![output(source).into()])
}

fn java(source: &str) -> Result<Vec<OsString>, Missing> {
    require("javac", "--version")?;
    let classes = built("languages/java");
    build(Command::new("javac").arg("-Xlint:all").arg("-d").arg(&classes).arg(source_path(source)));
    // Java decodes its arguments by the locale. Without the optimizing compiler a short program ends sooner.
    let words = ["env", "LC_ALL=C.UTF-8", "java", "-XX:TieredStopAtLevel=1", "-cp"].map(OsString::from);
    Ok(words.into_iter().chain([classes.into(), "Lookup".into()]).collect())
}

fn node(source: &str) -> Result<Vec<OsString>, Missing> {
    require("node", "--version")?;
    if is_native(source) {
        return Ok(vec!["node".into(), source_path(source).into()]);
    }
    let folder = built("languages/node");
    if !folder.join("node_modules/redis").exists() {
        return Err(missing("node-redis", "node-redis is not installed (.ci/run does it)"));
    }
    // Node.js looks for modules beside the program.
    fs::copy(source_path(source), folder.join("lookup.mjs")).unwrap();
    Ok(vec!["node".into(), folder.join("lookup.mjs").into()])
}

fn python(source: &str) -> Result<Vec<OsString>, Missing> {
    require("python3", "--version")?;
    let mut python = PathBuf::from("python3");
    if !is_native(source) {
        python = built("redis-py/bin/python");
        if !succeeds(Command::new(&python).args(["-c", "import redis"])) {
            return Err(missing("redis-py", "redis-py is not installed (.ci/run does it)"));
        }
    }
    Ok(vec![python.into(), "-B".into(), source_path(source).into()])
}
