//! The sizes of a socket's buffers in the kernel, and when they are measured.

use std::os::fd::BorrowedFd;

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size, socket_send_buffer_size};

use super::Connection;
use crate::server::clients::memory::written_bytes;
use crate::server::sockets::ClientStream;
use crate::server::sockets::memory::SocketMemory;

/// How many times larger than its current limit a buffer must be allowed to be before it grows again. This factor keeps
/// a limit that varies between two sizes from costing a system call in every turn.
const GROWTH_MIN: u64 = 4;
/// The size of a TCP socket's buffers once they are no longer limited: the kernel's default maximum.
const TCP_BUFFER_MAX_BYTES: u64 = 4 << 20;
/// The minimum size of a TCP socket's buffers. Below this size, the kernel would still hold a whole segment. Unlike the
/// memory of a Unix socket, an eviction can release the memory of a TCP socket.
const TCP_BUFFER_MIN_BYTES: u64 = 32 << 10;

pub(super) struct SocketUse {
    /// An upper bound of the memory that the socket has taken since the last measurement.
    unmeasured_bytes: u64,
    /// The limit that applies to the socket's buffers.
    buffer_max_bytes: u64,
    /// The size of a Unix socket's send buffer before it was first limited.
    send_buffer_bytes: Option<u64>,
}

impl SocketUse {
    pub(super) fn new() -> SocketUse {
        SocketUse { unmeasured_bytes: 0, buffer_max_bytes: u64::MAX, send_buffer_bytes: None }
    }

    /// Records that the socket accepted bytes in one write.
    #[inline]
    pub(super) fn sent(&mut self, len_bytes: usize) {
        self.unmeasured_bytes += written_bytes(len_bytes);
    }

    /// Changes the sizes of the socket's buffers.
    fn limit(&mut self, socket: BorrowedFd<'_>, is_unix: bool, max_bytes: u64) -> rustix::io::Result<()> {
        if max_bytes > self.buffer_max_bytes && max_bytes < self.buffer_max_bytes.saturating_mul(GROWTH_MIN) {
            return Ok(());
        }
        self.buffer_max_bytes = max_bytes;
        // The kernel doubles the sizes that it is given.
        if is_unix {
            let default_bytes = match self.send_buffer_bytes {
                Some(bytes) => bytes,
                None => socket_send_buffer_size(socket)? as u64,
            };
            if self.send_buffer_bytes.is_some() || max_bytes < default_bytes {
                self.send_buffer_bytes = Some(default_bytes);
                set_socket_send_buffer_size(socket, (max_bytes.min(default_bytes) / 2) as usize)?;
            }
            return Ok(());
        }
        let size = (max_bytes.clamp(TCP_BUFFER_MIN_BYTES, TCP_BUFFER_MAX_BYTES) / 2) as usize;
        set_socket_send_buffer_size(socket, size)?;
        set_socket_recv_buffer_size(socket, size)
    }
}

impl<S: ClientStream> Connection<S> {
    /// Limits the socket's buffers before the connection's next write, if the limit has changed.
    #[inline]
    pub(super) fn limit_socket(&mut self) {
        let max_bytes = self.context.worker.server.client_memory.sockets.buffer_max_bytes();
        if max_bytes != self.socket_use.buffer_max_bytes {
            self.change_limit(max_bytes);
        }
    }

    #[cold]
    fn change_limit(&mut self, max_bytes: u64) {
        // If the system rejects a size, the socket keeps its buffers, and its memory is still counted.
        let _ = self.socket_use.limit(self.stream.socket(), self.context.peer.is_unix(), max_bytes);
    }

    /// Measures the socket if it may have taken much memory since the last measurement.
    #[inline]
    pub(super) fn measure_socket(&mut self) {
        if self.socket_use.unmeasured_bytes > self.context.worker.server.client_memory.sockets.unmeasured_max_bytes() {
            self.measure_now();
        }
    }

    #[cold]
    fn measure_now(&mut self) {
        self.socket_use.unmeasured_bytes = 0;
        let measured = SocketMemory::of(self.stream.socket());
        self.context.worker.server.client_memory.record_socket(&self.context.activity, measured);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::server::clients::memory::BUFFER_MIN_BYTES;

    fn size(socket: BorrowedFd<'_>) -> u64 {
        socket_send_buffer_size(socket).unwrap() as u64
    }

    #[test]
    fn the_buffer_of_a_unix_socket_shrinks_and_grows_back() {
        let (socket, _client) = UnixStream::pair().unwrap();
        let (socket, mut socket_use) = (socket.as_fd(), SocketUse::new());
        let default_bytes = size(socket);
        for (max_bytes, expected_bytes) in [
            (8 << 20, default_bytes),
            (1 << 15, 1 << 15),
            (1 << 16, 1 << 15),
            (BUFFER_MIN_BYTES, BUFFER_MIN_BYTES),
            (1 << 13, BUFFER_MIN_BYTES),
            (1 << 16, 1 << 16),
            (u64::MAX, default_bytes),
        ] {
            socket_use.limit(socket, true, max_bytes).unwrap();
            assert_eq!(size(socket), expected_bytes, "{max_bytes}");
        }
    }

    #[test]
    fn the_buffer_of_a_tcp_socket_shrinks() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, mut socket_use) = (socket.as_fd(), SocketUse::new());
        for max_bytes in [1 << 17, 1 << 16, BUFFER_MIN_BYTES] {
            socket_use.limit(socket, false, max_bytes).unwrap();
            assert_eq!(size(socket), max_bytes.max(TCP_BUFFER_MIN_BYTES));
        }
        socket_use.limit(socket, false, u64::MAX).unwrap();
        assert!(size(socket) > 1 << 17);
    }
}
