//! A Redis cluster of primaries with the rows of a table.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use zero_kv::slots::{SlotRange, slot_of};

use super::servers::{Nodes, Process, Table, free_ports, wait_for_port};
use crate::support::{VALUE_LEN_MIN_BYTES, push_value};

/// The maximum time until the nodes know each other.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a Redis cluster whose primaries have these slots, and fills it with the rows of a table. Returns `None` if
/// redis-server is not installed.
pub(crate) fn start(table: &Table, slots: &[SlotRange]) -> Result<Option<Nodes>, Box<dyn Error>> {
    if Command::new("redis-server").arg("--version").output().is_err() {
        return Ok(None);
    }
    let ports = free_ports(2 * slots.len())?;
    let (ports, bus_ports) = ports.split_at(slots.len());
    let mut processes = Vec::new();
    for (port, bus_port) in ports.iter().zip(bus_ports) {
        let folder = table.path(&format!("redis-{port}"));
        std::fs::create_dir(&folder)?;
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &port.to_string(),
            "--cluster-port",
            &bus_port.to_string(),
            "--cluster-enabled",
            "yes",
        ]);
        command.args(["--save", "", "--appendonly", "no", "--maxclients", "12000", "--dir"]).arg(&folder);
        processes.push(Process::start(&mut command)?);
    }
    for port in ports {
        wait_for_port(*port)?;
    }
    for ((port, bus_port), range) in ports.iter().zip(bus_ports).zip(slots) {
        ask(*port, &format!("CLUSTER ADDSLOTSRANGE {} {}", range.first_slot, range.last_slot))?;
        ask(ports[0], &format!("CLUSTER MEET 127.0.0.1 {port} {bus_port}"))?;
    }
    let began = Instant::now();
    let is_ok = |port: &u16| ask(*port, "CLUSTER INFO").is_ok_and(|info| info.contains("cluster_state:ok"));
    while !ports.iter().all(is_ok) {
        if began.elapsed() > PATIENCE {
            return Err("the nodes of the Redis cluster do not know each other".into());
        }
        thread::sleep(Duration::from_millis(50));
    }
    for (port, range) in ports.iter().zip(slots) {
        fill(*port, table.rows, *range)?;
    }
    Ok(Some(Nodes::new(processes, ports.to_vec(), slots.to_vec())))
}

/// Sets the rows whose slots are in a range.
fn fill(port: u16, rows: u64, slots: SlotRange) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let keys: Vec<u64> = (0..rows).filter(|key| slots.has(slot_of((*key).into()))).collect();
    for keys in keys.chunks(1000) {
        let mut commands = Vec::new();
        for key in keys {
            let text = key.to_string();
            write!(commands, "*3\r\n$3\r\nSET\r\n${}\r\n{text}\r\n${VALUE_LEN_MIN_BYTES}\r\n", text.len())?;
            push_value(&mut commands, *key, VALUE_LEN_MIN_BYTES);
            commands.extend_from_slice(b"\r\n");
        }
        stream.write_all(&commands)?;
        let mut replies = vec![0; keys.len() * b"+OK\r\n".len()];
        stream.read_exact(&mut replies)?;
        if replies != b"+OK\r\n".repeat(keys.len()) {
            return Err(format!("SET failed: {}", String::from_utf8_lossy(&replies)).into());
        }
    }
    Ok(())
}

/// Returns the reply to an inline command.
fn ask(port: u16, line: &str) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(format!("{line}\r\nQUIT\r\n").as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    if reply.starts_with('-') {
        return Err(format!("{line}: {reply}").into());
    }
    Ok(reply)
}
