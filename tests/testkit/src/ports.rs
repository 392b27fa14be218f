//! Free TCP ports.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// The range that ports are taken from. It is below the ports that Linux gives to outgoing connections, so a server can
/// be restarted on its port.
const FIRST: u16 = 11_000;
const COUNT: u16 = 20_000;

/// Returns a port that no process listens on. No other call in this process returns the port.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        // Test programs that run at the same time begin in different parts of the range.
        let start = std::process::id().wrapping_mul(509) as u16;
        let port = FIRST + start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
