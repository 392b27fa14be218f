//! Connections to the server under test.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::net::UnixStream;
use zero_kv::client::check_server_user;

/// Maximum time for which connecting is retried while the server's accept queue is full.
const RETRY_MAX: Duration = Duration::from_secs(5);
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Connects to a server, and checks that the server runs as a trusted user.
pub(crate) async fn connect(socket: &Path, server_user: Option<&str>) -> anyhow::Result<UnixStream> {
    let give_up = Instant::now() + RETRY_MAX;
    let stream = loop {
        match UnixStream::connect(socket).await {
            // If the server's accept queue is full, a nonblocking connect to a Unix socket fails at once. For a TCP
            // socket, the kernel would wait for room in the queue.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < give_up => {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) => anyhow::bail!("{}: {error}: is kv_store running?", socket.display()),
            Ok(stream) => break stream,
        }
    };
    let peer =
        stream.peer_cred().with_context(|| format!("{}: cannot determine the server's user", socket.display()))?;
    check_server_user(socket, peer.uid(), server_user)?;
    Ok(stream)
}
