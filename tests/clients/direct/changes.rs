//! A process changes the file in which clients look keys up.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use zero_kv::Lookup;
use zero_kv::LookupError;
use zero_kv::client::{Client, DirectOptions};

use super::{SHAPE, assert_all, copy_options, direct, put};
use crate::helpers::generations::named;
use crate::helpers::repeating::while_threads_repeat;
use crate::helpers::scenes::Scene;
use crate::helpers::waiting::eventually;

/// The name of a change, and the function that makes it.
type Change = (&'static str, fn(&Path));

const CHANGES: [Change; 4] = [
    ("emptied", |file| File::create(file).map(drop).unwrap()),
    ("cut off", |file| File::options().write(true).open(file).unwrap().set_len(5000).unwrap()),
    ("overwritten by another table", |file| {
        let other = file.with_extension("other");
        SHAPE.bake(9, &other);
        std::fs::write(file, std::fs::read(other).unwrap()).unwrap();
    }),
    ("overwritten by anything", |file| {
        let file = File::options().write(true).open(file).unwrap();
        let len_bytes = file.metadata().unwrap().len() as usize;
        file.write_all_at(&vec![0xa5; len_bytes], 0).unwrap();
    }),
];

#[test]
fn a_mapped_file_that_is_changed_gives_errors_and_never_a_wrong_byte() {
    for options in [&[][..], &["--no-lease"]] {
        for (how, change) in CHANGES {
            println!("{how}, {options:?}");
            let (scene, _served, direct) = direct(options);
            assert_all(&direct, 1);
            change(&scene.db());
            let mut errors = 0;
            for key in 0..SHAPE.rows + 3 {
                match direct.get(key) {
                    // The server serves a table that was written over the old one once it has checked the file.
                    Ok(value) => assert!(value == SHAPE.value(1, key) || value == SHAPE.value(9, key), "key {key}"),
                    Err(error) => {
                        assert_eq!(error, LookupError::Damaged);
                        errors += 1;
                    }
                }
            }
            assert!(how == "overwritten by another table" || errors == SHAPE.rows + 3, "{errors} errors");
            put(&scene, 2);
            let is_restored = || direct.get(1).is_ok_and(|value| value == SHAPE.value(2, 1));
            eventually("the good file is served", is_restored);
            assert_all(&direct, 2);
        }
    }
}

#[test]
fn a_change_under_load_gives_errors_to_all_clients_and_never_a_wrong_byte() {
    for options in [&[][..], &["--no-lease"]] {
        let (scene, _served, direct) = direct(options);
        let (changes, keys) = (CHANGES, (1..=256).collect::<Vec<u64>>());
        // For each thread, the number of batches that returned values, and the number of batches that failed.
        let counts: [[AtomicU64; 2]; 2] = Default::default();
        let wait_for_all = |what: &str, kind: usize| {
            let before = counts.each_ref().map(|counts| counts[kind].load(Ordering::Relaxed));
            let grown =
                || counts.iter().zip(before).all(|(counts, before)| counts[kind].load(Ordering::Relaxed) > before);
            eventually(what, grown);
        };
        let look_up = |thread: usize| {
            let ([values_count, errors_count], direct, keys) = (&counts[thread], &direct, &keys);
            move || {
                let values = match direct.get_many(keys) {
                    Ok(values) => values,
                    Err(error) => {
                        assert_eq!(error, LookupError::Damaged);
                        errors_count.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                };
                assert_eq!(values.len(), keys.len());
                let generation = named(values[0].as_ref().unwrap()).unwrap();
                let is_right = keys.iter().zip(&values).all(|(key, value)| *value == SHAPE.value(generation, *key));
                assert!(is_right, "generation {generation}");
                values_count.fetch_add(1, Ordering::Relaxed);
            }
        };
        while_threads_repeat(counts.len(), look_up, || {
            for (at, (how, change)) in (0_u64..).zip(changes.into_iter().cycle().take(12)) {
                wait_for_all("lookups go on", 0);
                change(&scene.db());
                if how != "overwritten by another table" {
                    wait_for_all("lookups are errors", 1);
                }
                let generation = 10 + at;
                put(&scene, generation);
                eventually("the good file is served", || {
                    direct.get(1).is_ok_and(|value| value == SHAPE.value(generation, 1))
                });
            }
        });
    }
}

#[test]
fn sealed_memory_and_copies_are_unaffected_by_changes() {
    for (_, change) in CHANGES {
        let (scene, served, sealed) = direct(&["--memory", "sealed", "--no-watch"]);
        let copy = served.client().direct_with(&copy_options()).unwrap();
        let of_file = Scene::new();
        SHAPE.bake(1, &of_file.db());
        let serving_file = of_file.serve(&["--no-watch"]);
        let copy_of_file = Client::connect(serving_file.socket()).unwrap().direct_with(&copy_options()).unwrap();
        change(&scene.db());
        change(&of_file.db());
        for direct in [&sealed, &copy, &copy_of_file] {
            assert_all(direct, 1);
            assert!(direct.snapshot().is_unchanged());
        }
    }
}

#[test]
fn a_file_that_can_be_truncated_is_not_mapped_without_the_sigbus_handler() {
    let (_scene, served, _direct) = direct(&["--no-watch"]);
    let options = DirectOptions { survive_bus_errors: false, ..DirectOptions::default() };
    let problem = served.client().direct_with(&options).unwrap_err().to_string();
    assert!(problem.contains("can be truncated") && problem.contains("sealed memory"), "{problem}");

    let copy_options = DirectOptions { survive_bus_errors: false, ..copy_options() };
    assert_all(&served.client().direct_with(&copy_options).unwrap(), 1);
    let (_scene, served, _direct) = direct(&["--memory", "sealed", "--no-watch"]);
    assert_all(&served.client().direct_with(&options).unwrap(), 1);
}
