use std::env;
use std::fs::File;
use std::mem;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::atomic::AtomicU32;

use libc::{c_int, c_void, siginfo_t};

use super::*;
use crate::machine_memory::page_len_bytes;

fn file_of(len_bytes: usize) -> File {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&vec![7; len_bytes], 0).unwrap();
    file
}

fn mapped(file: &File) -> Mmap {
    // SAFETY: The tests are about files that change while they are mapped; nothing relies on their bytes.
    unsafe { Mmap::map(file).unwrap() }
}

#[test]
fn a_missing_page_reads_as_zeros_and_is_counted() {
    survive_bus_errors().unwrap();
    let file = file_of(1 << 20);
    let map = Guarded::new(mapped(&file));
    let missing = page_len_bytes() + 1000;
    assert_eq!((map[missing], map.faults()), (7, 0));
    file.set_len(page_len_bytes() as u64).unwrap();
    assert_eq!((map[missing], map.faults()), (0, 1));
    assert_eq!((map[missing + 1000], map.faults()), (0, 1), "the same patch");
    assert_eq!((map[(1 << 20) - 1], map.faults()), (0, 2));
    // The first patch replaces the 64 KiB around the byte. The first page still exists, but reads as zeros if those 64
    // KiB include it.
    let patch = |at: usize| (map.as_ptr().addr() + at) / PATCH_LEN_BYTES;
    assert_eq!(map[100], if patch(100) == patch(missing) { 0 } else { 7 });
}

#[test]
fn the_number_of_patches_is_limited_however_many_pages_are_missing() {
    survive_bus_errors().unwrap();
    let len_bytes = 1024 * PATCH_LEN_BYTES;
    let file = tempfile::tempfile().unwrap();
    file.set_len(len_bytes as u64).unwrap();
    let map = Guarded::new(mapped(&file));
    file.set_len(0).unwrap();
    assert!(map.iter().step_by(4096).all(|byte| *byte == 0));
    assert!((PATCHES_MAX..PATCHES_MAX + 2).contains(&map.faults()), "{}", map.faults());
}

#[test]
fn each_of_many_live_mappings_survives_truncation() {
    survive_bus_errors().unwrap();
    let file = file_of(8192);
    let maps: Vec<_> = (0..2000).map(|_| Guarded::new(mapped(&file))).collect();
    file.set_len(0).unwrap();
    for (number, map) in maps.iter().enumerate() {
        assert_eq!((map[5000], map.faults()), (0, 1), "mapping {number}");
    }
}

#[test]
fn faults_are_counted_from_many_threads() {
    survive_bus_errors().unwrap();
    for _ in 0..20 {
        let file = file_of(4 << 20);
        let map = Guarded::new(mapped(&file));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let map = &map;
                scope.spawn(move || {
                    assert!((thread..map.len()).step_by(4099).all(|at| [0, 7].contains(&map[at])));
                });
            }
            file.set_len(0).unwrap();
        });
        assert!((0..map.len()).all(|at| map[at] == 0));
        assert!(map.faults() > 0);
    }
}

#[test]
fn faults_patch_the_right_mapping_while_mappings_come_and_go() {
    survive_bus_errors().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for round in 0..300 {
                    let (kept, cut) = (file_of(16 << 10), file_of(8 << 10));
                    let (kept, cut_map) = (Guarded::new(mapped(&kept)), Guarded::new(mapped(&cut)));
                    cut.set_len(0).unwrap();
                    assert_eq!((cut_map[5000], cut_map.faults()), (0, 1), "round {round}");
                    assert!(kept.iter().all(|byte| *byte == 7) && kept.faults() == 0, "round {round}");
                }
            });
        }
    });
}

/// The environment variable that marks a child process. Each test that installs a handler of its own, or that ends the
/// process, runs in a separate child process, because a signal handler belongs to a whole process.
const VICTIM: &str = "ZERO_KV_TEST_VICTIM";

/// Runs `body` in a child process, which exits with code 23 if `body` returns. Returns the status and output of the
/// child process. `test` is the name of the calling test.
fn run_in_child_process(test: &str, body: impl FnOnce()) -> Output {
    if env::var_os(VICTIM).is_some() {
        body();
        std::process::exit(23);
    }
    let mut victim = Command::new(env::current_exe().unwrap());
    let test = format!("store::guard::tests::{test}");
    victim.args([&test, "--exact", "--nocapture"]).env(VICTIM, "1").output().unwrap()
}

fn assert_returned(output: &Output) {
    assert_eq!(output.status.code(), Some(23), "{output:?}");
}

fn assert_ended_by_the_signal(output: &Output) {
    assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
}

/// Asserts that a page of a truncated file reads as zeros. With `foreign`, the mapping is not guarded, as if another
/// library had mapped the file.
fn assert_reads_zeros(foreign: bool) {
    let file = file_of(8192);
    if foreign {
        let map = mapped(&file);
        file.set_len(0).unwrap();
        assert_eq!(map[5000], 0);
    } else {
        let map = Guarded::new(mapped(&file));
        file.set_len(0).unwrap();
        assert_eq!((map[5000], map.faults()), (0, 1));
    }
}

type Action = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

fn install(action: Action, flags: c_int) -> libc::sigaction {
    // SAFETY: `sigaction` is plain data, for which all zeros are a value.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { mem::zeroed() };
    new.sa_sigaction = action as *const () as usize;
    new.sa_flags = libc::SA_SIGINFO | flags;
    // SAFETY: The handlers of these tests only use atomics and make system calls.
    assert_eq!(unsafe { libc::sigaction(libc::SIGBUS, &new, &mut old) }, 0);
    old
}

static CALLS: AtomicU32 = AtomicU32::new(0);

fn calls() -> u32 {
    CALLS.load(Ordering::SeqCst)
}

/// A handler that recovers from a fault by mapping zeros.
extern "C" fn repair(_signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    CALLS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: The system passes a valid `siginfo_t`.
    let fault = unsafe { &*info };
    // SAFETY: A fault has an address.
    let address = unsafe { fault.si_addr() }.addr();
    let page = address - address % page_len_bytes();
    // SAFETY: The page belongs to the mapping of `assert_reads_zeros`, which keeps it mapped and expects zeros.
    assert!(unsafe { replace_with_zeros(&(page..page + page_len_bytes())) });
}

/// The handler that was installed before a test installed its own.
static SAVED: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

fn save(action: libc::sigaction) {
    SAVED.store(Box::leak(Box::new(action)), Ordering::SeqCst);
}

/// A handler that restores the handler that it replaced, and returns so that the fault occurs again.
extern "C" fn restore(signal: c_int, _info: *mut siginfo_t, _context: *mut c_void) {
    CALLS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: `save` was called before this handler can run.
    unsafe { libc::sigaction(signal, SAVED.load(Ordering::SeqCst), ptr::null_mut()) };
}

/// A handler that calls the handler that it replaced.
extern "C" fn chain(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    CALLS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: `save` was called before this handler can run.
    let saved = unsafe { *SAVED.load(Ordering::SeqCst) };
    // SAFETY: `SAVED` contains a handler of this module, which was installed with SA_SIGINFO.
    let handler = unsafe { mem::transmute::<libc::sighandler_t, Action>(saved.sa_sigaction) };
    handler(signal, info, context);
}

#[test]
fn mappings_survive_truncation_beyond_the_maximum_number_of_patches() {
    let output = run_in_child_process("mappings_survive_truncation_beyond_the_maximum_number_of_patches", || {
        survive_bus_errors().unwrap();
        let patches = 40;
        let file = tempfile::tempfile().unwrap();
        file.set_len((patches * 2 * PATCH_LEN_BYTES) as u64).unwrap();
        let maps: Vec<_> = (0..1000).map(|_| Guarded::new(mapped(&file))).collect();
        file.set_len(0).unwrap();
        for map in &maps {
            // Every page is missing, but only every second patch is read, so that the system cannot join patches.
            assert!((0..patches).all(|patch| map[patch * 2 * PATCH_LEN_BYTES] == 0));
        }
        let faults = |map: &Guarded| map.faults();
        let expected = (patches as u64, 1);
        assert_eq!((faults(&maps[0]), faults(&maps[999])), expected, "the last mapping was replaced as a whole");
        drop(maps);
        assert_eq!(PATCHES.load(Ordering::Relaxed), 0);
    });
    assert_returned(&output);
}

#[test]
fn a_fault_outside_guarded_mappings_ends_the_process() {
    let output = run_in_child_process("a_fault_outside_guarded_mappings_ends_the_process", || {
        survive_bus_errors().unwrap();
        assert_reads_zeros(true);
    });
    assert_ended_by_the_signal(&output);
}

#[test]
fn a_previous_handler_that_recovers_leaves_ours_installed() {
    let output = run_in_child_process("a_previous_handler_that_recovers_leaves_ours_installed", || {
        install(repair, 0);
        survive_bus_errors().unwrap();
        for round in 1..4 {
            assert_reads_zeros(true);
            assert_reads_zeros(false);
            assert_eq!(calls(), round);
        }
    });
    assert_returned(&output);
}

#[test]
fn our_handler_is_reinstalled_in_front_of_a_handler_that_replaced_it() {
    let output = run_in_child_process("our_handler_is_reinstalled_in_front_of_a_handler_that_replaced_it", || {
        survive_bus_errors().unwrap();
        install(repair, libc::SA_NODEFER);
        survive_bus_errors().unwrap();
        survive_bus_errors().unwrap();
        assert_reads_zeros(false);
        assert_eq!(calls(), 0);
        assert_reads_zeros(true);
        assert_reads_zeros(false);
        assert_eq!(calls(), 1);
    });
    assert_returned(&output);
}

#[test]
fn a_handler_that_passes_a_fault_back_to_ours_ends_the_process() {
    for (pass_back, number) in [(restore as Action, "0"), (chain, "1")] {
        if env::var_os(VICTIM).is_some_and(|victim| victim != *number) {
            continue;
        }
        let mut victim = Command::new(env::current_exe().unwrap());
        let test = "store::guard::tests::a_handler_that_passes_a_fault_back_to_ours_ends_the_process";
        if env::var_os(VICTIM).is_none() {
            assert_ended_by_the_signal(&victim.args([test, "--exact"]).env(VICTIM, number).output().unwrap());
            continue;
        }
        survive_bus_errors().unwrap();
        save(install(pass_back, 0));
        survive_bus_errors().unwrap();
        assert_reads_zeros(false);
        assert_eq!(calls(), 0);
        // Now the test's handler is installed again, and saves a newer layer of ours as the handler that it replaced.
        save(install(pass_back, 0));
        survive_bus_errors().unwrap();
        assert_reads_zeros(false);
        assert_reads_zeros(true);
        unreachable!("the fault ended the process");
    }
}

#[test]
fn a_previous_handler_with_sa_resethand_is_called_once() {
    let output = run_in_child_process("a_previous_handler_with_sa_resethand_is_called_once", || {
        install(repair, libc::SA_RESETHAND);
        survive_bus_errors().unwrap();
        assert_reads_zeros(true);
        assert_eq!(calls(), 1);
        assert_reads_zeros(false);
        assert_reads_zeros(true);
    });
    assert_ended_by_the_signal(&output);
}

#[test]
fn replacing_the_handler_too_often_is_an_error() {
    let output = run_in_child_process("replacing_the_handler_too_often_is_an_error", || {
        let problem = (0..100).find_map(|_| {
            install(repair, 0);
            survive_bus_errors().err()
        });
        assert!(problem.unwrap().to_string().contains("other code has replaced the handler of SIGBUS 8 times"));
    });
    assert_returned(&output);
}

#[test]
fn a_fault_is_survived_in_a_thread_that_had_blocked_the_signal() {
    std::thread::spawn(|| {
        // SAFETY: `sigset_t` is plain data, for which all zeros are a value.
        let mut signals: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: The call writes to a `sigset_t` of ours.
        unsafe { libc::sigfillset(&mut signals) };
        // SAFETY: The call reads a `sigset_t` of ours.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &signals, ptr::null_mut()) };
        survive_bus_errors().unwrap();
        assert_reads_zeros(false);
    })
    .join()
    .unwrap();
}

fn send_signal() {
    // SAFETY: The call sends this thread a signal, which arrives before the call returns, and touches no memory of
    // ours.
    assert_eq!(unsafe { libc::raise(libc::SIGBUS) }, 0);
}

#[test]
fn a_sent_signal_ends_the_process() {
    let output = run_in_child_process("a_sent_signal_ends_the_process", || {
        survive_bus_errors().unwrap();
        send_signal();
    });
    assert_ended_by_the_signal(&output);
}

#[test]
fn a_sent_signal_is_ignored_if_it_was_ignored_before() {
    let output = run_in_child_process("a_sent_signal_is_ignored_if_it_was_ignored_before", || {
        // SAFETY: The call touches no memory of ours.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_IGN) };
        survive_bus_errors().unwrap();
        send_signal();
        assert_reads_zeros(false);
    });
    assert_returned(&output);
}
