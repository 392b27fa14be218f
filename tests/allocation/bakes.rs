//! Bakes of many rows.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering;

use zero_kv::KeyValue;
use zero_kv::PartType;
use zero_kv::bake::{self, Column, Keys, Options, Overlaps, RangeEnds, ValueSpec};

use super::counting_allocator::ALLOCATIONS;

const ROWS: u32 = 20_000;
/// The rows per allocation, at least. A bake allocates for each piece of the input, and for each thread.
const ROWS_PER_ALLOCATION: u64 = 20;

pub(crate) fn rows_allocate_nothing_whatever_the_type_of_their_keys() {
    let (folder, ends) = (tempfile::tempdir().unwrap(), Column::Number(2));
    let address = |row: u32| Ipv4Addr::from(row << 8 | 10 << 24).to_string();
    let ipv6 = |row: u32, host: u64| Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(row) << 64 | u128::from(host));
    let uuid = |row: u32| KeyValue::Uuid((u128::from(row) << 96).to_be_bytes()).text(PartType::Uuid);
    type Line<'l> = &'l dyn Fn(u32) -> String;
    let cases: [(&str, Option<RangeEnds>, Line<'_>); 6] = [
        ("u64", None, &|row| format!("{row},value")),
        ("ip", None, &|row| format!("{},value", address(row))),
        ("uuid", None, &|row| format!("{},value", uuid(row))),
        ("date", None, &|row| format!("{},value", KeyValue::Date(row as i32).text(PartType::Date))),
        ("ip", Some(RangeEnds::Column(ends)), &|row| format!("{},{},{row}", ipv6(row, 0), ipv6(row, 9))),
        ("ip", Some(RangeEnds::Blocks), &|row| format!("{}/24,{row}", address(row))),
    ];
    for (keys, ranges, line) in cases {
        let text: String = (0..ROWS).map(|row| line(row) + "\n").collect();
        let value = if matches!(ranges, Some(RangeEnds::Column(_))) { 3 } else { 2 };
        let mut options = Options::default();
        (options.key, options.value) = (Some(Column::Number(1)), ValueSpec::Column(Column::Number(value)));
        (options.keys, options.overlaps) = (Keys::Type(keys.parse().unwrap()), Overlaps::Narrowest);
        options.ranges = ranges.clone();
        options.replace = zero_kv::replace::ReplaceRules::any();
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let report = bake::bake_csv(text.as_bytes(), &folder.path().join("new.db"), &options).unwrap();
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert_eq!(report.rows, u64::from(ROWS));
        println!("{keys} {ranges:?}: {allocations} allocations");
        assert!(allocations < u64::from(ROWS) / ROWS_PER_ALLOCATION, "{keys} {ranges:?}: {allocations} allocations");
    }
}
