//! Determines whether a client has received everything that was sent to it.

use std::ffi::c_int;
use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Getter, Opcode, ioctl};

/// The minimum length that the kernel counts for a message in the receive queue of a Unix socket: each message takes
/// several hundred bytes of kernel memory. While the kernel frees a received message, it counts one byte for a moment.
const MESSAGE_LEN_MIN_BYTES: c_int = 64;

/// Returns whether the peer of a Unix socket has not yet received all bytes that were sent to it.
pub(super) fn has_unread_bytes(socket: impl AsFd) -> io::Result<bool> {
    // SAFETY: TIOCOUTQ, which is also called SIOCOUTQ (see unix(7)), stores an `int`.
    let getter = unsafe { Getter::<{ libc::TIOCOUTQ as Opcode }, c_int>::new() };
    // SAFETY: The operation only stores its result.
    let unread_bytes = unsafe { ioctl(socket, getter) }?;
    Ok(unread_bytes >= MESSAGE_LEN_MIN_BYTES)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
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
}
