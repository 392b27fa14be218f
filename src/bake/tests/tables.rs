//! Tests of bases, merged tables, and slots.

use std::fs;
use std::mem::offset_of;
use std::sync::Arc;

use super::{Bench, DELETED, Rows, any_replacement, csv, numbers, open, options};
use crate::Lookup;
use crate::bake::budget::Context;
use crate::bake::combine::{self, SortedParts, each_row};
use crate::bake::finish::Output;
use crate::bake::old_table::OldTable;
use crate::bake::place::NewFile;
use crate::bake::sort::sorted_rows::{RowOrigins, TableRecords};
use crate::bake::sort::{ExtentOwner, Tally};
use crate::bake::table::RecordsWriter;
use crate::bake::{BakeError, Duplicates, Input, Keys, Options, ShardReport, Shards, index};
use crate::format::FormatError;
use crate::format::checksum::BLOCK_LEN_BYTES;
use crate::format::fence::Fence;
use crate::format::header::{Layout, SectionKind};
use crate::format::key::{Key, KeyKind};
use crate::format::record::ALIGN_BYTES;
use crate::slots::{SLOT_COUNT, SlotRange, SlotSet, slot_of};
use crate::store::StoreError;

#[test]
fn a_merge_of_many_ranges_has_the_rows_of_their_slots() {
    let bench = Bench::tight(2);
    let mut rows = numbers(0..5000, "row");
    bench.write_table("all.db", KeyKind::U64, &rows, ALIGN_BYTES);
    let range = |slot| SlotRange { first_slot: slot, last_slot: slot };
    let slots: SlotSet = (0..SLOT_COUNT).step_by(3).map(range).collect();
    let options = Options { table_slots: Some(Arc::new(slots.clone())), ..options(Keys::U64) };
    bench.merge(&["all.db"], "some.db", &options).unwrap();
    rows.retain(|key, _| slots.has(slot_of(Key::Bytes(key.as_bytes()))));
    assert!(bench.bytes("some.db") == bench.expected(KeyKind::U64, &rows));
}

#[test]
fn a_base_may_be_the_output() {
    let bench = Bench::tight(2);
    let mut rows = numbers(0..5000, "old");
    bench.write_table("a.db", KeyKind::U64, &rows, ALIGN_BYTES);
    let base = Some(bench.path("a.db"));
    // With `Auto`, the base determines the kind of the keys.
    let options = Options { base, ..options(Keys::Auto) };
    let report =
        bench.bake(&[csv([("3", "new"), ("7", "-"), ("9000", "new"), ("9001", "-")])], "a.db", &options).unwrap();
    assert_eq!((report.base_replaced, report.base_removed, report.absent_removed), (1, 1, 1));
    assert_eq!(report.base.map(|base| base.rows), Some(5000));
    rows.remove("7");
    rows.extend(["3", "9000"].map(|key| (key.to_owned(), b"new".to_vec())));
    assert!(bench.bytes("a.db") == bench.expected(KeyKind::U64, &rows));
}

#[test]
fn the_error_for_a_base_with_other_keys_names_both_kinds() {
    let bench = Bench::tight(1);
    bench.write_table("text.db", KeyKind::Bytes, &numbers(0..3, ""), ALIGN_BYTES);
    bench.write_table("numbers.db", KeyKind::U64, &numbers(0..3, ""), ALIGN_BYTES);
    let base = |name| Options { base: Some(bench.path(name)), ..Options::default() };
    let error = bench.bake(&["1,one\n".to_owned()], "new.db", &base("text.db")).unwrap_err().to_string();
    assert!(error.contains("text.db are bytes, and the options say that keys of the input are u64"), "{error}");
    let bytes = Options { keys: Keys::BYTES, ..base("numbers.db") };
    let error = bench.bake(&["1,one\n".to_owned()], "new.db", &bytes).unwrap_err().to_string();
    assert!(error.contains("numbers.db are u64, and the options say that keys of the input are bytes"), "{error}");
    let error = bench.merge(&["numbers.db", "text.db"], "new.db", &Options::default()).unwrap_err().to_string();
    assert!(error.contains("text.db are bytes, and keys of") && error.contains("numbers.db are u64"), "{error}");
    assert_eq!(bench.names(), ["numbers.db", "text.db"]);
}

/// Whichever byte of the base is damaged, the error names the base, and the old output is unchanged.
#[test]
fn a_damaged_base_replaces_nothing() {
    let bench = Bench::tight(2);
    let rows: Rows = (0..3000).map(|key| (format!("key {key:05}"), vec![b'v'; 40])).collect();
    bench.write_table("base.db", KeyKind::Bytes, &rows, ALIGN_BYTES);
    let whole = bench.bytes("base.db");
    let layout = Layout::decode(&whole).unwrap();
    let block = |block: usize| 4096 + block * BLOCK_LEN_BYTES + 77;
    let last_block = layout.blocks(SectionKind::Records).end - 1;
    let last_fence = (layout.fences.offset_bytes + layout.fences.len_bytes) as usize - size_of::<Fence>();
    let last_fence_place = last_fence + offset_of!(Fence, place);
    fs::write(bench.path("new.db"), "was there").unwrap();
    let options = Options { base: Some(bench.path("base.db")), ..options(Keys::Auto) };
    let bake = || bench.bake(&["key 1,one\n".to_owned()], "new.db", &options);
    for damaged_block in [0, 3, last_block] {
        let mut bytes = whole.clone();
        bytes[block(damaged_block)] ^= 1;
        fs::write(bench.path("base.db"), &bytes).unwrap();
        match bake().unwrap_err() {
            BakeError::OldTable(StoreError::Format {
                path,
                error: FormatError::BlockChecksum { block, offset_bytes, .. },
            }) => {
                assert_eq!((path, block), (bench.path("base.db"), damaged_block));
                assert_eq!(offset_bytes, 4096 + (damaged_block * BLOCK_LEN_BYTES) as u64);
            }
            error => panic!("{error}"),
        }
    }
    // Damages the header, the place in the last fence, and the last block sum. Then truncates the file, and finally
    // removes it.
    for at in [20, 70, last_fence_place, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(bench.path("base.db"), &bytes).unwrap();
        assert!(matches!(bake(), Err(BakeError::OldTable(StoreError::Format { .. }))), "byte {at}");
    }
    for len_bytes in [0, 100, whole.len() - 8] {
        fs::write(bench.path("base.db"), &whole[..len_bytes]).unwrap();
        assert!(matches!(bake(), Err(BakeError::OldTable(StoreError::Format { .. }))), "{len_bytes} bytes");
    }
    fs::remove_file(bench.path("base.db")).unwrap();
    assert!(matches!(bake(), Err(BakeError::OldTable(StoreError::Io { .. }))));
    assert_eq!((bench.bytes("new.db"), bench.names()), (b"was there".to_vec(), vec!["new.db".to_owned()]));
}

/// A forged table can have correct checksums and invalid rows.
#[test]
fn a_base_with_invalid_rows_is_rejected() {
    let bench = Bench::tight(1);
    let options = Options::default();
    let pool = bench.budget.thread_pool().unwrap();
    let context = Context { options: &options, typed: None, budget: &bench.budget, pool: &pool };
    let fault = |keys: &[Key<'_>], row_count: u64| {
        let file = tempfile::tempfile().unwrap();
        let mut writer = RecordsWriter::new(&file, keys[0].kind().into(), false, ALIGN_BYTES, 1).unwrap();
        keys.iter().for_each(|key| writer.push(*key, b"value").unwrap());
        let (records, owner) = (writer.finish().unwrap(), ExtentOwner::Table(bench.path("base.db").into()));
        let table = TableRecords::written(&file, &records, RowOrigins::Counted(0), Vec::new(), owner).unwrap();
        let table = TableRecords { row_count, common_len_bytes: 0, ..table };
        let parts = parts_of_base(table);
        match each_row(&parts, &context, &mut Tally::default(), |_, _| Ok(())) {
            Ok(()) => None,
            Err(BakeError::OldTable(StoreError::Format { error: FormatError::Row { row, what }, .. })) => {
                Some((row, what))
            }
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(fault(&[1, 2, 3].map(Key::U64), 3), None);
    for keys in [[1, 3, 2].map(Key::U64), [1, 2, 2].map(Key::U64), ["a", "c", "b"].map(Key::from)] {
        assert_eq!(fault(&keys, 3), Some((2, "the key is not greater than the preceding key")));
    }
    assert_eq!(fault(&[1, 2, 3].map(Key::U64), 2), Some((2, "there are records beyond the last row")));
    assert_eq!(fault(&[1, 2, 3].map(Key::U64), 4), Some((3, "the record is missing or malformed")));
}

#[test]
fn tables_are_merged_in_the_order_given() {
    let bench = Bench::new(16 << 20, 2);
    let parts = [numbers(0..3000, "a"), numbers(1000..4000, "b"), numbers((0..9000).step_by(3), "c")];
    for (name, (rows, align_bytes)) in ["a.db", "b.db", "c.db"].into_iter().zip(parts.iter().zip([8, 16, 4096])) {
        bench.write_table(name, KeyKind::U64, rows, align_bytes);
    }
    let merged = |duplicates, order: [usize; 3]| {
        let names = order.map(|part| ["a.db", "b.db", "c.db"][part]);
        let report = bench.merge(&names, "all.db", &Options { duplicates, ..Options::default() }).unwrap();
        let mut rows = Rows::new();
        for part in order {
            for (key, value) in &parts[part] {
                if duplicates == Duplicates::Last || !rows.contains_key(key) {
                    rows.insert(key.clone(), value.clone());
                }
            }
        }
        assert!(bench.bytes("all.db") == bench.expected(KeyKind::U64, &rows), "{duplicates:?} of {names:?}");
        assert_eq!(report.duplicates_dropped, 9000 - rows.len() as u64);
        assert_eq!(report.tables.iter().map(|table| table.rows).collect::<Vec<_>>(), [3000; 3]);
    };
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        merged(Duplicates::First, order);
        merged(Duplicates::Last, order);
    }
    let error = bench.merge(&["a.db", "c.db"], "all.db", &Options::default()).unwrap_err().to_string();
    let [a, c] = ["a.db", "c.db"].map(|name| bench.path(name).display().to_string());
    assert!(error.starts_with(&format!("{c}: row 0: key 0 is already on row 0 of {a}: ")), "{error}");
}

#[test]
fn a_merge_copies_one_table_and_rejects_zero_or_too_many_tables() {
    let bench = Bench::tight(1);
    for (kind, align_bytes) in [(KeyKind::U64, 8), (KeyKind::Bytes, 64)] {
        for count in [0, 1, 16, 17, 4000] {
            let rows = numbers(0..count, "value");
            bench.write_table("a.db", kind, &rows, align_bytes);
            let report = bench.merge(&["a.db"], "a.db", &Options::default()).unwrap();
            assert_eq!((report.rows, report.key_type), (count, kind.into()));
            assert!(bench.bytes("a.db") == bench.expected(kind, &rows), "{count} rows with {kind}");
        }
    }
    assert!(matches!(bench.merge(&[], "new.db", &Options::default()), Err(BakeError::NoTables)));
    let too_many = bench.merge(&["a.db"; 3], "new.db", &Options::default());
    assert!(matches!(too_many, Err(BakeError::TooManyTables { tables: 3, tables_max: 2 })), "{too_many:?}");
}

#[test]
fn all_shards_together_have_all_rows() {
    let bench = Bench::new(16 << 20, 2);
    let rows: Rows = numbers((0..4000).map(|key| key * 7), "value");
    let shards = [("1.db", 0, 4000), ("2.db", 4001, 9999), ("3.db", 10000, 16383)];
    for keys in [Keys::U64, Keys::BYTES] {
        let text: String =
            rows.iter().map(|(key, value)| format!("{key},{}\n", String::from_utf8_lossy(value))).collect();
        bench.write_table("whole.db", keys.kind(), &rows, ALIGN_BYTES);
        let mut rows_of_shards = 0;
        for (file, first_slot, last_slot) in shards {
            let slots = SlotRange { first_slot, last_slot };
            let options = Options { slots: Some(slots), ..options(keys) };
            let report = bench.bake(std::slice::from_ref(&text), file, &options).unwrap();
            rows_of_shards += report.rows;
            let has = |key: &String| slots.has_key(Key::Bytes(key.as_bytes()));
            assert_eq!(report.rows, rows.keys().filter(|key| has(key)).count() as u64, "slots {slots}");
            // A shard can be extracted from the whole table by a merge, or by a bake with the whole table as the base.
            // The extracted shard must equal the shard that was baked from text.
            bench.merge(&["whole.db"], "split.db", &options).unwrap();
            assert!(bench.bytes("split.db") == bench.bytes(file), "slots {slots}");
            let options = Options { base: Some(bench.path("whole.db")), ..options };
            bench.bake(&[String::new()], "split.db", &options).unwrap();
            assert!(bench.bytes("split.db") == bench.bytes(file), "slots {slots}");
        }
        assert_eq!(rows_of_shards, 4000);
        bench.merge(&["3.db", "1.db", "2.db"], "all.db", &any_replacement()).unwrap();
        assert!(bench.bytes("all.db") == bench.bytes("whole.db"), "{keys:?}");
    }
}

#[test]
fn slots_without_a_known_kind_of_keys_are_rejected() {
    let bench = Bench::tight(1);
    let options = Options { slots: Some(SlotRange::ALL), ..options(Keys::Auto) };
    assert!(matches!(bench.bake(&[], "new.db", &options), Err(BakeError::SlotsKeysUnknown)));
}

/// With fewer and fewer bits for places, the records first fit, then fit only at a greater alignment, and finally do
/// not fit.
#[test]
fn records_beyond_the_range_of_places_get_a_greater_alignment() {
    let bench = Bench::tight(1);
    let rows = numbers(0..1000, &"v".repeat(40));
    bench.write_table("base.db", KeyKind::U64, &rows, 128);
    let base = OldTable::open(&bench.path("base.db"), 0, &Options::default()).unwrap().table;
    let options = Options::default();
    let pool = bench.budget.thread_pool().unwrap();
    let context = Context { options: &options, typed: None, budget: &bench.budget, pool: &pool };
    let parts = parts_of_base(base);
    let output = bench.path("new.db");
    let combine = |place_bits| {
        let file = NewFile::beside(&output, &options.cancel).unwrap();
        let (mut tally, progress) = (Tally::default(), &mut |_| ());
        let target = combine::Target { file: &file, path: &output, slots: None };
        let combined = combine::combine(place_bits, &parts, &[target], &context, &mut tally, progress)?;
        let records = &combined[0];
        index::build(file.file(), records, &[], &bench.budget, &mut |_, _| ()).unwrap();
        file.put_in_place().unwrap();
        Ok::<_, BakeError>(records.record_align_bytes)
    };
    // A row takes 64 bytes, but 128 bytes in the base. With 13 bits, the first estimate of the alignment is therefore
    // 16, although an alignment of 8 is enough.
    for (place_bits, align_bytes) in [(32, 8), (14, 8), (13, 8), (12, 16), (11, 32), (10, 64)] {
        let found = combine(place_bits).unwrap();
        let len_bytes =
            open(&output).iter().map(|row| (16 + row.unwrap().1.len()).next_multiple_of(found)).sum::<usize>();
        assert!(len_bytes <= found << place_bits, "{place_bits} bits");
        assert_eq!(found, align_bytes, "{place_bits} bits");
        assert!(open(&output).iter().count() == 1000);
        bench.write_table("expected.db", KeyKind::U64, &rows, found);
        assert!(bench.bytes("new.db") == bench.bytes("expected.db"), "{place_bits} bits");
    }
    let error = combine(9).unwrap_err();
    assert!(matches!(error, BakeError::Output { .. }), "{error}");
}

#[test]
fn a_piece_with_only_duplicates_does_not_move_the_end_of_a_stream() {
    let texts = |last: &str| ["1,one\n7,first\n", "7,middle\n", last].map(str::to_owned);
    for duplicates in [Duplicates::First, Duplicates::Last] {
        let bench = Bench::tight(2);
        let options = Options { duplicates, ..Options::default() };
        let seven = if duplicates == Duplicates::First { "first" } else { "last" };
        for (name, last) in [("below.db", "3,three\n7,last\n"), ("same.db", "7,last\n8,eight\n")] {
            let report = bench.bake(&texts(last), name, &options).unwrap();
            assert_eq!((report.rows, report.duplicates_dropped), (3, 2));
            assert_eq!(open(&bench.path(name)).get(7).unwrap(), Some(seven.as_bytes()));
        }
    }
}

#[test]
fn runs_of_long_rows_are_merged_a_few_at_a_time() {
    let bench = Bench::new(8 << 20, 2);
    let value = |key: usize| format!("{key:0>9500}").repeat(100);
    // Keys descend, so that no row is streamed.
    let text: String = (0..21).rev().map(|key| format!("{key},{}\n", value(key))).collect();
    let report = bench.bake(&[text], "new.db", &Options::default()).unwrap();
    assert!(report.runs > 4 && report.runs + 1 < bench.budget.fan_in(), "{} runs", report.runs);
    assert_eq!((report.rows, report.merge_passes), (21, 1));
    let store = open(&bench.path("new.db"));
    assert!((0..21).all(|key| store.get(key as u64).unwrap() == Some(value(key).as_bytes())));
}

impl Bench {
    fn bake_shards(&self, text: &str, shards: Shards, options: &Options) -> Result<Vec<ShardReport>, BakeError> {
        let (folder, input) = (self.path("shards"), Input::reader("rows.csv", text.as_bytes()));
        let _ = fs::remove_dir_all(&folder);
        super::super::in_shard_folder(&folder, SlotRange::ALL, || {
            let output = Output::Folder(&folder, shards);
            super::super::bake_to(self.budget.clone(), vec![input], output, options, &mut |_| ())
        })
    }
}

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
        for keys in [Keys::U64, Keys::BYTES, Keys::Auto] {
            let kind = if keys == Keys::BYTES { KeyKind::Bytes } else { KeyKind::U64 };
            let options = Options { compare_rows: threads == 2, ..options(keys) };
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
    for keys in [Keys::U64, Keys::BYTES] {
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
    let error = bench.bake_shards(&one_slot, Shards::MaxLenBytes(100_000), &options(Keys::BYTES)).unwrap_err();
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
    let again = super::super::in_shard_folder(&bench.path("shards"), SlotRange::ALL, || -> Result<(), BakeError> {
        panic!("a bake")
    });
    assert!(matches!(again, Err(BakeError::ShardFolder { .. })), "{again:?}");
}

/// Returns the rows of a base without new rows.
fn parts_of_base(base: TableRecords) -> SortedParts {
    let (key_type, has_ranges) = (base.key_type, base.has_ranges);
    let (tables, spilled, last) = (vec![], vec![], None);
    SortedParts { sorted_type: key_type, key_type, has_ranges, base: Some(base), tables, spilled, last }
}
