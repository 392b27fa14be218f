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
use crate::common::Table;

const LEAVES_SECOND_SCREEN: &str = "\x1b[?1049l";
const SHOWS_CURSOR: &str = "\x1b[?25h";

/// A terminal of 80 columns and 24 lines, and a process on it.
struct Terminal {
    /// Where somebody types and reads.
    hands: File,
    /// What the process has.
    line: OwnedFd,
    shown: Vec<u8>,
}

impl Terminal {
    fn new() -> Terminal {
        let hands = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&hands).unwrap();
        unlockpt(&hands).unwrap();
        let name = ptsname(&hands, Vec::new()).unwrap();
        let line = open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        tcsetwinsize(&line, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        Terminal { hands: hands.into(), line, shown: Vec::new() }
    }

    /// In a session of its own, so that no other terminal is asked for its size.
    fn start(&self, socket: &Path) -> Child {
        let stdio = || Stdio::from(self.line.try_clone().unwrap());
        let mut command = Command::new("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_zkv"), "top", "--interval", "0.05", "--socket"]).arg(socket);
        command.stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn().unwrap()
    }

    /// Reads until the process has written this.
    fn wait_for(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.shown).contains(text) {
            let mut bytes = [0; 4096];
            let len = self.hands.read(&mut bytes).unwrap();
            self.shown.extend_from_slice(&bytes[..len]);
        }
        self.shown.clear();
    }

    /// Input, output and local modes, as far as they can be compared.
    fn modes(&self) -> String {
        let Termios { input_modes, output_modes, local_modes, .. } = tcgetattr(&self.line).unwrap();
        format!("{input_modes:?} {output_modes:?} {local_modes:?}")
    }
}

/// Shows a server, leaves in this way, and looks whether the terminal is as it was.
fn leaves_by(leave: impl FnOnce(&mut Terminal, &Child)) -> ExitStatus {
    let table = Table::of_rows(1000);
    let _server = table.serve();
    let mut terminal = Terminal::new();
    let before = terminal.modes();
    let mut child = terminal.start(&table.socket());
    terminal.wait_for("generation");
    assert_ne!(terminal.modes(), before, "keys come one by one");
    leave(&mut terminal, &child);
    terminal.wait_for(LEAVES_SECOND_SCREEN);
    let status = child.wait().unwrap();
    assert_eq!(terminal.modes(), before);
    status
}

#[test]
fn q_escape_and_control_c_leave_the_terminal_as_it_was() {
    for key in ["q", "\x1b", "\x03"] {
        let status = leaves_by(|terminal, _| terminal.hands.write_all(key.as_bytes()).unwrap());
        assert_eq!(status.code(), Some(0), "{key:?}");
    }
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    use std::os::unix::process::ExitStatusExt;
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let status = leaves_by(|_, child| kill_process(Pid::from_child(child), signal).unwrap());
        assert_eq!(status.signal(), Some(signal.as_raw()), "whoever started it sees that it died by the signal");
    }
}

#[test]
fn a_server_that_goes_away_is_said_to_and_shown_again_when_it_is_back() {
    let table = Table::of_rows(1000);
    let server = table.serve();
    let mut terminal = Terminal::new();
    let mut child = terminal.start(&table.socket());
    terminal.wait_for("serving");
    drop(server);
    terminal.wait_for("trying");
    let _server = table.serve();
    terminal.wait_for("serving");
    terminal.hands.write_all(b"q").unwrap();
    terminal.wait_for(SHOWS_CURSOR);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
