//! The example programs, built with the tools that are here.
//!
//! Out: how each is run. Modules and packages are where `.ci/run` puts them, in the
//! folder of what is built; nothing is downloaded, and nothing is written beside the
//! sources.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::clients::skip_tool;
use crate::succeeds;

/// All of them, below `examples`.
pub(crate) const SOURCES: [&str; 8] = [
    "native/c/lookup.c",
    "native/go/lookup.go",
    "native/node/lookup.mjs",
    "native/python/lookup.py",
    "redis/c/lookup.c",
    "redis/go/lookup.go",
    "redis/node/lookup.mjs",
    "redis/python/lookup.py",
];

/// A program that can be run.
#[derive(Debug)]
pub(crate) struct Program {
    words: Vec<OsString>,
    /// Whether it looks up keys of bytes as well.
    pub(crate) speaks_bytes: bool,
    /// Whether it speaks the native protocol.
    pub(crate) is_native: bool,
}

impl Program {
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        command
    }
}

/// Those whose tools are here, built once.
pub(crate) fn programs() -> &'static [Program] {
    static PROGRAMS: OnceLock<Vec<Program>> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let made = SOURCES.into_iter().filter_map(|source| {
            let words = match source.rsplit_once('.').unwrap().1 {
                "c" => c(source),
                "go" => go(source),
                "mjs" => node(source),
                _ => python(source),
            };
            let is_native = source.starts_with("native/");
            Some(Program { words: words?, speaks_bytes: source != "native/go/lookup.go", is_native })
        });
        made.collect()
    })
}

fn source_path(source: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(source)
}

/// A folder below that of what is built.
fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join(name)
}

/// Where the program that is built of a source goes.
fn output(source: &str) -> PathBuf {
    let folder = built("languages");
    fs::create_dir_all(&folder).unwrap();
    folder.join(source.replace('/', "-"))
}

/// Whether a tool is here.
pub(crate) fn has(tool: &str) -> bool {
    let is_there = succeeds(Command::new(tool).arg("--version"));
    if !is_there {
        skip_tool(tool, &format!("{tool} is not installed"));
    }
    is_there
}

#[track_caller]
fn build(command: &mut Command) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    // A warning is a failure.
    assert!(output.status.success() && said.is_empty(), "{command:?}: {}", String::from_utf8_lossy(&said));
}

fn c(source: &str) -> Option<Vec<OsString>> {
    let is_native = source.starts_with("native/");
    if !has("cc") {
        return None;
    }
    if !is_native && !Path::new("/usr/include/hiredis/hiredis.h").exists() {
        skip_tool("hiredis", "hiredis (package libhiredis-dev) is not installed");
        return None;
    }
    let mut command = Command::new("cc");
    command.args(["-O2", "-Wall", "-Wextra", "-o"]).arg(output(source)).arg(source_path(source));
    build(command.args((!is_native).then_some("-lhiredis")));
    Some(vec![output(source).into()])
}

fn go(source: &str) -> Option<Vec<OsString>> {
    let folder = source_path(source);
    let folder = folder.parent().unwrap();
    // It refuses a module that asks for a newer one.
    let command = || {
        let mut command = Command::new("go");
        command.env("GOTOOLCHAIN", "local").current_dir(folder);
        command
    };
    if !succeeds(command().args(["list", "-m"])) {
        skip_tool("go", "go is not installed, or older than go.mod says");
        return None;
    }
    let modules = built("languages/go-modules");
    if source.starts_with("redis/") && !modules.join("cache/download/github.com/redis/go-redis").exists() {
        skip_tool("go-redis", "go-redis is not downloaded, which .ci/run does");
        return None;
    }
    // It lists what is not as it would write it.
    build(Command::new("gofmt").arg("-l").arg(folder));
    let mut command = command();
    command.args(["build", "-o"]).arg(output(source)).arg(".");
    command.env("GOMODCACHE", modules).env("GOCACHE", built("languages/go-cache"));
    // What is pinned, from what was downloaded.
    build(command.envs([("GOFLAGS", "-mod=readonly"), ("GOPROXY", "off")]));
    Some(vec![output(source).into()])
}

fn node(source: &str) -> Option<Vec<OsString>> {
    if !has("node") {
        return None;
    }
    if source.starts_with("native/") {
        return Some(vec!["node".into(), source_path(source).into()]);
    }
    let folder = built("languages/node");
    if !folder.join("node_modules/redis").exists() {
        skip_tool("node-redis", "node-redis is not installed, which .ci/run does");
        return None;
    }
    // Modules are looked for beside the program.
    fs::copy(source_path(source), folder.join("lookup.mjs")).unwrap();
    Some(vec!["node".into(), folder.join("lookup.mjs").into()])
}

fn python(source: &str) -> Option<Vec<OsString>> {
    if !has("python3") {
        return None;
    }
    let mut candidates = vec![PathBuf::from("python3")];
    if source.starts_with("redis/") {
        candidates.insert(0, built("redis-py/bin/python"));
        candidates.push(PathBuf::from("/usr/bin/python3"));
        candidates.retain(|python| succeeds(Command::new(python).args(["-c", "import redis"])));
    }
    let Some(python) = candidates.into_iter().next() else {
        skip_tool("redis-py", "no Python has redis-py");
        return None;
    };
    Some(vec![python.into(), "-B".into(), source_path(source).into()])
}
