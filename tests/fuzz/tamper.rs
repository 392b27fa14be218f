//! A relay that forwards requests to a real server and tampers with a response.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use super::source::Source;

/// A response header: status and value length, big-endian.
const HEADER_LEN_BYTES: usize = 8;
/// The maximum time for a response of the real server, even on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A response: its bytes, and the descriptors that arrive with the first of them.
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Changes a response as the source describes.
type Tamper = fn(&mut Source<'_>, &mut Answer);

/// A relay, to which clients connect.
pub(crate) struct Relay {
    pub(crate) socket: PathBuf,
    script: Arc<Mutex<Vec<u8>>>,
}

impl Relay {
    /// Listens at a path beside the real server's socket until the process exits.
    pub(crate) fn start(server: &Path, tamper: Tamper) -> Relay {
        let socket = server.with_extension("relay");
        let listener = UnixListener::bind(&socket).unwrap();
        let (server, script) = (server.to_path_buf(), Arc::new(Mutex::new(Vec::new())));
        let current = Arc::clone(&script);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server, script) = (client.unwrap(), server.clone(), current.lock().unwrap().clone());
                // A client that closes early ends the relay with an error.
                thread::spawn(move || drop(relay(&client, &server, &script, tamper)));
            }
        });
        Relay { socket, script }
    }

    /// Sets the script of later connections: how many responses are forwarded unchanged, and how the next one is
    /// changed.
    pub(crate) fn follow(&self, script: &[u8]) {
        *self.script.lock().unwrap() = script.to_vec();
    }
}

/// Forwards one request after the other, up to the response that is tampered with.
fn relay(client: &UnixStream, server: &Path, script: &[u8], tamper: Tamper) -> io::Result<()> {
    let mut source = Source::new(script);
    let server = UnixStream::connect(server)?;
    server.set_read_timeout(Some(PATIENCE))?;
    client.set_read_timeout(Some(PATIENCE))?;
    let mut request = [0; 4096];
    for left in (0..=source.below(4)).rev() {
        let len_bytes = (&mut &*client).read(&mut request)?;
        if len_bytes == 0 {
            return Ok(());
        }
        (&mut &server).write_all(&request[..len_bytes])?;
        let mut answer = receive(&server)?;
        if left == 0 {
            tamper(&mut source, &mut answer);
        }
        send(client, &answer)?;
    }
    client.shutdown(Shutdown::Write)?;
    // Closing with unread requests would reset the connection before the answer is read.
    io::copy(&mut &*client, &mut io::sink()).map(drop)
}

fn receive(server: &UnixStream) -> io::Result<Answer> {
    let mut answer = Answer { bytes: vec![0; HEADER_LEN_BYTES], descriptors: Vec::new() };
    let (mut arrived_bytes, mut is_announced) = (0, false);
    while arrived_bytes < answer.bytes.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let mut room = [IoSliceMut::new(&mut answer.bytes[arrived_bytes..])];
        let received = recvmsg(server, &mut room, &mut rights, RecvFlags::CMSG_CLOEXEC)?;
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for message in rights.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                answer.descriptors.extend(descriptors);
            }
        }
        arrived_bytes += received.bytes;
        if !is_announced && arrived_bytes == HEADER_LEN_BYTES {
            is_announced = true;
            let value_len_bytes = u32::from_be_bytes(answer.bytes[4..].try_into().unwrap());
            answer.bytes.resize(HEADER_LEN_BYTES + value_len_bytes as usize, 0);
        }
    }
    Ok(answer)
}

fn send(client: &UnixStream, answer: &Answer) -> io::Result<()> {
    let descriptors: Vec<_> = answer.descriptors.iter().map(AsFd::as_fd).collect();
    let mut sent_bytes = 0;
    while sent_bytes < answer.bytes.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if sent_bytes == 0 && !descriptors.is_empty() {
            assert!(rights.push(SendAncillaryMessage::ScmRights(&descriptors)), "at most eight descriptors");
        }
        let bytes = [IoSlice::new(&answer.bytes[sent_bytes..])];
        sent_bytes += sendmsg(client, &bytes, &mut rights, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Changes bytes until the source is used up: single bits, bytes, big-endian numbers, and the length.
pub(crate) fn change(source: &mut Source<'_>, bytes: &mut Vec<u8>) {
    while !source.is_empty() && !bytes.is_empty() {
        let at = source.below(1 << 16) % bytes.len();
        let word = at / 4 * 4..at / 4 * 4 + 4;
        match source.below(8) {
            0 | 1 => bytes[at] ^= 1 << source.below(8),
            2 => bytes[at] = source.byte(),
            3 => bytes.truncate(at),
            4 => {
                let added = source.bytes(1 + at % 64);
                bytes.extend_from_slice(added);
            }
            choice if word.end <= bytes.len() => {
                let old = u32::from_be_bytes(bytes[word.clone()].try_into().unwrap());
                let extremes = [0, 1, u32::MAX, 1 << 30, 1 << 16];
                let new = match choice {
                    5 => old.wrapping_add(1),
                    6 => old.wrapping_sub(1),
                    _ => extremes[source.below(extremes.len())],
                };
                bytes[word].copy_from_slice(&new.to_be_bytes());
            }
            _ => {}
        }
    }
}
