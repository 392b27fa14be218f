//! The server, in a control group that limits its memory, and loads on it.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rustix::event::epoll;
use zero_kv::client::Client;

use super::group::{MemoryGroup, command_in};
use super::pipeline::{Lookup, Pipeline};
use super::table::push_value;
use super::watchdog::Watchdog;
use crate::Args;

/// The maximum time from the start of the server to its first accepted connection.
const START_MAX: Duration = Duration::from_secs(60);

/// A running `kv_store`, in its control group.
pub(crate) struct Server {
    process: Child,
    pub(crate) socket: PathBuf,
    /// The time from the start of the process to the first answer.
    pub(crate) started: Duration,
    pub(crate) group: Option<MemoryGroup>,
    watchdog: Watchdog,
}

/// The result of a load.
pub(crate) struct Load {
    pub(crate) lookups: u64,
    pub(crate) per_second: f64,
}

impl Server {
    pub(crate) fn start(args: &Args, db: &Path, folder: &Path) -> Result<Server, Box<dyn Error>> {
        let group = MemoryGroup::if_allowed(args.memory_bytes);
        let socket = folder.join("s.sock");
        let watchdog = Watchdog::start(folder)?;
        let began = Instant::now();
        let mut command = command_in(group.as_ref(), &args.server);
        watchdog.add_to(&mut command);
        let process = command.arg("--db").arg(db).arg("--socket").arg(&socket).stderr(Stdio::null()).spawn()?;
        let mut server = Server { process, socket, started: Duration::ZERO, group, watchdog };
        let mut client = loop {
            match Client::connect(&server.socket) {
                Ok(client) => break client,
                Err(error) if server.process.try_wait()?.is_some() => return Err(error.into()),
                Err(error) if began.elapsed() > START_MAX => return Err(error.into()),
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        };
        let mut expected = Vec::new();
        push_value(&mut expected, args.rows / 2);
        assert_eq!(client.get(args.rows / 2)?, Some(expected));
        server.started = began.elapsed();
        Ok(server)
    }

    /// Returns a sentence about the server's notifications of its watchdog.
    pub(crate) fn watchdog(&self) -> String {
        self.watchdog.report()
    }

    /// Returns the number of bytes that the server has read from disks.
    pub(crate) fn read_bytes(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/io", self.process.id())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
        line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
    }

    /// Looks random keys up, with `clients` connections and `depth` requests in flight on each, until the measured time
    /// or `is_over`. Checks every value.
    pub(crate) fn load(
        &self,
        args: &Args,
        lookup: Lookup,
        clients: usize,
        depth: usize,
        is_over: &AtomicBool,
    ) -> Result<Load, Box<dyn Error>> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Each load has keys of its own, so it finds few of them in memory.
        let mut random = SmallRng::seed_from_u64((lookup as usize * 1_000_000 + clients * 10_000 + depth) as u64);
        let mut pipelines = Vec::new();
        for number in 0..clients {
            let mut pipeline = Pipeline::connect(&self.socket, lookup, depth)?;
            pipeline.send(args.rows, &mut random)?;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&poll, &pipeline.stream, data, epoll::EventFlags::IN)?;
            pipelines.push(pipeline);
        }
        let (mut lookups, began) = (0, Instant::now());
        let mut events = Vec::with_capacity(clients);
        while began.elapsed() < args.measured && !is_over.load(Ordering::Relaxed) {
            let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&timeout))?;
            for event in events.drain(..) {
                let pipeline = &mut pipelines[event.data.u64() as usize];
                if pipeline.receive()? {
                    lookups += depth as u64;
                    pipeline.send(args.rows, &mut random)?;
                }
            }
        }
        Ok(Load { lookups, per_second: lookups as f64 / began.elapsed().as_secs_f64() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.process),
            rustix::process::Signal::TERM,
        );
        let _ = self.process.wait();
    }
}
