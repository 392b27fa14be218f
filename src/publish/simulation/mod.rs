//! Simulates nodes that follow a table in a store with faults, on a virtual clock.
//!
//! The nodes run the real decisions ([`NodeMachine`](super::node::NodeMachine)); the store, the folders, the transfers,
//! and the time are simulated. Reads fail, are late, and see earlier states; responses to writes are lost; reports
//! arrive twice, the second time after newer ones; nodes are partitioned from the store, crash after any action, and
//! start again from their folders, or from empty ones; files in folders are damaged; links are slow; the clocks of
//! nodes run at different rates. Meanwhile, publishers and operators create manifests (some of them damaged), pins,
//! decisions, and topologies, and restart nodes. A seed determines all of this; together, it is called a schedule.
//!
//! A schedule has three phases: faults and changes, then only changes, then neither. In all of them:
//!
//! - A node serves only files that a transfer has verified, and goes back to an older generation only if the newest pin
//!   that it has read selects it. Its pin never gets a lower number, also after a crash.
//! - Between the end of a transfer and a swap, the node reads the pins, and obeys all that this read could see.
//! - While all owners of a group of slots serve, by any topology in effect, one of them has the rows of these slots.
//!
//! Without faults, no two nodes redirect clients to each other for longer than about a poll. At the end, all nodes
//! serve what the newest pin and the newest manifest select, follow the newest topology, and send no more requests than
//! `docs/PUBLISHING.md` states.

mod commands;
mod fleet;

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::Record;
use super::error::{PublishError, StoreFault};
use super::manifest::Manifest;
use super::node::{Action, Event, Found, Goal, Read, SwapFailure};
use super::pin::{Decision, Pin};
use super::status::NodeStatus;
use fleet::{
    GROUP_SLOTS, GROUPS, POLL_MS, PublicationKind, SimulatedFile, SimulatedNode, SimulatedStore, groups, newest,
};

const NODES: [&str; 4] = ["a", "b", "c", "d"];
const FAULTS_MS: u64 = 30 * POLL_MS;
const CHANGES_MS: u64 = FAULTS_MS + 20 * POLL_MS;
/// Longer than the longest pause before a generation is tried again, in which the nodes must converge.
const CONVERGED_MS: u64 = CHANGES_MS + 40 * POLL_MS;
const END_MS: u64 = CONVERGED_MS + 24 * POLL_MS;
/// The maximum number of steps of a schedule.
const STEPS_MAX: u32 = 50_000;
/// How long two nodes may redirect clients to each other.
const LOOP_MS_MAX: u64 = 3 * POLL_MS;

fn unreachable() -> PublishError {
    PublishError::Store { object: "object".to_owned(), cause: StoreFault::Other("connection refused".to_owned()) }
}

fn damaged() -> PublishError {
    PublishError::Document { object: "object".to_owned(), problem: "is damaged".to_owned() }
}

/// An event of the simulation.
enum SimulationStep {
    /// A read arrives at the store, or its response at the node.
    Reading {
        read: Read,
        sent_ms: u64,
    },
    Response {
        read: Read,
        result: Result<Found, PublishError>,
        view_ms: u64,
        sent_ms: u64,
    },
    Wake {
        token: u64,
    },
    TransferEnds {
        token: u64,
        goal: Goal,
    },
    TransferCanceled {
        token: u64,
    },
    SwapEnds {
        goal: Goal,
    },
    SettleEnds {
        record: Record,
        needed: Vec<u64>,
    },
    StatusArrives {
        status: NodeStatus,
    },
    StatusEnds {
        is_lost: bool,
    },
    Noticed,
    Starts,
    /// A publisher, an operator, or a fault acts.
    Change,
}

struct World {
    random: SmallRng,
    now_ms: u64,
    /// Steps are long, and the map moves its entries.
    queue: BTreeMap<(u64, u64), (usize, u64, Box<SimulationStep>)>,
    queued: u64,
    store: SimulatedStore,
    nodes: Vec<SimulatedNode>,
    is_cluster: bool,
    owners: [usize; GROUPS as usize],
    /// The groups of slots that have been served.
    was_answered: [bool; GROUPS as usize],
    /// Since when two nodes redirect clients to each other.
    loops: BTreeMap<(usize, usize, u16), u64>,
    slow_link: bool,
    swaps: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = SmallRng::seed_from_u64(seed);
        let is_cluster = random.random_range(0..3) == 0;
        let nodes = (0..NODES.len()).map(|at| SimulatedNode::new(at, random.random_range(900..1100))).collect();
        let mut world = World {
            random,
            now_ms: 0,
            queue: BTreeMap::new(),
            queued: 0,
            store: SimulatedStore::new(),
            nodes,
            is_cluster,
            owners: std::array::from_fn(|group| group % 2),
            was_answered: [false; GROUPS as usize],
            loops: BTreeMap::new(),
            slow_link: false,
            swaps: 0,
        };
        world.store.publish(0, PublicationKind::Ordinary);
        if is_cluster {
            world.store.apply_topology(0, &world.owners);
        }
        for at in 0..NODES.len() {
            world.schedule(0, at, SimulationStep::Starts);
        }
        world.schedule(1, 0, SimulationStep::Change);
        world
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.random_range(0..end)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn has_faults(&self) -> bool {
        self.now_ms < FAULTS_MS
    }

    fn schedule(&mut self, after_ms: u64, at: usize, step: SimulationStep) {
        self.queued += 1;
        let incarnation = self.nodes[at].incarnation;
        self.queue.insert((self.now_ms + after_ms, self.queued), (at, incarnation, Box::new(step)));
    }

    fn run(&mut self) {
        let mut steps = 0;
        while let Some(((now_ms, _), (at, incarnation, step))) = self.queue.pop_first() {
            if now_ms > END_MS {
                break;
            }
            if self.now_ms <= CONVERGED_MS && now_ms > CONVERGED_MS {
                self.check_convergence();
                self.nodes.iter_mut().for_each(|node| (node.reads, node.writes) = (0, 0));
            }
            self.now_ms = now_ms;
            let changes_slots = !matches!(
                *step,
                SimulationStep::Reading { .. }
                    | SimulationStep::StatusArrives { .. }
                    | SimulationStep::StatusEnds { .. }
            );
            steps += 1;
            assert!(steps < STEPS_MAX, "node {} acts without end", NODES[at]);
            match *step {
                SimulationStep::Change => self.change(),
                SimulationStep::Starts if self.nodes[at].machine.is_none() => self.start(at),
                _ if self.nodes[at].machine.is_none() || self.nodes[at].incarnation != incarnation => {}
                step => self.step(at, step),
            }
            if self.is_cluster && changes_slots {
                self.check_slots();
            }
        }
        self.check_budget();
    }

    // Nodes.

    fn start(&mut self, at: usize) {
        let (seed, now_ms) = (self.below(u64::MAX), self.now_ms);
        let node = &mut self.nodes[at];
        let (before, recorded) = (node.pin, node.disk.record.generation);
        let has_recorded = node.disk.files.iter().any(|file| file.generation == recorded);
        let is_complete = |manifest: &&Manifest| node.disk.files.iter().any(|file| file.generation == manifest.number);
        let manifests = self.store.published.values().filter(is_complete).cloned().collect();
        node.start(now_ms, seed, self.is_cluster, manifests);
        assert!(node.disk.record.pin >= before, "the pin was lost");
        assert!(!has_recorded || node.served.as_ref().is_some_and(|(served, _)| *served == recorded));
        self.drive(at);
    }

    /// Lets a node act until it waits.
    fn drive(&mut self, at: usize) {
        for _ in 0..1000 {
            let (served, now) = (self.nodes[at].served_slots(self.now_ms), self.nodes[at].clock(self.now_ms));
            let machine = self.nodes[at].machine.as_mut().unwrap();
            machine.set_served_slots(served);
            let Some(action) = machine.next(now) else {
                drop(machine.take_report());
                let until = machine.wait_until(now);
                let node = &mut self.nodes[at];
                node.wake_token += 1;
                let (token, at_ms) = (node.wake_token, node.at_clock(until));
                self.schedule(at_ms.saturating_sub(self.now_ms).max(1), at, SimulationStep::Wake { token });
                return;
            };
            self.act(at, action);
            if self.has_faults() && self.one_in(400) {
                return self.crash(at);
            }
        }
        panic!("node {} acts without end", NODES[at]);
    }

    fn act(&mut self, at: usize, action: Action) {
        let delay_ms = self.delay();
        match action {
            Action::Read(read) => {
                self.nodes[at].reads += if let Read::CheckManifest(_) = read { 2 } else { 1 };
                let sent_ms = self.now_ms;
                self.schedule(delay_ms, at, SimulationStep::Reading { read, sent_ms });
            }
            Action::Activate(topology) => {
                self.nodes[at].activate(topology.clone(), self.now_ms);
                self.apply(at, Event::Activated(topology, Ok(())));
            }
            Action::Transfer(goal) => {
                let has = !goal.repairs && self.nodes[at].file(&goal).is_some();
                let ms = match (has, self.slow_link) {
                    (true, _) => 1,
                    (false, false) => 100 + self.below(2 * POLL_MS),
                    (false, true) => 100 + self.below(15 * POLL_MS),
                };
                self.nodes[at].wake_token += 1;
                let token = self.nodes[at].wake_token;
                self.nodes[at].transfer = Some(token);
                self.schedule(ms, at, SimulationStep::TransferEnds { token, goal });
            }
            Action::CancelTransfer => {
                let token = self.nodes[at].transfer.unwrap();
                self.schedule(50, at, SimulationStep::TransferCanceled { token });
            }
            Action::Swap(goal, record) => {
                self.check_swap(at, &goal, &record);
                let node = &mut self.nodes[at];
                node.record_before_swap = Some(std::mem::replace(&mut node.disk.record, record));
                let ms = 1 + self.below(POLL_MS / 2);
                self.schedule(ms, at, SimulationStep::SwapEnds { goal });
            }
            Action::Settle(record, needed) => {
                let needed = needed.iter().map(|manifest| manifest.number).collect();
                self.schedule(delay_ms.min(100), at, SimulationStep::SettleEnds { record, needed });
            }
            Action::WriteStatus(status) => {
                self.nodes[at].writes += 1;
                let is_lost = self.has_faults() && self.one_in(10);
                if self.has_faults() && self.one_in(12) {
                    let ms = delay_ms + self.below(3 * POLL_MS);
                    self.schedule(ms, at, SimulationStep::StatusArrives { status: status.clone() });
                }
                if !(is_lost && self.one_in(2)) {
                    self.schedule(delay_ms, at, SimulationStep::StatusArrives { status });
                }
                self.schedule(delay_ms + 1, at, SimulationStep::StatusEnds { is_lost });
            }
        }
    }

    fn delay(&mut self) -> u64 {
        match self.below(if self.has_faults() { 20 } else { 19 }) {
            19 => self.below(3 * POLL_MS),
            18 => self.below(1000),
            _ => 1 + self.below(50),
        }
    }

    fn apply(&mut self, at: usize, event: Event) {
        let now = self.nodes[at].clock(self.now_ms);
        self.nodes[at].machine.as_mut().unwrap().apply(event, now);
    }

    fn step(&mut self, at: usize, step: SimulationStep) {
        let now_ms = self.now_ms;
        match step {
            SimulationStep::Wake { token } if token != self.nodes[at].wake_token => return,
            SimulationStep::Wake { .. } => {}
            SimulationStep::Reading { read, sent_ms } => {
                let is_failing = self.has_faults() && self.one_in(12) || now_ms < self.nodes[at].partitioned_until_ms;
                let is_stale = self.has_faults() && self.one_in(6);
                let view_ms = if is_stale { now_ms.saturating_sub(self.below(4 * POLL_MS)) } else { now_ms };
                let result = if is_failing { fleet::failed() } else { self.store.read(&read, view_ms) };
                let delay_ms = self.delay();
                return self.schedule(delay_ms, at, SimulationStep::Response { read, result, view_ms, sent_ms });
            }
            SimulationStep::Response { read, result, view_ms, sent_ms } => {
                if let (Read::Pin(_), Ok(Found::Pin(None))) = (&read, &result) {
                    (self.nodes[at].pin_view_ms, self.nodes[at].pin_sent_ms) = (view_ms, sent_ms);
                }
                self.apply(at, Event::Read(read, result));
            }
            SimulationStep::TransferEnds { token, .. } | SimulationStep::TransferCanceled { token }
                if self.nodes[at].transfer != Some(token) =>
            {
                return;
            }
            SimulationStep::TransferEnds { goal, .. } => {
                self.nodes[at].transfer = None;
                let slots = goal.slots.clone();
                let fails = self.has_faults() && self.one_in(5) || now_ms < self.nodes[at].partitioned_until_ms;
                let is_missing = self.store.gone.contains(&goal.manifest.number);
                if !fails && !is_missing && (goal.repairs || self.nodes[at].file(&goal).is_none()) {
                    let (generation, slots) = (goal.manifest.number, goal.slots);
                    let files = &mut self.nodes[at].disk.files;
                    files.retain(|file| file.generation != generation || file.slots != slots);
                    files.push(SimulatedFile { generation, slots, is_damaged: false });
                }
                self.nodes[at].ready_at_ms = now_ms;
                let result = match fails {
                    true => Err(unreachable()),
                    false if is_missing => {
                        Err(PublishError::Store { object: "data".to_owned(), cause: StoreFault::NotFound })
                    }
                    false => Ok(Box::new(slots)),
                };
                self.apply(at, Event::Transferred(result));
            }
            SimulationStep::TransferCanceled { .. } => {
                self.nodes[at].transfer = None;
                self.apply(at, Event::Transferred(Err(PublishError::Canceled)));
            }
            SimulationStep::SwapEnds { goal } => self.end_swap(at, goal),
            SimulationStep::SettleEnds { record, needed } => {
                self.check_pin(at, &record);
                let node = &mut self.nodes[at];
                node.disk.record = record;
                let mut kept = 0;
                node.disk.files.sort_by_key(|file| u64::MAX - file.generation);
                node.disk.files.retain(|file| {
                    kept += 1;
                    kept <= 2 || needed.contains(&file.generation)
                });
                self.apply(at, Event::Settled(Ok(())));
            }
            SimulationStep::StatusArrives { status } => return self.store.write_status(now_ms, status),
            SimulationStep::StatusEnds { is_lost } => {
                self.apply(at, Event::StatusWritten(if is_lost { Err(unreachable()) } else { Ok(()) }));
            }
            SimulationStep::Noticed if self.nodes[at].serves_damaged => {
                self.apply(at, Event::Damaged("lookups found damaged blocks"));
            }
            SimulationStep::Noticed => return,
            SimulationStep::Starts | SimulationStep::Change => unreachable!("handled before"),
        }
        self.drive(at);
    }

    fn end_swap(&mut self, at: usize, goal: Goal) {
        let is_noticed = self.one_in(2);
        let is_rejected = self.has_faults() && self.one_in(12);
        let node = &mut self.nodes[at];
        let before = node.record_before_swap.take().unwrap();
        let file = node.file(&goal).expect("a file is served that no transfer has verified").clone();
        let generation = goal.manifest.number;
        if is_rejected || file.is_damaged && is_noticed {
            node.disk.record = node.disk.record.after_failure(before);
            if file.is_damaged {
                node.disk.files.retain(|file| file.generation != generation);
            }
            let error = PublishError::Rejected { generation, problem: "canary 7".to_owned() };
            return self.apply(at, Event::Swapped(Err(SwapFailure::new(error, file.is_damaged))));
        }
        (node.served, node.serves_damaged) = (Some((generation, goal.slots)), file.is_damaged);
        self.swaps += 1;
        if file.is_damaged {
            let ms = self.below(POLL_MS);
            self.schedule(ms, at, SimulationStep::Noticed);
        }
        self.apply(at, Event::Swapped(Ok(())));
    }

    // Changes.

    fn change(&mut self) {
        if self.now_ms >= CHANGES_MS {
            return;
        }
        let now_ms = self.now_ms;
        let at = self.below(NODES.len() as u64) as usize;
        let published = newest(&self.store.manifests);
        match self.below(if self.has_faults() { 17 } else { 10 }) {
            0..3 => {
                let kind = match self.below(if self.has_faults() { 14 } else { 13 }) {
                    0 => PublicationKind::ChangesKeys,
                    1 => PublicationKind::HasWrongKeys,
                    2 | 3 => PublicationKind::IsIncomplete,
                    13 => PublicationKind::IsDamaged,
                    _ => PublicationKind::Ordinary,
                };
                self.store.publish(now_ms, kind);
            }
            3..6 => {
                let mut pin = Pin::new(None);
                let good: Vec<u64> = self.good_generations();
                let any = |world: &mut World| (!world.one_in(3)).then(|| good[world.below(good.len() as u64) as usize]);
                pin.generation = any(self);
                if self.one_in(3) {
                    (pin.nodes, pin.others) = (vec![NODES[at].to_owned()], any(self));
                }
                pin.hold = self.one_in(4) && pin.generation.is_some();
                let is_damaged = self.has_faults() && self.one_in(10);
                self.store.create_pin(now_ms, (!is_damaged).then_some(pin));
            }
            6 => {
                let decision = if self.one_in(2) { Decision::Activate } else { Decision::Abort };
                let holds = |pin: &Option<Pin>| pin.as_ref().is_some_and(|pin| pin.hold);
                let pins: Vec<u64> =
                    self.store.pins.iter().filter(|(_, (_, pin))| holds(pin)).map(|(pin, _)| *pin).collect();
                // Most decisions are about the newest pin.
                let newest = if self.one_in(4) { 0 } else { pins.len().saturating_sub(1) as u64 };
                if let Some(pin) = pins.get(newest.max(self.below(pins.len().max(1) as u64)) as usize) {
                    self.store.decisions.entry(*pin).or_insert((now_ms, Some(decision)));
                }
            }
            7 if self.is_cluster => {
                let group = self.below(GROUPS.into()) as usize;
                self.owners[group] = at;
                self.owners[(group + 3) % usize::from(GROUPS)] = (at + 1) % NODES.len();
                self.store.apply_topology(now_ms, &self.owners);
            }
            7..9 => self.slow_link = self.one_in(2),
            9..12 => {
                self.crash(at);
                if self.one_in(4) {
                    self.nodes[at].lose_folder();
                }
            }
            12..15 => self.nodes[at].partitioned_until_ms = (now_ms + self.below(10 * POLL_MS)).min(FAULTS_MS),
            15 => self.damage(at),
            _ => {
                // A lifecycle rule deletes the oldest manifest, if there are several.
                let oldest = self.store.manifests.keys().next().copied().filter(|oldest| oldest + 3 < published);
                oldest.into_iter().for_each(|oldest| drop(self.store.manifests.remove(&oldest)));
            }
        }
        let ms = 1 + self.below(2 * POLL_MS);
        self.schedule(ms, at, SimulationStep::Change);
    }

    fn crash(&mut self, at: usize) {
        self.nodes[at].crash();
        let ms = self.below(3 * POLL_MS);
        self.schedule(ms, at, SimulationStep::Starts);
    }

    fn good_generations(&self) -> Vec<u64> {
        let good = self.store.manifests.iter().filter(|(_, (_, manifest))| manifest.is_some());
        good.map(|(number, _)| *number).collect()
    }

    fn damage(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let served = node.served.as_ref().map_or(0, |(served, _)| *served);
        let Some(file) = node.disk.files.first_mut() else { return };
        file.is_damaged = true;
        if file.generation == served {
            node.serves_damaged = true;
            let ms = self.below(POLL_MS);
            self.schedule(ms, at, SimulationStep::Noticed);
        }
    }

    // Invariants.

    fn check_pin(&mut self, at: usize, record: &Record) {
        let node = &mut self.nodes[at];
        assert!(record.pin >= node.pin, "node {} goes back from pin {} to {}", NODES[at], node.pin, record.pin);
        node.pin = record.pin;
    }

    fn check_swap(&mut self, at: usize, goal: &Goal, record: &Record) {
        self.check_pin(at, record);
        let node = &self.nodes[at];
        let selected = record.pinned.as_ref().and_then(|pin| pin.generation_for(Some(NODES[at])));
        let recorded = node.disk.record.generation;
        let has_recorded = node.disk.files.iter().any(|file| file.generation == recorded);
        let before = node.served.as_ref().map_or(if has_recorded { recorded } else { 0 }, |(served, _)| *served);
        let next = goal.manifest.number;
        assert!(next >= before || selected == Some(next), "node {} goes back from {before} to {next}", NODES[at]);
        assert!(
            selected.is_none_or(|pinned| pinned == next || next == before),
            "the pin selects {selected:?}, not {next}"
        );
        let held = record.pinned.as_ref().is_some_and(|pin| pin.hold && pin.applies_to(NODES[at]));
        let decided = self.store.decisions.get(&record.pin).and_then(|(_, decision)| *decision);
        assert!(!held || next == before || decided == Some(Decision::Activate), "generation {next} was not activated");
        assert!(self.nodes[at].disk.files.iter().any(|file| file.generation == next && file.slots == goal.slots));
        if next == before {
            return;
        }
        // The pins were read after the transfer, and everything that this read saw is obeyed.
        assert!(node.pin_sent_ms >= node.ready_at_ms, "the pins were read before the transfer ended");
        let seen = self.store.pins.iter().filter(|(_, (created_ms, _))| *created_ms <= node.pin_view_ms);
        let seen = seen.map(|(number, _)| *number).max().unwrap_or(0);
        assert!(record.pin >= seen, "pin {seen} is ignored: the node follows pin {}", record.pin);
    }

    fn check_slots(&mut self) {
        let now_ms = self.now_ms;
        // A node that has just started does not know what it has confirmed before.
        let has_polled =
            |node: &SimulatedNode| node.machine.as_ref().is_some_and(|machine| machine.polled_at().is_some());
        self.nodes.iter_mut().for_each(SimulatedNode::recover);
        let is_up = |node: &SimulatedNode| has_polled(node) && node.served.is_some() && !node.is_recovering;
        let answered: Vec<_> = self.nodes.iter().map(|node| node.answered(now_ms)).collect();
        for group in groups() {
            let at = usize::from(group);
            let answering = answered.iter().any(|answered| answered[at]);
            self.was_answered[at] |= answering;
            let owners = self.nodes.iter().filter_map(|node| node.owner(group));
            let are_up = owners.map(|owner| is_up(&self.nodes[owner])).reduce(|all, next| all && next);
            assert!(
                answering || !self.was_answered[at] || !are_up.unwrap_or(false),
                "group {group} has no owner at {now_ms} ms: {}",
                self.describe(group)
            );
        }
        if self.has_faults() {
            return;
        }
        for group in groups() {
            for (left, right) in (0..NODES.len()).flat_map(|left| (0..left).map(move |right| (left, right))) {
                let redirects = |from: usize, to: usize| {
                    !answered[from][usize::from(group)] && self.nodes[from].owner(group) == Some(to)
                };
                let key = (left, right, group);
                if redirects(left, right) && redirects(right, left) {
                    let since_ms = *self.loops.entry(key).or_insert(now_ms);
                    assert!(
                        now_ms < since_ms + LOOP_MS_MAX,
                        "nodes redirect group {group} to each other since {since_ms} ms"
                    );
                } else {
                    self.loops.remove(&key);
                }
            }
        }
    }

    fn describe(&self, group: u16) -> String {
        let describe = |node: &SimulatedNode| {
            let status = node.machine.as_ref().map(|machine| machine.status());
            let (topology, owner) = (node.topology.as_ref().map(|topology| topology.number), node.owner(group));
            let has_rows = node.served.as_ref().is_some_and(|(_, slots)| slots.has(group * GROUP_SLOTS));
            format!("\n{}: topology {topology:?}, owner {owner:?}, has rows {has_rows}, {status:?}", node.name())
        };
        self.nodes.iter().map(describe).collect()
    }

    fn check_convergence(&self) {
        let good = self.store.newest_usable();
        let newest_pin = self.store.pins.iter().next_back();
        for node in &self.nodes {
            let name = node.name();
            let machine = node.machine.as_ref().unwrap_or_else(|| panic!("node {name} is down"));
            let status = machine.status();
            let (pin_number, pin) = match newest_pin {
                None => (0, None),
                Some((number, (_, Some(pin)))) => (*number, Some(pin)),
                // The newest pin is damaged, so nodes stay where they are.
                Some((_, (_, None))) => continue,
            };
            assert_eq!(status.pin, pin_number, "node {name}");
            let selected = pin.and_then(|pin| pin.generation_for(Some(name)));
            let holds = pin.is_some_and(|pin| pin.hold && pin.applies_to(name));
            let expected = match selected {
                Some(number) if holds => {
                    let decided = self.store.decisions.get(&pin_number).and_then(|(_, decision)| *decision);
                    (decided == Some(Decision::Activate)).then_some(number)
                }
                selected => selected.or(good.filter(|good| *good >= machine.serving())),
            };
            // A new node that waits for the decision of a rollout has no rows, so no topology that needs them takes
            // effect.
            let have_rows = self.nodes.iter().all(|node| node.served.is_some());
            if let Some(topology) = (self.is_cluster && have_rows).then(|| newest(&self.store.topologies)) {
                assert_eq!(status.topology, topology, "node {name}: {}", self.describe(0));
            }
            // A node without slots serves nothing new.
            if self.is_cluster && !self.owners.iter().any(|owner| NODES[*owner] == name) {
                continue;
            }
            // A pin to an unusable generation keeps a node where it is.
            let is_checked = |number: &u64| self.store.is_usable(*number);
            if let Some(expected) = expected.filter(is_checked) {
                assert_eq!(machine.serving(), expected, "node {name}: {status:?}");
            }
        }
    }

    /// Checks the requests that `docs/PUBLISHING.md` states for nodes that have nothing to do.
    fn check_budget(&self) {
        for node in &self.nodes {
            // The clocks of nodes differ by up to 10 %, and each wait is random.
            let polls = (END_MS - CONVERGED_MS) / POLL_MS * 6 / 5 + 3;
            let reads_per_poll = if self.is_cluster { 3 } else { 2 };
            let reads_max = polls * reads_per_poll + 2 * (polls / 12 + 2);
            let holds = self.store.pins.values().next_back().and_then(|(_, pin)| pin.as_ref());
            let extra = if holds.is_none_or(|pin| pin.hold) { polls } else { 0 };
            let bad = self.store.manifests.values().rev().take_while(|(_, manifest)| manifest.is_none()).count() as u64;
            let reads_max = reads_max + extra + (bad + 8) * polls * u64::from(bad > 0);
            // While a topology waits, a node also reads the statuses of the primaries whose slots change.
            let waits = node.machine.as_ref().is_some_and(|machine| machine.are_topologies_pending());
            let reads_max = reads_max + 2 * polls * NODES.len() as u64 * u64::from(waits);
            assert!(node.reads <= reads_max, "node {} sends {} reads in {polls} polls", node.name(), node.reads);
            let writes_max = if self.is_cluster { polls / 3 + 3 } else { polls / 6 + 3 };
            // Each attempt to fetch an unusable generation, at most every 30 polls, begins and ends.
            let retries = self.store.newest_usable() != Some(newest(&self.store.manifests));
            let is_retried = retries || node.machine.as_ref().is_some_and(|machine| machine.status().failed > 0);
            let writes_max = writes_max + 2 * (polls / 30 + 2) * u64::from(is_retried);
            assert!(node.writes <= writes_max, "node {} writes {} statuses in {polls} polls", node.name(), node.writes);
        }
    }
}

/// The environment variable with the seed of the first schedule. A failure prints the seed of its schedule.
const SEED: &str = "ZERO_KV_SEED";
/// The environment variable with the number of schedules.
const SCHEDULES: &str = "ZERO_KV_SCHEDULES";

/// The seeds of schedules that have shown faults.
const FAULTY: [u64; 5] = [20_090, 20_190, 20_228, 30_062, 70_160];

/// Returns the seed of the first schedule, and the number of schedules. The gate always runs the same schedules. Other
/// seeds are for searches of faults.
fn schedules(default: u64) -> (u64, u64) {
    let variable = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let (first, schedules) = (variable(SEED).unwrap_or(1), variable(SCHEDULES).unwrap_or(default));
    println!("{SEED}={first} {SCHEDULES}={schedules}");
    (first, schedules)
}

fn replay(seed: u64) -> ! {
    panic!("replay this schedule with {SEED}={seed} {SCHEDULES}=1")
}

/// `ZERO_KV_SEED=N ZERO_KV_SCHEDULES=50000 cargo test --lib publish::simulation -- --nocapture` simulates many
/// schedules, and `ZERO_KV_SCHEDULES=1` with the same command replays one.
#[test]
fn nodes_keep_their_promises_in_every_schedule() {
    let (first, schedules) = schedules(2000);
    let faulty: &[u64] = if std::env::var_os(SEED).is_none() { &FAULTY } else { &[] };
    let mut swaps = 0;
    for seed in (first..first + schedules).chain(faulty.iter().copied()) {
        let simulated = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            world.run();
            world.swaps
        });
        swaps += simulated.unwrap_or_else(|_| replay(seed));
    }
    // With few swaps, the test would prove nothing.
    assert!(schedules < 10 || swaps > 5 * schedules, "{swaps} swaps in {schedules} schedules");
}
