//! Describes the environment of a run: machine, kernel, date, and versions.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

/// Describes the machine and its kernel in one line.
pub(crate) fn machine() -> String {
    let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu_info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let memory_gib = memory_total_bytes().unwrap_or(0) as f64 / (1_u64 << 30) as f64;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{processors} processors ({model}), {memory_gib:.1} GiB of memory, Linux {}", kernel.trim())
}

/// Returns the current day.
pub(crate) fn date() -> String {
    output_of("date", &["-u", "+%Y-%m-%d"]).unwrap_or_else(|| "unknown".to_owned())
}

pub(crate) fn rust_version() -> String {
    output_of("rustc", &["--version"])
        .and_then(|line| line.split(' ').nth(1).map(|version| format!("std {version}")))
        .unwrap_or_else(|| "unknown".to_owned())
}

/// Returns the version of one of this program's dependencies, from Cargo.lock.
pub(crate) fn locked_version(package: &str) -> String {
    let entry = format!("name = \"{package}\"\nversion = \"");
    let lock = include_str!("../../../Cargo.lock");
    let version = lock.split_once(&entry).and_then(|(_, rest)| rest.split_once('"'));
    version.map_or("unknown", |(version, _)| version).to_owned()
}

/// Returns the version of an installed Debian package.
pub(crate) fn package_version(package: &str) -> String {
    output_of("dpkg-query", &["-W", "-f", "${Version}", package]).unwrap_or_else(|| "unknown".to_owned())
}

/// Returns the Git commit of the working tree, or `None` without Git.
pub(crate) fn commit() -> Option<String> {
    output_of("git", &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty"])
}

pub(crate) fn memory_total_bytes() -> Result<u64> {
    kib_of("/proc/meminfo", "MemTotal:")
}

/// Returns the resident memory of a process, including shared pages.
pub(crate) fn resident_bytes(process: u32) -> Result<u64> {
    kib_of(&format!("/proc/{process}/status"), "VmRSS:")
}

/// Returns the number of bytes that this process has read from disks so far.
pub(crate) fn storage_read_bytes() -> Option<u64> {
    let counters = fs::read_to_string("/proc/self/io").ok()?;
    counters.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse().ok()
}

fn kib_of(path: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(path).with_context(|| path.to_owned())?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
    let kib: u64 = value.with_context(|| format!("{path}: no {name} in kB"))?.parse()?;
    Ok(kib * 1024)
}

fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
