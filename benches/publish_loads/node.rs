//! A server that follows a published table, and the times of the stages between the commit of a generation and the first
//! response from it.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::{SysconfVar, sysconf};
use zero_kv::client::{Client, Info};

/// The maximum time from the start of a server to its first response, and from a commit until it is served.
const PATIENCE: Duration = Duration::from_secs(600);
/// The number of stages: the wait for the poll, the download, the verification, and the swap.
const STAGES: usize = 4;
/// The time between two requests for Info.
const SAMPLE_EVERY: Duration = Duration::from_millis(5);

/// A running `kv_store --from`.
pub(crate) struct Node {
    process: Child,
    pub(crate) socket: PathBuf,
}

/// What happened between the commit of a generation and the first response from it.
pub(crate) struct Swap {
    /// The time until the node has read the manifest.
    pub(crate) poll_seconds: f64,
    /// The time until all bytes are downloaded, from then on.
    pub(crate) fetch_seconds: f64,
    /// The time until the file is synced and verified.
    pub(crate) verify_seconds: f64,
    /// The time until the server has opened the file, has read it into memory, and serves it.
    pub(crate) swap_seconds: f64,
    /// The processor time of the node until all bytes are downloaded, and until the file is verified.
    pub(crate) fetch_cpu_seconds: f64,
    pub(crate) verify_cpu_seconds: f64,
    /// Anonymous memory, and resident memory including the mapped files: before the commit, and the greatest values.
    pub(crate) before: Memory,
    pub(crate) peak: Memory,
}

#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) anonymous_bytes: u64,
    pub(crate) resident_bytes: u64,
}

impl Swap {
    /// Returns the time from the commit until the generation is served.
    pub(crate) fn total_seconds(&self) -> f64 {
        self.poll_seconds + self.fetch_seconds + self.verify_seconds + self.swap_seconds
    }
}

impl Node {
    /// Starts a node, and waits until it serves.
    pub(crate) fn start(server: &Path, url: &str, poll: &str, folder: &Path) -> Result<Node, Box<dyn Error>> {
        let socket = folder.join("s.sock");
        let mut command = Command::new(server);
        command.args(["--from", url, "--poll", poll, "--cache"]).arg(folder.join("cache"));
        command.arg("--socket").arg(&socket).stderr(Stdio::null());
        let mut node = Node { process: command.spawn()?, socket };
        let began = Instant::now();
        while Client::connect(&node.socket).is_err() {
            if node.process.try_wait()?.is_some() || began.elapsed() > PATIENCE {
                return Err("the node does not serve".into());
            }
            thread::sleep(SAMPLE_EVERY);
        }
        Ok(node)
    }

    fn memory(&self) -> Memory {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap_or_default();
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|kib| kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()).map_or(0, |kib| kib << 10)
        };
        Memory { anonymous_bytes: bytes("RssAnon"), resident_bytes: bytes("VmRSS") }
    }

    /// Returns the processor time of all threads.
    fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap_or_default();
        // The fields after the name of the program, which may contain spaces. The times are fields 14 and 15.
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        let ticks: f64 = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
        ticks / sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100) as f64
    }

    /// Commits a generation, and observes the node until it serves the generation. If `requests_reload`, the node looks
    /// for the generation at once.
    pub(crate) fn observe(
        &self,
        object_len_bytes: u64,
        requests_reload: bool,
        commit: impl FnOnce() -> Result<u64, Box<dyn Error>>,
    ) -> Result<Swap, Box<dyn Error>> {
        let mut client = Client::connect(&self.socket)?;
        let fetched_before_bytes = number_of(&client.info()?, "published_fetched_bytes");
        let (before, mut peak) = (self.memory(), self.memory());
        let number = commit()?;
        let committed = Instant::now();
        if requests_reload {
            client.reload()?;
        }
        let (mut ends, mut cpu) = (Vec::<f64>::new(), Vec::new());
        while ends.len() < STAGES {
            let ended = ended_stages(&client.info()?, number, fetched_before_bytes, object_len_bytes);
            // Several stages can end between two samples.
            while ends.len() < ended {
                ends.push(committed.elapsed().as_secs_f64());
                cpu.push(self.cpu_seconds());
            }
            let memory = self.memory();
            peak.anonymous_bytes = peak.anonymous_bytes.max(memory.anonymous_bytes);
            peak.resident_bytes = peak.resident_bytes.max(memory.resident_bytes);
            if committed.elapsed() > PATIENCE {
                return Err(format!("generation {number} is not served: the node is in stage {}", ends.len()).into());
            }
            thread::sleep(SAMPLE_EVERY);
        }
        Ok(Swap {
            poll_seconds: ends[0],
            fetch_seconds: ends[1] - ends[0],
            verify_seconds: ends[2] - ends[1],
            swap_seconds: ends[3] - ends[2],
            fetch_cpu_seconds: cpu[1] - cpu[0],
            verify_cpu_seconds: cpu[2] - cpu[0],
            before,
            peak,
        })
    }
}

/// Returns the number of stages that have ended.
fn ended_stages(info: &Info, number: u64, fetched_before_bytes: u64, object_len_bytes: u64) -> usize {
    let is_fetched = number_of(info, "published_fetched_bytes") - fetched_before_bytes >= object_len_bytes;
    let is_verified = is_fetched && number_of(info, "published_fetching_total_bytes") == 0;
    let has_read_manifest = number_of(info, "published_newest") >= number;
    let is_served = number_of(info, "published_generation") >= number;
    let ended = [has_read_manifest, is_fetched, is_verified, is_served];
    ended.iter().rposition(|ended| *ended).map_or(0, |last| last + 1)
}

fn number_of(info: &Info, name: &str) -> u64 {
    info.number(name).unwrap_or(0)
}

impl Drop for Node {
    fn drop(&mut self) {
        // Fails only if the process has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
