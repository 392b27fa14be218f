//! What the server's process takes of the machine, from `/proc`.
//!
//! In: the server's socket, whose other end tells its process. Out: its memory after a
//! run and its page faults during it, or why they cannot be read.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, bail};
use indicatif::{BinaryBytes, HumanCount};

use crate::connect::connect;
use crate::json::Json;

/// The fields of `/proc/PID/stat` that count page faults, from the one after the name on.
const MINOR_FAULTS_FIELD: usize = 7;
const MAJOR_FAULTS_FIELD: usize = 9;

/// A server's process, and what it had come to when the run began.
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

/// What the run took.
pub(crate) struct Memory {
    keys: usize,
    file_len_bytes: u64,
    pid: i32,
    resident: Result<Resident, String>,
    faults: Result<Faults, String>,
}

impl ServerProcess {
    /// # Errors
    /// If nobody answers on the socket, or if its process is not of this PID namespace.
    pub(crate) async fn of_socket(socket: &Path, server_user: Option<&str>) -> anyhow::Result<Self> {
        let stream = connect(socket, server_user).await.context("--memory")?;
        let Some(pid) = stream.peer_cred()?.pid().filter(|pid| *pid > 0) else {
            bail!("--memory: the server's process is not known here: is it in another container?");
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

    /// For people.
    pub(crate) fn text(&self) -> String {
        let (file, keys) = (HumanCount(self.file_len_bytes), HumanCount(self.keys as u64));
        let mut text = match self.keys {
            0 => format!("file: {file} bytes, no keys\n"),
            _ => format!("file: {:.1} bytes a key ({file} bytes, {keys} keys)\n", self.bytes_per_key()),
        };
        let _ = write!(text, "server (process {}): ", self.pid);
        let _ = match &self.resident {
            Ok(Resident { resident_bytes, proportional_bytes }) => {
                let (resident, proportional) = (BinaryBytes(*resident_bytes), BinaryBytes(*proportional_bytes));
                write!(text, "{resident} resident, {proportional} proportional; ")
            }
            Err(reason) => write!(text, "its memory cannot be read: {reason}; "),
        };
        let _ = match &self.faults {
            Ok(Faults { minor, major }) => {
                write!(text, "{} minor and {} major page faults during the run", HumanCount(*minor), HumanCount(*major))
            }
            Err(reason) => write!(text, "its page faults cannot be read: {reason}"),
        };
        text
    }

    /// For programs. What cannot be read has no field, and the reason has one.
    pub(crate) fn json(&self, json: &mut Json) {
        json.number("file_bytes_per_key", format_args!("{:.3}", self.bytes_per_key()));
        json.number("server_pid", self.pid);
        match &self.resident {
            Ok(Resident { resident_bytes, proportional_bytes }) => {
                json.number("server_resident_bytes", resident_bytes);
                json.number("server_proportional_bytes", proportional_bytes);
            }
            Err(reason) => json.text("server_memory_error", reason),
        }
        match &self.faults {
            Ok(Faults { minor, major }) => {
                json.number("server_minor_faults", minor);
                json.number("server_major_faults", major);
            }
            Err(reason) => json.text("server_faults_error", reason),
        }
    }
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
    // The process's name is in parentheses, and can hold anything, parentheses too.
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

    /// No process has this number.
    const NOBODY: i32 = i32::MAX;

    #[test]
    fn what_may_not_be_read_is_told_with_its_reason() {
        let server = ServerProcess { pid: NOBODY, faults_before: faults(NOBODY) };
        let memory = server.after_run(10, 500);
        let text = memory.text();
        assert!(text.starts_with("file: 50.0 bytes a key (500 bytes, 10 keys)\n"), "{text}");
        assert!(text.contains("its memory cannot be read: /proc/2147483647/smaps_rollup: No such file"), "{text}");
        assert!(text.contains("its page faults cannot be read: /proc/2147483647/stat: No such file"), "{text}");
        let mut json = Json::default();
        memory.json(&mut json);
        let json = json.end();
        assert!(json.contains("\"server_memory_error\":\"/proc/") && !json.contains("resident"), "{json}");
    }

    #[test]
    fn the_counts_of_this_process_can_be_read() {
        let pid = std::process::id() as i32;
        assert!(resident(pid).unwrap().resident_bytes > 0);
        assert!(faults(pid).unwrap().minor > 0);
    }
}
