//! `zkv top` and `zkv get` on a terminal.

use std::io::Write;
use std::process::{Child, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};

use super::*;
use crate::helpers::tables::Table;
use crate::helpers::terminal::Terminal;

const ENTERS_ALTERNATE_SCREEN: &str = "\x1b[?1049h";
const LEAVES_ALTERNATE_SCREEN: &str = "\x1b[?1049l";
const SHOWS_CURSOR: &str = "\x1b[?25h";

fn start(terminal: &Terminal, socket: &Path) -> Child {
    terminal.start(zkv().args(["top", "--interval", "0.05", "--socket"]).arg(socket))
}

/// Runs `zkv top`, quits it, and checks that the terminal is restored.
fn quit_with(quit: impl FnOnce(&mut Terminal, &Child)) -> ExitStatus {
    let table = Table::of_rows(1000);
    let _server = table.serve();
    let mut terminal = Terminal::new();
    let before = terminal.modes();
    let mut child = start(&terminal, &table.socket());
    terminal.wait_for("generation");
    assert_ne!(terminal.modes(), before, "keys come one by one");
    quit(&mut terminal, &child);
    terminal.wait_for(LEAVES_ALTERNATE_SCREEN);
    let status = child.wait().unwrap();
    assert_eq!(terminal.modes(), before);
    status
}

#[test]
fn a_single_value_ends_with_a_line_end_only_on_a_terminal() {
    let table = Table::of_rows(10);
    let mut command = zkv();
    command.arg("--db").arg(table.db()).args(["get", "7"]);
    assert_eq!(command.output().unwrap().stdout, b"value_content_at_key_7");
    let mut terminal = Terminal::new();
    let mut child = terminal.start(&command);
    terminal.wait_for("value_content_at_key_7\r\n");
    assert!(child.wait().unwrap().success());
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
fn colors_are_used_unless_the_environment_forbids_them() {
    /// Sets the foreground to green.
    const GREEN: &str = "\x1b[38;5;2";
    let table = Table::of_rows(1000);
    let _server = table.serve();
    for (no_color, has_colors) in [("", true), ("1", false)] {
        let mut terminal = Terminal::new();
        let mut command = zkv();
        command.args(["top", "--interval", "0.05", "--socket"]).arg(table.socket()).env("NO_COLOR", no_color);
        let mut child = terminal.start(&command);
        terminal.wait_for(ENTERS_ALTERNATE_SCREEN);
        terminal.user_end.write_all(b"q").unwrap();
        let shown = String::from_utf8(terminal.wait_for_end(&mut child)).unwrap();
        assert!(child.wait().unwrap().success());
        assert!(shown.contains("serving"), "{shown:?}");
        assert_eq!(shown.contains(GREEN), has_colors, "NO_COLOR={no_color}: {shown:?}");
    }
}

#[test]
fn a_stopped_server_is_reported_and_shown_again_after_its_restart() {
    let table = Table::of_rows(1000);
    let server = table.serve();
    let mut terminal = Terminal::new();
    let mut child = start(&terminal, &table.socket());
    terminal.wait_for("serving");
    drop(server);
    terminal.wait_for("retrying");
    let _server = table.serve();
    terminal.wait_for("serving");
    terminal.user_end.write_all(b"q").unwrap();
    terminal.wait_for(SHOWS_CURSOR);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
