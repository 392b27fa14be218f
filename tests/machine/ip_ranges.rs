//! `floor` finds the country of an address in a real table of ranges with gaps.

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use zero_kv::Lookup;
use zero_kv::bake::{Column, Keys, RangeEnds};
use zero_kv::{Key, Store};

use crate::helpers::random::Random;
use crate::helpers::rows::Scratch;
use crate::helpers::trials::{Missing, missing};

const SEED: u64 = 4;

/// First address, last address, and country.
type Range = (u64, u64, String);

/// Returns the ranges that the store contains, by iteration.
fn ranges_in(store: &Store) -> Vec<Range> {
    let row = |(key, value): (Key<'_>, &[u8])| {
        let (last, country) = end_and_country(value);
        (key.as_u64().unwrap(), last, country)
    };
    store.iter().map(Result::unwrap).map(row).collect()
}

fn end_and_country(value: &[u8]) -> (u64, String) {
    let (last, country) = std::str::from_utf8(value).unwrap().split_once(',').unwrap();
    (last.parse().unwrap(), country.to_owned())
}

/// Returns the country of an address: the floor of the address is its range, if the range extends to the address.
fn country(store: &Store, address: u64) -> Option<String> {
    let (first, value) = store.floor(address).unwrap()?;
    assert!(first <= Key::U64(address));
    let (last, country) = end_and_country(value);
    (address <= last).then_some(country)
}

/// Compares lookups with the ranges, which are in ascending order: at the ends of each range, beside them, and at
/// random addresses.
fn assert_answers(store: &Store, ranges: &[Range]) {
    assert!(ranges_in(store) == ranges, "the rows differ from the ranges");
    let gaps = ranges.windows(2).filter(|pair| pair[0].1 + 1 < pair[1].0).count();
    println!("{} ranges, {gaps} gaps, seed {SEED}", ranges.len());
    assert!(gaps > 100, "the table has too few gaps");
    let mut random = Random(SEED);
    let mut addresses: Vec<u64> = vec![0, u32::MAX.into(), u64::MAX];
    addresses.extend(ranges.iter().flat_map(|(first, last, _)| {
        [first.saturating_sub(1), *first, first + 1].into_iter().chain([last.saturating_sub(1), *last, last + 1])
    }));
    addresses.extend((0..100_000).map(|_| random.next() & u64::from(u32::MAX)));
    let (start, end) = (ranges[0].0, ranges[ranges.len() - 1].1);
    addresses.extend((0..100_000).map(|_| start + random.next() % (end - start)));
    addresses.sort_unstable();
    addresses.dedup();
    // Addresses and ranges are in ascending order, so ranges before the address can be skipped.
    let (mut left, mut found, mut missing) = (ranges, 0, 0);
    for address in addresses {
        while left.first().is_some_and(|(_, last, _)| *last < address) {
            left = &left[1..];
        }
        let expected = left.first().filter(|(first, ..)| *first <= address).map(|(.., country)| country.clone());
        match &expected {
            Some(_) => found += 1,
            None => missing += 1,
        }
        assert_eq!(country(store, address), expected, "address {address}");
    }
    assert!(found > ranges.len() && missing > gaps, "{found} in ranges, {missing} in gaps");
}

fn in_repository(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets").join(name)
}

pub(crate) fn every_address_of_the_excerpt_has_its_country_or_none() {
    let text = std::fs::read_to_string(in_repository("ip-ranges.csv")).unwrap();
    let ranges = text.lines().map(|line| {
        let fields: Vec<&str> = line.split([',', '"']).filter(|field| !field.is_empty()).collect();
        (fields[0].parse().unwrap(), fields[1].parse().unwrap(), fields[2].to_owned())
    });
    let ranges: Vec<Range> = ranges.collect();
    let scratch = Scratch::new();
    let options = zero_kv::bake::Options::default();
    zero_kv::bake::bake_csv(text.as_bytes(), &scratch.path(), &options).unwrap();
    assert_answers(&Store::open(scratch.path()).unwrap(), &ranges);
}

/// Reads a file of Debian's package tor-geoipdb, which is installed, or unpacked in the target folder.
fn tor_file(name: &str) -> Result<String, Missing> {
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../tor-geoipdb/usr/share/tor");
    let mut places = [PathBuf::from("/usr/share/tor"), built].into_iter();
    let text = places.find_map(|folder| std::fs::read_to_string(folder.join(name)).ok());
    text.ok_or_else(|| missing("tor-geoipdb", "there is no /usr/share/tor/geoip (package tor-geoipdb)"))
}

/// Bakes the ranges of a file, in random order, and looks up each border and its neighbors.
fn assert_covers(name: &str, keys: &str, number: impl Fn(&str) -> u128, text_of: impl Fn(u128) -> String) {
    let text = tor_file(name).unwrap_or_default();
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let ranges = lines.iter().map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        (number(fields[0]), number(fields[1]), fields[2])
    });
    let mut ranges: Vec<(u128, u128, &str)> = ranges.collect();
    ranges.sort_unstable();
    Random(SEED).shuffle(&mut lines);
    let mut options = zero_kv::bake::Options::default();
    options.keys = Keys::Type(keys.parse().unwrap());
    options.key = Some(Column::Number(1));
    options.ranges = Some(RangeEnds::Column(Column::Number(2)));
    let scratch = Scratch::new();
    zero_kv::bake::bake_csv((lines.join("\n") + "\n").as_bytes(), &scratch.path(), &options).unwrap();
    let store = Store::open(scratch.path()).unwrap();
    let key_type = store.key_type();
    let mut addresses: Vec<u128> = ranges
        .iter()
        .flat_map(|(first, last, _)| [first.saturating_sub(1), *first, first + 1, last - 1, *last, last + 1])
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    let (mut left, mut found, mut missing) = (&ranges[..], 0, 0);
    for address in addresses {
        while left.first().is_some_and(|(_, last, _)| *last < address) {
            left = &left[1..];
        }
        let expected = left.first().filter(|(first, ..)| *first <= address).map(|(.., country)| *country);
        let key = key_type.parse(text_of(address).as_bytes()).unwrap();
        let row = store.cover(key.as_key()).unwrap();
        if let Some((start, end, _)) = row {
            assert!(start <= key.as_key() && key.as_key() <= end, "{name}: {}", text_of(address));
        }
        assert_eq!(row.map(|(.., country)| country), expected.map(str::as_bytes), "{name}: {}", text_of(address));
        if expected.is_some() { found += 1 } else { missing += 1 }
    }
    println!(
        "{name}: {} ranges, {} rows, {found} in ranges, {missing} in gaps, seed {SEED}",
        ranges.len(),
        store.len()
    );
    assert!(found > ranges.len() && missing > 100, "{name}: {found} in ranges, {missing} in gaps");
    assert!(store.len() <= ranges.len(), "{name}: ranges with one country that touch become one row");
}

pub(crate) fn every_address_of_the_whole_table_has_its_country_or_none() -> Result<(), Missing> {
    tor_file("geoip")?;
    let number = |text: &str| text.parse().unwrap();
    assert_covers("geoip", "u64", number, |number| number.to_string());
    Ok(())
}

pub(crate) fn every_ipv6_address_of_the_whole_table_has_its_country_or_none() -> Result<(), Missing> {
    tor_file("geoip6")?;
    let number = |text: &str| text.parse::<Ipv6Addr>().unwrap().to_bits();
    assert_covers("geoip6", "ip", number, |number| Ipv6Addr::from(number).to_string());
    Ok(())
}
