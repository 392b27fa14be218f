//! A server in this process.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::num::NonZero;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use zero_kv::server::{Config, Server};

use crate::helpers::frames::{connect, read_until_closed};

/// A server that runs until the process exits, and its socket.
pub(crate) struct InProcessServer {
    socket: PathBuf,
}

/// A connection to a server.
pub(crate) struct Connection(UnixStream);

impl InProcessServer {
    pub(crate) fn start(db: &Path, socket: PathBuf) -> InProcessServer {
        let config = Config {
            socket: socket.clone(),
            workers: NonZero::new(1),
            spin: Some(Duration::ZERO),
            ..Config::default()
        };
        let server = Server::bind(db, &config).unwrap();
        thread::spawn(|| server.run(std::future::pending()));
        InProcessServer { socket }
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection(connect(&self.socket))
    }
}

impl Connection {
    /// Sends bytes. A server that has closed the connection accepts none.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        match self.0.write_all(bytes) {
            Err(error) if [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&error.kind()) => {}
            sent => sent.unwrap(),
        }
    }

    pub(crate) fn read(&mut self, len_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; len_bytes];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Sends pieces, and returns all responses until the server closes the connection.
    pub(crate) fn exchange(mut self, pieces: &[&[u8]]) -> Vec<u8> {
        let mut sender = Connection(self.0.try_clone().unwrap());
        thread::scope(|scope| {
            // The server stops reading at the limit of its buffer while nobody reads its responses.
            scope.spawn(move || {
                pieces.iter().for_each(|piece| sender.send(piece));
                sender.0.shutdown(Shutdown::Write)
            });
            read_until_closed(&mut self.0)
        })
    }
}
