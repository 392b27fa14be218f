//! The committed tables match `datasets/README.md`.

use std::fs::{self, File};
use std::path::Path;

use zero_kv::Lookup;
use zero_kv::Store;
use zero_kv::bake::{self, Options};

fn dataset(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the number in the README's table row with this name.
fn readme_number(name: &str) -> usize {
    let readme = dataset("README.md");
    let cell = readme.lines().find_map(|line| line.strip_prefix(&format!("| {name} | ")));
    let digits: String = cell.expect(name).chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect(name)
}

#[test]
fn the_unicode_names_can_be_baked_and_looked_up() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("names.db");
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets/unicode-names.csv");
    bake::bake_csv(File::open(input).unwrap(), &output, &Options::default()).unwrap();

    let store = Store::open(&output).unwrap();
    assert_eq!(store.len(), readme_number("rows"));
    for (code_point, name) in [
        (0, "<control>"),
        (65, "LATIN CAPITAL LETTER A"),
        (13312, "<CJK Ideograph Extension A, First>"),
        (128512, "GRINNING FACE"),
        (1114109, "<Plane 16 Private Use, Last>"),
    ] {
        assert_eq!(store.get(code_point).unwrap(), Some(name.as_bytes()), "{code_point}");
    }
    // A code point inside a range of which only the ends are listed, an unassigned one, and the last one.
    for absent in [13313, 0x0378, 0x10_FFFF] {
        assert_eq!(store.get(absent).unwrap(), None, "{absent}");
    }
}

#[test]
fn the_unicode_names_are_ascending_plain_lines() {
    let text = dataset("unicode-names.csv");
    assert_eq!(text.len(), readme_number("length"));
    assert_eq!(text.lines().count(), readme_number("rows"));
    assert!(text.ends_with('\n') && !text.contains('\r'));
    let keys = text.lines().map(|line| line.split(',').next().unwrap().parse::<u64>().expect(line));
    assert!(keys.is_sorted_by(|a, b| a < b));
}

#[test]
fn the_ip_ranges_ascend_and_leave_gaps() {
    let text = dataset("ip-ranges.csv");
    let ranges: Vec<(u64, u64, &str)> = text
        .lines()
        .map(|line| {
            let (first, value) = line.split_once(",\"").expect(line);
            let (last, country) = value.strip_suffix('"').and_then(|value| value.split_once(',')).expect(line);
            (first.parse().expect(line), last.parse().expect(line), country)
        })
        .collect();
    assert_eq!(ranges.len(), readme_number("ranges"));
    assert!(ranges.iter().all(|(first, last, _)| first <= last));
    assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
    let gaps = ranges.windows(2).filter(|pair| pair[0].1 + 1 < pair[1].0).count();
    assert_eq!(gaps, readme_number("gaps between them"));
    let countries: std::collections::BTreeSet<&str> = ranges.iter().map(|(.., country)| *country).collect();
    assert_eq!(countries.len(), readme_number("countries"));
}
