//! The tasks of connections that are woken when what they read has changed.
//!
//! In: a waker for each connection, under a number that is unique in the process. Out: woken tasks. What has changed,
//! the connections find out themselves.

use std::collections::HashMap;
use std::sync::Mutex;
use std::task::Waker;

use crate::sync::unpoisoned;

#[derive(Default)]
pub(super) struct Watchers(Mutex<HashMap<u64, Waker>>);

impl Watchers {
    /// Wakes a task at every change, until [`Watchers::remove`] is called. A change before this call wakes nothing, so
    /// the caller must check for one afterward.
    pub(super) fn add(&self, number: u64, waker: &Waker) {
        unpoisoned(&self.0).insert(number, waker.clone());
    }

    pub(super) fn remove(&self, number: u64) {
        unpoisoned(&self.0).remove(&number);
    }

    pub(super) fn wake(&self) {
        // The lock is released before the wakers are called, because they run code of the async runtime.
        let wakers: Vec<Waker> = unpoisoned(&self.0).values().cloned().collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}
