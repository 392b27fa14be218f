//! Models of the guarded address ranges. They check that a search never combines two ranges.

use std::ops::Range;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::Ranges;
use crate::sync::{AtomicPtr, check_model};

const FIRST: Range<usize> = 100..200;
const SECOND: Range<usize> = 300..400;
/// An address in neither range. The start of the first range and the end of the second range would form a range that
/// contains this address.
const BETWEEN: usize = 250;

fn ranges() -> Arc<Ranges> {
    Arc::new(Ranges { newest: AtomicPtr::new(std::ptr::null_mut()) })
}

/// A mapping is unmapped, and its entry is reused for another mapping, while a signal handler searches.
#[test]
fn a_search_does_not_combine_two_ranges() {
    check_model(3, || {
        let ranges = ranges();
        let first = ranges.insert(FIRST);
        let changing = Arc::clone(&ranges);
        let thread = thread::spawn(move || {
            first.remove();
            changing.insert(SECOND);
        });
        for address in [BETWEEN, SECOND.end] {
            assert!(ranges.find(address).is_none(), "{address} is in neither");
        }
        for (address, range) in [(150, FIRST), (350, SECOND)] {
            assert!(ranges.find(address).is_none_or(|(_, found)| found == range), "{address} is in {range:?}");
        }
        thread.join().unwrap();
        assert!(ranges.find(150).is_none() && ranges.find(350).is_some());
    });
}

/// An entry is reused for a range below its previous range, so a mixture would have the new start and the old end.
#[test]
fn a_search_does_not_combine_two_ranges_in_descending_order() {
    check_model(3, || {
        let ranges = ranges();
        let second = ranges.insert(SECOND);
        let changing = Arc::clone(&ranges);
        let thread = thread::spawn(move || {
            second.remove();
            changing.insert(FIRST);
        });
        assert!(ranges.find(BETWEEN).is_none());
        thread.join().unwrap();
    });
}

/// A thread reads a mapping while another thread inserts and removes other ranges.
#[test]
fn a_range_is_found_while_other_ranges_change() {
    check_model(2, || {
        let ranges = ranges();
        let other = ranges.insert(FIRST);
        let (entry, changing) = (ranges.insert(SECOND), Arc::clone(&ranges));
        let thread = thread::spawn(move || {
            other.remove();
            changing.insert(500..600);
            changing.insert(700..800);
        });
        let (found, range) = ranges.find(350).expect("the range was not removed");
        assert!(std::ptr::eq(found, entry) && range == SECOND);
        found.faults.fetch_add(1, Ordering::AcqRel);
        thread.join().unwrap();
        assert_eq!(entry.faults.load(Ordering::Acquire), 1, "no other thread changes this count");
    });
}

/// Two threads insert ranges at the same time. Each thread finds its own range as soon as the range is inserted.
#[test]
fn concurrent_insertions_use_separate_entries() {
    check_model(2, || {
        let ranges = ranges();
        ranges.insert(700..800).remove();
        let inserting = Arc::clone(&ranges);
        let thread = thread::spawn(move || {
            let entry = inserting.insert(FIRST);
            assert!(inserting.find(150).is_some_and(|(found, range)| std::ptr::eq(found, entry) && range == FIRST));
        });
        let entry = ranges.insert(SECOND);
        assert!(ranges.find(350).is_some_and(|(found, range)| std::ptr::eq(found, entry) && range == SECOND));
        thread.join().unwrap();
        assert!(ranges.find(150).is_some() && ranges.find(350).is_some() && ranges.find(750).is_none());
    });
}

/// One thread inserts a range and then sets a flag. A thread that sees the flag finds the range.
#[test]
fn a_range_is_found_by_a_thread_that_sees_the_mapping() {
    check_model(3, || {
        let (ranges, is_mapped) = (ranges(), Arc::new(AtomicBool::new(false)));
        let (inserting, mapping) = (Arc::clone(&ranges), Arc::clone(&is_mapped));
        let thread = thread::spawn(move || {
            inserting.insert(FIRST);
            mapping.store(true, Ordering::Release);
        });
        if is_mapped.load(Ordering::Acquire) {
            assert!(ranges.find(150).is_some_and(|(_, range)| range == FIRST));
        }
        thread.join().unwrap();
    });
}
