//! The effect of signals on a bake.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use rustix::process::{Pid, Signal, kill_process};

use crate::helpers::baker_runs::{BAKER, Ended, Folder};
use crate::helpers::full_pipe::{full_pipe, wait_until_handled};
use crate::helpers::waiting::eventually;

/// Returns more text than a pipe holds.
fn text() -> Vec<u8> {
    (0..20_000_u64).rev().flat_map(|key| format!("{key},value of {key}\n").into_bytes()).collect()
}

#[test]
fn a_signal_stops_a_bake_that_waits_for_its_input_and_nothing_is_left() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let folder = Folder::new();
        folder.bake_text("1,from before\n", &[]).succeeds();
        let before = fs::read(folder.path("storage.db")).unwrap();
        let child = folder.start_bake(
            // A test that runs in the background of a script inherits an ignored SIGINT.
            folder.command("env").args([
                "--default-signal=INT,TERM,HUP",
                &BAKER,
                "-",
                "--report",
                "report.json",
                "--bad-rows",
                "skip",
                "--bad-rows-file",
                "bad.csv",
            ]),
            &text(),
        );
        kill_process(Pid::from_child(&child), signal).unwrap();
        // Its standard input stays open until it has ended.
        let mut child = child;
        let stdin = child.stdin.take();
        let ended = Ended::wait_for(child);
        drop(stdin);
        assert_eq!(ended.status.signal(), Some(signal.as_raw()), "{}", ended.err);
        assert_eq!((&*ended.err, &*ended.out), ("baker: stopped: nothing was put in place\n", ""));
        assert_eq!(folder.names(), ["storage.db"]);
        assert!(fs::read(folder.path("storage.db")).unwrap() == before);
    }
}

#[test]
fn the_first_signal_stops_a_bake_whose_errors_nobody_reads() {
    let folder = Folder::new();
    let (reader, writer) = full_pipe();
    let mut command = folder.command(&BAKER);
    command.arg("-").stderr(writer);
    let mut child = folder.start_bake(&mut command, &text());
    // The command has the other copy of the pipe's end.
    drop(command);
    wait_until_handled(&child, Signal::TERM);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    eventually("the bake ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    drop(reader);
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let folder = Folder::new();
    // Shells ignore signals for background jobs, and nohup for jobs that outlive the shell.
    let script = "trap '' INT HUP; exec \"$0\" -";
    let mut child = folder.start_bake(folder.command("sh").args(["-c", script, &BAKER]), &text());
    for signal in [Signal::INT, Signal::HUP] {
        kill_process(Pid::from_child(&child), signal).unwrap();
    }
    drop(child.stdin.take());
    Ended::wait_for(child).succeeds();
    assert_eq!(folder.rows().len(), 20_000);
}
