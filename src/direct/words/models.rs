//! Models of the words of the shared page. They check that a client trusts copied bytes only if no writer changed the
//! bytes before the copy.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, Ordering};
use loom::thread;

use super::{TableState, Words};
use crate::store::{LeaseState, Standing};
use crate::sync::check_model;

const OLD: u8 = 7;
const NEW: u8 = 8;
const NOW_NS: u64 = 5;

/// The words of the shared page, and the file of generation 1, which is one byte long in these models.
struct Shared {
    words: Words,
    byte: AtomicU8,
}

impl Shared {
    /// Returns a page and its state. The page shows that generation 1 is served and that its file is leased until
    /// `until_ns`.
    fn leased_until(until_ns: u64) -> (Arc<Shared>, TableState) {
        let shared = Arc::new(Shared { words: Words::default(), byte: AtomicU8::new(OLD) });
        shared.words.owner.store(1, Ordering::SeqCst);
        shared.words.serve(1);
        shared.words.set_lease(LeaseState::TrustedUntil(until_ns));
        let state = shared.words.state();
        (shared, state)
    }

    fn standing_since(&self, then: TableState) -> Standing {
        self.words.standing_since(then, |until_ns| Some(NOW_NS < until_ns))
    }

    /// Writes to the file. The caller must have ended the lease, because the kernel makes a writer wait while a lease
    /// is held.
    fn write(&self, byte: u8) {
        self.byte.store(byte, Ordering::Release);
    }

    /// Copies the byte as a client does. Asserts that the copy is [`OLD`] if the client trusts the copy.
    fn assert_trusted_copy_is_old(&self, then: TableState) {
        let copied = self.byte.load(Ordering::Relaxed);
        if self.standing_since(then) == Standing::Unchanged {
            assert_eq!(copied, OLD);
        }
    }
}

/// The lease is lost, a writer changes the file, and the server takes the lease again and checks the file.
#[test]
fn bytes_that_are_written_after_a_lost_lease_are_not_trusted() {
    check_model(3, || {
        let (shared, then) = Shared::leased_until(NOW_NS + 1);
        let serving = Arc::clone(&shared);
        let server = thread::spawn(move || {
            serving.words.set_lease(LeaseState::Lost);
            serving.write(NEW);
            serving.words.set_changed(true);
            serving.words.set_lease(LeaseState::TrustedUntil(NOW_NS + 1));
            serving.words.set_changed(false);
        });
        shared.assert_trusted_copy_is_old(then);
        server.join().unwrap();
        assert_eq!(shared.standing_since(then), Standing::Changed);
    });
}

/// The lease is lost, a writer changes the file and restores it, and the server takes the lease again and checks the
/// file. The client begins to read at any time.
#[test]
fn bytes_from_before_the_check_of_a_restored_file_are_not_trusted() {
    check_model(3, || {
        let (shared, _) = Shared::leased_until(NOW_NS + 1);
        let reading = Arc::clone(&shared);
        let client = thread::spawn(move || reading.assert_trusted_copy_is_old(reading.words.state()));
        shared.words.set_lease(LeaseState::Lost);
        shared.words.set_changed(true);
        shared.write(NEW);
        shared.write(OLD);
        shared.words.set_lease(LeaseState::TrustedUntil(NOW_NS + 1));
        shared.words.set_changed(false);
        client.join().unwrap();
    });
}

/// The kernel marks the owner word before it drops the lease.
#[test]
fn bytes_that_are_written_after_the_server_was_killed_are_not_trusted() {
    check_model(3, || {
        const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
        let (shared, then) = Shared::leased_until(NOW_NS + 1);
        let ending = Arc::clone(&shared);
        let kernel = thread::spawn(move || {
            ending.words.owner.store(FUTEX_OWNER_DIED, Ordering::SeqCst);
            ending.write(NEW);
        });
        shared.assert_trusted_copy_is_old(then);
        kernel.join().unwrap();
        assert_eq!(shared.standing_since(then), Standing::Unknown);
    });
}

/// The deadline of generation 1 has passed, so the file of generation 1 may have changed. The deadline of generation 2
/// has not passed.
#[test]
fn a_deadline_counts_only_for_its_own_generation() {
    check_model(3, || {
        let (shared, then) = Shared::leased_until(NOW_NS);
        let serving = Arc::clone(&shared);
        let server = thread::spawn(move || {
            serving.words.serve(2);
            serving.words.set_lease(LeaseState::TrustedUntil(NOW_NS + 1));
        });
        assert_ne!(shared.standing_since(then), Standing::Unchanged);
        server.join().unwrap();
    });
}
