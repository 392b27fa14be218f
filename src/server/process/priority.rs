//! The priority of threads that work beside the workers.

/// Lowers the priority of this thread below the workers'. Threads that it starts later have the same priority.
pub fn lower_priority() {
    const NICE: i32 = 10;
    // On Linux, this call sets the priority of one thread. If it fails, the priority stays the same.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}
