//! Floods of connections that close without a request.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::helpers::frames::gets;
use crate::helpers::random::random;
use crate::helpers::servers::Server;

/// The number of connections in a flood.
const FLOOD_CONNECTIONS: usize = 200;
/// A flood starts once at most this many connections of earlier floods are still open.
const REMAINING_CONNECTIONS_MAX: u64 = 1000;

/// A thread that sends floods.
pub(crate) struct Floods {
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Floods {
    pub(crate) fn start(served: &Server, seed: u64) -> Floods {
        let stopping = Arc::new(AtomicBool::new(false));
        let (socket, is_over) = (served.socket().to_path_buf(), Arc::clone(&stopping));
        let mut client = served.client();
        let thread = thread::spawn(move || {
            let (mut random, mut floods) = (random(seed), 0);
            while !is_over.load(Ordering::Relaxed) {
                if client
                    .info()
                    .unwrap()
                    .number("connections")
                    .is_some_and(|count: u64| count > REMAINING_CONNECTIONS_MAX)
                {
                    thread::yield_now();
                    continue;
                }
                flood(&socket, &mut random);
                floods += 1;
            }
            floods
        });
        Floods { stopping, thread }
    }

    pub(crate) fn finish(self) {
        self.stopping.store(true, Ordering::Relaxed);
        assert!(self.thread.join().unwrap() > 0, "no flood was sent");
    }
}

fn flood(socket: &Path, random: &mut impl FnMut() -> u64) {
    let connections: Vec<UnixStream> =
        (0..FLOOD_CONNECTIONS).filter_map(|_| UnixStream::connect(socket).ok()).collect();
    for mut connection in &connections {
        let sent = match random() % 6 {
            // The connection sends nothing.
            0 => Vec::new(),
            // A part of a request, in either protocol.
            1 => gets([1])[..(random() % 15) as usize].to_vec(),
            2 => b"*3\r\n$4\r\nMGET\r\n$1\r\n".to_vec(),
            // Requests whose responses are not read.
            3 => gets((0..400).map(|_| random() % 4000)),
            4 => b"GET / HTTP/1.1\r\nHost: example\r\n\r\n".to_vec(),
            _ => (0..random() % 300).map(|_| random() as u8).collect(),
        };
        // The server may have closed the connection.
        let _ = connection.write_all(&sent);
    }
}
