//! Clients notice new generations while they look up in an old one.

use std::sync::atomic::{AtomicU64, Ordering};
use zero_kv::Lookup;

use super::{SHAPE, assert_all, copy_options, direct, is_mapped, put};
use crate::helpers::generations::named;
use crate::helpers::random::random;
use crate::helpers::repeating::while_threads_repeat;
use crate::helpers::scenes::inode;
use crate::helpers::waiting::eventually;

#[test]
fn lookups_see_a_swap_and_a_snapshot_does_not_change() {
    for memory in ["map", "sealed"] {
        let (scene, served, direct) = direct(&["--memory", memory]);
        let copy = served.client().direct_with(&copy_options()).unwrap();
        let [first] = served.mapped_tables()[..] else { panic!("not one table: {:?}", served.mapped_tables()) };
        let old = direct.snapshot();
        for generation in 2..5 {
            put(&scene, generation);
            served.wait_for("generation", generation);
            for direct in [&direct, &copy] {
                eventually("the client detects the swap", || direct.get(1).unwrap() == SHAPE.value(generation, 1));
                assert_all(direct, generation);
                assert_eq!((direct.generation(), direct.snapshot().is_current()), (generation, true));
            }
        }
        assert_eq!((old.generation(), old.is_current()), (1, false));
        assert!((0..=SHAPE.rows).all(|key| old.get(key).unwrap() == SHAPE.value(1, key)));
        assert!(old.is_unchanged());
        assert!(is_mapped(&scene, first));
        drop(old);
        assert!(!is_mapped(&scene, first), "an old generation is unmapped with its last borrower");
    }
}

/// The memory of an old generation is released although no lookup notices the swap.
#[test]
fn an_idle_client_releases_old_generations() {
    let (scene, served, direct) = direct(&["--memory", "map"]);
    let first = inode(&scene.db());
    assert!(is_mapped(&scene, first));
    put(&scene, 2);
    served.wait_for("generation", 2);
    eventually("the old generation is unmapped", || !is_mapped(&scene, first));
    assert_eq!(direct.generation(), 2);
}

#[test]
fn refresh_waits_for_the_served_generation() {
    let (scene, served, direct) = direct(&[]);
    direct.refresh().unwrap();
    put(&scene, 2);
    served.wait_for("generation", 2);
    direct.refresh().unwrap();
    assert_all(&direct, 2);
    let attempt = served.client().rollback().unwrap();
    served.outcome_of(attempt);
    direct.refresh().unwrap();
    assert_eq!(direct.generation(), 3);
    assert_all(&direct, 1);
}

#[test]
fn under_load_a_batch_has_one_generation_and_generations_never_go_back() {
    for memory in ["map", "sealed"] {
        let (scene, served, direct) = direct(&["--memory", memory]);
        let batches = AtomicU64::new(0);
        let look_up = |thread: usize| {
            let (direct, batches) = (direct.clone(), &batches);
            let (mut newest, mut random) = (1, random(thread as u64));
            move || {
                let keys: Vec<u64> = (0..256).map(|_| 1 + random() % SHAPE.rows).collect();
                let mut generation = None;
                let answer = |at: usize, value: Option<&[u8]>| {
                    let value = value.unwrap();
                    let of = *generation.get_or_insert_with(|| named(value).unwrap());
                    assert_eq!(Some(value), SHAPE.value(of, keys[at]).as_deref());
                };
                direct.get_many_with(&keys, answer).unwrap();
                let generation = generation.unwrap();
                assert!(generation >= newest, "generation {generation} after {newest}");
                newest = generation;
                batches.fetch_add(1, Ordering::Relaxed);
            }
        };
        while_threads_repeat(3, look_up, || {
            for generation in 2..12 {
                put(&scene, generation);
                served.wait_for("generation", generation);
                let before = batches.load(Ordering::Relaxed);
                eventually("lookups continue", || batches.load(Ordering::Relaxed) > before + 50);
            }
        });
        direct.refresh().unwrap();
        assert_all(&direct, 11);
    }
}
