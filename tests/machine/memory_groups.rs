//! A server in a control group with little memory, and clients that do not read their responses. The kernel counts the
//! unread responses of all sockets as memory of the server's group, and kills the server when the group is full.

use std::fs;
use std::io::Write;
use std::net::Shutdown;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::helpers::frames::{connect, expect, gets};
use crate::helpers::servers::Server;
use crate::helpers::tables::{Table, answer_to_get};
use crate::helpers::trials::{Missing, missing};
use crate::helpers::waiting::eventually;

/// The memory of the group, including the program and the page cache that it uses.
const GROUP_BYTES: u64 = 192 << 20;
/// The buffers of this many Unix sockets would hold 400 MB.
const CLIENTS: usize = 2000;
/// A key whose value fits into the buffer of a socket, and a key whose value does not.
const SHORT: u64 = 1;
const LONG: u64 = 2;

/// A control group with a memory limit. Dropping this value removes the group, after its processes have ended.
struct MemoryGroup {
    folder: PathBuf,
    /// The file with the number of processes that the kernel has killed.
    events: PathBuf,
}

impl MemoryGroup {
    /// Creates a group below the root of version 2 or version 1 of the memory controller.
    fn new() -> Result<MemoryGroup, Missing> {
        let versions = [
            ("/sys/fs/cgroup", "memory.max", "memory.events"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"),
        ];
        for (root, limit, events) in versions {
            let Ok(folder) = tempfile::Builder::new().prefix("zero-kv-").tempdir_in(root) else { continue };
            let folder = folder.keep();
            let group = MemoryGroup { events: folder.join(events), folder };
            // The file exists only if the controller is enabled for the group.
            if group.events.exists() && fs::write(group.folder.join(limit), GROUP_BYTES.to_string()).is_ok() {
                return Ok(group);
            }
        }
        Err(missing("memory-groups", "no control group with a memory limit can be created"))
    }

    fn killed(&self) -> u64 {
        let events = fs::read_to_string(&self.events).unwrap();
        let line = events.lines().find_map(|line| line.strip_prefix("oom_kill ")).expect("Linux 4.13 or newer");
        line.parse().unwrap()
    }

    fn serve(&self, table: &Table) -> Server {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ >\"$0/cgroup.procs\"; exec \"$@\""]).arg(&self.folder);
        command.arg(env!("CARGO_BIN_EXE_kv_store")).args(["--workers", "2"]);
        // Only memory may end a connection.
        command.args(["--stall-timeout", "0", "--min-drain-rate", "0"]);
        command.arg("--db").arg(table.db()).arg("--socket").arg(table.socket());
        Server::of(command, &table.socket())
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A process that was killed a moment ago may still be in the group.
        eventually("the group is removed", || fs::remove_dir(&self.folder).is_ok());
    }
}

pub(crate) fn unread_responses_of_unix_sockets_do_not_fill_a_memory_group() -> Result<(), Missing> {
    let (group, table) =
        (MemoryGroup::new()?, Table::new([(SHORT, vec![b's'; 100_000]), (LONG, vec![b'l'; 3_000_000])]));
    let server = group.serve(&table);
    assert_eq!(server.number("client_memory_max_bytes"), GROUP_BYTES / 8);
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut client = connect(server.socket());
        let is_ended = number % 2 == 0;
        client.write_all(&gets([if is_ended { SHORT } else { LONG }])).unwrap();
        if is_ended {
            client.shutdown(Shutdown::Write).unwrap();
        }
        clients.push(client);
    }
    eventually("all requests are answered, or their clients are evicted", || {
        server.number("hits") + server.number("connections_cut_memory") >= CLIENTS as u64
    });
    assert_eq!(group.killed(), 0);
    let mut other = connect(server.socket());
    other.write_all(&gets([LONG])).unwrap();
    expect(&mut other, &answer_to_get(&table.model, LONG));
    let held_bytes = server.number("client_memory_bytes");
    assert!(held_bytes < GROUP_BYTES / 2, "{held_bytes} bytes of client memory");
    Ok(())
}
