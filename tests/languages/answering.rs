//! A server that computes each response with a function.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use tempfile::TempDir;

/// A server that listens in its own folder and runs until the test process exits.
pub(crate) struct FunctionServer {
    folder: TempDir,
}

impl FunctionServer {
    pub(crate) fn with(answer: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) -> FunctionServer {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s.sock")).unwrap();
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let answer = answer.clone();
                thread::spawn(move || converse(stream.unwrap(), &*answer));
            }
        });
        FunctionServer { folder }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("s.sock")
    }
}

fn converse(mut stream: UnixStream, answer: &dyn Fn(&[u8]) -> Vec<u8>) {
    let mut request = vec![0; 16];
    while stream.read_exact(&mut request[..16]).is_ok() {
        let is_long = request[1] > 0;
        let body_len = if is_long { u32::from_be_bytes(request[4..8].try_into().unwrap()) } else { 8 };
        request.resize((8 + body_len as usize).next_multiple_of(16), 0);
        // A client may close the connection after a response.
        if stream.read_exact(&mut request[16..]).is_err() || stream.write_all(&answer(&request)).is_err() {
            return;
        }
    }
}
