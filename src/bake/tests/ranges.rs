//! Compares tables of ranges with a model that finds the row of each key.

use std::net::{IpAddr, Ipv4Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::Bench;
use crate::bake::{
    BakeError, Column, Duplicates, Input, Keys, Options, Overlaps, RangeEnds, RowFault, TableLayout, ValueSpec,
    bake_within,
};
use crate::format::key_type::KeyType;
use crate::{Key, Lookup, Store};

/// A start, an end, and a value, in their written forms.
type Rows = Vec<(String, String, String)>;

fn options(keys: &str, ends: RangeEnds, overlaps: Overlaps) -> Options {
    let (key, value) = match ends {
        RangeEnds::Column(_) => (Some(Column::Number(1)), ValueSpec::Column(Column::Number(3))),
        RangeEnds::Blocks => (Some(Column::Number(1)), ValueSpec::Column(Column::Number(2))),
    };
    let ranges = Some(ends);
    let keys = Keys::Type(keys.parse().unwrap());
    Options { key, value, keys, ranges, overlaps, duplicates: Duplicates::First, ..super::any_replacement() }
}

fn two_columns(keys: &str, overlaps: Overlaps) -> Options {
    options(keys, RangeEnds::Column(Column::Number(2)), overlaps)
}

fn blocks(keys: &str) -> Options {
    options(keys, RangeEnds::Blocks, Overlaps::Narrowest)
}

fn read(bench: &Bench) -> Rows {
    let store = Store::open(bench.path("new.db")).unwrap();
    let key_type = store.key_type();
    let mut rows = store.iter();
    let records = std::iter::from_fn(|| rows.next_record());
    let written = |key| key_type.display(key).to_string();
    let rows = records.map(|(record, _)| {
        let value = String::from_utf8(record.value().to_vec()).unwrap();
        (written(record.key()), written(record.end().unwrap()), value)
    });
    rows.collect()
}

fn baked(bench: &Bench, text: &str, options: &Options) -> Result<Rows, BakeError> {
    bench.bake(&[text.to_owned()], "new.db", options)?;
    Ok(read(bench))
}

fn layouts() -> impl Strategy<Value = TableLayout> {
    prop_oneof![Just(TableLayout::Fast), Just(TableLayout::Compact)]
}

fn rows(rows: &[(&str, &str, &str)]) -> Rows {
    rows.iter().map(|(start, end, value)| ((*start).into(), (*end).into(), (*value).into())).collect()
}

fn run<T: std::fmt::Debug>(cases: u32, strategy: impl Strategy<Value = T>, check: impl Fn(T)) {
    let seed = RngSeed::Fixed(46);
    let config =
        Config { cases, failure_persistence: None, rng_seed: seed, max_shrink_iters: 200, ..Config::default() };
    let done = TestRunner::new(config).run(&strategy, |case| {
        check(case);
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn each_key_has_the_value_of_the_range_that_wins_with_any_memory() {
    const LAST: u64 = 3000;
    let range = (0..LAST, 0..40_u64, 0..3_u8);
    let overlaps = prop_oneof![Just(Overlaps::First), Just(Overlaps::Last), Just(Overlaps::Narrowest)];
    let keys = prop_oneof![Just("u64"), Just("i64"), Just("ipv4"), Just("ip"), Just("date")];
    let case = (vec(range, 0..1500), overlaps, keys, layouts(), prop_oneof![Just(64_u64 << 10), Just(1 << 30)]);
    run(60, case, |(ranges, overlaps, keys, layout, memory_bytes)| {
        let layout = if keys == "ip" { TableLayout::Fast } else { layout };
        // Equal ranges are duplicates, of which the bake keeps the first.
        let mut all: Vec<(u64, u64, u8, usize)> = Vec::new();
        for (line, (start, len, value)) in ranges.into_iter().enumerate() {
            if all.iter().all(|(other, end, ..)| (*other, *end) != (start, start + len)) {
                all.push((start, start + len, value, line));
            }
        }
        let key_type: KeyType = keys.parse().unwrap();
        let written = |number: u64| match keys {
            "u64" => number.to_string(),
            "i64" => (number as i64 - 1500).to_string(),
            "date" => key_type.display(crate::Key::U64((1 << 63) + number)).to_string(),
            _ => Ipv4Addr::from(number as u32 + (10 << 24)).to_string(),
        };
        let line = |(start, end, value, _): &(u64, u64, u8, usize)| {
            format!("{},{},{}{value}\n", written(*start), written(*end), "v".repeat(60))
        };
        let text: String = all.iter().map(line).collect();
        let mut expected: Vec<(u64, u64, u8)> = Vec::new();
        for at in 0..LAST + 40 {
            let here = all.iter().filter(|(start, end, ..)| (*start..=*end).contains(&at));
            let winner = match overlaps {
                Overlaps::First | Overlaps::Error => here.min_by_key(|(.., line)| *line),
                Overlaps::Last => here.max_by_key(|(.., line)| *line),
                Overlaps::Narrowest => here.min_by_key(|(start, end, ..)| (end - start, LAST - start)),
            };
            match (winner, expected.last_mut()) {
                (Some((.., value, _)), Some((_, end, last))) if last == value && *end + 1 == at => *end = at,
                (Some((.., value, _)), _) => expected.push((at, at, *value)),
                (None, _) => {}
            }
        }
        let value = |value: u8| format!("{}{value}", "v".repeat(60));
        let expected: Rows =
            expected.into_iter().map(|(start, end, v)| (written(start), written(end), value(v))).collect();
        let bench = Bench::new(memory_bytes, 2);
        let options = Options { layout, ..two_columns(keys, overlaps) };
        let found = baked(&bench, &text, &options).unwrap();
        assert!(
            found == expected,
            "{keys}, {overlaps:?}, {layout:?}: {} rows, expected {}",
            found.len(),
            expected.len()
        );
    });
}

#[test]
fn an_address_has_the_value_of_the_longest_prefix() {
    let block = (any::<u32>().prop_map(|address| address & 0x0003_FFFF | 10 << 24), 8..=32_u32, 0..3_u8);
    run(60, (vec(block, 1..300), prop::bool::ANY), |(blocks_of, is_ipv4)| {
        let network = |address: u32, len: u32| address & u32::MAX.checked_shl(32 - len).unwrap_or(0);
        let mut all: Vec<(u32, u32, u8)> = Vec::new();
        for (address, len, value) in blocks_of {
            let network = network(address, len);
            if all.iter().all(|(other, other_len, _)| (*other, *other_len) != (network, len)) {
                all.push((network, len, value));
            }
        }
        let text: String =
            all.iter().map(|(address, len, value)| format!("{}/{len},{value}\n", Ipv4Addr::from(*address))).collect();
        let bench = Bench::tight(1);
        let found = baked(&bench, &text, &blocks(if is_ipv4 { "ipv4" } else { "ip" })).unwrap();
        let number = |text: &str| u32::from(text.parse::<Ipv4Addr>().unwrap());
        let found: Vec<(u32, u32, &str)> =
            found.iter().map(|(start, end, value)| (number(start), number(end), &value[..])).collect();
        let borders = all.iter().flat_map(|(address, len, _)| {
            let last = address | !u32::MAX.checked_shl(32 - len).unwrap_or(0);
            [address.wrapping_sub(1), *address, address + 1, last.wrapping_sub(1), last, last.wrapping_add(1)]
        });
        for address in borders {
            let longest = all.iter().filter(|(other, len, _)| network(address, *len) == *other);
            let expected = longest.max_by_key(|(_, len, _)| *len).map(|(.., value)| value.to_string());
            let row = found.iter().find(|(start, end, _)| (*start..=*end).contains(&address));
            assert_eq!(row.map(|(.., value)| (*value).to_owned()), expected, "{}", Ipv4Addr::from(address));
        }
        // The blocks of the table's ranges give the same table.
        let again: String = found
            .iter()
            .flat_map(|(start, end, value)| {
                let [start, end] = [*start, *end].map(|address| IpAddr::V4(address.into()));
                crate::cidr::Block::of_range(start, end).map(move |block| format!("{block},{value}\n"))
            })
            .collect();
        let bytes = bench.bytes("new.db");
        baked(&bench, &again, &blocks(if is_ipv4 { "ipv4" } else { "ip" })).unwrap();
        assert!(bench.bytes("new.db") == bytes, "the blocks give another table");
    });
}

#[test]
fn ranges_of_all_types_have_their_ends() {
    let bench = Bench::tight(1);
    for (keys, text, expected) in [
        (
            "u64",
            "5,9,a\n0,4,a\n20,18446744073709551615,b\n",
            &[("0", "9", "a"), ("20", "18446744073709551615", "b")][..],
        ),
        ("i64", "-5,-1,a\n0,0,a\n", &[("-5", "0", "a")]),
        (
            "date",
            "2026-01-01,2026-12-31,a\n2027-01-01,2027-01-01,b\n",
            &[("2026-01-01", "2026-12-31", "a"), ("2027-01-01", "2027-01-01", "b")],
        ),
        (
            "ip",
            "::,ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff,a\n",
            &[("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "a")],
        ),
        (
            "uuid",
            "00000000-0000-0000-0000-000000000000,0fffffffffffffffffffffffffffffff,a\n",
            &[("00000000-0000-0000-0000-000000000000", "0fffffff-ffff-ffff-ffff-ffffffffffff", "a")],
        ),
        (
            "bytes,date",
            "\"u,2026-02-01\",2026-03-01,b\n\"u,2026-01-01\",2026-01-31,b\n\"a,2026-03-02\",2026-03-02,b\n",
            &[("a,2026-03-02", "a,2026-03-02", "b"), ("u,2026-01-01", "u,2026-03-01", "b")],
        ),
    ] {
        assert_eq!(baked(&bench, text, &two_columns(keys, Overlaps::Error)).unwrap(), rows(expected), "{keys}");
    }
    let text = "\"x,10.0.0.0/8\",a\n\"x,10.1.0.0/16\",b\n\"y,::/0\",c\n";
    let expected = [
        ("x,10.0.0.0", "x,10.0.255.255", "a"),
        ("x,10.1.0.0", "x,10.1.255.255", "b"),
        ("x,10.2.0.0", "x,10.255.255.255", "a"),
        ("y,::", "y,ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "c"),
    ];
    assert_eq!(baked(&bench, text, &blocks("bytes,ip")).unwrap(), rows(&expected));
}

#[test]
fn bad_ranges_are_rejected_with_their_places() {
    let bench = Bench::tight(1);
    let message = |text: &str, options: &Options| baked(&bench, text, options).unwrap_err().to_string();
    let numbers = two_columns("u64", Overlaps::Error);
    for (text, expected) in [
        ("1,9,a\n20,30,b\n9,12,c\n", "a.csv:3: the range 9 to 12 overlaps the one on line 1: "),
        ("9,1,a\n", "a.csv:1: the range starts at 9 and ends at 1, before its start: "),
        ("1,x,a\n", "a.csv:1: the end of the range \"x\" is not a number from 0 to "),
        ("x,1,a\n", "a.csv:1: the start of the range \"x\" is not a number from 0 to "),
    ] {
        let found = message(text, &numbers);
        assert!(found.starts_with(expected), "{found}");
    }
    let equal = Options { duplicates: Duplicates::Error, ..numbers };
    let found = message("1,9,a\n1,9,b\n", &equal);
    assert!(found.starts_with("a.csv:2: the range 1 to 9 is already on line 1: remove one"), "{found}");
    let found = message("10.0.0.0/8,a\n10.0.0.1/8,b\n", &blocks("ip"));
    assert!(found.starts_with("a.csv:2: \"10.0.0.1/8\" is an address inside the block 10.0.0.0/8: "), "{found}");
    let found = message("::/8,a\n", &blocks("ipv4"));
    assert!(found.starts_with("a.csv:1: the start of the range \"::\" is not an IPv4 address"), "{found}");
    let found = baked(&bench, "1,2,a\n", &two_columns("bytes", Overlaps::Error));
    assert!(matches!(found, Err(BakeError::RangeKeys { .. })), "{found:?}");
    let unknown = Options { keys: Keys::Auto, ..two_columns("u64", Overlaps::Error) };
    assert!(matches!(baked(&bench, "1,2,a\n", &unknown), Err(BakeError::RangeKeysUnknown)));
    let found = baked(&bench, "1,5,a\n5,6,b\n", &two_columns("u64", Overlaps::Error));
    assert!(matches!(found, Err(BakeError::Row { fault: RowFault::Overlap { is_equal: false, .. }, .. })), "{found:?}");
}

/// A start, an end, and a value; `None` is a deletion.
type Drawn = Vec<(u64, u64, Option<u8>)>;

/// Returns ranges of which no two are equal, because duplicates have a policy of their own.
fn unequal(drawn: Vec<(u64, u64, u8)>) -> Drawn {
    let mut ranges = Drawn::new();
    for (start, len, value) in drawn {
        if ranges.iter().all(|(other, end, _)| (*other, *end) != (start, start + len)) {
            ranges.push((start, start + len, Some(value).filter(|value| *value < 3)));
        }
    }
    ranges
}

fn text_of(ranges: &Drawn) -> String {
    let value = |value: &Option<u8>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    ranges.iter().map(|(start, end, of_row)| format!("{start},{end},{}\n", value(of_row))).collect()
}

/// Joins adjacent keys with equal values.
fn joined(value_at: impl Fn(u64) -> Option<u8>, last: u64) -> Drawn {
    let mut ranges = Drawn::new();
    for at in 0..=last {
        match (value_at(at), ranges.last_mut()) {
            (None, _) => {}
            (value, Some((_, end, of_last))) if *end + 1 == at && *of_last == value => *end = at,
            (value, _) => ranges.push((at, at, value)),
        }
    }
    ranges
}

fn written(ranges: &Drawn) -> Rows {
    let row =
        |(start, end, value): &(u64, u64, Option<u8>)| (start.to_string(), end.to_string(), value.unwrap().to_string());
    ranges.iter().map(row).collect()
}

fn winner(ranges: &Drawn, at: u64, overlaps: Overlaps) -> Option<&(u64, u64, Option<u8>)> {
    let here = ranges.iter().enumerate().filter(|(_, (start, end, _))| (*start..=*end).contains(&at));
    let winner = match overlaps {
        Overlaps::First | Overlaps::Error => here.min_by_key(|(line, _)| *line),
        Overlaps::Last => here.max_by_key(|(line, _)| *line),
        Overlaps::Narrowest => here.min_by_key(|(_, (start, end, _))| (end - start, u64::MAX - start)),
    };
    winner.map(|(_, range)| range)
}

#[test]
fn rows_and_deletions_take_their_keys_from_the_ranges_of_the_base() {
    const LAST: u64 = 400;
    let drawn = |count| vec((0..LAST, 0..20_u64, 0..4_u8), 0..count).prop_map(unequal);
    let overlaps = prop_oneof![Just(Overlaps::First), Just(Overlaps::Last), Just(Overlaps::Narrowest)];
    let memory = prop_oneof![Just(64_u64 << 10), Just(1 << 30)];
    let case = (drawn(60), drawn(60), overlaps, memory, [layouts(), layouts()]);
    run(40, case, |(old, new, overlaps, memory_bytes, [old_layout, layout])| {
        let bench = Bench::new(memory_bytes, 2);
        let old_rows = joined(|at| winner(&old, at, Overlaps::First).and_then(|row| row.2), LAST + 20);
        let marked =
            |layout, overlaps| Options { layout, delete_marker: Some(b"-".to_vec()), ..two_columns("u64", overlaps) };
        assert_eq!(baked(&bench, &text_of(&old), &marked(old_layout, Overlaps::First)).unwrap(), written(&old_rows));
        let base = Options { base: Some(bench.path("new.db")), compare_rows: true, ..marked(layout, overlaps) };
        let report = bench.bake(&[text_of(&new)], "new.db", &base).unwrap();
        let value_at = |at| match winner(&new, at, overlaps) {
            Some((.., value)) => *value,
            None => winner(&old_rows, at, Overlaps::Error).and_then(|row| row.2),
        };
        let expected = written(&joined(value_at, LAST + 20));
        assert_eq!(read(&bench), expected);
        let share = |one: &(u64, u64, _), other: &(u64, u64, _)| one.0 <= other.1 && other.0 <= one.1;
        let changed = old_rows.iter().filter(|old| new.iter().any(|new| share(old, new))).count();
        assert_eq!(report.base_replaced + report.base_removed, changed as u64);
        let takes_keys = |new_row: &&(u64, u64, Option<u8>)| {
            (new_row.0..=new_row.1).any(|at| {
                winner(&new, at, overlaps) == Some(*new_row) && winner(&old_rows, at, Overlaps::Error).is_some()
            })
        };
        let absent = new.iter().filter(|row| row.2.is_none()).filter(|row| !takes_keys(row)).count();
        assert_eq!(report.absent_removed, absent as u64);
        // A direct bake of the rows gives the same file.
        let bytes = bench.bytes("new.db");
        let text: String = expected.iter().map(|(start, end, value)| format!("{start},{end},{value}\n")).collect();
        baked(&bench, &text, &Options { layout, ..two_columns("u64", Overlaps::Error) }).unwrap();
        assert!(bench.bytes("new.db") == bytes);
    });
}

#[test]
fn merged_tables_of_ranges_give_the_table_of_all_their_rows() {
    const LAST: u64 = 400;
    let drawn = || vec((0..LAST, 0..20_u64, 0..3_u8), 0..60).prop_map(unequal);
    let overlaps = prop_oneof![Just(Overlaps::First), Just(Overlaps::Last), Just(Overlaps::Narrowest)];
    let keys = prop_oneof![Just("u64"), Just("ip"), Just("bytes,u64")];
    run(40, (drawn(), drawn(), overlaps, keys, [layouts(), layouts()]), |(a, b, overlaps, keys, layouts)| {
        let bench = Bench::tight(2);
        let layouts = if keys == "u64" { layouts } else { [TableLayout::Fast; 2] };
        let key = |number: u64| match keys {
            "ip" => Ipv4Addr::from(number as u32).to_string(),
            "bytes,u64" => format!("k,{number}"),
            _ => number.to_string(),
        };
        let text = |ranges: &Drawn| -> String {
            let end = |end: u64| if keys == "bytes,u64" { end.to_string() } else { key(end) };
            ranges.iter().map(|(s, e, value)| format!("\"{}\",{},{}\n", key(*s), end(*e), value.unwrap())).collect()
        };
        let mut rows = Drawn::new();
        for (name, drawn) in [("a.db", &a), ("b.db", &b)] {
            let options = Options { layout: layouts[0], ..two_columns(keys, Overlaps::First) };
            bench.bake(&[text(drawn)], name, &options).unwrap();
            let of_table = joined(|at| winner(drawn, at, Overlaps::First).and_then(|row| row.2), LAST + 20);
            // Of equal ranges, the options keep the first one.
            let is_new = |row: &(u64, u64, _)| rows.iter().all(|other| (other.0, other.1) != (row.0, row.1));
            let new: Vec<_> = of_table.into_iter().filter(is_new).collect();
            rows.extend(new);
        }
        let policy = |overlaps| {
            let layout = layouts[1];
            Options { layout, overlaps, duplicates: Duplicates::First, ..super::any_replacement() }
        };
        bench.merge(&["a.db", "b.db"], "new.db", &policy(overlaps)).unwrap();
        let expected = joined(|at| winner(&rows, at, overlaps).and_then(|row| row.2), LAST + 20);
        let expected: Rows =
            expected.iter().map(|(s, e, value)| (key(*s), key(*e), value.unwrap().to_string())).collect();
        assert_eq!(read(&bench), expected);
        let has_overlap = rows
            .iter()
            .enumerate()
            .any(|(i, one)| rows[i + 1..].iter().any(|other| one.0 <= other.1 && other.0 <= one.1));
        let found = bench.merge(&["a.db", "b.db"], "new.db", &policy(Overlaps::Error));
        let is_refused =
            matches!(found, Err(BakeError::TableRow { fault: RowFault::Overlap { is_equal: false, .. }, .. }));
        assert!(is_refused == has_overlap && found.is_ok() != has_overlap, "{found:?}");
    });
}

#[test]
fn tables_of_ranges_are_updated_and_merged_with_messages_that_name_their_rows() {
    let bench = Bench::tight(1);
    let numbers = two_columns("u64", Overlaps::Error);
    bench.bake(&["1,5,a\n10,20,b\n".to_owned()], "a.db", &numbers).unwrap();
    bench.bake(&["6,6,c\n20,30,d\n".to_owned()], "b.db", &numbers).unwrap();
    bench.merge(&["a.db"], "copy.db", &super::any_replacement()).unwrap();
    assert!(bench.bytes("copy.db") == bench.bytes("a.db"));
    let merged = |tables: &[&str], options: &Options| bench.merge(tables, "new.db", options).unwrap_err().to_string();
    let found = merged(&["a.db", "b.db"], &super::any_replacement());
    let expected = "b.db: row 1: the range 20 to 30 overlaps the one on row 1 of ";
    assert!(found.contains(expected) && found.ends_with("a.db: correct one, or choose which row wins"), "{found}");
    let found = merged(&["a.db", "copy.db"], &super::any_replacement());
    assert!(found.contains("copy.db: row 0: the range 1 to 5 is already on row 0 of "), "{found}");

    let updated = |text: &str, options: &Options| {
        let base = Options { base: Some(bench.path("a.db")), keys: Keys::Auto, ..options.clone() };
        baked(&bench, text, &base).map_err(|error| error.to_string())
    };
    let found = updated("4,11,x\n", &numbers).unwrap();
    assert_eq!(found, rows(&[("1", "3", "a"), ("4", "11", "x"), ("12", "20", "b")]));
    let found = updated("4,11,x\n11,12,y\n", &numbers).unwrap_err();
    assert!(found.starts_with("a.csv:2: the range 11 to 12 overlaps the one on line 1"), "{found}");
    let found = updated("4,b\n", &super::any_replacement()).unwrap_err();
    assert!(found.ends_with("is a table of ranges: bake ranges as well, or choose another base"), "{found}");

    bench.bake(&["4,b\n".to_owned()], "single.db", &super::any_replacement()).unwrap();
    let found = merged(&["single.db", "a.db"], &super::any_replacement());
    assert!(found.contains("a.db is a table of ranges, and ") && found.contains("single.db is not"), "{found}");
    let base = Options { base: Some(bench.path("single.db")), ..numbers.clone() };
    let found = baked(&bench, "1,2,a\n", &base).unwrap_err().to_string();
    assert!(found.ends_with("single.db has no ranges: bake single keys, or choose another base"), "{found}");
    let some = Some("0-99".parse().unwrap());
    let slots = Options { slots: some, ..super::any_replacement() };
    let found = merged(&["a.db", "b.db"], &slots);
    assert!(found.starts_with("a table of ranges cannot be divided by slots"), "{found}");
    let found = baked(&bench, "1,2,a\n", &Options { slots: some, ..numbers });
    assert!(matches!(found, Err(BakeError::DividedRanges)), "{found:?}");
}

#[test]
fn ranges_inside_each_other_must_fit_into_memory() {
    let bench = Bench::new(16 << 20, 2);
    let value = "v".repeat(10_000);
    let text = |count: u64| (0..count).map(|i| format!("{i},{},{i}{value}\n", 1_000_000 - i)).collect::<String>();
    let options = two_columns("u64", Overlaps::Narrowest);
    let found = baked(&bench, &text(300), &options).unwrap();
    assert_eq!((found.len(), &found[299].2[..4], &found[598].2[..2]), (599, "299v", "0v"));
    let error = baked(&bench, &text(600), &options).unwrap_err();
    let BakeError::NestedRanges { range, count, held_bytes, max_bytes } = &error else { panic!("{error}") };
    assert!(*held_bytes > *max_bytes && *max_bytes == 4 << 20 && (300..600).contains(count), "{error}");
    assert_eq!(*range, format!("{} to {}", count - 1, 1_000_001 - *count as u64));
    // Ranges beside each other are not in memory at once.
    let beside: String = (0..600).map(|i| format!("{i},{i},{i}{value}\n")).collect();
    assert_eq!(baked(&bench, &beside, &options).unwrap().len(), 600);
}

#[test]
fn ranges_in_memory_give_the_same_file_as_ranges_in_text() {
    let bench = Bench::tight(2);
    let bake_memory = |rows: &[(&str, &str, &str)], options: &Options| {
        let mut rows = rows.iter();
        let input = Input::rows("rows", |piece| {
            for (start, end, value) in rows.by_ref().take(2) {
                piece.push_range(Key::Bytes(start.as_bytes()), end, value);
            }
            Ok(())
        });
        bake_within(bench.budget.clone(), vec![input], &bench.path("new.db"), options, &mut |_| ())
    };
    for (keys, rows) in [
        ("u64", [("5", "9", "a"), ("1", "4", "a"), ("10", "10", "b")]),
        ("ip", [("10.0.0.0", "10.0.0.9", "a"), ("::1", "::2", "b"), ("10.0.0.10", "10.1.0.0", "a")]),
        (
            "bytes,date",
            [
                ("u,2026-01-01", "2026-01-09", "a"),
                ("v,2026-01-02", "2026-01-03", "a"),
                ("t,0001-01-01", "0001-01-02", "b"),
            ],
        ),
    ] {
        let options = two_columns(keys, Overlaps::Error);
        let text: String = rows.iter().map(|(start, end, value)| format!("\"{start}\",{end},{value}\n")).collect();
        let expected = baked(&bench, &text, &options).unwrap();
        let bytes = bench.bytes("new.db");
        bake_memory(&rows, &Options { key: None, value: ValueSpec::Unnamed, ..options.clone() }).unwrap();
        assert!(bench.bytes("new.db") == bytes, "{keys}: {:?} instead of {expected:?}", read(&bench));
    }
    let options = two_columns("u64", Overlaps::Error);
    let found = bake_memory(&[("1", "2", "a"), ("5", "", "b")], &options).unwrap_err().to_string();
    assert!(found.starts_with("rows:2: the end of the range \"\" is not a number"), "{found}");
}
