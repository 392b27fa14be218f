//! Tables of ranges that are updated and merged.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use zero_kv::typed::{ColumnBuffers, Projection};
use zero_kv::{Lookup, Store};

use crate::helpers::baker_runs::Folder;

/// Returns the ranges of a table, as lines of text.
fn ranges(folder: &Folder, name: &str) -> String {
    let store = Store::open(folder.path(name)).unwrap();
    let key_type = store.key_type();
    let rows = store.iter().map(|row| store.cover(row.unwrap().0).unwrap().expect("the start is in its range"));
    rows.map(|(start, end, value)| {
        let [start, end] = [start, end].map(|key| key_type.display(key).to_string());
        format!("{start}-{end} {}\n", String::from_utf8_lossy(value))
    })
    .collect()
}

#[test]
fn an_update_takes_keys_from_the_ranges_of_the_base_and_reports_them() {
    let folder = Folder::new();
    folder.bake_text("10.0.0.0/8,a\n192.0.2.0/24,b\n198.51.100.0/24,c\n", &["--cidr", "1"]).succeeds();
    let update = ["--base", "storage.db", "--cidr", "1", "--delete-marker", "gone", "--verify", "full"];
    let ended = folder.bake_text("10.1.0.0/16,d\n192.0.2.0/25,gone\n203.0.113.0/24,gone\n", &update);
    let counts = "storage.db: 5 rows (1 replaced, 1 removed, 1 removals of absent keys), ";
    assert!(ended.succeeds().out.starts_with(counts), "{}", ended.out);
    let expected = "10.0.0.0-10.0.255.255 a\n10.1.0.0-10.1.255.255 d\n10.2.0.0-10.255.255.255 a\n\
                    192.0.2.128-192.0.2.255 b\n198.51.100.0-198.51.100.255 c\n";
    assert_eq!(ranges(&folder, "storage.db"), expected);
    folder.bake_text("10.2.0.0/15,e\n", &["--base", "storage.db"]).fails(
        "the base storage.db is a table of ranges: bake ranges as well, or choose another base (--ranges or --cidr)",
    );
}

#[test]
fn typed_ranges_are_updated_with_columns_that_the_base_lacks() {
    let folder = Folder::new();
    let typed = ["--header", "--ranges", "from,to", "--keys", "date", "--quiet"];
    let base = [&typed[..], &["--types", "plan:text"]].concat();
    folder.bake_text("from,to,plan\n2026-01-01,2026-12-31,free\n", &base).succeeds();
    let update = [&typed[..], &["--types", "plan:text,price:f64?", "--base", "storage.db"]].concat();
    folder.bake_text("from,to,plan,price\n2026-03-01,2026-03-31,pro,9.5\n", &update).succeeds();
    let store = Store::open(folder.path("storage.db")).unwrap();
    let keys: Vec<_> = ["2026-02-28", "2026-03-01", "2026-04-01", "2027-01-01"]
        .iter()
        .map(|date| store.key_type().parse(date.as_bytes()).unwrap())
        .collect();
    let keys: Vec<_> = keys.iter().map(|key| key.as_key()).collect();
    let columns = store.cover_columns(&keys, &["price", "plan"]).unwrap();
    assert_eq!(columns.column(0).is_valid, [false, true, false, false]);
    assert_eq!(columns.column(1).is_valid, [true, true, true, false]);
    let schema = store.schema().unwrap();
    let mut buffers = ColumnBuffers::new(&schema, &Projection::new(&schema, &["price", "plan"]).unwrap());
    store.cover_fill_columns(&keys, &mut buffers).unwrap();
    assert_eq!(buffers.into_columns(), columns.into_columns());
    let starts: Vec<_> = store.iter().map(|row| row.unwrap().0).collect();
    let of_starts = store.get_columns(&starts, &["price", "plan"]).unwrap();
    assert_eq!(of_starts.into_columns(), store.cover_columns(&starts, &["price", "plan"]).unwrap().into_columns());
}

#[test]
fn merged_tables_follow_the_policy_for_overlaps() {
    let folder = Folder::new();
    folder.bake_text("1,10,a\n", &["--ranges", "1,2", "-o", "a.db"]).succeeds();
    folder.bake_text("4,20,b\n30,40,c\n", &["--ranges", "1,2", "-o", "b.db"]).succeeds();
    folder.bake(&["merge", "a.db", "b.db"]).fails(
        "b.db: row 0: the range 4 to 20 overlaps the one on row 0 of a.db: correct one, or choose which row wins \
         (--overlaps first, --overlaps last, or --overlaps narrowest)",
    );
    for (overlaps, expected) in [
        ("first", "1-10 a\n11-20 b\n30-40 c\n"),
        ("last", "1-3 a\n4-20 b\n30-40 c\n"),
        ("narrowest", "1-10 a\n11-20 b\n30-40 c\n"),
    ] {
        folder.bake(&["merge", "a.db", "b.db", "--overlaps", overlaps]).succeeds();
        assert_eq!(ranges(&folder, "storage.db"), expected, "{overlaps}");
    }
    folder.bake(&["merge", "a.db", "--shards", "2", "-o", "shards"]).fails(
        "a table of ranges cannot be divided by slots, because the range that contains a key can begin with a key of \
         any slot: bake one table with all rows",
    );
}

#[test]
fn addresses_at_the_borders_of_blocks_have_the_rows_that_the_reader_of_maxmind_finds() {
    let folder = Folder::new();
    let dataset = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets").join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    folder.bake_text(dataset("asn-blocks.csv"), &["--cidr", "1"]).succeeds();
    let store = Store::open(folder.path("storage.db")).unwrap();
    let (mut in_blocks, mut outside) = (0, 0);
    for line in dataset("asn-borders.csv").lines() {
        let (address, expected) = line.split_once(',').unwrap();
        let key = store.key(address.parse::<IpAddr>().unwrap()).unwrap();
        let found = store.cover(key.as_key()).unwrap().map(|(.., number)| str::from_utf8(number).unwrap());
        assert_eq!(found.unwrap_or_default(), expected, "{address}");
        *(if expected.is_empty() { &mut outside } else { &mut in_blocks }) += 1;
    }
    assert_eq!((in_blocks, outside), (2820, 256));
}
