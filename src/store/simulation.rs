//! Simulates a served file. A server leases the file, processes concurrent batches, rechecks and swaps the file, and
//! may end by SIGKILL. A direct client looks keys up, and a writer uses write(2) or a mapping. All of them may pause
//! for any time, as after SIGSTOP.
//!
//! One thread runs the whole simulation. Wherever a thread of the real system could be preempted, the simulation may
//! let time pass, let the writer continue, or run an operation of another thread. A seed determines all these choices;
//! together, they are called a schedule. The same seed replays the same schedule.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::blocks::Blocks;
use super::epoch::Epoch;
use super::lease::{Leasable, Lease, LeaseState, Proof};
use super::mapped::Standing;
use crate::format::checksum::block_sum;

/// The shortest time after which the kernel revokes a lease: one second minus two ticks of the kernel's timer, each
/// 10 ms.
const BREAK_NS: u64 = 980_000_000;
/// The length of a table, which is one block.
const LEN_BYTES: usize = 4;
/// The maximum nesting depth of operations. An operation is nested if it runs while another operation is paused.
const DEPTH_MAX: usize = 2;

/// The state of a process that writes to a file in place.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Writer {
    /// The process does not have the file open.
    None,
    /// The process waits in open(2) for the release of the lease.
    Waits { since_ns: u64 },
    /// The process has the file open, and has written `written_bytes` bytes.
    Writes { written_bytes: usize, byte: u8 },
}

/// A file as the kernel sees it.
struct SimulatedFile {
    baked: u8,
    bytes: [u8; LEN_BYTES],
    /// The modification time, which changes before the bytes do, unless `hides_writes` is set.
    modified: u64,
    /// Whether writes do not change the modification time, as with writes through a mapping on tmpfs.
    hides_writes: bool,
    is_leased: bool,
    writer: Writer,
}

/// The page that the server shares with direct clients.
#[derive(Clone, Copy, Default)]
struct Page {
    generation: usize,
    count: u64,
    is_leasable: bool,
    is_leased: bool,
    is_changed: bool,
    until_ns: u64,
    /// Whether the kernel has marked the owner word of the page, because the thread whose ID is in this word has ended.
    is_ownerless: bool,
}

impl Page {
    /// Mirrors `TableState::is_trusted`.
    fn is_trusted(self) -> bool {
        !self.is_changed && (self.is_leased || !self.is_leasable)
    }
}

struct World {
    random: SmallRng,
    now_ns: u64,
    depth: usize,
    /// Whether a thread of the server holds the lock of a lease.
    is_lease_locked: bool,
    /// Whether the server was killed. Operations of its threads then have no effect.
    is_killed: bool,
    files: Vec<SimulatedFile>,
    page: Page,
    accepted: u64,
    /// A description of the first accepted batch with a byte that was never baked.
    wrong: Option<String>,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new(0));
    /// The server's generations, the served one last.
    static SERVER: RefCell<Vec<Rc<Generation>>> = const { RefCell::new(Vec::new()) };
    static CLIENT: RefCell<Option<Rc<Client>>> = const { RefCell::new(None) };
}

fn world<T>(access: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(access)
}

fn random_below(end: u64) -> u64 {
    world(|world| world.random_below(end))
}

impl World {
    /// Returns the initial state of a simulation, without files. The current nesting depth starts at its
    /// maximum, so that no operation is nested until the depth is reduced.
    fn new(seed: u64) -> World {
        World {
            random: SmallRng::seed_from_u64(seed),
            now_ns: 0,
            depth: DEPTH_MAX,
            is_lease_locked: false,
            is_killed: false,
            files: Vec::new(),
            page: Page::default(),
            accepted: 0,
            wrong: None,
        }
    }

    fn random_below(&mut self, end: u64) -> u64 {
        self.random.random_range(0..end)
    }

    /// Performs the next action of a file's writer.
    fn step_writer(&mut self, file: usize) {
        let (choice, byte, now_ns) =
            (self.random_below(16), [0xEE, self.files[file].baked][self.random_below(8) as usize / 7], self.now_ns);
        let file = &mut self.files[file];
        file.writer = match file.writer {
            Writer::None if choice > 0 => Writer::None,
            Writer::None => Writer::Waits { since_ns: now_ns },
            Writer::Waits { since_ns } if file.is_leased && now_ns < since_ns + BREAK_NS => Writer::Waits { since_ns },
            Writer::Waits { .. } => {
                file.is_leased = false;
                Writer::Writes { written_bytes: 0, byte }
            }
            Writer::Writes { written_bytes: LEN_BYTES, .. } => Writer::None,
            Writer::Writes { written_bytes, byte } => {
                // The modification time and each byte change in separate actions.
                match written_bytes {
                    0 if !file.hides_writes && file.modified.is_multiple_of(2) => file.modified += 1,
                    _ => {
                        file.bytes[written_bytes] = byte;
                        let written_bytes = written_bytes + 1;
                        file.modified += u64::from(written_bytes == LEN_BYTES && !file.hides_writes);
                        file.writer = Writer::Writes { written_bytes, byte };
                        return;
                    }
                }
                Writer::Writes { written_bytes, byte }
            }
        };
    }
}

/// Simulates a point at which a thread can be preempted or a process suspended.
fn pause() {
    world(|world| {
        // Most pauses are short, as in a preemption. Some are long, as if the process had been suspended.
        let longest_ns = match world.random_below(100) {
            0 => 3_000_000_000,
            1..4 => 600_000_000,
            4..20 => 1_000_000,
            _ => 1_000,
        };
        world.now_ns += world.random_below(longest_ns);
        for file in 0..world.files.len() {
            if world.random_below(2) == 0 {
                world.step_writer(file);
            }
        }
        world.now_ns += world.random_below(longest_ns);
    });
    let may_nest = world(|world| world.depth < DEPTH_MAX && world.random_below(6) == 0);
    if may_nest {
        world(|world| world.depth += 1);
        run_random_operation();
        world(|world| world.depth -= 1);
    }
}

/// Runs a random operation of some thread.
fn run_random_operation() {
    let is_lease_locked = world(|world| world.is_lease_locked);
    match random_below(200) / 10 {
        8..13 => batch_of_client(),
        _ if world(|world| world.is_killed) => {}
        0..8 => batch_of_server(),
        19 if random_below(40) == 0 => kill(),
        _ if is_lease_locked => {}
        13..17 => with_lease_locked(|| served().lease.renew()),
        17 => look_again(),
        18 => pass_file_to_client(),
        _ => swap(),
    }
}

/// Runs an operation that locks a lease. During the operation, the simulation runs no other operation that needs the
/// lock, because a real thread would wait for the lock.
fn with_lease_locked<T>(run: impl FnOnce() -> T) -> T {
    world(|world| world.is_lease_locked = true);
    let outcome = run();
    world(|world| world.is_lease_locked = false);
    outcome
}

/// A descriptor of a simulated file: the index of the file in `World::files`.
struct Descriptor(usize);

impl Descriptor {
    fn modified(&self) -> u64 {
        pause();
        let modified = world(|world| world.files[self.0].modified);
        pause();
        modified
    }

    /// Copies the bytes, one at a time.
    fn copy(&self) -> [u8; LEN_BYTES] {
        std::array::from_fn(|at| {
            pause();
            world(|world| world.files[self.0].bytes[at])
        })
    }

    fn baked(&self) -> u8 {
        world(|world| world.files[self.0].baked)
    }
}

impl Leasable for Descriptor {
    fn now_ns(&self) -> u64 {
        pause();
        let now_ns = world(|world| world.now_ns);
        pause();
        now_ns
    }

    fn acquire(&self) -> io::Result<()> {
        pause();
        world(|world| {
            let is_killed = world.is_killed;
            let file = &mut world.files[self.0];
            if is_killed || file.writer != Writer::None {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            file.is_leased = true;
            Ok(())
        })
    }

    fn release(&self) {
        pause();
        world(|world| world.files[self.0].is_leased = false);
        pause();
    }

    fn is_held(&self) -> io::Result<bool> {
        pause();
        let is_held = world(|world| world.files[self.0].is_leased && world.files[self.0].writer == Writer::None);
        pause();
        Ok(is_held)
    }
}

/// Reads, verifies, and copies the bytes of a table, as `Store::get` does. Returns `None` if they cannot be verified.
fn look_up(blocks: &Blocks, epoch: Epoch, file: &Descriptor) -> Option<[u8; LEN_BYTES]> {
    let sums = [block_sum(&[file.baked(); LEN_BYTES])];
    let is_intact =
        blocks.are_verified(epoch, 0, LEN_BYTES) || blocks.verify_records(epoch, &file.copy(), &sums, 0, LEN_BYTES);
    is_intact.then(|| file.copy())
}

/// Counts a batch whose copied bytes were accepted, and records an error if these bytes differ from the baked bytes.
fn record_accepted(bytes: [u8; LEN_BYTES], file: &Descriptor, acceptor: &str) {
    let baked = file.baked();
    world(|world| {
        world.accepted += 1;
        if bytes != [baked; LEN_BYTES] && world.wrong.is_none() {
            world.wrong = Some(format!("{acceptor} accepted {bytes:x?} from a file of {baked:x}"));
        }
    });
}

/// Runs the schedule that a seed determines. Returns the number of accepted batches, and a description of the first
/// wrong batch.
fn simulate(seed: u64) -> (u64, Option<String>) {
    WORLD.set(World::new(seed));
    while SERVER.with_borrow(Vec::is_empty) {
        swap();
    }
    pass_file_to_client();
    world(|world| world.depth = 0);
    for _ in 0..60 {
        pause();
        run_random_operation();
    }
    // At this depth, no other operation runs while the generations release their leases.
    world(|world| world.depth = DEPTH_MAX);
    drop((SERVER.take(), CLIENT.take()));
    world(|world| (world.accepted, world.wrong.take()))
}

/// The environment variable that replays one schedule. A failure prints the schedule's seed.
const SEED: &str = "ZERO_KV_SIMULATION_SEED";

#[test]
fn no_accepted_batch_contains_a_byte_that_was_never_baked() {
    let replayed = std::env::var(SEED).ok().map(|seed| seed.parse::<u64>().expect("a seed is a number"));
    let first = replayed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        now.as_nanos() as u64
    });
    println!("seed {first}");
    let schedules = if replayed.is_some() { 1 } else { 2000 };
    let mut accepted = 0;
    for seed in first..first + schedules {
        let (count, wrong) = simulate(seed);
        accepted += count;
        assert_eq!(wrong, None, "replay this schedule with {SEED}={seed}");
    }
    // With few accepted batches, the test would prove nothing.
    assert!(accepted >= schedules, "{accepted} batches of {schedules} schedules were accepted");
}

/// A generation of the server.
struct Generation {
    number: usize,
    lease: Lease<Descriptor>,
    blocks: Blocks,
    /// The file's modification time when the file was last trusted: see `stamp.rs`.
    trusted_modified: Cell<u64>,
}

fn served() -> Rc<Generation> {
    SERVER.with_borrow(|generations| Rc::clone(generations.last().expect("one is served")))
}

impl Generation {
    fn file(&self) -> Descriptor {
        Descriptor(self.number)
    }

    /// Mirrors `WatchedFile::is_unchanged`.
    fn is_unchanged(&self) -> bool {
        match self.lease.proof() {
            Proof::Unchanged => true,
            Proof::None => self.looks_unchanged(),
            Proof::Lost => false,
        }
    }

    fn looks_unchanged(&self) -> bool {
        self.file().modified() == self.trusted_modified.get()
    }

    /// Mirrors `WatchedFile::lease`.
    fn take_lease(&self) {
        with_lease_locked(|| self.lease.take(|| self.looks_unchanged()));
    }
}

/// Mirrors a pass of a connection with one batch. The pass keeps its generation alive until the batch ends.
fn batch_of_server() {
    let generation = served();
    let epoch = generation.blocks.epoch();
    pause();
    let copied = look_up(&generation.blocks, epoch, &generation.file());
    pause();
    let is_accepted = generation.blocks.accept(epoch, || generation.is_unchanged());
    if let Some(copied) = copied.filter(|_| is_accepted && !world(|world| world.is_killed)) {
        record_accepted(copied, &generation.file(), "the server");
    }
}

/// Mirrors `Supervision::recheck_current` and `Store::look_again`, for an index that is intact.
fn look_again() {
    let generation = served();
    if !generation.blocks.epoch().is_distrust() {
        return;
    }
    set_changed(true);
    if with_lease_locked(|| generation.lease.retake()).is_err() {
        return;
    }
    let modified = generation.file().modified();
    let is_held = with_lease_locked(|| generation.lease.is_held_or_unused());
    if is_held && generation.file().modified() == modified {
        generation.trusted_modified.set(modified);
        generation.blocks.trust_again(false);
        set_changed(false);
    }
}

/// Mirrors `Board::set_changed`.
fn set_changed(is_changed: bool) {
    pause();
    write_page(|page| {
        page.count += u64::from(page.is_changed != is_changed);
        page.is_changed = is_changed;
    });
    pause();
}

/// Changes the shared page, unless the server was killed.
fn write_page(write: impl FnOnce(&mut Page)) {
    world(|world| {
        if !world.is_killed {
            write(&mut world.page);
        }
    });
}

/// Ends the simulated server as the kernel would: marks the owner word of the shared page, and later drops the leases.
fn kill() {
    world(|world| {
        world.page.is_ownerless = true;
        world.is_killed = true;
    });
    pause();
    world(|world| world.files.iter_mut().for_each(|file| file.is_leased = false));
}

/// Bakes another file and serves it.
fn swap() {
    let number = world(|world| {
        let baked = 1 + world.files.len() as u8;
        let (bytes, writer, hides_writes) = ([baked; LEN_BYTES], Writer::None, world.random_below(2) == 0);
        world.files.push(SimulatedFile { baked, bytes, modified: 0, hides_writes, is_leased: false, writer });
        world.files.len() - 1
    });
    let (lease, blocks, trusted_modified) =
        (Lease::unregistered(Descriptor(number)), Blocks::of_records(1).unwrap(), Cell::new(0));
    let generation = Rc::new(Generation { number, lease, blocks, trusted_modified });
    generation.trusted_modified.set(generation.file().modified());
    generation.take_lease();
    if !with_lease_locked(|| generation.lease.is_held()) {
        return;
    }
    // Mirrors `Board::serve`.
    write_page(|page| page.until_ns = 0);
    pause();
    write_page(|page| *page = Page { generation: number, count: page.count + 1, ..Page::default() });
    pause();
    with_lease_locked(|| generation.lease.report(Box::new(move |state| set_lease(number, state))));
    let old = SERVER.with_borrow_mut(|generations| std::mem::replace(generations, vec![generation]));
    // Releases the lease, unless a batch still reads the generation.
    with_lease_locked(|| drop(old));
}

/// Mirrors `Board::set_lease`.
fn set_lease(generation: usize, lease: LeaseState) {
    if world(|world| world.page.generation != generation) {
        return;
    }
    pause();
    write_page(|page| page.until_ns = if let LeaseState::TrustedUntil(until_ns) = lease { until_ns } else { 0 });
    pause();
    write_page(|page| {
        let is_leased = match lease {
            LeaseState::TrustedUntil(_) => true,
            LeaseState::Lost => false,
            LeaseState::Released => page.is_leased,
        };
        page.count += u64::from(page.is_leased != is_leased);
        (page.is_leased, page.is_leasable) = (is_leased, true);
    });
    pause();
}

/// A direct client: a process that maps the file of a generation.
struct Client {
    file: usize,
    /// The shared page as it was before the client read any byte of the file.
    page: Page,
    blocks: Blocks,
    /// The file's modification time when the client received the file.
    modified: u64,
}

/// Passes the server's file to the client.
fn pass_file_to_client() {
    // Mirrors `may_map`, with which the server decides whether a client may map the file.
    let generation = served();
    let epoch = generation.blocks.epoch();
    if epoch.is_distrust() || !generation.blocks.accept(epoch, || generation.is_unchanged()) {
        return;
    }
    pause();
    let (file, page) = (generation.number, world(|world| world.page));
    if page.generation != file || !page.is_trusted() {
        return;
    }
    pause();
    let client = Client { file, page, blocks: Blocks::of_records(1).unwrap(), modified: Descriptor(file).modified() };
    // Without a lease, a write can be in flight that still changes bytes but no longer changes the file's modification
    // time.
    if client.standing() == Standing::Unchanged {
        CLIENT.set(Some(Rc::new(client)));
    }
}

impl Client {
    /// Mirrors `Notice::standing_since`, which reads the deadline first, then the owner word, the state, and the clock.
    fn standing(&self) -> Standing {
        let until_ns = world(|world| world.page.until_ns);
        pause();
        let is_ownerless = world(|world| world.page.is_ownerless);
        pause();
        let page = world(|world| world.page);
        let is_since = page.count == self.page.count;
        let is_leased = page.is_leased && !page.is_changed && is_since;
        if is_leased && !is_ownerless {
            return if Descriptor(self.file).now_ns() < until_ns { Standing::Unchanged } else { Standing::Expired };
        }
        match page.generation == self.file && (!page.is_trusted() || self.page.is_leased && !is_since) {
            true => Standing::Changed,
            false => Standing::Unknown,
        }
    }
}

/// Mirrors a lookup in direct mode, which calls `MappedStore::copied`.
fn batch_of_client() {
    let Some(client) = CLIENT.with_borrow(Option::clone) else { return };
    let (epoch, file) = (client.blocks.epoch(), Descriptor(client.file));
    pause();
    let Some(copied) = look_up(&client.blocks, epoch, &file) else { return };
    let is_accepted = match client.standing() {
        Standing::Unchanged => true,
        Standing::Changed => {
            client.blocks.distrust(epoch);
            false
        }
        // For `Unknown`, the real client would accept the batch, even if the bytes are wrong. This is a documented
        // limit: without the server, nothing reveals a write that does not change the modification time.
        Standing::Expired | Standing::Unknown if world(|world| world.files[client.file].hides_writes) => false,
        Standing::Expired | Standing::Unknown => client.blocks.accept(epoch, || file.modified() == client.modified),
    };
    if is_accepted {
        record_accepted(copied, &file, "the client");
    }
}
