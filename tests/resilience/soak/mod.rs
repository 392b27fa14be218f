//! A server under swaps, bad files, readers that pin old generations, and floods of connections at the same time, while
//! other clients check every byte. At the end, the server holds no more resources than at the start.
//!
//! The test runs for a few seconds. With `ZERO_KV_SOAK_SECONDS`, it runs for that time and also checks anonymous
//! memory.

mod bad_files;
mod floods;
mod pinned;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::helpers::generations::Shape;
use crate::helpers::mixed_load::MixedLoad;
use crate::helpers::random::random;
use crate::helpers::scenes::Scene;
use crate::helpers::servers::Server;
use crate::helpers::waiting::eventually;
use bad_files::BAD_FILES;
use floods::Floods;
use pinned::Pinned;

const SHAPE: Shape = Shape { rows: 3000, len_max_bytes: 400 };
const DEFAULT_SECONDS: u64 = 3;
/// The number of rounds before the server is measured, in which it allocates its buffers and starts its threads.
const FIRST_ROUNDS: u64 = 3;
/// The maximum number of readers that hold old generations at the same time.
const PINNED_MAX: usize = 6;
/// The mappings and bytes that an allocator may keep. A leak in each round would exceed them.
const MAPS_SLACK: usize = 40;
const ANONYMOUS_SLACK_BYTES: u64 = 32 << 20;

/// The resources that a server holds.
#[derive(Debug)]
struct Held {
    descriptors: usize,
    threads: usize,
    maps: usize,
    anonymous_bytes: u64,
}

impl Held {
    fn measure(served: &Server) -> Held {
        let count = |name: &str| std::fs::read_dir(format!("/proc/{}/{name}", served.id())).unwrap().count();
        Held {
            descriptors: served.descriptors(),
            threads: count("task"),
            maps: served.proc("maps").lines().count(),
            anonymous_bytes: served.anonymous_bytes(),
        }
    }
}

struct Soak {
    /// Declared before the scene, whose folder has the log, because fields are dropped in order.
    served: Server,
    scene: Scene,
    /// The newest generation that is in place.
    generation: Arc<AtomicU64>,
    refused: u64,
    random: Box<dyn FnMut() -> u64>,
}

impl Soak {
    fn begin(seed: u64) -> Soak {
        let scene = Scene::new();
        SHAPE.bake(1, &scene.db());
        SHAPE.bake(1, &scene.path("good.db"));
        // With lazy verification, damage in a block is found only when a lookup reads the block.
        let served = scene.serve(&["--verify", "full"]);
        Soak { served, scene, generation: Arc::new(AtomicU64::new(1)), refused: 0, random: Box::new(random(seed)) }
    }

    /// Runs rounds under load until the time and the minimum number of rounds are over. Returns the number of rounds.
    fn run(&mut self, time: Duration, rounds_min: u64) -> u64 {
        let load = MixedLoad::start(&self.served, SHAPE, self.generation.load(Ordering::SeqCst));
        let floods = Floods::start(&self.served, (self.random)());
        let (started, mut rounds, mut pinned) = (Instant::now(), 0, Vec::new());
        while rounds < rounds_min || started.elapsed() < time {
            pinned.push(Pinned::start(&self.served, SHAPE, &self.generation));
            self.reject_a_bad_file();
            self.swap(&load);
            load.wait_for_right(500);
            pinned.iter_mut().for_each(Pinned::trickle);
            if pinned.len() > PINNED_MAX {
                let at = (self.random)() as usize % pinned.len();
                pinned.swap_remove(at).finish();
            }
            assert!(self.served.is_alive(), "{}", self.served.log());
            rounds += 1;
        }
        floods.finish();
        pinned.into_iter().for_each(Pinned::finish);
        assert_eq!(load.finish(), 0, "errors in responses from good files");
        rounds
    }

    fn reject_a_bad_file(&mut self) {
        let (name, spoil) = BAD_FILES[(self.random)() as usize % BAD_FILES.len()];
        let good = std::fs::read(self.scene.path("good.db")).unwrap();
        let bad = self.scene.path("bad.db");
        std::fs::write(&bad, spoil(good, &mut self.random)).unwrap();
        self.scene.put(&bad);
        self.refused += 1;
        let refused = self.refused;
        eventually(&format!("a file that is {name} is rejected"), || self.served.number("refused_files") >= refused);
        self.refused = self.served.number("refused_files");
    }

    fn swap(&mut self, load: &MixedLoad) {
        let generation = 1 + self.generation.load(Ordering::SeqCst);
        SHAPE.bake(generation, &self.scene.path("new.db"));
        load.allow(generation);
        self.generation.store(generation, Ordering::SeqCst);
        self.scene.put(&self.scene.path("new.db"));
        self.served.wait_for("generation", generation);
        load.expect_at_least(generation);
    }

    /// Returns the resources that the server holds when all clients have disconnected.
    fn held(&self) -> Held {
        eventually("all clients have left", || self.served.number("connections") == 1);
        eventually("only one file is mapped", || self.served.mapped_tables().len() == 1);
        Held::measure(&self.served)
    }
}

#[test]
fn a_server_holds_no_more_resources_at_the_end_than_at_the_start() {
    let _guard = crate::run_concurrently();
    let asked = std::env::var("ZERO_KV_SOAK_SECONDS").ok();
    let asked = asked.map(|seconds| seconds.parse().expect("ZERO_KV_SOAK_SECONDS is a number of seconds"));
    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut soak = Soak::begin(seed);
    soak.run(Duration::ZERO, FIRST_ROUNDS);
    let before = soak.held();
    let rounds = soak.run(Duration::from_secs(asked.unwrap_or(DEFAULT_SECONDS)), FIRST_ROUNDS);
    eventually("descriptors and threads are released", || {
        let held = soak.held();
        held.descriptors <= before.descriptors && held.threads <= before.threads
    });
    let after = soak.held();
    assert!(after.maps <= before.maps + MAPS_SLACK, "before {before:?}, after {after:?}");
    if asked.is_some() {
        assert!(
            after.anonymous_bytes <= before.anonymous_bytes + ANONYMOUS_SLACK_BYTES,
            "before {before:?}, after {after:?}"
        );
    }
    let info = soak.served.info();
    let number = |name| info.number::<u64>(name).unwrap();
    assert_eq!(number("swaps"), rounds + FIRST_ROUNDS);
    assert_eq!(number("faults"), 0);
    // The harness shows the output of `println!` only for tests that fail.
    let _ = writeln!(std::io::stderr(), "soak: {rounds} rounds; before {before:?}, after {after:?}; no wrong byte");
}
