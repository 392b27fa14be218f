//! Programs on a terminal.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use super::waiting::PATIENCE;

/// A terminal of 80 columns and 24 lines, and a process on it.
pub struct Terminal {
    /// The user's end of the terminal, with keyboard and screen.
    pub user_end: File,
    /// The process's end of the terminal.
    process_end: OwnedFd,
    shown: Vec<u8>,
}

impl Terminal {
    pub fn new() -> Terminal {
        let user_end = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&user_end).unwrap();
        unlockpt(&user_end).unwrap();
        let name = ptsname(&user_end, Vec::new()).unwrap();
        let process_end = open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        tcsetwinsize(&process_end, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        Terminal { user_end: user_end.into(), process_end, shown: Vec::new() }
    }

    /// Runs a command in a new session, so that it uses the size of this terminal.
    pub fn start(&self, command: &Command) -> Child {
        let stdio = || Stdio::from(self.process_end.try_clone().unwrap());
        let mut in_session = Command::new("setsid");
        in_session.arg("--ctty").arg(command.get_program()).args(command.get_args());
        // Without this variable, programs draw nothing.
        in_session.env("TERM", "xterm");
        in_session.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        in_session.stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn().unwrap()
    }

    /// Reads until the process writes this text after the text of the call before. Panics if it writes nothing for a long
    /// time.
    pub fn wait_for(&mut self, text: &str) {
        loop {
            if let Some(start) = self.shown.windows(text.len()).position(|shown| shown == text.as_bytes()) {
                self.shown.drain(..start + text.len());
                return;
            }
            let mut readable = [PollFd::new(&self.user_end, PollFlags::IN)];
            let timeout = Timespec::try_from(PATIENCE).unwrap();
            let is_readable = poll(&mut readable, Some(&timeout)).unwrap() > 0;
            assert!(is_readable, "no {text:?} after the last expected text: {}", self.shown.escape_ascii());
            let mut bytes = [0; 4096];
            let len = self.user_end.read(&mut bytes).unwrap();
            self.shown.extend_from_slice(&bytes[..len]);
        }
    }

    /// Reads until the process ends. Returns what it wrote since the last expected text.
    #[allow(dead_code, reason = "not every test binary uses this")]
    pub fn wait_for_end(&mut self, process: &mut Child) -> Vec<u8> {
        let mut has_ended = false;
        loop {
            let mut readable = [PollFd::new(&self.user_end, PollFlags::IN)];
            let timeout = Timespec { tv_sec: 0, tv_nsec: if has_ended { 0 } else { 1_000_000 } };
            if poll(&mut readable, Some(&timeout)).unwrap() > 0 {
                let mut bytes = [0; 4096];
                let len = self.user_end.read(&mut bytes).unwrap();
                self.shown.extend_from_slice(&bytes[..len]);
            } else if has_ended {
                return std::mem::take(&mut self.shown);
            } else {
                has_ended = process.try_wait().unwrap().is_some();
            }
        }
    }

    /// Returns the input, output and local modes.
    pub fn modes(&self) -> String {
        let Termios { input_modes, output_modes, local_modes, .. } = tcgetattr(&self.process_end).unwrap();
        format!("{input_modes:?} {output_modes:?} {local_modes:?}")
    }
}
