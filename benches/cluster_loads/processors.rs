//! Processors of servers and of the load, and processor time.

use std::fs;
use std::io;
use std::process::Command;
use std::thread::available_parallelism;

use nix::sys::resource::{UsageWho, getrusage};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Returns whether servers and load have processors of their own.
fn are_several() -> bool {
    available_parallelism().is_ok_and(|count| count.get() > 1)
}

/// Pins this process to all processors but the first.
pub(crate) fn pin_this_process() -> io::Result<()> {
    if !are_several() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    (1..available_parallelism()?.get()).for_each(|processor| set.set(processor));
    Ok(sched_setaffinity(None, &set)?)
}

/// Makes a program run on the first processor.
pub(crate) fn pin(command: &mut Command) -> &mut Command {
    let program = command.get_program().to_owned();
    if !are_several() {
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
