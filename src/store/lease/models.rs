//! Leases: whoever trusts a lease after copying bytes has copied none that a writer wrote.

use std::io;

use loom::sync::atomic::{AtomicU8, Ordering};
use loom::sync::{Arc, Mutex, MutexGuard};
use loom::thread;

use super::{Leasable, Lease, Proof};
use crate::sync::check_model;

const OLD: u8 = 7;
const NEW: u8 = 8;

/// A file of one byte, as the kernel has it.
#[derive(Clone)]
struct File(Arc<Inode>);

struct Inode {
    byte: AtomicU8,
    /// A lock, as in the kernel.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_leased: bool,
    is_wanted: bool,
}

impl File {
    fn new() -> File {
        File(Arc::new(Inode { byte: AtomicU8::new(OLD), state: Mutex::new(State::default()) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    /// Opens the file to write to it, and does so unless the lease is held.
    fn write(&self) {
        let is_leased = {
            let mut state = self.state();
            state.is_wanted = true;
            state.is_leased
        };
        if !is_leased {
            self.0.byte.store(NEW, Ordering::Release);
        }
    }

    fn close(&self) {
        self.state().is_wanted = false;
    }

    /// Reads the mapping.
    fn copy(&self) -> u8 {
        self.0.byte.load(Ordering::Relaxed)
    }
}

impl Leasable for File {
    fn now_ns(&self) -> u64 {
        1
    }

    fn acquire(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.is_wanted {
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
        Ok(state.is_leased && !state.is_wanted)
    }
}

/// A writer waits, the lease is released, and a batch copies bytes at the same time.
#[test]
fn bytes_that_are_copied_under_a_trusted_lease_are_old() {
    check_model(3, || {
        let file = File::new();
        let lease = Arc::new(Lease::over(file.clone()));
        lease.take_now(|| true);
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

/// A process opens the file, writes to it, and closes it, while the lease is released and taken again. As in
/// `Store::look_again`, the epoch ends before the lease is taken again.
#[test]
fn no_proof_spans_a_lease_that_was_lost_and_the_one_that_was_taken_again() {
    check_model(3, || {
        let file = File::new();
        let lease = Arc::new(Lease::over(file.clone()));
        let epoch = Arc::new(AtomicU8::new(0));
        lease.take_now(|| true);
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
                let _ = renewing.retake_now();
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

/// A writer comes while the lease is taken.
#[test]
fn a_lease_that_is_taken_beside_a_writer_is_not_trusted() {
    check_model(3, || {
        let file = File::new();
        let lease = Arc::new(Lease::over(file.clone()));
        let writing = file.clone();
        let writer = thread::spawn(move || writing.write());
        let taking = (Arc::clone(&lease), file.clone());
        let taker = thread::spawn(move || taking.0.take_now(|| taking.1.copy() == OLD));
        let copied = file.copy();
        if lease.proof() == Proof::Unchanged {
            assert_eq!(copied, OLD);
        }
        writer.join().unwrap();
        taker.join().unwrap();
    });
}
