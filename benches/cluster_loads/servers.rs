//! Nodes of clusters: `kv_store`, each with the rows of its slots, and a topology file.

use std::error::Error;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use zero_kv::bake::{self, Keys, Options, Shards};
use zero_kv::slots::SlotRange;

use super::processors::pin;
use crate::support::{VALUE_LEN_MIN_BYTES, push_csv_row};

/// The maximum time until a server accepts connections.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that ends with this value.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Result<Process, Box<dyn Error>> {
        let command = pin(command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Process(command.spawn()?))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A baked table, and its shards.
pub(crate) struct Table {
    pub(crate) folder: TempDir,
    pub(crate) rows: u64,
}

impl Table {
    pub(crate) fn bake(rows: u64) -> Result<Table, Box<dyn Error>> {
        let table = Table { folder: tempfile::tempdir()?, rows };
        let mut csv = Vec::new();
        (0..rows).for_each(|key| push_csv_row(&mut csv, key, VALUE_LEN_MIN_BYTES));
        let mut options = Options::default();
        options.keys = Keys::U64;
        bake::bake_csv(&csv[..], &table.whole(), &options)?;
        Ok(table)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn whole(&self) -> PathBuf {
        self.path("whole.db")
    }

    /// Divides the table into files with equally many slots.
    pub(crate) fn shards(&self, count: u16) -> Result<Vec<(SlotRange, PathBuf)>, Box<dyn Error>> {
        let folder = self.path(&format!("shards-{count}"));
        let shards = bake::merge_shards(&[self.whole()], &folder, Shards::Count(count), &Options::default())?;
        Ok(shards.into_iter().map(|shard| (shard.slots, shard.path)).collect())
    }
}

/// Running nodes.
pub(crate) struct Nodes {
    processes: Vec<Process>,
    pub(crate) ports: Vec<u16>,
    pub(crate) slots: Vec<SlotRange>,
}

impl Nodes {
    pub(crate) fn new(processes: Vec<Process>, ports: Vec<u16>, slots: Vec<SlotRange>) -> Nodes {
        Nodes { processes, ports, slots }
    }

    /// Starts a node for each of `count` shards of a table.
    pub(crate) fn start(table: &Table, count: u16) -> Result<Nodes, Box<dyn Error>> {
        let shards = table.shards(count)?;
        let ports = free_ports(shards.len())?;
        let nodes: Vec<String> = (0..)
            .zip(&ports)
            .zip(&shards)
            .map(|((number, port), (slots, _))| primary(number, *port, &slots.to_string()))
            .collect();
        let topology = write_topology(table, &format!("topology-{count}.json"), &nodes)?;
        let mut processes = Vec::new();
        for ((number, port), (slots, file)) in (0..).zip(&ports).zip(&shards) {
            let cluster = Some((&topology, number, slots.to_string()));
            processes.push(serve(table, file, *port, &format!("{count}-{number}.sock"), cluster.as_ref())?);
        }
        Ok(Nodes::new(processes, ports, shards.into_iter().map(|(slots, _)| slots).collect()))
    }

    pub(crate) fn process_ids(&self) -> Vec<u32> {
        self.processes.iter().map(Process::id).collect()
    }
}

/// Returns a primary of a topology document.
pub(crate) fn primary(number: usize, port: u16, slots: &str) -> String {
    format!(r#"{{"id": "n{number}", "host": "127.0.0.1", "port": {port}, "role": "primary", "slots": ["{slots}"]}}"#)
}

/// Writes a topology file, and returns its path.
pub(crate) fn write_topology(table: &Table, name: &str, nodes: &[String]) -> Result<PathBuf, Box<dyn Error>> {
    let path = table.path(name);
    fs::write(&path, format!(r#"{{"format": 1, "number": 1, "nodes": [{}]}}"#, nodes.join(",\n")))?;
    Ok(path)
}

/// Serves a file with one worker, as a node with a number of a topology file, or alone. Returns when the port accepts
/// connections.
pub(crate) fn serve(
    table: &Table,
    file: &Path,
    port: u16,
    socket: &str,
    cluster: Option<&(&PathBuf, usize, String)>,
) -> Result<Process, Box<dyn Error>> {
    let address = format!("127.0.0.1:{port}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_kv_store"));
    command.args(["--workers", "1", "--tcp", &address]).arg("--db").arg(file).arg("--socket").arg(table.path(socket));
    if let Some((topology, number, slots)) = cluster {
        command.args(["--cluster", "--node", &format!("n{number}"), "--announce", &address, "--slots", slots]);
        command.arg("--topology").arg(topology);
    }
    let process = Process::start(&mut command)?;
    wait_for_port(port)?;
    Ok(process)
}

pub(crate) fn wait_for_port(port: u16) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if began.elapsed() > PATIENCE {
            return Err(format!("no server listens on port {port}").into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Returns ports that were free at the time of the call.
pub(crate) fn free_ports(count: usize) -> Result<Vec<u16>, Box<dyn Error>> {
    // The listeners stay open until all ports are known, so the ports differ.
    let listeners: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    Ok(listeners
        .iter()
        .map(|listener| listener.local_addr().map(|address| address.port()))
        .collect::<Result<_, _>>()?)
}
