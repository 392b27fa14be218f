//! Long work on a file ends soon after cancellation, and a server stops soon during that work.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rustix::process::Signal;
use zero_kv::store::{Memory, OpenOptions, Pace, StoreError, Verify};
use zero_kv::{MappedStore, Store};

use crate::helpers::forged::forge;
use crate::helpers::scenes::settle;
use crate::helpers::servers::Server;
use crate::helpers::tables::Table;
use crate::helpers::waiting::eventually;

/// A length that no machine reads while a test waits. The file is one hole, which takes no space on the disk.
const HOLE_LEN_BYTES: u64 = 1 << 40;
/// The length of forged records. Their block sums are 2 GiB.
const FORGED_LEN_BYTES: u64 = 4 << 40;
/// The number of bytes that the server has mapped before it gets SIGTERM.
const READ_MIN_BYTES: u64 = 64 << 20;

/// Opens a table, and cancels this when the pace has been called more than `calls_max` times. Returns the outcome, and
/// how often the pace was called.
fn open(
    table: &Table,
    memory: Memory,
    options: &OpenOptions,
    calls_max: usize,
) -> (Result<MappedStore, StoreError>, usize) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let pace = Pace::new(move || counted.fetch_add(1, Ordering::Relaxed) < calls_max);
    let options = OpenOptions { pace, ..options.clone() };
    let opened = match memory {
        Memory::Map => MappedStore::open_with(table.db(), &options),
        Memory::Sealed => Store::open_sealed(table.db(), &options).map(MappedStore::from),
        _ => Store::open_with(table.db(), &options).map(MappedStore::from),
    };
    (opened, calls.load(Ordering::Relaxed))
}

#[test]
fn an_open_can_be_canceled_at_each_window() {
    let threads = std::thread::available_parallelism().unwrap().get();
    // Several windows of 1 MiB for each section, and several parts of 8 MiB.
    let table = Table::new((0..200_000).map(|key| (key, vec![b'v'; 40])));
    // A recent file would make the first open wait until the file is old enough, and poll meanwhile.
    settle(&table.db());
    let options = |memory, verify| (memory, OpenOptions { verify, warm: true, ..OpenOptions::default() });
    for (memory, options) in [
        options(Memory::Map, Verify::Full),
        options(Memory::Map, Verify::Touch),
        options(Memory::Copy, Verify::Touch),
        options(Memory::Sealed, Verify::Touch),
    ] {
        let (opened, windows) = open(&table, memory, &options, usize::MAX);
        // Without a check of the whole file, only the copy and the warming of its pages take time.
        let windows_min = if options.verify == Verify::Touch { 2 } else { 5 };
        assert!(opened.is_ok() && windows >= windows_min, "{windows} windows: {memory:?} {options:?}");
        for calls_max in (0..windows).step_by(windows.div_ceil(15)) {
            let (opened, calls) = open(&table, memory, &options, calls_max);
            assert!(matches!(opened, Err(StoreError::Canceled { .. })), "{calls_max} of {windows}: {opened:?}");
            // No thread begins another window after the cancellation, which several threads can notice at the same
            // time.
            let calls_after = calls - calls_max;
            assert!((1..=threads).contains(&calls_after), "{calls_after} of {threads}: {memory:?} {options:?}");
        }
    }
}

/// A forged header can give any section any length.
#[test]
fn the_check_of_a_forged_file_can_be_canceled_at_each_window() {
    /// The maximum length of a window, as `Pace` documents it.
    const WINDOW_LEN_MAX_BYTES: u64 = 8 << 20;
    let table = Table::of_rows(1);
    let block_sums_len_bytes = forge(&table.db(), 64 << 30);
    let windows_min = (block_sums_len_bytes / WINDOW_LEN_MAX_BYTES) as usize;
    assert!(windows_min >= 4, "{windows_min} windows");
    let options = OpenOptions { verify: Verify::Full, ..OpenOptions::default() };
    let (opened, windows) = open(&table, Memory::Map, &options, usize::MAX);
    assert!(matches!(opened, Err(StoreError::Format { .. })), "{opened:?}");
    assert!(windows >= windows_min, "{windows} windows for {block_sums_len_bytes} bytes");
    for calls_max in (0..windows).step_by(windows.div_ceil(4)) {
        let (opened, calls) = open(&table, Memory::Map, &options, calls_max);
        assert!(matches!(opened, Err(StoreError::Canceled { .. })), "{calls_max} of {windows}: {opened:?}");
        assert_eq!(calls, calls_max + 1);
    }
}

/// Waits until the server has mapped in a part of the file while it warms the file.
fn wait_until_it_warms_the_file(server: &Server) {
    let read_bytes = || server.status_bytes("RssFile") + server.status_bytes("RssShmem");
    eventually("the server reads its file", || read_bytes() >= READ_MIN_BYTES);
}

fn stop(mut server: Server, expected: &str) {
    wait_until_it_warms_the_file(&server);
    let signaled = Instant::now();
    server.signal(Signal::TERM);
    server.wait_for_log(expected);
    assert_eq!(server.wait().code(), Some(0));
    println!("stopped {:.3} s after SIGTERM", signaled.elapsed().as_secs_f64());
}

fn hole(path: &Path) {
    File::create(path).unwrap().set_len(HOLE_LEN_BYTES).unwrap();
}

fn warm(table: &Table) -> Command {
    table.command(&["--warm"])
}

#[test]
fn a_server_that_warms_its_first_file_stops_on_sigterm() {
    let table = Table::of_rows(10);
    hole(&table.db());
    stop(Server::spawn(warm(&table), &table.socket()), "canceled: stopped before the file was served");
    assert!(!table.socket().exists());
}

#[test]
fn a_server_that_warms_a_new_file_stops_on_sigterm() {
    let table = Table::of_rows(10);
    let server = Server::of(warm(&table), &table.socket());
    let next = table.folder.path().join("next.db");
    hole(&next);
    fs::rename(next, table.db()).unwrap();
    stop(server, "canceled: the server stops");
}

#[test]
fn a_server_that_verifies_a_forged_first_file_stops_on_sigterm() {
    let table = Table::of_rows(10);
    forge(&table.db(), FORGED_LEN_BYTES);
    let command = table.command(&["--verify", "full"]);
    stop(Server::spawn(command, &table.socket()), "canceled: stopped before the file was served");
    assert!(!table.socket().exists());
}

#[test]
fn a_server_that_verifies_a_forged_new_file_stops_on_sigterm() {
    let table = Table::of_rows(10);
    let server = Server::of(table.command(&["--verify", "full"]), &table.socket());
    let next = table.folder.path().join("next.db");
    forge(&next, FORGED_LEN_BYTES);
    fs::rename(next, table.db()).unwrap();
    stop(server, "canceled: the server stops");
}
