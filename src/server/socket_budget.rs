//! The memory that the kernel holds for the sockets of all connections, and the limits on each socket's buffers.
//!
//! In: measurements of sockets. Out: the maximum size of a socket's buffers, which shrinks as all sockets together hold
//! more. Evictions cannot bound this memory: after the server has closed a Unix socket, the kernel still holds the
//! responses until the client receives them or closes its own end, and counts them as memory of the server's control
//! group. So the buffers of each socket are limited before they are filled. A socket may hold an eighth of the memory
//! that is still free, so all sockets together approach the maximum without reaching it, however many there are, apart
//! from the smallest buffer that the kernel allows for each socket.
//!
//! Reasons and evidence: `docs/decisions/client-memory.md`.

use std::sync::atomic::{AtomicU64, Ordering};

/// All sockets together may hold 1/`CLIENT_MEMORY_SHARE` of the limit on client memory.
const CLIENT_MEMORY_SHARE: u64 = 2;
/// One socket may hold 1/`FREE_SHARE` of the memory that sockets may still use.
const FREE_SHARE: u64 = 8;
/// Buffers of this size are not limited: it is the kernel's default maximum for TCP, and more than a Unix socket has.
const UNLIMITED_MIN_BYTES: u64 = 4 << 20;
/// The size below which the kernel does not reduce a send buffer.
pub(super) const BUFFER_MIN_BYTES: u64 = 4608;
/// Sockets that are not measured yet may hold 1/`UNMEASURED_SHARE` of the limit on client memory.
const UNMEASURED_SHARE: u64 = 16;
/// A connection is measured at least each time its socket may have taken this much memory since the last measurement.
/// A measurement costs a system call of about 200 ns.
const UNMEASURED_MAX_BYTES: u64 = 256 << 10;
/// An upper bound of the kernel's overhead for one write.
const WRITE_OVERHEAD_BYTES: u64 = 1024;

/// Returns the maximum memory that the kernel allocates for one write to a socket. Short writes round up to a power of
/// two.
#[inline]
pub(super) fn written_bytes(len_bytes: usize) -> u64 {
    2 * len_bytes as u64 + WRITE_OVERHEAD_BYTES
}

/// The memory that the kernel holds for sockets, as last measured, and its limits.
pub(super) struct SocketBudget {
    client_memory_max_bytes: u64,
    held_bytes: AtomicU64,
    connections: AtomicU64,
    buffer_max_bytes: AtomicU64,
    unmeasured_max_bytes: AtomicU64,
}

impl SocketBudget {
    pub(super) fn new(client_memory_max_bytes: u64) -> SocketBudget {
        let budget = SocketBudget {
            client_memory_max_bytes,
            held_bytes: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            buffer_max_bytes: AtomicU64::new(0),
            unmeasured_max_bytes: AtomicU64::new(0),
        };
        budget.set_buffer_max(0);
        budget.set_unmeasured_max(0);
        budget
    }

    /// Returns the memory that the kernel holds for all sockets, as last measured.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Returns the maximum size of a socket's buffers, or `u64::MAX` if they are not limited. It is a power of two or
    /// [`BUFFER_MIN_BYTES`], so it changes rarely.
    #[inline]
    pub(super) fn buffer_max_bytes(&self) -> u64 {
        self.buffer_max_bytes.load(Ordering::Relaxed)
    }

    /// Returns how much memory a socket may take before it must be measured.
    #[inline]
    pub(super) fn unmeasured_max_bytes(&self) -> u64 {
        self.unmeasured_max_bytes.load(Ordering::Relaxed)
    }

    /// Replaces the last measurement of a socket.
    pub(super) fn replace(&self, before_bytes: u64, held_bytes: u64) {
        if before_bytes != held_bytes {
            let change_bytes = held_bytes.wrapping_sub(before_bytes);
            let total_bytes = self.held_bytes.fetch_add(change_bytes, Ordering::Relaxed).wrapping_add(change_bytes);
            self.set_buffer_max(total_bytes);
        }
    }

    pub(super) fn connection_opened(&self) {
        self.set_unmeasured_max(self.connections.fetch_add(1, Ordering::Relaxed) + 1);
    }

    pub(super) fn connection_closed(&self) {
        self.set_unmeasured_max(self.connections.fetch_sub(1, Ordering::Relaxed) - 1);
    }

    fn set_buffer_max(&self, held_bytes: u64) {
        let free_bytes = (self.client_memory_max_bytes / CLIENT_MEMORY_SHARE).saturating_sub(held_bytes);
        let share_bytes = free_bytes / FREE_SHARE;
        store_changed(
            &self.buffer_max_bytes,
            match share_bytes {
                UNLIMITED_MIN_BYTES.. => u64::MAX,
                _ => (1 << share_bytes.max(1).ilog2()).max(BUFFER_MIN_BYTES),
            },
        );
    }

    fn set_unmeasured_max(&self, connections: u64) {
        let share_bytes = self.client_memory_max_bytes / UNMEASURED_SHARE / connections.max(1);
        store_changed(&self.unmeasured_max_bytes, share_bytes.min(UNMEASURED_MAX_BYTES));
    }
}

/// Stores a number that all workers often read, without invalidating their caches if it is the same.
fn store_changed(number: &AtomicU64, value: u64) {
    if number.load(Ordering::Relaxed) != value {
        number.store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_that_fill_their_buffers_hold_no_more_than_the_maximum_and_their_smallest_buffers() {
        for (client_memory_max_bytes, sockets) in [(16 << 20, 16_384), (64 << 20, 6000), (3 << 30, 16_384)] {
            let budget = SocketBudget::new(client_memory_max_bytes);
            for socket in 0..sockets {
                budget.replace(0, budget.buffer_max_bytes().min(UNLIMITED_MIN_BYTES));
                assert!(
                    budget.held_bytes() <= client_memory_max_bytes / CLIENT_MEMORY_SHARE + socket * BUFFER_MIN_BYTES
                );
            }
            assert!(budget.held_bytes() > client_memory_max_bytes / 4);
        }
    }

    #[test]
    fn buffers_are_not_limited_while_there_is_memory() {
        let budget = SocketBudget::new(1 << 30);
        assert_eq!(budget.buffer_max_bytes(), u64::MAX);
        budget.replace(0, 500 << 20);
        assert_eq!(budget.buffer_max_bytes(), 1 << 20);
        budget.replace(500 << 20, 600 << 20);
        assert_eq!(budget.buffer_max_bytes(), BUFFER_MIN_BYTES);
        budget.replace(600 << 20, 0);
        assert_eq!((budget.held_bytes(), budget.buffer_max_bytes()), (0, u64::MAX));
    }

    #[test]
    fn unmeasured_memory_of_all_connections_stays_below_its_share() {
        let budget = SocketBudget::new(64 << 20);
        assert_eq!(budget.unmeasured_max_bytes(), UNMEASURED_MAX_BYTES);
        for connections in 1..=20_000 {
            budget.connection_opened();
            assert!(connections * budget.unmeasured_max_bytes() <= 4 << 20);
        }
        for _ in 0..20_000 {
            budget.connection_closed();
        }
        assert_eq!(budget.unmeasured_max_bytes(), UNMEASURED_MAX_BYTES);
    }
}
