//! Clients that send requests without a pause, and check every response.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::helpers::generations::{Shape, named};
use crate::helpers::pipelined_gets::{Answer, PipelinedConnection, Protocol};
use crate::helpers::random::random;
use crate::helpers::servers::Server;
use crate::helpers::waiting::eventually;

/// The number of keys in a pipeline, which is sent in one write.
pub(crate) const PIPELINE_KEYS: usize = 256;

/// State shared by the threads of a load and its owner.
#[derive(Default)]
struct Shared {
    stopping: AtomicBool,
    /// The minimum generation of responses to pipelines that are sent from now on.
    least: AtomicU64,
    /// The phase of the owner's measurement. A sample records the phase in which it began. 0 means no measurement.
    phase: AtomicU32,
    pipelines: AtomicU64,
}

/// Connections that look up keys of a table of generations.
pub(crate) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Vec<Sample>>>,
}

/// The latency of a pipeline.
pub(crate) struct Sample {
    pub(crate) phase: u32,
    pub(crate) latency_us: u32,
}

/// The number of connections of each kind per thread.
#[derive(Clone, Copy)]
pub(crate) struct ConnectionCounts {
    pub(crate) native: usize,
    pub(crate) redis: usize,
    /// Connections that send many pipelines before they read any response.
    pub(crate) slow: usize,
}

impl Load {
    pub(crate) fn start(served: &Server, shape: Shape, threads: usize, counts: ConnectionCounts) -> Load {
        let shared = Arc::new(Shared::default());
        let start = |thread: usize| {
            let connect = |protocol| PipelinedConnection::new(protocol, served.connect());
            let (native, redis) = (Protocol::Native, Protocol::Redis);
            let protocols = std::iter::repeat_n(native, counts.native).chain(std::iter::repeat_n(redis, counts.redis));
            let worker = LoadThread {
                shape,
                shared: Arc::clone(&shared),
                connections: protocols.map(|protocol| (connect(protocol), 0)).collect(),
                slow: (0..counts.slow).map(|_| (connect(native), 0)).collect(),
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

    /// Waits until this many more pipelines are answered.
    pub(crate) fn wait_for_pipelines(&self, count: u64) {
        let wanted = self.pipelines() + count;
        eventually("pipelines are answered", || {
            let is_over = self.threads.iter().any(JoinHandle::is_finished);
            assert!(!is_over, "a client has ended");
            self.pipelines() >= wanted
        });
    }

    /// Rejects responses from earlier generations to pipelines that are sent from now on.
    pub(crate) fn expect_at_least(&self, generation: u64) {
        self.shared.least.store(generation, Ordering::SeqCst);
    }

    pub(crate) fn enter(&self, phase: u32) {
        self.shared.phase.store(phase, Ordering::Relaxed);
    }

    /// Ends the load. Panics if any response was wrong.
    pub(crate) fn finish(self) -> Vec<Sample> {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.threads.into_iter().flat_map(|thread| thread.join().expect("a client received a wrong response")).collect()
    }
}

/// A thread, with its connections and the generation of the last response on each.
struct LoadThread {
    shape: Shape,
    shared: Arc<Shared>,
    connections: Vec<(PipelinedConnection, u64)>,
    slow: Vec<(PipelinedConnection, u64)>,
    random: Box<dyn FnMut() -> u64 + Send>,
    samples: Vec<Sample>,
}

/// A pipeline that was sent, and when.
struct SentPipeline {
    keys: Vec<u64>,
    least: u64,
    phase: u32,
    started: Instant,
}

impl LoadThread {
    /// The number of pipelines that a slow reader sends before it reads.
    const SLOW_PIPELINES: usize = 24;

    fn run(mut self) -> Vec<Sample> {
        let mut connections = std::mem::take(&mut self.connections);
        let mut slow = std::mem::take(&mut self.slow);
        let mut pending: Vec<Vec<SentPipeline>> = Vec::new();
        let mut round = 0;
        while !self.shared.stopping.load(Ordering::Relaxed) {
            // Slow readers send in one round and read some rounds later.
            if pending.is_empty() {
                // If a read fills the server's buffer, the server treats the next read as part of the same batch, and
                // answers both from one generation, even if there was a swap in between. The generation of the first
                // pipeline is therefore allowed for all of them.
                let least = self.least();
                let send_pipeline = |connection: &mut PipelinedConnection, this: &mut LoadThread| {
                    (0..LoadThread::SLOW_PIPELINES).map(|_| this.send_pipeline(connection, least)).collect()
                };
                pending = slow.iter_mut().map(|(connection, _)| send_pipeline(connection, &mut self)).collect();
            } else if round % 8 == 7 {
                for ((connection, last), sent) in slow.iter_mut().zip(pending.drain(..)) {
                    sent.iter().for_each(|sent| self.receive(connection, last, sent));
                }
            }
            let sent: Vec<SentPipeline> =
                connections.iter_mut().map(|(connection, _)| self.send_pipeline(connection, self.least())).collect();
            for ((connection, last), sent) in connections.iter_mut().zip(&sent) {
                self.receive(connection, last, sent);
                if sent.phase != 0 {
                    let latency_us = sent.started.elapsed().as_micros() as u32;
                    self.samples.push(Sample { phase: sent.phase, latency_us });
                }
            }
            round += 1;
        }
        for ((connection, last), sent) in slow.iter_mut().zip(pending) {
            sent.iter().for_each(|sent| self.receive(connection, last, sent));
        }
        self.samples
    }

    /// Returns the earliest generation that may answer a pipeline that is sent from now on.
    fn least(&self) -> u64 {
        self.shared.least.load(Ordering::SeqCst)
    }

    fn send_pipeline(&mut self, connection: &mut PipelinedConnection, least: u64) -> SentPipeline {
        let phase = self.shared.phase.load(Ordering::Relaxed);
        // The keys include the one that only every second generation has, and one that no generation has.
        let keys: Vec<u64> = (0..PIPELINE_KEYS).map(|_| 1 + (self.random)() % (self.shape.rows + 2)).collect();
        let started = Instant::now();
        connection.ask(&keys);
        SentPipeline { keys, least, phase, started }
    }

    /// Asserts that all responses to a pipeline are right and come from one generation, and that this generation is not
    /// older than the last one.
    fn receive(&self, connection: &mut PipelinedConnection, last: &mut u64, sent: &SentPipeline) {
        let answers = connection.answers(sent.keys.len()).expect("every request is answered");
        let generation = answers.iter().find_map(|answer| match answer {
            Answer::Value(value) => named(value),
            _ => None,
        });
        let generation = generation.expect("some key of a pipeline is in the table");
        let least = sent.least.max(*last);
        assert!(generation >= least, "a response of generation {generation} after one of {least}");
        for (key, answer) in sent.keys.iter().zip(&answers) {
            let expected = self.shape.value(generation, *key).map_or(Answer::Missing, Answer::Value);
            assert_eq!(*answer, expected, "key {key} in a pipeline that begins with generation {generation}");
        }
        *last = generation;
        self.shared.pipelines.fetch_add(1, Ordering::Relaxed);
    }
}
