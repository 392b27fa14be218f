//! A model of pending requests. It checks that no wake-up is lost.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use super::{Pending, check_model};

/// A wake-up of an earlier request is being handled when a thread finds damage and requests another one.
#[test]
fn a_request_is_seen_or_sends_a_wake_up() {
    check_model(3, || {
        let (pending, is_damaged, sent) =
            (Arc::new(Pending::default()), Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        assert!(pending.request());
        let requester = {
            let (pending, is_damaged, sent) = (Arc::clone(&pending), Arc::clone(&is_damaged), Arc::clone(&sent));
            thread::spawn(move || {
                is_damaged.store(true, Ordering::Relaxed);
                if pending.request() {
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        pending.take();
        let is_seen = is_damaged.load(Ordering::Relaxed);
        requester.join().unwrap();
        assert!(is_seen || sent.load(Ordering::Relaxed) > 0, "the thread sleeps, and no wake-up is on its way");
    });
}
