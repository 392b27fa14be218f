//! Stores whose clocks differ from the clock of this machine by a day. No generation is served, kept, or deleted because
//! of a clock.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use zero_kv::bake::Cancel;
use zero_kv::publish::{GarbageRules, ShardFile};

use crate::helpers::mixed_load::MixedLoad;
use crate::helpers::published::{Published, SHAPE, wait_until_served};
use crate::helpers::store_server::StoreServer;
use crate::helpers::waiting::eventually;

const HOUR_S: i64 = 3600;
const DAY_S: i64 = 24 * HOUR_S;

/// Sets the times of all files in a folder to the current time of a clock that is ahead of this machine's clock.
fn set_times(folder: &Path, offset_s: i64) {
    let (now, offset) = (SystemTime::now(), Duration::from_secs(offset_s.unsigned_abs()));
    let time = if offset_s < 0 { now - offset } else { now + offset };
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => set_times(&path, offset_s),
            false => File::options().write(true).open(path).unwrap().set_modified(time).unwrap(),
        }
    }
}

#[test]
fn a_node_follows_a_store_whose_clock_is_a_day_off() {
    for offset_s in [-DAY_S, DAY_S] {
        let published = Published::new();
        published.publish(1);
        let store = StoreServer::start(&published.store());
        store.set_clock_offset_s(offset_s);
        let node = published.node_of("a", &store.url("users"));
        let load = MixedLoad::start(&node, SHAPE, 1);
        for number in 2..=4 {
            load.allow(number);
            published.publish(number);
            wait_until_served(&node, number);
            load.expect_at_least(number);
            // The clock jumps to the other side.
            store.set_clock_offset_s(if number % 2 == 0 { -offset_s } else { offset_s });
        }
        load.wait_for_right(1000);
        assert_eq!(load.finish(), 0);
        assert_eq!((node.number("published_lag_s"), node.number("published_failures")), (0, 0));
        drop(node);
        // The cache does not depend on a clock either.
        set_times(&published.cache("a"), offset_s);
        let node = published.node_of("a", &store.url("users"));
        wait_until_served(&node, 4);
        published.publish(5);
        wait_until_served(&node, 5);
    }
}

#[test]
fn a_generation_that_a_node_serves_is_retained_whatever_the_store_states_as_the_time_of_its_status() {
    for offset_s in [-DAY_S, DAY_S] {
        let published = Published::new();
        published.publish(1);
        let node = published.node("a");
        eventually("the status is written", || published.status_serving("a") == Some(1));
        drop(node);
        (2..=3).for_each(|number| published.publish(number));
        set_times(&published.table(), offset_s);
        assert_eq!(published.status_serving("a"), Some(1));
        let rules = GarbageRules { keep: 1, age_min: Duration::ZERO, delete: true };
        let garbage = published.publication.collect_garbage(&rules).unwrap();
        assert_eq!(garbage.objects, [published.publication.manifest(Some(2)).unwrap().entries[0].object.as_str()]);
        assert!(published.data_file(1).exists() && published.data_file(3).exists());
    }
}

#[test]
fn a_publication_in_progress_is_retained_if_the_clocks_differ_by_less_than_the_minimum_age() {
    for offset_s in [-23 * HOUR_S, DAY_S] {
        let published = Published::new();
        published.publish(1);
        let db = published.folder.path().join("next.db");
        SHAPE.bake(2, &db);
        let entry = published.publication.upload(&ShardFile::whole(&db), &Cancel::default()).unwrap();
        set_times(&published.table(), offset_s);
        let rules = GarbageRules { keep: 1, age_min: Duration::from_secs(DAY_S as u64), delete: true };
        let garbage = published.publication.collect_garbage(&rules).unwrap();
        assert_eq!((garbage.objects.len(), garbage.young), (0, 1));
        assert_eq!(published.publication.commit(vec![entry], &Default::default()).unwrap().number, 2);
        wait_until_served(&published.node("a"), 2);
        assert!(published.data_file(1).exists());
    }
}
