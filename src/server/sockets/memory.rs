//! Measures, and releases, the memory that the kernel holds for a socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use libc::{AF_UNSPEC, SOL_SOCKET, c_int, c_void, connect, getsockopt, sa_family_t, sockaddr, socklen_t};

/// The socket option that reads the numbers below: see `include/uapi/asm-generic/socket.h` of Linux. The libc crate
/// does not define the option on all systems with the kernel's generic numbers, which include x86-64 and AArch64.
const SO_MEMINFO: c_int = 55;

/// The positions of the numbers that the kernel reports: see `include/uapi/linux/sock_diag.h` of Linux.
const RECEIVE_ALLOCATED: usize = 0;
const SEND_ALLOCATED: usize = 2;
const SEND_QUEUED: usize = 5;
const NUMBER_COUNT: usize = 9;

/// The minimum memory of a message in the receive queue of a Unix socket: the kernel needs several hundred bytes for
/// each. While it frees a received message, it counts one byte for a moment.
const MESSAGE_LEN_MIN_BYTES: u64 = 64;

/// The memory of a socket's queues, including the kernel's overhead for each packet, which exceeds the length of short
/// responses many times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::server) struct SocketMemory {
    /// The memory of responses that the client has not received.
    pub(in crate::server) send_bytes: u64,
    /// The memory of requests that the server has not read. 0 for a Unix socket, where they count as the client's
    /// memory.
    pub(in crate::server) receive_bytes: u64,
}

impl SocketMemory {
    /// Measures an open socket. Returns zeros if the system does not support the measurement.
    pub(in crate::server) fn of(socket: BorrowedFd<'_>) -> SocketMemory {
        SocketMemory::of_number(socket.as_raw_fd()).unwrap_or_default()
    }

    /// Measures the socket whose descriptor has this number.
    pub(in crate::server) fn of_number(socket: RawFd) -> io::Result<SocketMemory> {
        let mut numbers = [0_u32; NUMBER_COUNT];
        let mut len_bytes = size_of_val(&numbers) as socklen_t;
        // SAFETY: The kernel writes at most `len_bytes` bytes to `numbers`, and 4 bytes to `len_bytes`. Both are valid
        // for writes of these lengths, and every bit pattern is a valid `u32`. The kernel checks the descriptor itself.
        let result = unsafe {
            getsockopt(socket, SOL_SOCKET, SO_MEMINFO, numbers.as_mut_ptr().cast::<c_void>(), &raw mut len_bytes)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // The kernel counts the queue of a Unix socket as allocated. It counts the queue of a TCP socket as queued, and
        // the packets of this queue that the network interface is sending also as allocated.
        let send_bytes = numbers[SEND_ALLOCATED].max(numbers[SEND_QUEUED]);
        Ok(SocketMemory { send_bytes: send_bytes.into(), receive_bytes: numbers[RECEIVE_ALLOCATED].into() })
    }

    pub(in crate::server) fn total_bytes(self) -> u64 {
        self.send_bytes + self.receive_bytes
    }
}

/// Returns whether the peer of a Unix socket has not yet received all bytes that were sent to it.
pub(in crate::server) fn has_unread_bytes(socket: impl AsFd) -> io::Result<bool> {
    let memory = SocketMemory::of_number(socket.as_fd().as_raw_fd())?;
    Ok(memory.send_bytes >= MESSAGE_LEN_MIN_BYTES)
}

/// Disconnects the TCP socket whose descriptor has this number: the kernel discards the socket's queues, and the client
/// gets a reset. The descriptor stays open.
pub(in crate::server) fn disconnect_number(socket: RawFd) -> io::Result<()> {
    let address = sockaddr { sa_family: AF_UNSPEC as sa_family_t, sa_data: [0; 14] };
    // SAFETY: The kernel reads as many bytes of `address` as it has, and checks the descriptor itself.
    match unsafe { connect(socket, &raw const address, size_of_val(&address) as socklen_t) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_byte_is_unread_until_the_peer_receives_it() {
        let (mut sender, mut receiver) = UnixStream::pair().unwrap();
        assert!(!has_unread_bytes(&sender).unwrap());
        sender.write_all(b"ab").unwrap();
        assert!(has_unread_bytes(&sender).unwrap());
        receiver.read_exact(&mut [0; 1]).unwrap();
        assert!(has_unread_bytes(&sender).unwrap(), "one of two bytes");
        receiver.read_exact(&mut [0; 1]).unwrap();
        assert!(!has_unread_bytes(&sender).unwrap());
    }

    #[test]
    fn unread_bytes_of_a_unix_socket_are_measured_at_their_sender() {
        let (mut sender, mut receiver) = UnixStream::pair().unwrap();
        assert_eq!(SocketMemory::of(sender.as_fd()), SocketMemory::default());
        for _ in 0..10 {
            sender.write_all(&[0; 8]).unwrap();
        }
        let measured = SocketMemory::of(sender.as_fd());
        assert!(measured.send_bytes > 10 * 256, "{measured:?}");
        assert_eq!(measured.receive_bytes, 0);
        assert_eq!(SocketMemory::of(receiver.as_fd()), SocketMemory::default());
        receiver.read_exact(&mut [0; 80]).unwrap();
        assert_eq!(SocketMemory::of(sender.as_fd()), SocketMemory::default());
    }

    #[test]
    fn unread_bytes_of_a_tcp_socket_are_measured_at_both_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        sender.set_nonblocking(true).unwrap();
        let mut sent_bytes = 0;
        while let Ok(len_bytes) = sender.write(&[0; 65536]) {
            sent_bytes += len_bytes as u64;
        }
        let (sending, receiving) = (SocketMemory::of(sender.as_fd()), SocketMemory::of(receiver.as_fd()));
        assert!(sending.send_bytes > 0 && sending.receive_bytes == 0, "{sending:?}");
        assert!(receiving.receive_bytes > 0 && receiving.send_bytes == 0, "{receiving:?}");
        assert!(sending.send_bytes + receiving.receive_bytes >= sent_bytes);
        disconnect_number(sender.as_raw_fd()).unwrap();
        assert_eq!(SocketMemory::of(sender.as_fd()), SocketMemory::default());
    }

    #[test]
    fn a_descriptor_that_is_not_a_socket_is_rejected() {
        let file = tempfile::tempfile().unwrap();
        assert!(SocketMemory::of_number(file.as_raw_fd()).is_err());
        assert!(SocketMemory::of_number(-1).is_err());
        assert!(disconnect_number(file.as_raw_fd()).is_err() && disconnect_number(-1).is_err());
        assert_eq!(SocketMemory::of(file.as_fd()), SocketMemory::default());
    }
}
