//! Serves a file from within a program: `cargo run --example serve -- squares.db /tmp/squares.sock`.
//!
//! Prints its socket, serves all clients, and stops at the end of its standard input (Ctrl-D). When a new file is
//! renamed over the served file, the server switches to the new file.

use std::error::Error;
use std::io::Read;

use tokio::sync::oneshot;
use zero_kv::server::{Config, Server};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(file), Some(socket)) = (arguments.next(), arguments.next()) else {
        return Err("usage: serve FILE SOCKET".into());
    };
    let server = Server::bind(file, &Config { socket: socket.clone().into(), ..Config::default() })?;
    println!("serving on {}", socket.display());
    let (stop, stopped) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = stop.send(());
    });
    server.run(async { stopped.await.unwrap_or_default() })?;
    Ok(())
}
