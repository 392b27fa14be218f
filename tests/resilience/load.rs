//! Clients that send requests without a pause, and check every response.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::helpers::generations::{Shape, named};
use crate::helpers::pipelined_gets::{Answer, Lane, Protocol};
use crate::helpers::random::random;
use crate::helpers::scenes::Served;
use crate::helpers::waiting::eventually;

/// Keys that are asked for in one write.
pub(crate) const PIPELINE_KEYS: usize = 256;

/// What the threads of a load and its owner tell each other.
#[derive(Default)]
struct Shared {
    stopping: AtomicBool,
    /// No pipeline that is sent from now on may be answered from a generation before this.
    least: AtomicU64,
    /// What the owner is measuring: samples say in which phase they began. 0 is none.
    phase: AtomicU32,
    pipelines: AtomicU64,
}

/// Connections that ask for keys of a table of generations.
pub(crate) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Vec<Sample>>>,
}

/// How long a pipeline took.
pub(crate) struct Sample {
    pub(crate) phase: u32,
    pub(crate) latency_us: u32,
}

/// Each thread has so many connections of each kind.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    pub(crate) native: usize,
    pub(crate) redis: usize,
    /// Those that ask for many pipelines before they read any.
    pub(crate) slow: usize,
}

impl Load {
    pub(crate) fn start(served: &Served, shape: Shape, threads: usize, lanes: Lanes) -> Load {
        let shared = Arc::new(Shared::default());
        let start = |thread: usize| {
            let connect = |protocol| Lane::new(protocol, served.connect());
            let (native, redis) = (Protocol::Native, Protocol::Redis);
            let protocols = std::iter::repeat_n(native, lanes.native).chain(std::iter::repeat_n(redis, lanes.redis));
            let worker = Asker {
                shape,
                shared: Arc::clone(&shared),
                lanes: protocols.map(|protocol| (connect(protocol), 0)).collect(),
                slow: (0..lanes.slow).map(|_| (connect(native), 0)).collect(),
                random: Box::new(random(0x10AD + thread as u64)),
                samples: Vec::new(),
            };
            thread::spawn(move || worker.run())
        };
        let threads = (0..threads).map(start).collect();
        Load { shared, threads }
    }

    pub(crate) fn pipelines(&self) -> u64 {
        self.shared.pipelines.load(Ordering::Relaxed)
    }

    /// Waits until so many pipelines more are answered.
    pub(crate) fn wait_for_pipelines(&self, count: u64) {
        let wanted = self.pipelines() + count;
        eventually("pipelines are answered", || {
            let is_over = self.threads.iter().any(JoinHandle::is_finished);
            assert!(!is_over, "a client has ended");
            self.pipelines() >= wanted
        });
    }

    /// From now on no pipeline may be answered from a generation before this.
    pub(crate) fn expect_at_least(&self, generation: u64) {
        self.shared.least.store(generation, Ordering::SeqCst);
    }

    pub(crate) fn enter(&self, phase: u32) {
        self.shared.phase.store(phase, Ordering::Relaxed);
    }

    /// Ends it. Panics if any answer was wrong.
    pub(crate) fn finish(self) -> Vec<Sample> {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.threads.into_iter().flat_map(|thread| thread.join().expect("a client has found a wrong answer")).collect()
    }
}

/// One thread, with connections and the generation that each last had an answer from.
struct Asker {
    shape: Shape,
    shared: Arc<Shared>,
    lanes: Vec<(Lane, u64)>,
    slow: Vec<(Lane, u64)>,
    random: Box<dyn FnMut() -> u64 + Send>,
    samples: Vec<Sample>,
}

/// What was asked, and when.
struct Asked {
    keys: Vec<u64>,
    least: u64,
    phase: u32,
    started: Instant,
}

impl Asker {
    /// Pipelines that a slow reader asks for before it reads.
    const SLOW_PIPELINES: usize = 24;

    fn run(mut self) -> Vec<Sample> {
        let mut lanes = std::mem::take(&mut self.lanes);
        let mut slow = std::mem::take(&mut self.slow);
        let mut owed: Vec<Vec<Asked>> = Vec::new();
        let mut round = 0;
        while !self.shared.stopping.load(Ordering::Relaxed) {
            // They ask in one round and read some rounds later.
            if owed.is_empty() {
                let ask =
                    |lane: &mut Lane, this: &mut Asker| (0..Asker::SLOW_PIPELINES).map(|_| this.ask(lane)).collect();
                owed = slow.iter_mut().map(|(lane, _)| ask(lane, &mut self)).collect();
            } else if round % 8 == 7 {
                for ((lane, last), asked) in slow.iter_mut().zip(owed.drain(..)) {
                    asked.iter().for_each(|asked| self.receive(lane, last, asked));
                }
            }
            let asked: Vec<Asked> = lanes.iter_mut().map(|(lane, _)| self.ask(lane)).collect();
            for ((lane, last), asked) in lanes.iter_mut().zip(&asked) {
                self.receive(lane, last, asked);
                if asked.phase != 0 {
                    let latency_us = asked.started.elapsed().as_micros() as u32;
                    self.samples.push(Sample { phase: asked.phase, latency_us });
                }
            }
            round += 1;
        }
        for ((lane, last), asked) in slow.iter_mut().zip(owed) {
            asked.iter().for_each(|asked| self.receive(lane, last, asked));
        }
        self.samples
    }

    fn ask(&mut self, lane: &mut Lane) -> Asked {
        let least = self.shared.least.load(Ordering::SeqCst);
        let phase = self.shared.phase.load(Ordering::Relaxed);
        // The key that is in each second generation, and one that is in none, are among them.
        let keys: Vec<u64> = (0..PIPELINE_KEYS).map(|_| 1 + (self.random)() % (self.shape.rows + 2)).collect();
        let started = Instant::now();
        lane.ask(&keys);
        Asked { keys, least, phase, started }
    }

    /// All answers of a pipeline are right, and of one generation, which is none before the last.
    fn receive(&self, lane: &mut Lane, last: &mut u64, asked: &Asked) {
        let answers = lane.answers(asked.keys.len()).expect("every request is answered");
        let generation = answers.iter().find_map(|answer| match answer {
            Answer::Value(value) => named(value),
            _ => None,
        });
        let generation = generation.expect("some key of a pipeline is in the table");
        let least = asked.least.max(*last);
        assert!(generation >= least, "an answer of generation {generation} after one of {least}");
        for (key, answer) in asked.keys.iter().zip(&answers) {
            let expected = self.shape.value(generation, *key).map_or(Answer::Missing, Answer::Value);
            assert_eq!(*answer, expected, "key {key} in a pipeline that begins with generation {generation}");
        }
        *last = generation;
        self.shared.pipelines.fetch_add(1, Ordering::Relaxed);
    }
}
