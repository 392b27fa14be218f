//! Models of leases. They check that, if a batch copies bytes and then finds that the lease is still trusted, no writer
//! has changed these bytes.

use std::io;

use loom::sync::atomic::{AtomicU8, Ordering, fence};
use loom::sync::{Arc, Mutex, MutexGuard};
use loom::thread;

use super::{Leasable, Lease, Proof};
use crate::sync::check_model;

const OLD: u8 = 7;
const NEW: u8 = 8;

/// A simulated file of one byte.
#[derive(Clone)]
struct File(Arc<Inode>);

struct Inode {
    byte: AtomicU8,
    /// The state of the lease. A lock protects the state, as in the kernel.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_leased: bool,
    has_writer: bool,
}

impl File {
    fn new() -> File {
        File(Arc::new(Inode { byte: AtomicU8::new(OLD), state: Mutex::new(State::default()) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    /// Opens the file for writing, and writes unless the lease is held.
    fn write(&self) {
        let is_leased = {
            let mut state = self.state();
            state.has_writer = true;
            state.is_leased
        };
        if !is_leased {
            self.0.byte.store(NEW, Ordering::Release);
        }
    }

    fn close(&self) {
        self.state().has_writer = false;
    }

    /// Copies the byte from the mapping. The fence is the one with which `Blocks::accept` begins.
    fn copy(&self) -> u8 {
        let copied = self.0.byte.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        copied
    }
}

impl Leasable for File {
    fn now_ns(&self) -> u64 {
        1
    }

    fn acquire(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.has_writer {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.is_leased = true;
        Ok(())
    }

    fn release(&self) {
        self.state().is_leased = false;
    }

    fn is_held(&self) -> io::Result<bool> {
        let state = self.state();
        Ok(state.is_leased && !state.has_writer)
    }
}

/// A batch copies bytes while a writer waits and the lease is released.
#[test]
fn bytes_copied_under_a_trusted_lease_are_unchanged() {
    check_model(3, || {
        let file = File::new();
        let lease = Arc::new(Lease::unregistered(file.clone()));
        lease.take(|| true);
        let writing = file.clone();
        let writer = thread::spawn(move || {
            writing.write();
            writing.write();
        });
        let renewing = Arc::clone(&lease);
        let renewer = thread::spawn(move || renewing.renew());
        let copied = file.copy();
        if lease.proof() == Proof::Unchanged {
            assert_eq!(copied, OLD);
        }
        writer.join().unwrap();
        renewer.join().unwrap();
    });
}

/// A process opens the file, writes to it, and closes it, while the lease is released and retaken. As in
/// `Store::look_again`, the epoch ends before the lease is retaken.
#[test]
fn a_proof_does_not_span_a_lost_lease_and_the_retaken_one() {
    check_model(3, || {
        let file = File::new();
        let lease = Arc::new(Lease::unregistered(file.clone()));
        let epoch = Arc::new(AtomicU8::new(0));
        lease.take(|| true);
        let writing = file.clone();
        let writer = thread::spawn(move || {
            writing.write();
            writing.write();
            writing.close();
        });
        let (renewing, next) = (Arc::clone(&lease), Arc::clone(&epoch));
        let renewer = thread::spawn(move || {
            renewing.renew();
            if renewing.proof() == Proof::Lost {
                next.store(1, Ordering::Release);
                let _ = renewing.retake();
            }
        });
        let copied = file.copy();
        if lease.proof() == Proof::Unchanged && epoch.load(Ordering::Acquire) == 0 {
            assert_eq!(copied, OLD);
        }
        writer.join().unwrap();
        renewer.join().unwrap();
    });
}

/// A writer opens the file while the lease is being taken.
#[test]
fn bytes_copied_while_the_lease_is_taken_are_trusted_only_if_unchanged() {
    check_model(3, || {
        let file = File::new();
        let lease = Arc::new(Lease::unregistered(file.clone()));
        let writing = file.clone();
        let writer = thread::spawn(move || writing.write());
        let taking = (Arc::clone(&lease), file.clone());
        let taker = thread::spawn(move || taking.0.take(|| taking.1.copy() == OLD));
        let copied = file.copy();
        if lease.proof() == Proof::Unchanged {
            assert_eq!(copied, OLD);
        }
        writer.join().unwrap();
        taker.join().unwrap();
    });
}
