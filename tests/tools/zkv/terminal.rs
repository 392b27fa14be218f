//! `zkv top` on a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus, Stdio};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use super::*;
use crate::helpers::tables::Table;

const LEAVES_ALTERNATE_SCREEN: &str = "\x1b[?1049l";
const SHOWS_CURSOR: &str = "\x1b[?25h";

/// A terminal of 80 columns and 24 lines, and a process on it.
struct Terminal {
    /// The user's end of the terminal, with keyboard and screen.
    user_end: File,
    /// The process's end of the terminal.
    process_end: OwnedFd,
    shown: Vec<u8>,
}

impl Terminal {
    fn new() -> Terminal {
        let user_end = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&user_end).unwrap();
        unlockpt(&user_end).unwrap();
        let name = ptsname(&user_end, Vec::new()).unwrap();
        let process_end = open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        tcsetwinsize(&process_end, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        Terminal { user_end: user_end.into(), process_end, shown: Vec::new() }
    }

    /// Runs the process in a new session, so that it uses the size of this terminal.
    fn start(&self, socket: &Path) -> Child {
        let stdio = || Stdio::from(self.process_end.try_clone().unwrap());
        let mut command = Command::new("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_zkv"), "top", "--interval", "0.05", "--socket"]).arg(socket);
        command.stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn().unwrap()
    }

    /// Reads until the process writes this text.
    fn wait_for(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.shown).contains(text) {
            let mut bytes = [0; 4096];
            let len = self.user_end.read(&mut bytes).unwrap();
            self.shown.extend_from_slice(&bytes[..len]);
        }
        self.shown.clear();
    }

    /// Returns the input, output and local modes.
    fn modes(&self) -> String {
        let Termios { input_modes, output_modes, local_modes, .. } = tcgetattr(&self.process_end).unwrap();
        format!("{input_modes:?} {output_modes:?} {local_modes:?}")
    }
}

/// Runs `zkv top`, quits it, and checks that the terminal is restored.
fn quit_with(quit: impl FnOnce(&mut Terminal, &Child)) -> ExitStatus {
    let table = Table::of_rows(1000);
    let _server = table.serve();
    let mut terminal = Terminal::new();
    let before = terminal.modes();
    let mut child = terminal.start(&table.socket());
    terminal.wait_for("generation");
    assert_ne!(terminal.modes(), before, "keys come one by one");
    quit(&mut terminal, &child);
    terminal.wait_for(LEAVES_ALTERNATE_SCREEN);
    let status = child.wait().unwrap();
    assert_eq!(terminal.modes(), before);
    status
}

#[test]
fn q_escape_and_control_c_restore_the_terminal() {
    for key in ["q", "\x1b", "\x03"] {
        let status = quit_with(|terminal, _| terminal.user_end.write_all(key.as_bytes()).unwrap());
        assert_eq!(status.code(), Some(0), "{key:?}");
    }
}

#[test]
fn a_signal_restores_the_terminal() {
    use std::os::unix::process::ExitStatusExt;
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let status = quit_with(|_, child| kill_process(Pid::from_child(child), signal).unwrap());
        assert_eq!(status.signal(), Some(signal.as_raw()), "the process dies by the signal");
    }
}

#[test]
fn a_stopped_server_is_reported_and_shown_again_after_its_restart() {
    let table = Table::of_rows(1000);
    let server = table.serve();
    let mut terminal = Terminal::new();
    let mut child = terminal.start(&table.socket());
    terminal.wait_for("serving");
    drop(server);
    terminal.wait_for("retrying");
    let _server = table.serve();
    terminal.wait_for("serving");
    terminal.user_end.write_all(b"q").unwrap();
    terminal.wait_for(SHOWS_CURSOR);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
