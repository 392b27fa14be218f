use std::env;
use std::fs::File;
use std::mem;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::atomic::AtomicU32;

use libc::{c_int, c_void, siginfo_t};

use super::*;

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
    assert_eq!((map[5000], map.faults()), (7, 0));
    file.set_len(4096).unwrap();
    assert_eq!((map[5000], map.faults()), (0, 1));
    assert_eq!((map[6000], map.faults()), (0, 1), "the same patch");
    assert_eq!((map[(1 << 20) - 1], map.faults()), (0, 2));
    // The remaining page is part of the first patch, unless that patch begins right after it.
    let patch = |at: usize| (map.as_ptr().addr() + at) / PATCH_LEN_BYTES;
    assert_eq!(map[100], if patch(100) == patch(5000) { 0 } else { 7 });
}

#[test]
fn few_mappings_are_made_however_many_pages_are_missing() {
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
fn every_one_of_many_live_mappings_survives_truncation() {
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
fn mappings_that_come_and_go_beside_faults_are_patched_where_they_are() {
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

/// The environment variable of a process that runs one test by itself, because handlers belong to the whole process.
const VICTIM: &str = "ZERO_KV_TEST_VICTIM";

/// Runs `scene` in a separate process, which exits with code 23 if `scene` returns. Returns the status and output of
/// that process.
fn in_a_process_of_its_own(test: &str, scene: impl FnOnce()) -> Output {
    if env::var_os(VICTIM).is_some() {
        scene();
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

/// Reads a page of a truncated file, through a mapping that is not guarded if it is `foreign`.
fn assert_reads_zeros(foreign: bool) {
    let file = file_of(8192);
    let map = if foreign { Guarded::unguarded(mapped(&file)) } else { Guarded::new(mapped(&file)) };
    file.set_len(0).unwrap();
    assert_eq!((map[5000], map.faults()), (0, u64::from(!foreign)));
}

type Action = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

fn install(action: Action, flags: c_int) -> libc::sigaction {
    // SAFETY: `sigaction` is plain data, for which all zeros are a value.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { mem::zeroed() };
    new.sa_sigaction = action as *const () as usize;
    new.sa_flags = libc::SA_SIGINFO | flags;
    // SAFETY: The handlers of these tests use atomics and make system calls.
    assert_eq!(unsafe { libc::sigaction(libc::SIGBUS, &new, &mut old) }, 0);
    old
}

static CALLS: AtomicU32 = AtomicU32::new(0);

fn calls() -> u32 {
    CALLS.load(Ordering::SeqCst)
}

/// A handler that recovers.
extern "C" fn repair(_signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    CALLS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: The system passes a valid `siginfo_t`.
    let fault = unsafe { &*info };
    // SAFETY: A fault has an address.
    let address = unsafe { fault.si_addr() }.addr();
    // SAFETY: The page is one of `assert_reads_zeros`, which keeps it mapped and expects zeros.
    assert!(unsafe { replace_with_zeros(&(address & !4095..(address & !4095) + 4096)) });
}

/// The handler that a test's handler replaced when it was installed.
static SAVED: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

fn save(action: libc::sigaction) {
    SAVED.store(Box::leak(Box::new(action)), Ordering::SeqCst);
}

/// A handler that restores the handler that it replaced and lets the fault occur again.
extern "C" fn restore(signal: c_int, _info: *mut siginfo_t, _context: *mut c_void) {
    CALLS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: `save` was called before this was installed.
    unsafe { libc::sigaction(signal, SAVED.load(Ordering::SeqCst), ptr::null_mut()) };
}

/// A handler that calls the handler that it replaced.
extern "C" fn chain(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    CALLS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: `save` was called before this was installed.
    let saved = unsafe { *SAVED.load(Ordering::SeqCst) };
    // SAFETY: `SAVED` contains a handler of this module, which was installed with SA_SIGINFO.
    let handler = unsafe { mem::transmute::<libc::sighandler_t, Action>(saved.sa_sigaction) };
    handler(signal, info, context);
}

#[test]
fn mappings_that_exceed_the_patches_of_a_process_survive_truncation() {
    let output = in_a_process_of_its_own("mappings_that_exceed_the_patches_of_a_process_survive_truncation", || {
        survive_bus_errors().unwrap();
        let patches = 40;
        let file = tempfile::tempfile().unwrap();
        file.set_len((patches * 2 * PATCH_LEN_BYTES) as u64).unwrap();
        let maps: Vec<_> = (0..1000).map(|_| Guarded::new(mapped(&file))).collect();
        file.set_len(0).unwrap();
        for map in &maps {
            // Every second patch, so that the system cannot join them.
            assert!((0..patches).all(|patch| map[patch * 2 * PATCH_LEN_BYTES] == 0));
        }
        let faults = |map: &Guarded| map.faults();
        assert_eq!((faults(&maps[0]), faults(&maps[999])), (patches as u64, 1), "the last was replaced as a whole");
        drop(maps);
        assert_eq!(PATCHES.load(Ordering::Relaxed), 0);
    });
    assert_returned(&output);
}

#[test]
fn a_fault_elsewhere_ends_the_process_as_before() {
    let output = in_a_process_of_its_own("a_fault_elsewhere_ends_the_process_as_before", || {
        survive_bus_errors().unwrap();
        assert_reads_zeros(true);
    });
    assert_ended_by_the_signal(&output);
}

#[test]
fn a_previous_handler_that_recovers_leaves_ours_installed() {
    let output = in_a_process_of_its_own("a_previous_handler_that_recovers_leaves_ours_installed", || {
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
fn a_handler_that_replaced_ours_comes_after_ours_again() {
    let output = in_a_process_of_its_own("a_handler_that_replaced_ours_comes_after_ours_again", || {
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
fn a_handler_that_gives_a_fault_back_to_ours_ends_the_process() {
    for (give_back, number) in [(restore as Action, "0"), (chain, "1")] {
        if env::var_os(VICTIM).is_some_and(|victim| victim != *number) {
            continue;
        }
        let mut victim = Command::new(env::current_exe().unwrap());
        let test = "store::guard::tests::a_handler_that_gives_a_fault_back_to_ours_ends_the_process";
        if env::var_os(VICTIM).is_none() {
            assert_ended_by_the_signal(&victim.args([test, "--exact"]).env(VICTIM, number).output().unwrap());
            continue;
        }
        survive_bus_errors().unwrap();
        save(install(give_back, 0));
        survive_bus_errors().unwrap();
        assert_reads_zeros(false);
        assert_eq!(calls(), 0);
        // The second time, the handler saves a newer layer of ours.
        save(install(give_back, 0));
        survive_bus_errors().unwrap();
        assert_reads_zeros(false);
        assert_reads_zeros(true);
        unreachable!("the fault ended the process");
    }
}

#[test]
fn a_previous_handler_for_one_signal_is_called_once() {
    let output = in_a_process_of_its_own("a_previous_handler_for_one_signal_is_called_once", || {
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
fn a_handler_that_is_replaced_again_and_again_is_an_error() {
    let output = in_a_process_of_its_own("a_handler_that_is_replaced_again_and_again_is_an_error", || {
        let problem = (0..100).find_map(|_| {
            install(repair, 0);
            survive_bus_errors().err()
        });
        assert!(problem.unwrap().to_string().contains("other code has replaced the handler of SIGBUS 8 times"));
    });
    assert_returned(&output);
}

#[test]
fn a_fault_is_survived_where_its_signal_was_blocked() {
    std::thread::spawn(|| {
        // SAFETY: `sigset_t` is plain data, for which all zeros are a value.
        let mut signals: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: Writes to a `sigset_t` of ours.
        unsafe { libc::sigfillset(&mut signals) };
        // SAFETY: Reads a `sigset_t` of ours.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &signals, ptr::null_mut()) };
        survive_bus_errors().unwrap();
        assert_reads_zeros(false);
    })
    .join()
    .unwrap();
}

fn send_signal() {
    // SAFETY: Sends this thread a signal, which arrives before the call returns, and touches no memory of ours.
    assert_eq!(unsafe { libc::raise(libc::SIGBUS) }, 0);
}

#[test]
fn a_signal_that_was_sent_ends_the_process() {
    let output = in_a_process_of_its_own("a_signal_that_was_sent_ends_the_process", || {
        survive_bus_errors().unwrap();
        send_signal();
    });
    assert_ended_by_the_signal(&output);
}

#[test]
fn a_signal_that_was_sent_is_ignored_if_it_was_before() {
    let output = in_a_process_of_its_own("a_signal_that_was_sent_is_ignored_if_it_was_before", || {
        // SAFETY: Touches no memory of ours.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_IGN) };
        survive_bus_errors().unwrap();
        send_signal();
        assert_reads_zeros(false);
    });
    assert_returned(&output);
}
