//! Builds the programs in `tests/redis/clients/` with the installed tools, and returns the command line of each program.
//!
//! Packages are where `.ci/run` puts them, in the target folder. Nothing is downloaded, and nothing is written beside
//! the sources.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::programs::in_target_folder;
use super::trials::{Missing, missing, require};

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../redis/clients").join(path)
}

#[track_caller]
fn build(command: &mut Command) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&text));
}

/// Builds files in a new folder, and moves them to `folder`. Tests of several programs, which run at the same time, build and
/// use the same programs, so a file must be replaced as a whole.
#[track_caller]
fn build_into(folder: &Path, command: impl FnOnce(&Path) -> Command) {
    fs::create_dir_all(folder).unwrap();
    let new = tempfile::tempdir_in(folder).unwrap();
    build(&mut command(new.path()));
    for entry in fs::read_dir(&new).unwrap() {
        let entry = entry.unwrap();
        fs::rename(entry.path(), folder.join(entry.file_name())).unwrap();
    }
}

/// Checks that `.ci/run` has put a package into the target folder.
fn require_package(name: &str, path: &Path) -> Result<(), Missing> {
    match path.exists() {
        true => Ok(()),
        false => Err(missing(name, &format!("{name} is not installed (.ci/run does it)"))),
    }
}

/// Returns a program for the redis-py of a virtual environment.
pub fn python(environment: &str, program: &str) -> Result<Vec<OsString>, Missing> {
    let python = in_target_folder(environment).join("bin/python");
    require_package(environment, &python)?;
    Ok(vec![python.into(), "-B".into(), source("python").join(program).into()])
}

pub fn go() -> Result<Vec<OsString>, Missing> {
    // Go without other toolchains rejects a module that requires a newer Go.
    let command = || {
        let mut command = Command::new("go");
        command.env("GOTOOLCHAIN", "local").current_dir(source("go"));
        command
    };
    if !command().args(["list", "-m"]).output().is_ok_and(|output| output.status.success()) {
        return Err(missing("newest-go", "go is not installed, or older than go.mod requires"));
    }
    let modules = in_target_folder("languages/go-modules");
    let pinned =
        include_str!("../../redis/clients/go/go.mod").split_once("require github.com/redis/go-redis/v9 ").unwrap().1;
    let folder = format!("github.com/redis/go-redis/v9@{}", pinned.lines().next().unwrap());
    require_package("newest-go-redis", &modules.join(folder))?;
    let folder = in_target_folder("languages/built");
    build_into(&folder, |new| {
        let mut command = command();
        command.args(["build", "-o"]).arg(new.join("client-go")).arg(".");
        command.env("GOMODCACHE", modules).env("GOCACHE", in_target_folder("languages/go-cache"));
        // Uses the pinned versions that were downloaded before.
        command.envs([("GOFLAGS", "-mod=readonly"), ("GOPROXY", "off")]);
        command
    });
    Ok(vec![folder.join("client-go").into()])
}

pub fn node(program: &str) -> Result<Vec<OsString>, Missing> {
    require("node", "--version")?;
    let folder = in_target_folder("languages/clients-node");
    require_package("node-clients", &folder.join("node_modules"))?;
    // Node.js looks for modules beside the program.
    for file in ["rows.mjs", program] {
        build_into(&folder, |new| {
            let mut command = Command::new("cp");
            command.arg(source("node").join(file)).arg(new);
            command
        });
    }
    Ok(vec!["node".into(), folder.join(program).into()])
}

/// Returns a program that the main method of a class starts.
pub fn java(class: &str) -> Result<Vec<OsString>, Missing> {
    java_program(class, &[source("java/Rows.java"), source(&format!("java/{class}.java"))])
}

/// Returns a program that the main method of a class with this source starts.
pub fn java_source(class: &str, text: &str) -> Result<Vec<OsString>, Missing> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{class}.java"));
    fs::write(&path, text).unwrap();
    java_program(class, &[path])
}

fn java_program(class: &str, sources: &[PathBuf]) -> Result<Vec<OsString>, Missing> {
    require("javac", "--version")?;
    let jars = in_target_folder("languages/clients-java");
    require_package("java-clients", &jars.join("pom.xml"))?;
    let classes = in_target_folder("languages/clients-java-classes").join(class);
    let class_path = std::env::join_paths([&jars.join("*"), &classes]).unwrap();
    build_into(&classes, |new| {
        let mut command = Command::new("javac");
        command.arg("-Xlint:all").arg("-Werror").arg("-cp").arg(jars.join("*")).arg("-d").arg(new).args(sources);
        command
    });
    Ok(vec!["java".into(), "-cp".into(), class_path, class.into()])
}

pub fn rust() -> Result<Vec<OsString>, Missing> {
    let folder = in_target_folder("languages/redis-rs");
    require_package("redis-rs", &folder.join("debug"))?;
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--locked", "--offline", "--manifest-path"]).arg(source("rust/Cargo.toml"));
    build(command.arg("--target-dir").arg(&folder));
    Ok(vec![folder.join("debug/zero-kv-redis-rs").into()])
}

pub fn c() -> Result<Vec<OsString>, Missing> {
    require("cc", "--version")?;
    require_package("hiredis", Path::new("/usr/include/hiredis/hiredis.h"))?;
    let folder = in_target_folder("languages/built");
    build_into(&folder, |new| {
        let mut command = Command::new("cc");
        command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(new.join("client-hiredis"));
        command.arg(source("c/hiredis.c")).arg("-lhiredis");
        command
    });
    Ok(vec![folder.join("client-hiredis").into()])
}
