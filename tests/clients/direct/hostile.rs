//! Servers that try to harm their direct clients.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;
use zero_kv::Lookup;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::wire::{OPEN, receive};
use super::{SHAPE, open};
use crate::helpers::frames::request;
use crate::helpers::scenes::Scene;
use crate::helpers::waiting::eventually;

const OPEN_RESPONSE_LEN_BYTES: usize = 40;

/// Passes the table of a real server in response to every Open at once, even if the client asked for the next table.
/// Counts the passed tables.
fn pass_at_once(client: &mut UnixStream, socket: &Path, passed: &AtomicUsize) {
    let mut server = UnixStream::connect(socket).unwrap();
    while client.read_exact(&mut [0; 16]).is_ok() {
        server.write_all(&request(OPEN, 0)).unwrap();
        let (bytes, files) = receive(&server, OPEN_RESPONSE_LEN_BYTES);
        let descriptors: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        assert!(rights.push(SendAncillaryMessage::ScmRights(&descriptors)));
        if sendmsg(&*client, &[IoSlice::new(&bytes)], &mut rights, SendFlags::NOSIGNAL).is_err() {
            return;
        }
        passed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Starts a server that passes the tables of another server at once, and returns its socket.
fn hostile_server(scene: &Scene, socket: PathBuf) -> (PathBuf, Arc<AtomicUsize>) {
    let (path, passed) = (scene.path("hostile.sock"), Arc::new(AtomicUsize::new(0)));
    let (listener, counted) = (UnixListener::bind(&path).unwrap(), Arc::clone(&passed));
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let (socket, passed) = (socket.clone(), Arc::clone(&counted));
            thread::spawn(move || pass_at_once(&mut client, &socket, &passed));
        }
    });
    (path, passed)
}

#[test]
fn a_server_that_passes_tables_without_end_cannot_keep_the_client_busy() {
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    let served = scene.serve(&[]);
    let (socket, passed) = hostile_server(&scene, served.socket().to_path_buf());
    let started = Instant::now();
    let direct = open(&socket);
    eventually("the server has passed many tables", || passed.load(Ordering::Relaxed) >= 200);
    // The client pauses for a millisecond after each transfer. Two tables may be in flight.
    let elapsed_ms = started.elapsed().as_millis() as usize;
    let passed = passed.load(Ordering::Relaxed);
    assert!(passed <= elapsed_ms + 3, "{passed} tables in {elapsed_ms} ms");
    assert_eq!(direct.get(7).unwrap(), SHAPE.value(1, 7));
}
