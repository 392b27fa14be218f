//! The memory of a bake, whatever it reads.

use std::io::Read;
use std::process::Stdio;
use std::thread;

use rustix::pipe::fcntl_setpipe_size;

use super::*;
use crate::helpers::servers::status_bytes;

const MEMORY_BYTES: u64 = 16 << 20;
/// The memory in addition to the limit: the program's resident code, threads, and decompressors. The code of a debug
/// build is large, and how much of it is resident varies.
const BASE_BYTES: u64 = 24 << 20;

/// The memory of a process according to /proc.
pub(super) struct MemoryUse {
    /// The peak of all pages.
    pub(super) peak_bytes: u64,
    pub(super) final_message: String,
}

/// A file name in the current folder of nearly the maximum length. A message about it does not fit into a pipe of one
/// page.
pub(super) fn long_name(name: &str) -> String {
    format!("{}{name}", "./".repeat(2030))
}

/// Runs a bake that writes its last message to a pipe that is too small for it. The process then blocks with all other
/// work done, so its memory can be read.
pub(super) fn run(
    mut command: Command,
    final_message: FinalMessage,
    feed: impl FnOnce(&mut dyn Write) + Send,
) -> MemoryUse {
    let (mut words, writer) = std::io::pipe().unwrap();
    assert_eq!(fcntl_setpipe_size(&writer, 4096).unwrap(), 4096);
    match final_message {
        FinalMessage::Summary => command.stdout(writer).stderr(Stdio::null()),
        FinalMessage::Error => command.stdout(Stdio::null()).stderr(writer).arg("-q"),
    };
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    // The command also holds the other end of the pipe.
    drop(command);
    let mut stdin = child.stdin.take().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || feed(&mut stdin));
        let mut text = vec![0];
        words.read_exact(&mut text).unwrap();
        let peak_bytes = status_bytes(child.id(), "VmHWM");
        words.read_to_end(&mut text).unwrap();
        let success = child.wait().unwrap().success();
        let final_message = String::from_utf8(text).unwrap();
        assert_eq!(success, matches!(kind_of_message(&final_message), FinalMessage::Summary), "{final_message}");
        MemoryUse { peak_bytes, final_message }
    })
}

/// The result of a bake.
#[derive(Clone, Copy)]
pub(super) enum FinalMessage {
    Summary,
    Error,
}

fn kind_of_message(text: &str) -> FinalMessage {
    if text.starts_with("baker: ") { FinalMessage::Error } else { FinalMessage::Summary }
}

/// Bakes rows with the least memory, and checks the memory used.
#[track_caller]
fn assert_bounded(what: &str, args: &[&str], feed: impl FnOnce(&mut dyn Write) + Send) {
    let scene = Scene::new();
    let mut command = scene.folder.command(&BAKER);
    command.args(["-", "-o", &long_name("storage.db")]).args(LEAST_MEMORY).args(args);
    let memory_use = run(command, FinalMessage::Summary, feed);
    let len_bytes = std::fs::metadata(scene.folder.path("storage.db")).unwrap().len();
    println!("{what}: {} KiB at most, for a file of {} KiB", memory_use.peak_bytes >> 10, len_bytes >> 10);
    assert!(len_bytes > MEMORY_BYTES, "{what}: a file of {len_bytes} bytes shows nothing");
    let most_bytes = MEMORY_BYTES * 13 / 10 + BASE_BYTES;
    assert!(
        memory_use.peak_bytes <= most_bytes,
        "{what}: {} KiB, where {} are allowed",
        memory_use.peak_bytes >> 10,
        most_bytes >> 10
    );
    scene.assert_clean();
}

/// Writes `count` rows, whose keys contain the numbers below `count`: in ascending order if `step` is 1, and shuffled
/// if `step` is another number that is coprime to `count`.
fn rows_of(count: u64, step: u64, prefix: &'static str, value: Vec<u8>) -> impl FnOnce(&mut dyn Write) + Send {
    move |stdin| {
        let mut stdin = std::io::BufWriter::with_capacity(1 << 20, stdin);
        for number in 0..count {
            let key = number * step % count;
            write!(stdin, "{prefix}{key:08},").unwrap();
            stdin.write_all(&value).unwrap();
            stdin.write_all(b"\n").unwrap();
        }
    }
}

const BYTES: &[&str] = &["--keys", "bytes", "--allow-key-type-change"];

#[test]
fn short_rows_are_baked_within_the_memory_allowed() {
    const COUNT: u64 = 800_011;
    const SHUFFLED: u64 = 123_457;
    assert_bounded("short rows, numbers, sorted", &[], rows_of(COUNT, 1, "", vec![]));
    assert_bounded("short rows, numbers, shuffled", &[], rows_of(COUNT, SHUFFLED, "", vec![]));
    assert_bounded("short rows, bytes, sorted", BYTES, rows_of(COUNT, 1, "key", vec![]));
    assert_bounded("short rows, bytes, shuffled", BYTES, rows_of(COUNT, SHUFFLED, "key", vec![]));
}

#[test]
fn long_rows_are_baked_within_the_memory_allowed() {
    // Relative to the memory limit, a row of this length in 16 MiB is as long as a row of 1 MB in 64 MiB.
    const COUNT: u64 = 101;
    let value = || vec![b'v'; 250_000];
    assert_bounded("long rows, numbers, sorted", &[], rows_of(COUNT, 1, "", value()));
    assert_bounded("long rows, numbers, shuffled", &[], rows_of(COUNT, 7, "", value()));
    assert_bounded("long rows, bytes, sorted", BYTES, rows_of(COUNT, 1, "key", value()));
    assert_bounded("long rows, bytes, shuffled", BYTES, rows_of(COUNT, 7, "key", value()));
}

/// The most memory that a bake may use if it rejects its input.
pub(super) const REFUSAL_MAX_BYTES: u64 = MEMORY_BYTES + BASE_BYTES;
