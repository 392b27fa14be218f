//! The committed tables are what `datasets/README.md` says they are.

#![cfg(feature = "bake")]

use std::fs::{self, File};
use std::path::Path;

use zero_kv::Store;
use zero_kv::bake::{self, Options};

fn dataset(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The number in the README's table row of this name.
fn readme_number(name: &str) -> usize {
    let readme = dataset("README.md");
    let cell = readme.lines().find_map(|line| line.strip_prefix(&format!("| {name} | ")));
    let digits: String = cell.expect(name).chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect(name)
}

#[test]
fn the_unicode_names_bake_and_answer() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("names.db");
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets/unicode-names.csv");
    bake::bake_csv(File::open(input).unwrap(), &output, &Options::default(), &mut |_| ()).unwrap();

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
    // Inside a range of which only the ends are listed; not assigned; the last code point.
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
