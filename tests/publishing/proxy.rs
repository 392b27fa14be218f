//! A proxy that transfers the bytes of some connections to a server, and stalls all others.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Starts a proxy. Returns its address. The first `served` connections reach the server. From all later ones, the proxy
/// reads nothing.
pub(crate) fn start(server: SocketAddr, served: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut stalled = Vec::new();
        for (number, client) in listener.incoming().map_while(Result::ok).enumerate() {
            if number >= served {
                stalled.push(client);
                continue;
            }
            let Ok(server) = TcpStream::connect(server) else { continue };
            let (from_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || copy(from_server, to_client));
            thread::spawn(move || copy(client, server));
        }
    });
    address
}

/// Transfers bytes until one side closes its connection.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    // A client may close its connection at any time.
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}
