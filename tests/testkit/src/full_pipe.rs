//! A pipe that nobody reads.

use std::io::{ErrorKind, PipeReader, PipeWriter, Write, pipe};
use std::process::Child;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;

use super::waiting::eventually;

/// Returns a pipe without room. A process that writes to it waits as long as the reader exists and reads nothing.
pub fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    for bytes in [&[b'x'; 4096][..], b"x"] {
        while match writer.write(bytes) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        } {}
    }
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

/// Waits until a process handles a signal.
pub fn wait_until_handled(child: &Child, signal: Signal) {
    let path = format!("/proc/{}/status", child.id());
    eventually("the process handles the signal", || {
        let status = std::fs::read_to_string(&path).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim().to_owned();
        u64::from_str_radix(&mask, 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
    });
}
