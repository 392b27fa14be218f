//! Memory and page faults of the server's process, from `/proc`.
//!
//! In: the server's socket, which identifies the process. Out: the memory of the process after a run and its page
//! faults during the run, or the reason why they cannot be read.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, bail};
use indicatif::{BinaryBytes, HumanCount};
use serde::Serialize;
use tokio::net::UnixStream;
use zero_kv::client::{Address, check_server_user};

/// Index of the number of minor page faults among the fields of `/proc/PID/stat` after the process's name.
const MINOR_FAULTS_FIELD: usize = 7;
/// Index of the number of major page faults among the fields of `/proc/PID/stat` after the process's name.
const MAJOR_FAULTS_FIELD: usize = 9;

/// The server's process, and its page faults before the run.
pub(crate) struct ServerProcess {
    pid: i32,
    faults_before: Result<Faults, String>,
}

#[derive(Clone, Copy)]
struct Faults {
    minor: u64,
    major: u64,
}

struct Resident {
    resident_bytes: u64,
    proportional_bytes: u64,
}

/// The memory of the server's process, and its page faults during the run.
pub(crate) struct Memory {
    keys: usize,
    file_len_bytes: u64,
    pid: i32,
    resident: Result<Resident, String>,
    faults: Result<Faults, String>,
}

impl ServerProcess {
    /// Finds the server's process through a connection, and reads how many page faults the process has had so far.
    pub(crate) async fn find(socket: &Path, server_user: Option<&str>) -> anyhow::Result<Self> {
        let Address::Unix(path) = Address::parse(socket)? else {
            bail!(
                "--memory needs the server's Unix socket, which identifies the server's process: name it with --socket"
            );
        };
        let stream = UnixStream::connect(&path).await.with_context(|| format!("--memory: {}", path.display()))?;
        check_server_user(&path, stream.peer_cred()?.uid(), server_user)?;
        let Some(pid) = stream.peer_cred()?.pid().filter(|pid| *pid > 0) else {
            bail!("--memory: the server's process is in another PID namespace: run both programs in one container");
        };
        Ok(ServerProcess { pid, faults_before: faults(pid) })
    }

    pub(crate) fn after_run(self, keys: usize, file_len_bytes: u64) -> Memory {
        let since = |before: Faults, after: Faults| Faults {
            minor: after.minor.saturating_sub(before.minor),
            major: after.major.saturating_sub(before.major),
        };
        let faults = self.faults_before.and_then(|before| faults(self.pid).map(|after| since(before, after)));
        Memory { keys, file_len_bytes, pid: self.pid, resident: resident(self.pid), faults }
    }
}

impl Memory {
    fn bytes_per_key(&self) -> f64 {
        self.file_len_bytes as f64 / self.keys.max(1) as f64
    }

    pub(crate) fn text(&self) -> String {
        let (file, keys) = (HumanCount(self.file_len_bytes), HumanCount(self.keys as u64));
        let mut text = match self.keys {
            0 => format!("file: {file} bytes, no keys\n"),
            _ => format!("file: {:.1} bytes per key ({file} bytes, {keys} keys)\n", self.bytes_per_key()),
        };
        let _ = write!(text, "server (process {}): ", self.pid);
        let _ = match &self.resident {
            Ok(Resident { resident_bytes, proportional_bytes }) => {
                let (resident, proportional) = (BinaryBytes(*resident_bytes), BinaryBytes(*proportional_bytes));
                write!(text, "{resident} resident, {proportional} proportional; ")
            }
            Err(reason) => write!(text, "cannot read its memory: {reason}; "),
        };
        let _ = match &self.faults {
            Ok(Faults { minor, major }) => {
                write!(text, "{} minor and {} major page faults during the run", HumanCount(*minor), HumanCount(*major))
            }
            Err(reason) => write!(text, "cannot read its page faults: {reason}"),
        };
        text
    }

    /// Returns the results for the JSON report. If the memory or the page faults could not be read, the report contains
    /// the reason instead.
    pub(crate) fn json(&self) -> JsonMemory<'_> {
        let (resident, faults) = (self.resident.as_ref(), self.faults.as_ref());
        JsonMemory {
            file_bytes_per_key: (self.bytes_per_key() * 1e3).round() / 1e3,
            server_pid: self.pid,
            server_resident_bytes: resident.ok().map(|resident| resident.resident_bytes),
            server_proportional_bytes: resident.ok().map(|resident| resident.proportional_bytes),
            server_memory_error: resident.err(),
            server_minor_faults: faults.ok().map(|faults| faults.minor),
            server_major_faults: faults.ok().map(|faults| faults.major),
            server_faults_error: faults.err(),
        }
    }
}

/// The fields that `--memory` adds to the JSON report.
#[derive(Serialize)]
pub(crate) struct JsonMemory<'m> {
    file_bytes_per_key: f64,
    server_pid: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_resident_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_proportional_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_memory_error: Option<&'m String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_minor_faults: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_major_faults: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_faults_error: Option<&'m String>,
}

fn read(pid: i32, name: &str) -> Result<String, String> {
    let path = format!("/proc/{pid}/{name}");
    std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))
}

fn resident(pid: i32) -> Result<Resident, String> {
    let text = read(pid, "smaps_rollup")?;
    let bytes = |name: &str| {
        let kib = text.lines().find_map(|line| line.strip_prefix(name)?.strip_suffix("kB")?.trim().parse::<u64>().ok());
        kib.map(|kib| kib << 10).ok_or_else(|| format!("/proc/{pid}/smaps_rollup: no {name}"))
    };
    Ok(Resident { resident_bytes: bytes("Rss:")?, proportional_bytes: bytes("Pss:")? })
}

fn faults(pid: i32) -> Result<Faults, String> {
    let text = read(pid, "stat")?;
    // The process's name is in parentheses and may itself contain parentheses.
    let (_, after_name) = text.rsplit_once(") ").ok_or_else(|| format!("/proc/{pid}/stat: no name"))?;
    let field = |at: usize| after_name.split(' ').nth(at).and_then(|field| field.parse().ok());
    match (field(MINOR_FAULTS_FIELD), field(MAJOR_FAULTS_FIELD)) {
        (Some(minor), Some(major)) => Ok(Faults { minor, major }),
        _ => Err(format!("/proc/{pid}/stat: no page faults")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process ID that no process has, because it exceeds the maximum.
    const NO_PROCESS: i32 = i32::MAX;

    #[test]
    fn results_state_why_memory_and_page_faults_could_not_be_read() {
        let server = ServerProcess { pid: NO_PROCESS, faults_before: faults(NO_PROCESS) };
        let memory = server.after_run(10, 500);
        let text = memory.text();
        assert!(text.starts_with("file: 50.0 bytes per key (500 bytes, 10 keys)\n"), "{text}");
        assert!(text.contains("cannot read its memory: /proc/2147483647/smaps_rollup: No such file"), "{text}");
        assert!(text.contains("cannot read its page faults: /proc/2147483647/stat: No such file"), "{text}");
        let json = serde_json::to_string(&memory.json()).unwrap();
        assert!(json.contains("\"server_memory_error\":\"/proc/") && !json.contains("resident"), "{json}");
    }

    #[test]
    fn memory_and_page_faults_of_this_process_can_be_read() {
        let pid = std::process::id() as i32;
        assert!(resident(pid).unwrap().resident_bytes > 0);
        assert!(faults(pid).unwrap().minor > 0);
    }
}
