//! Tests of tables that are divided into shards.

use std::fs;

use super::{Bench, DELETED, Rows, csv, numbers, options};
use crate::bake::finish::Output;
use crate::bake::{BakeError, Duplicates, Input, Keys, Options, ShardReport, Shards, Verify};
use crate::format::key::{Key, KeyKind};
use crate::format::record::ALIGN_BYTES;
use crate::slots::{SlotRange, slot_of};

impl Bench {
    fn bake_shards(&self, text: &str, shards: Shards, options: &Options) -> Result<Vec<ShardReport>, BakeError> {
        let (folder, input) = (self.path("shards"), Input::reader("rows.csv", text.as_bytes()));
        let _ = fs::remove_dir_all(&folder);
        super::super::in_empty_folder(&folder, || {
            let output = Output::Folder(&folder, shards);
            super::super::bake_to(self.budget.clone(), vec![input], output, options, &mut |_| ())
        })
    }
}

/// Returns the rows of some slots.
fn of_slots(rows: &Rows, slots: SlotRange) -> Rows {
    let has = |key: &str| slots.has_key(Key::Bytes(key.as_bytes()));
    rows.iter().filter(|(key, _)| has(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn text_of(rows: &Rows) -> String {
    csv(rows.iter().map(|(key, value)| (&key[..], str::from_utf8(value).unwrap())))
}

#[test]
fn each_shard_is_the_file_of_a_bake_of_its_rows() {
    let rows = numbers((0..3000).map(|key| key * 11), "value");
    // With 64 KiB, several runs are spilled, and only one file is written at once. With 16 MiB, two are.
    for (memory_bytes, threads) in [(64 << 10, 1), (16 << 20, 2)] {
        let bench = Bench::new(memory_bytes, threads);
        for keys in [Keys::U64, Keys::Bytes, Keys::Auto] {
            let kind = if keys == Keys::Bytes { KeyKind::Bytes } else { KeyKind::U64 };
            let verify = if threads == 2 { Verify::Full } else { Verify::Sample };
            let options = Options { verify, ..options(keys) };
            let reports = bench.bake_shards(&text_of(&rows), Shards::Count(5), &options).unwrap();
            let slots: Vec<String> = reports.iter().map(|shard| shard.slots.to_string()).collect();
            assert_eq!(slots, ["0-3275", "3276-6552", "6553-9829", "9830-13106", "13107-16383"]);
            assert_eq!(reports.iter().map(|shard| shard.report.rows).sum::<u64>(), 3000);
            for shard in &reports {
                assert_eq!(shard.path, bench.path("shards").join(format!("{}.db", shard.slots)));
                let expected = bench.expected(kind, &of_slots(&rows, shard.slots));
                assert!(fs::read(&shard.path).unwrap() == expected, "{keys:?}, slots {}", shard.slots);
                assert_eq!(shard.report.file_len_bytes, expected.len() as u64);
            }
        }
    }
}

#[test]
fn changes_of_a_base_and_duplicates_are_counted_once() {
    let bench = Bench::tight(2);
    let base = numbers(0..2000, "old");
    bench.write_table("base.db", KeyKind::U64, &base, ALIGN_BYTES);
    // Replaces 500 rows, removes 300, of which 100 are absent, adds 100, and drops 50 duplicates.
    let changed = (0..500).map(|key| (key, "new")).chain((1800..2100).map(|key| (key, DELETED)));
    let changed = changed.chain((3000..3100).map(|key| (key, "added"))).chain((0..50).map(|key| (key, "new")));
    let text: String = changed.map(|(key, value)| format!("{key},{value}\n")).collect();
    let options = Options { base: Some(bench.path("base.db")), duplicates: Duplicates::Last, ..options(Keys::U64) };
    let reports = bench.bake_shards(&text, Shards::Count(3), &options).unwrap();
    for ShardReport { report, .. } in &reports {
        assert_eq!((report.base_replaced, report.base_removed, report.absent_removed), (500, 200, 100));
        assert_eq!((report.duplicates_dropped, report.rows_read), (50, 950));
    }
    assert_eq!(reports.iter().map(|shard| shard.report.rows).sum::<u64>(), 1900);
    // All shards together are the table.
    let tables: Vec<String> = reports.iter().map(|shard| format!("shards/{}.db", shard.slots)).collect();
    let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
    bench.bake(&[text], "whole.db", &options).unwrap();
    let wide = Bench::new(16 << 20, 2);
    fs::rename(bench.path("shards"), wide.path("shards")).unwrap();
    wide.merge(&tables, "merged.db", &super::any_replacement()).unwrap();
    assert!(wide.bytes("merged.db") == bench.bytes("whole.db"));
}

#[test]
fn shards_are_at_most_as_long_as_the_limit() {
    let bench = Bench::new(16 << 20, 1);
    let long = |key: u64| "v".repeat((key * 37 % 900) as usize);
    let rows: Rows = (0..4000).map(|key| (key.to_string(), long(key).into_bytes())).collect();
    for keys in [Keys::U64, Keys::Bytes] {
        for len_max_bytes in [150_000, 500_000, 1 << 30] {
            let reports =
                bench.bake_shards(&text_of(&rows), Shards::MaxLenBytes(len_max_bytes), &options(keys)).unwrap();
            assert_eq!((reports[0].slots.first_slot, reports[reports.len() - 1].slots.last_slot), (0, 16383));
            let lens: Vec<u64> = reports.iter().map(|shard| shard.report.file_len_bytes).collect();
            assert!(lens.iter().all(|len_bytes| *len_bytes <= len_max_bytes), "{lens:?}, at most {len_max_bytes}");
            // The limit is nearly reached.
            let all_bytes: u64 = lens.iter().sum();
            assert!(lens.len() as u64 <= all_bytes * 3 / 2 / len_max_bytes + 1, "{lens:?}, at most {len_max_bytes}");
        }
    }
    let one_slot = format!("{{a}},{}\n", "v".repeat(200_000));
    let error = bench.bake_shards(&one_slot, Shards::MaxLenBytes(100_000), &options(Keys::Bytes)).unwrap_err();
    let slot = slot_of("a".into());
    assert!(matches!(error, BakeError::ShardSlot { slot: found, .. } if found == slot), "{error}");
    assert!(!bench.path("shards").exists(), "a failed bake removes the folder that it created");
}

#[test]
fn a_folder_with_files_and_invalid_numbers_are_rejected() {
    let bench = Bench::tight(1);
    let bake = |shards, slots| bench.bake_shards("7,seven\n", shards, &Options { slots, ..options(Keys::U64) });
    let slots = |first_slot, last_slot| Some(SlotRange { first_slot, last_slot });
    for shards in [Shards::Count(0), Shards::Count(257), Shards::MaxLenBytes(1), Shards::MaxLenBytes(1 << 40)] {
        let error = bake(shards, None).unwrap_err();
        assert!(matches!(error, BakeError::ShardCount { .. } | BakeError::ShardLen { .. }), "{error}");
    }
    assert!(matches!(bake(Shards::Count(3), slots(0, 1)), Err(BakeError::ShardCount { shards_max: 2, .. })));
    assert!(matches!(bake(Shards::Count(1), slots(1, 0)), Err(BakeError::Slots { .. })));
    let reports = bake(Shards::Count(2), slots(10, 13)).unwrap();
    assert_eq!(reports.iter().map(|shard| shard.slots.to_string()).collect::<Vec<_>>(), ["10-11", "12-13"]);

    fs::write(bench.path("shards").join("old.db"), "").unwrap();
    let again = super::super::in_empty_folder(&bench.path("shards"), || -> Result<(), BakeError> { panic!("a bake") });
    assert!(matches!(again, Err(BakeError::ShardFolder { .. })), "{again:?}");
}
