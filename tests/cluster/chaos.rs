//! Six nodes that follow a table in an S3 server, and clients that check every value, while one fault after the other
//! happens. `ZERO_KV_FAULTS_SECONDS` sets the duration: see docs/CLUSTER.md, which has the results.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::fleet::{Check, Cluster, Passage, SHAPE};
use super::load::{Answer, Effort, under_load_of};
use super::nodes::{Member, ROWS, members};
use crate::helpers::random::{Random, seed};
use crate::helpers::redis_py::any_python;
use crate::helpers::trials::Missing;
use crate::helpers::waiting::configured_duration;

/// One kind of fault. Each ends with all nodes in the newest state.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    NodeKilled,
    NodeRestarted,
    NodeSuspended,
    StoreClosed,
    StoreUnavailable,
    StoreLosesResponses,
    StoreSlow,
    Published,
    Pinned,
    SlotsMoved,
    PrimaryReplaced,
}

/// The faults, and how the results name them.
const FAULTS: [(Fault, &str); 11] = [
    (Fault::Published, "a generation is published"),
    (Fault::Pinned, "an older generation is pinned, and unpinned"),
    (Fault::SlotsMoved, "all slots move to other nodes"),
    (Fault::PrimaryReplaced, "a primary is killed, and its replica replaces it"),
    (Fault::NodeKilled, "a node is killed, and starts again"),
    (Fault::NodeRestarted, "a node is stopped, and starts again"),
    (Fault::NodeSuspended, "a node is suspended for a second"),
    (Fault::StoreClosed, "the store refuses connections"),
    (Fault::StoreUnavailable, "the store responds with status 503"),
    (Fault::StoreLosesResponses, "the store's responses are lost"),
    (Fault::StoreSlow, "the store sends 20 KB/s"),
];

/// A cluster, and the state that faults change.
struct Chaos {
    cluster: Cluster,
    members: Vec<Member>,
    topology: u64,
    random: Random,
}

impl Chaos {
    fn happen(&mut self, fault: Fault, more: &dyn Fn()) {
        more();
        let member = self.members[self.random.below(self.members.len())].clone();
        match fault {
            Fault::NodeKilled => {
                self.cluster.kill(&member);
                more();
                self.cluster.publish();
                self.cluster.start(&member);
            }
            Fault::NodeRestarted => {
                let server = self.cluster.servers.get_mut(&member.id).unwrap();
                server.signal(Signal::TERM);
                assert!(server.wait().success());
                more();
                self.cluster.start(&member);
            }
            Fault::NodeSuspended => {
                self.cluster.servers[&member.id].signal(Signal::STOP);
                // A fault of the test, not a condition that it waits for.
                thread::sleep(Duration::from_secs(1));
                self.cluster.servers[&member.id].signal(Signal::CONT);
            }
            Fault::StoreClosed => self.publish_behind(Passage::Closed, more),
            Fault::StoreUnavailable => self.publish_behind(Passage::Unavailable, more),
            Fault::StoreLosesResponses => self.publish_behind(Passage::LosesResponses, more),
            Fault::StoreSlow => self.publish_behind(Passage::Slow { bytes_per_s: 20_000 }, more),
            Fault::Published => self.cluster.publish(),
            Fault::Pinned => self.pin(more),
            Fault::SlotsMoved => {
                // Each pair of a primary and its replica gets the slots of the next pair.
                let slots: Vec<_> = self.members.iter().map(|member| member.slots).collect();
                for (position, member) in self.members.iter_mut().enumerate() {
                    member.slots = slots[(position + 2) % slots.len()];
                }
                self.apply();
            }
            Fault::PrimaryReplaced => self.replace_primary(more),
        }
        self.cluster.wait_for(self.topology, &[]);
        more();
    }

    /// Publishes a generation while all nodes have this passage to the store.
    fn publish_behind(&mut self, passage: Passage, more: &dyn Fn()) {
        self.cluster.gates.values().for_each(|gate| gate.set(passage));
        self.cluster.publish();
        more();
        self.cluster.gates.values().for_each(|gate| gate.set(Passage::Open));
    }

    fn pin(&mut self, more: &dyn Fn()) {
        self.cluster.publish();
        self.cluster.wait_for(self.topology, &[]);
        let older = self.cluster.published.load(Ordering::Relaxed) - 1;
        let url = self.cluster.url();
        self.cluster.run(env!("CARGO_BIN_EXE_zkv"), &["pin", &url, &older.to_string()]);
        self.cluster.wait_for_generation(older);
        more();
        self.cluster.run(env!("CARGO_BIN_EXE_zkv"), &["unpin", &url]);
    }

    fn replace_primary(&mut self, more: &dyn Fn()) {
        let primaries: Vec<usize> = (0..self.members.len()).filter(|at| self.members[*at].primary.is_none()).collect();
        let primary = primaries[self.random.below(primaries.len())];
        let id = self.members[primary].id.clone();
        let replica = self.members.iter().position(|member| member.primary.as_ref() == Some(&id)).unwrap();
        self.cluster.kill(&self.members[primary]);
        self.members[replica].primary = None;
        self.members[primary].primary = Some(self.members[replica].id.clone());
        self.topology += 1;
        self.cluster.apply(self.topology, &self.members);
        self.cluster.wait_for(self.topology, &[&id]);
        more();
        let killed = self.members[primary].clone();
        self.cluster.start(&killed);
    }

    fn apply(&mut self) {
        self.topology += 1;
        self.cluster.apply(self.topology, &self.members);
    }
}

/// A process with redis-py's client of a cluster, which checks values until its standard input ends.
struct RedisPy(Child);

impl RedisPy {
    fn start(members: &[Member]) -> Result<RedisPy, Missing> {
        let mut command = Command::new(any_python()?);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/reader.py"));
        command.args([ROWS, SHAPE.len_max_bytes].map(|number| number.to_string()));
        command.args(members.iter().map(|member| member.port.to_string()));
        Ok(RedisPy(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()))
    }

    /// Ends the process, and returns what it has observed.
    fn stop(mut self) -> String {
        drop(self.0.stdin.take());
        let line = BufReader::new(self.0.stdout.take().unwrap()).lines().next();
        assert!(self.0.wait().unwrap().success(), "redis-py read a wrong value: see above");
        line.expect("a line of results").unwrap()
    }
}

pub(crate) fn clients_get_right_values_during_every_kind_of_fault() -> Result<(), Missing> {
    let mut cluster = Cluster::new()?;
    let seed = seed("kinds of faults");
    let members = members(3, 1);
    cluster.publish();
    cluster.apply(1, &members);
    members.iter().for_each(|member| cluster.start(member));
    cluster.wait_for(1, &[]);
    let redis_py = RedisPy::start(&members)?;
    let (check, seeds) = (Check::of(&cluster), members.iter().map(|member| member.port).collect::<Vec<_>>());
    let mut chaos = Chaos { cluster, members, topology: 1, random: Random(seed) };
    let (began, duration) = (Instant::now(), configured_duration().unwrap_or(Duration::ZERO));
    // How often each fault happened, the longest wait for a reply meanwhile, and how many requests were sent again.
    let mut results = [(0, 0, 0); FAULTS.len()];
    let mut order: Vec<usize> = (0..FAULTS.len()).collect();
    // Each kind of fault happens at least once.
    while results[0].0 == 0 || began.elapsed() < duration {
        chaos.random.shuffle(&mut order);
        for number in &order {
            let (fault, _) = FAULTS[*number];
            let is_right = |key, answer: &Answer| match fault {
                Fault::Pinned => check.is_published(key, answer),
                _ => check.is_right(key, answer),
            };
            let Effort { repeated, longest_wait_ms } =
                under_load_of(&seeds, &is_right, |more| chaos.happen(fault, more));
            let (count, longest_ms, sum) = &mut results[*number];
            (*count, *longest_ms, *sum) = (*count + 1, longest_wait_ms.max(*longest_ms), *sum + repeated);
        }
    }
    println!("| fault | times | longest wait for a reply | requests sent again, each time |\n|---|---:|---:|---:|");
    for ((_, name), (count, longest_ms, repeated)) in FAULTS.iter().zip(results) {
        println!("| {name} | {count} | {longest_ms} ms | {} |", repeated / count);
    }
    println!("redis-py: {}", redis_py.stop());
    Ok(())
}
