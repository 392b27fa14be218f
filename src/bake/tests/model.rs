//! Compares the results of random bakes with a model that keeps the rows in a map.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::{Bench, DELETED, Rows, csv, key, options};
use crate::Lookup;
use crate::bake::{BakeError, Duplicates, Keys, Options, RowFault};
use crate::format::key::{Key, KeyKind};
use crate::format::key_type::KeyType;
use crate::format::record::ALIGN_BYTES;
use crate::slots::{SLOT_COUNT, SlotRange};

#[derive(Clone, Debug)]
struct Case {
    keys: Keys,
    /// The rows of all inputs, in order.
    rows: Vec<(String, String)>,
    /// The number of sorted rows at the start of `rows`, as a fraction of all rows.
    sorted_share: f64,
    /// The positions in `rows` at which an input ends and the next one begins, as fractions of all rows. Not sorted.
    cuts: Vec<f64>,
    base: Option<Rows>,
    base_align_bytes: usize,
    duplicates: Duplicates,
    slots: Option<SlotRange>,
    threads: usize,
    memory_bytes: u64,
}

fn number() -> impl Strategy<Value = String> {
    let of_all_lengths = (0..64_u32).prop_map(|bits| u64::MAX >> bits);
    prop_oneof![5 => 0..4000_u64, 3 => 0..1_000_000_u64, 1 => any::<u64>(), 1 => of_all_lengths]
        .prop_map(|number| number.to_string())
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![4 => "user:[0-9]{3}", 2 => "[a-c]{1,12}", 1 => "[0-9]{1,3}", 1 => "user:[a-b]{0,20}"]
}

fn value(may_be_deleted: bool) -> impl Strategy<Value = String> {
    prop_oneof![u32::from(may_be_deleted) => Just(DELETED.to_owned()), 8 => "[a-z]{0,60}"]
}

/// Generates keys of one kind. With `Auto`, generates numbers and a few texts.
fn key_text(keys: Keys) -> BoxedStrategy<String> {
    match keys {
        Keys::U64 => number().boxed(),
        Keys::Type(_) => text().boxed(),
        Keys::Auto => prop_oneof![200 => number(), 1 => text()].boxed(),
    }
}

fn case() -> impl Strategy<Value = Case> {
    let keys = prop_oneof![Just(Keys::U64), Just(Keys::BYTES), Just(Keys::Auto)];
    let few_or_many = prop_oneof![1 => 0..20_usize, 3 => 500..2000_usize];
    let has_deleted = prop::bool::ANY;
    (keys, few_or_many, has_deleted).prop_flat_map(|(keys, count, has_deleted)| {
        let base_key = if keys == Keys::BYTES { text().boxed() } else { number().boxed() };
        let base = btree_map(base_key, "[a-z]{0,40}".prop_map(String::into_bytes), 0..400);
        let slots = (0..8192_u16, 8192..SLOT_COUNT);
        let slots = slots.prop_map(|(first_slot, last_slot)| SlotRange { first_slot, last_slot });
        let slots = prop::option::weighted(0.25, slots);
        let rows = (vec((key_text(keys), value(has_deleted)), count..=count), prop::bool::ANY);
        let how = (prop_oneof![2 => Just(0.0), 3 => Just(1.0), 3 => 0.3..0.9], vec(0.0..1.0, 0..3));
        let policy = prop_oneof![Just(Duplicates::Error), Just(Duplicates::First), Just(Duplicates::Last)];
        let machine = (1..5_usize, prop_oneof![Just(32_u64 << 10), Just(1 << 30)]);
        let align = prop_oneof![Just(ALIGN_BYTES), Just(64)];
        (rows, how, prop::option::weighted(0.35, base), align, policy, slots, machine).prop_map(
            move |(
                (mut rows, is_unique),
                (sorted_share, cuts),
                base,
                base_align_bytes,
                duplicates,
                slots,
                (threads, memory_bytes),
            )| {
                if is_unique {
                    let mut seen = BTreeSet::new();
                    rows.retain(|(key, _)| seen.insert(key.clone()));
                }
                // Slots require keys of a known kind.
                let slots = slots.filter(|_| keys != Keys::Auto);
                let base = base.filter(|_| keys != Keys::Auto);
                Case {
                    keys,
                    rows,
                    sorted_share,
                    cuts,
                    base,
                    base_align_bytes,
                    duplicates,
                    slots,
                    threads,
                    memory_bytes,
                }
            },
        )
    })
}

/// The rows and counts that a bake must produce.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    rows: Rows,
    duplicates_dropped: u64,
    base_replaced: u64,
    base_removed: u64,
    absent_removed: u64,
}

impl Case {
    fn kind(&self) -> KeyKind {
        let is_number = |text: &String| text.parse::<u64>().is_ok_and(|number| number.to_string() == *text);
        match self.keys {
            Keys::Auto if self.rows.iter().all(|(key, _)| is_number(key)) => KeyKind::U64,
            Keys::Auto => KeyKind::Bytes,
            keys => keys.kind(),
        }
    }

    fn inputs(&self) -> Vec<Vec<(String, String)>> {
        let mut rows = self.rows.clone();
        let part = |share: f64| (rows.len() as f64 * share) as usize;
        let (sorted, mut cuts) = (part(self.sorted_share), self.cuts.iter().map(|cut| part(*cut)).collect::<Vec<_>>());
        let kind = self.kind();
        rows[..sorted].sort_by(|(a, _), (b, _)| key(kind, a).cmp(&key(kind, b)));
        cuts.sort_unstable();
        let ends: Vec<usize> = cuts.into_iter().chain([rows.len()]).collect();
        let mut from = 0;
        ends.into_iter().map(|end| rows[std::mem::replace(&mut from, end)..end].to_vec()).collect()
    }

    /// Returns the expected result. If the bake must fail, returns the input and the line of the first row whose key is
    /// a duplicate.
    fn outcome(&self) -> Result<Outcome, (usize, u64)> {
        let kind = self.kind();
        let is_wanted = |text: &str| self.slots.is_none_or(|slots| slots.has_key(key(kind, text)));
        let mut outcome = Outcome::default();
        let mut kept = BTreeMap::new();
        for (input, rows) in self.inputs().iter().enumerate() {
            for (line, (key, value)) in (1..).zip(rows).filter(|(_, (key, _))| is_wanted(key)) {
                if kept.contains_key(key) {
                    match self.duplicates {
                        Duplicates::Error => return Err((input, line)),
                        Duplicates::First => {}
                        Duplicates::Last => drop(kept.insert(key.clone(), value.clone())),
                    }
                    outcome.duplicates_dropped += 1;
                } else {
                    kept.insert(key.clone(), value.clone());
                }
            }
        }
        outcome.rows = self.base.clone().unwrap_or_default();
        outcome.rows.retain(|key, _| is_wanted(key));
        for (key, value) in kept {
            let is_deleted = value == DELETED;
            let before = match is_deleted {
                true => outcome.rows.remove(&key),
                false => outcome.rows.insert(key, value.into_bytes()),
            };
            match (is_deleted, before) {
                (true, Some(_)) => outcome.base_removed += 1,
                (true, None) => outcome.absent_removed += 1,
                (false, Some(_)) => outcome.base_replaced += 1,
                (false, None) => {}
            }
        }
        Ok(outcome)
    }
}

/// Counts the bakes that covered each code path.
#[derive(Default)]
struct Coverage {
    baked: Cell<u32>,
    rejected: Cell<u32>,
    spilled: Cell<u32>,
    passes: Cell<u32>,
    broken_streams: Cell<u32>,
    whole_streams: Cell<u32>,
    numbers_as_text: Cell<u32>,
    base_changes: Cell<u32>,
}

fn count(counter: &Cell<u32>, happened: bool) {
    counter.set(counter.get() + u32::from(happened));
}

fn check(case: &Case, coverage: &Coverage) {
    let bench = Bench::new(case.memory_bytes, case.threads);
    let kind = case.kind();
    let inputs = case.inputs();
    let csv_of = |rows: &Vec<(String, String)>| csv(rows.iter().map(|(key, value)| (&key[..], &value[..])));
    let texts: Vec<String> = inputs.iter().map(csv_of).collect();
    let mut options = Options { duplicates: case.duplicates, slots: case.slots, ..options(case.keys) };
    // `Full` compares every row, and therefore keeps the sorted rows until the end.
    options.compare_rows = case.threads == 4;
    if let Some(base) = &case.base {
        bench.write_table("base.db", kind, base, case.base_align_bytes);
        options.base = Some(bench.path("base.db"));
    }
    let baked = bench.bake(&texts, "new.db", &options);
    let outcome = match (case.outcome(), baked) {
        (Ok(outcome), Ok(report)) => {
            count(&coverage.baked, true);
            count(&coverage.spilled, report.runs > 1);
            count(&coverage.passes, report.merge_passes > 1);
            count(&coverage.broken_streams, 0 < report.rows_streamed && report.rows_streamed < report.rows_read);
            count(&coverage.whole_streams, 16 < report.rows_streamed && report.rows_streamed == report.rows_read);
            count(&coverage.numbers_as_text, case.keys == Keys::Auto && kind == KeyKind::Bytes && report.runs > 1);
            count(&coverage.base_changes, report.base_replaced > 0 && report.base_removed > 0);
            let reported = Outcome {
                rows: outcome.rows.clone(),
                duplicates_dropped: report.duplicates_dropped,
                base_replaced: report.base_replaced,
                base_removed: report.base_removed,
                absent_removed: report.absent_removed,
            };
            assert_eq!(reported, outcome);
            assert_eq!((report.key_type, report.rows), (kind.into(), outcome.rows.len() as u64));
            outcome
        }
        (Err((input, line)), Err(BakeError::Row { input: found, line: found_line, fault })) => {
            count(&coverage.rejected, true);
            assert!(matches!(fault, RowFault::Duplicate { .. }), "{fault}");
            assert_eq!((found, found_line), (format!("{}.csv", char::from(b'a' + input as u8)), line));
            assert!(bench.names().iter().all(|name| name == "base.db"));
            return;
        }
        (expected, found) => panic!("{expected:?} was expected, {found:?} was found"),
    };
    assert!(
        bench.bytes("new.db") == bench.expected(kind, &outcome.rows),
        "the bytes differ from those of a plain bake"
    );
    assert!(bench.names().iter().all(|name| name.ends_with(".db")), "left behind: {:?}", bench.names());
}

#[test]
fn a_bake_gives_the_rows_of_the_model() {
    let config = Config {
        cases: 120,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(11),
        max_shrink_iters: 300,
        ..Config::default()
    };
    let coverage = Coverage::default();
    let done = TestRunner::new(config).run(&case(), |case| {
        check(&case, &coverage);
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
    let Coverage { baked, rejected, spilled, passes, broken_streams, whole_streams, numbers_as_text, base_changes } =
        coverage;
    let counts = [baked, rejected, spilled, passes, broken_streams, whole_streams, numbers_as_text, base_changes];
    let counts = counts.map(Cell::into_inner);
    assert!(counts.iter().all(|count| *count >= 3), "some path was hardly covered: {counts:?}");
}

/// Numbers of 1 to 20 digits precede the only text key, so runs of numbers must be merged as text.
#[test]
fn runs_of_numbers_become_text_if_the_last_key_is_not_a_number() {
    for threads in [1, 3] {
        let bench = Bench::tight(threads);
        let numbers = (0..64).flat_map(|bits| (0..40).map(move |less| (u64::MAX >> bits).saturating_sub(less)));
        let rows: Rows = numbers.map(|number| (number.to_string(), format!("value {number}").into_bytes())).collect();
        let mut texts: Vec<String> = rows.keys().map(|key| format!("{key},value {key}\n")).collect();
        texts.sort_by_key(|row| crate::format::checksum::block_sum(row.as_bytes()).get());
        texts.push("text,last\n".to_owned());
        let report = bench.bake(&[texts.concat()], "new.db", &options(Keys::Auto)).unwrap();
        assert_eq!(report.key_type, KeyType::BYTES);
        assert!(report.runs > 2 && report.merge_passes > 1, "{} runs, {} passes", report.runs, report.merge_passes);
        let mut all = rows.clone();
        all.insert("text".to_owned(), b"last".to_vec());
        assert!(bench.bytes("new.db") == bench.expected(KeyKind::Bytes, &all));
        assert_eq!(super::open(&bench.path("new.db")).first().unwrap().map(|(key, _)| key), Some(Key::Bytes(b"0")));
    }
}
