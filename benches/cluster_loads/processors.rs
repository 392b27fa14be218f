//! Processors of servers and of the load, and processor time.

use std::fs;
use std::io;
use std::num::NonZero;
use std::ops::Range;
use std::process::Command;
use std::sync::OnceLock;
use std::thread::available_parallelism;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Returns the number of processors that this process could use before [`pin_this_process`] was called.
fn processor_count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| available_parallelism().map_or(1, NonZero::get))
}

/// Pins this process to all processors but the first.
pub(crate) fn pin_this_process() -> io::Result<()> {
    pin_to(1..processor_count())
}

/// Lets this process use all processors again.
pub(crate) fn unpin_this_process() -> io::Result<()> {
    pin_to(0..processor_count())
}

fn pin_to(processors: Range<usize>) -> io::Result<()> {
    if processors.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    processors.for_each(|processor| set.set(processor));
    Ok(sched_setaffinity(None, &set)?)
}

/// Raises the limit on open files as far as permitted.
pub(crate) fn raise_file_limit() -> io::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?)
}

/// Makes a program run on the first processor.
pub(crate) fn pin(command: &mut Command) -> &mut Command {
    let program = command.get_program().to_owned();
    if processor_count() < 2 {
        return command;
    }
    let mut pinned = Command::new("taskset");
    pinned.args(["--cpu-list", "0"]).arg(program).args(command.get_args());
    *command = pinned;
    command
}

/// Returns the processor time of the running threads of processes, in seconds.
pub(crate) fn cpu_seconds(processes: &[u32]) -> f64 {
    let threads =
        processes.iter().flat_map(|process| fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten());
    let nanoseconds = |thread: io::Result<fs::DirEntry>| {
        let statistics = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        statistics.split(' ').next()?.parse::<f64>().ok()
    };
    threads.filter_map(nanoseconds).sum::<f64>() / 1e9
}

/// Returns the processor time of this process, including threads that have ended, in seconds.
pub(crate) fn own_cpu_seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the process may read its own usage");
    [usage.user_time(), usage.system_time()].iter().map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6).sum()
}
