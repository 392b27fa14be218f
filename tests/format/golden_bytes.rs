//! The baker writes the bytes that `docs/FORMAT.md` shows, and the bytes of an encoder that is written from this
//! document, except for the choice of pilots.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use zero_kv::bake::{self, Column, Keys, Options, RangeEnds, TableLayout};
use zero_kv::typed::{RowEncoder, Schema, TypedRow, Value};
use zero_kv::{Key, KeyType, Lookup, OwnedKey, PartType, Store};

use crate::helpers::encoder::{self, BLOCK_SUMS, Keyed, PILOTS, PLACES, Shape, number, put};
use crate::helpers::random::Random;
use crate::helpers::rows::{ByteRows, KeySpan, Rows, Scratch, TestKey};

const DOCUMENT: &str = include_str!("../../docs/FORMAT.md");

fn example_rows() -> Rows {
    vec![(1_000_000, b"a longer value".to_vec()), (7, b"seven".to_vec()), (40, Vec::new())]
}

/// Returns the rows of the second example.
fn byte_example_rows() -> ByteRows {
    let row = |key: &str, value: &str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
    vec![row("user:7", ""), row("user:42", "short"), row("user:1234567890", "a longer value")]
}

/// Returns the files that the document shows in lines of the form `offset: bytes  meaning`. The lines of a file must
/// follow each other without a gap; offset 0 begins the next file. The line `offset: zeros up to end  meaning` stands for
/// zeros.
fn document_files() -> [Vec<u8>; 8] {
    let mut files: Vec<Vec<u8>> = Vec::new();
    for line in DOCUMENT.lines() {
        let Some((offset, rest)) = line.split_once(": ") else { continue };
        let Ok(offset) = usize::from_str_radix(offset, 16) else { continue };
        if offset == 0 {
            files.push(Vec::new());
        }
        let bytes = files.last_mut().expect("the first offset is 0");
        assert_eq!(offset, bytes.len(), "the line before {line:?} must end where it begins");
        let (hex, meaning) = rest.split_once("  ").unwrap_or_else(|| panic!("{line:?} does not explain its bytes"));
        assert!(!meaning.trim().is_empty(), "{line:?} does not explain its bytes");
        if let Some(end) = hex.strip_prefix("zeros up to ") {
            bytes.resize(1 + usize::from_str_radix(end, 16).expect("an offset"), 0);
            continue;
        }
        bytes.extend(hex.split(' ').map(|byte| u8::from_str_radix(byte, 16).expect("two hexadecimal digits")));
    }
    files.try_into().expect("four files, a group, a key, a schema, and a row")
}

#[track_caller]
fn assert_same_bytes(found: &[u8], expected: &[u8]) {
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    assert_eq!((differs, found.len()), (None, expected.len()), "the first byte that differs, and the length");
}

/// Asserts that the baker writes these bytes for the rows, and that a file with these bytes has the rows.
fn assert_example<K: TestKey + Keyed>(rows: &[(K, Vec<u8>)], document: &[u8]) {
    let scratch = Scratch::new();
    assert_same_bytes(&scratch.bake(rows), document);
    let table: BTreeMap<K, Vec<u8>> = rows.iter().cloned().collect();
    assert_same_bytes(&without_choice(encoder::encode(&table)), &without_choice(document.to_vec()));
    let store = scratch.open(document).unwrap();
    assert_answers(&store, &table);
    assert_eq!(store.digest().to_le_bytes(), document[encoder::DIGEST]);
}

#[test]
fn the_document_shows_the_bytes_that_the_baker_writes() {
    let [numbers, bytes, ..] = document_files();
    assert_example(&example_rows(), &numbers);
    assert_example(&byte_example_rows(), &bytes);
}

#[test]
fn the_document_shows_the_bytes_of_a_table_of_ranges() {
    let [_, _, ranges, ..] = document_files();
    let key = |text: &str| -> [u8; 16] {
        KeyType::of(PartType::Ip).parse(text.as_bytes()).unwrap().as_key().as_bytes().unwrap().try_into().unwrap()
    };
    let row = |first, last, value: &str| (KeySpan { first: key(first), last: key(last) }, value.as_bytes().to_vec());
    let table = BTreeMap::from([
        row("10.0.0.0", "10.255.255.255", "private"),
        row("192.0.2.0", "192.0.2.255", "documentation"),
        row("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "documentation"),
    ]);
    assert_same_bytes(&without_choice(encoder::encode(&table)), &without_choice(ranges.clone()));
    let mut options = Options::default();
    options.keys = Keys::Type(KeyType::of(PartType::Ip));
    options.key = Some(Column::Number(1));
    options.ranges = Some(RangeEnds::Column(Column::Number(2)));
    let csv = "192.0.2.0,192.0.2.255,documentation\n10.0.0.0,10.255.255.255,private\n\
               2001:db8::,2001:db8:ffff:ffff:ffff:ffff:ffff:ffff,documentation\n";
    let scratch = Scratch::new();
    bake::bake_csv(csv.as_bytes(), &scratch.path(), &options).unwrap();
    assert_same_bytes(&fs::read(scratch.path()).unwrap(), &ranges);
    let store = scratch.open(&ranges).unwrap();
    assert_answers(&store, &table);
    for (span, value) in &table {
        for inside in [span.first, span.first.next(), span.last] {
            assert_eq!(store.cover(&inside), Ok(Some((span.key(), span.last.key(), &value[..]))));
        }
        assert_eq!(store.cover(&span.last.next()), Ok(None));
    }
    assert_eq!(store.digest().to_le_bytes(), ranges[encoder::DIGEST]);
}

#[test]
fn the_document_shows_the_bytes_of_a_table_with_the_compact_layout() {
    let [_, _, _, compact, ..] = document_files();
    let scratch = Scratch::of(TableLayout::Compact);
    let table: BTreeMap<u64, Vec<u8>> = example_rows().into_iter().collect();
    assert_same_bytes(&scratch.bake(&example_rows()), &compact);
    assert_same_bytes(&encoder::encode_compact(&table), &compact);
    assert_answers(&scratch.open(&compact).unwrap(), &table);
}

#[test]
fn the_document_shows_the_bytes_of_a_group_of_ranges() {
    let [_, _, _, _, group, ..] = document_files();
    let span = |first, last, value: &str| (KeySpan { first, last }, value.as_bytes().to_vec());
    let table = BTreeMap::from([span(10_u64, 19, "a"), span(20, 29, "b"), span(50, 50, "c")]);
    let file = encoder::encode_compact(&table);
    let (start, len) = encoder::section(&file, encoder::FENCES);
    assert_same_bytes(&file[start..start + len], &group);
    let scratch = Scratch::of(TableLayout::Compact);
    assert_same_bytes(&scratch.bake_ranges(&table), &file);
    let store = scratch.open(&file).unwrap();
    assert_answers(&store, &table);
    for (key, expected) in [(9_u64, None), (15, Some((10, 19))), (29, Some((20, 29))), (30, None), (50, Some((50, 50)))]
    {
        let found = store.cover(key).unwrap().map(|(first, last, _)| (first.as_u64().unwrap(), last.as_u64().unwrap()));
        assert_eq!(found, expected, "key {key}");
    }
}

#[test]
fn the_document_shows_the_bytes_of_a_composite_key() {
    let [.., key, _, _] = document_files();
    let key_type: KeyType = "bytes,i64,hex".parse().unwrap();
    assert_eq!(key_type.parse(b"ant,-5,0a1f").unwrap(), OwnedKey::Bytes(key));
}

#[test]
fn the_document_shows_the_bytes_of_a_schema_and_of_a_row() {
    let [.., schema_bytes, row_bytes] = document_files();
    let columns = ["price:f32", "name:text?", "stock:u16", "active:bool", "at:timestamp(ms)?"];
    let schema = Schema::new("id", columns.map(|column| column.parse().unwrap())).unwrap();
    assert_same_bytes(&schema.encode(), &schema_bytes);
    assert_eq!(Schema::decode(&schema_bytes).unwrap(), schema);
    let cells = [Value::F32(2.5), Value::Text("pen"), Value::Uint(7), Value::Bool(true), Value::Null];
    assert_same_bytes(RowEncoder::new(&schema).encode(&cells).unwrap(), &row_bytes);
    let row = TypedRow::new(&schema, &row_bytes).unwrap();
    row.check().unwrap();
    assert!(row.values().map(Result::unwrap).eq(cells));
}

/// Returns the file with zeros where the document leaves the baker a choice.
fn without_choice(mut file: Vec<u8>) -> Vec<u8> {
    // The block sums depend on the choice, too.
    for section in [PILOTS, PLACES, BLOCK_SUMS] {
        let (start, len) = encoder::section(&file, section);
        file[start..start + len].fill(0);
        put(&mut file, encoder::checksum_at(section), 0);
    }
    file[encoder::DIGEST].fill(0);
    file
}

/// Returns tables that have no, one, or several fences, pilots, and parts, and tables whose records take several
/// blocks.
fn tables() -> Vec<BTreeMap<u64, Vec<u8>>> {
    let mut random = Random(20);
    let mut tables = vec![
        BTreeMap::new(),
        BTreeMap::from([(5, b"the only one".to_vec())]),
        BTreeMap::from([(0, b"least".to_vec()), (u64::MAX, b"greatest".to_vec())]),
    ];
    for (rows, value_len_max) in [(3, 9), (17, 9), (18, 40), (19, 3), (37, 3), (700, 200), (5000, 60), (40_000, 12)] {
        let row = |_| (random.next(), { random.below(value_len_max + 1) });
        let rows: Vec<_> = (0..rows).map(row).collect();
        tables.push(rows.into_iter().map(|(key, len)| (key, random.bytes(len))).collect());
    }
    tables.push(BTreeMap::from([(1, random.bytes(3 * 4096 - 8)), (2, vec![]), (3, random.bytes(4096))]));
    // The maximum number of rows of one part, and one more.
    for rows in [32_768, 32_769] {
        tables.push((0..rows).map(|key| (key * 10, Vec::new())).collect());
    }
    tables
}

/// Returns tables of byte keys with and without a common prefix, and with keys of all lengths.
fn byte_tables() -> Vec<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut random = Random(21);
    let mut tables = vec![BTreeMap::new(), BTreeMap::from([(b"alone".to_vec(), b"the only one".to_vec())])];
    for (rows, alike) in [(3, 0), (17, 10), (18, 0), (19, 300), (37, 7), (700, 10), (5000, 0), (33_000, 2)] {
        let row = |_: usize| {
            let (key_len, value_len) = (1 + random.below(30), random.below(20));
            ([vec![b'k'; alike], random.bytes(key_len)].concat(), random.bytes(value_len))
        };
        tables.push((0..rows).map(row).collect());
    }
    // Each key is a prefix of the next, up to the longest key, so the fences are equal, or all zero.
    tables.push([1, 2, 7, 8, 9, 14, 15, 16, 17, 65_534, 65_535].map(|len| (vec![b'z'; len], vec![])).into());
    tables.push((1..100).map(|len| (vec![0; len], vec![])).collect());
    let mut alike: BTreeMap<_, _> =
        (0..100).map(|i| (format!("common beginning {i:03}").into_bytes(), vec![])).collect();
    alike.extend([(b"a".to_vec(), vec![]), (b"z".to_vec(), vec![])]);
    tables.push(alike);
    tables
}

/// Returns tables of keys of a fixed length, with and without a common prefix.
fn address_tables() -> Vec<BTreeMap<[u8; 16], Vec<u8>>> {
    let mut random = Random(22);
    let mut tables = vec![BTreeMap::new()];
    for (rows, alike) in [(1, 0), (3, 12), (19, 0), (700, 8), (5000, 15)] {
        let mut row = |_| {
            let (mut key, value_len) = ([7; 16], random.below(20));
            key[alike..].copy_from_slice(&random.bytes(16 - alike));
            (key, random.bytes(value_len))
        };
        tables.push((0..rows).map(&mut row).collect());
    }
    tables
}

/// Asserts that a store has these rows, and none of the keys next to them.
fn assert_answers<K: TestKey>(store: &Store, table: &BTreeMap<K, Vec<u8>>) {
    assert_eq!(store.len(), table.len());
    for (key, value) in table {
        assert_eq!(store.get(key.key()), Ok(Some(&value[..])), "key {key:?}");
        assert_eq!(store.floor(key.key()), Ok(Some((key.key(), &value[..]))), "key {key:?}");
        let near = key.next();
        assert_eq!(store.get(near.key()), Ok(table.get(&near).map(Vec::as_slice)), "key {near:?}");
    }
    assert!(store.iter().map(Result::unwrap).eq(table.iter().map(|(key, value)| (key.key(), &value[..]))));
}

fn assert_encoder_agrees<K: TestKey + Keyed>(tables: Vec<BTreeMap<K, Vec<u8>>>) {
    let scratch = Scratch::new();
    for table in tables {
        let mut rows: Vec<(K, Vec<u8>)> = table.clone().into_iter().collect();
        Random(3).shuffle(&mut rows);
        let encoded = encoder::encode(&table);
        assert_same_bytes(&without_choice(scratch.bake(&rows)), &without_choice(encoded.clone()));
        assert_answers(&scratch.open(&encoded).unwrap(), &table);
    }
}

#[test]
fn an_encoder_written_from_the_document_gives_the_bakers_bytes_except_its_choice() {
    assert_encoder_agrees(tables());
    assert_encoder_agrees(byte_tables());
    assert_encoder_agrees(address_tables());
}

#[test]
fn an_encoder_written_from_the_document_gives_the_bytes_of_the_compact_layout() {
    let scratch = Scratch::of(TableLayout::Compact);
    let mut tables = tables();
    // Gaps and values of all lengths, in groups of their own and together.
    tables.push(
        (0..640_u64).map(|i| (((i / 40) << (i / 40 * 3)) | ((i % 40) << 1), vec![7; (i * i % 97) as usize])).collect(),
    );
    tables.push((0..64).map(|bit| (1 << bit, vec![bit as u8; if bit == 40 { 70_000 } else { 2 }])).collect());
    for table in tables {
        let mut rows: Rows = table.clone().into_iter().collect();
        Random(3).shuffle(&mut rows);
        let encoded = encoder::encode_compact(&table);
        assert_same_bytes(&scratch.bake(&rows), &encoded);
        assert_answers(&scratch.open(&encoded).unwrap(), &table);
        assert!(encoder::rows_of_compact::<u64>(&encoded) == table);
    }
}

/// Returns tables of ranges: without gaps, with gaps of several lengths, of single keys, and with ranges that take all
/// bits.
fn range_tables() -> Vec<BTreeMap<KeySpan<u64>, Vec<u8>>> {
    let mut random = Random(24);
    let mut tables = vec![BTreeMap::new()];
    for (rows, gap_every, len_max) in
        [(1, 1, 0), (31, 1, 1), (32, 40, 7), (33, 3, 1000), (700, 2, 0), (5000, 25, 300), (3000, 1, 1 << 40)]
    {
        let mut next = random.next() >> 20;
        let row = |row: u64| {
            let first = next;
            let last = first + random.next() % (len_max + 1);
            next = last + 1 + if row.is_multiple_of(gap_every) { random.next() % 5000 + 1 } else { 0 };
            // Adjacent ranges of one value would be one range.
            (KeySpan { first, last }, [&row.to_le_bytes()[..2], &random.bytes(row as usize % 4)].concat())
        };
        tables.push((0..rows).map(row).collect());
    }
    let span = |first: u64, last: u64| (KeySpan { first, last }, first.to_le_bytes().to_vec());
    tables.push(BTreeMap::from([span(0, u64::MAX)]));
    tables.push(BTreeMap::from([span(0, 0), span(1, 1 << 63), span(u64::MAX - 1, u64::MAX)]));
    tables.push(BTreeMap::from([span(5, 1 << 34), span(1 << 35, u64::MAX - 5), span(u64::MAX, u64::MAX)]));
    tables
}

#[test]
fn an_encoder_written_from_the_document_gives_the_bytes_of_ranges_in_the_compact_layout() {
    let scratch = Scratch::of(TableLayout::Compact);
    for table in range_tables() {
        let encoded = encoder::encode_compact(&table);
        assert_same_bytes(&scratch.bake_ranges(&table), &encoded);
        let store = scratch.open(&encoded).unwrap();
        assert_answers(&store, &table);
        let read: BTreeMap<KeySpan<u64>, Vec<u8>> = encoder::rows_of_compact(&encoded);
        assert!(read == table && read.keys().map(|span| span.last).eq(table.keys().map(|span| span.last)));
        let keys: Vec<u64> = table
            .keys()
            .flat_map(|span| [span.first.wrapping_sub(1), span.first, span.last, span.last.wrapping_add(1)])
            .collect();
        let expected = keys.iter().map(|key| {
            let floor = table.range(..=KeySpan { first: *key, last: *key }).next_back();
            let range = floor.filter(|(span, _)| *key <= span.last);
            range.map(|(span, value)| (Key::U64(span.first), Key::U64(span.last), &value[..]))
        });
        assert!(store.cover_many(&keys).unwrap().into_iter().eq(expected), "{} rows", table.len());
    }
}

fn assert_slots_lead_to_records<K: TestKey + Keyed>(table: BTreeMap<K, Vec<u8>>) {
    let scratch = Scratch::new();
    let rows: Vec<(K, Vec<u8>)> = table.into_iter().collect();
    let file = scratch.bake(&rows);
    let [pilots, places] = [PILOTS, PLACES].map(|i| encoder::section(&file, i));
    let (mut used_pilots, mut used_places) = (BTreeSet::new(), BTreeSet::new());
    let mut record = 0;
    for (key, value) in &rows {
        let (pilot_at, place_at) = (encoder::pilot_at(&file, key), encoder::place_at(&file, key));
        assert!((pilots.0..pilots.0 + pilots.1).contains(&pilot_at), "key {key:?}");
        assert!((places.0..places.0 + places.1).contains(&place_at), "key {key:?}");
        assert_eq!(number_u32(&file, place_at), record / 8, "key {key:?}");
        assert!(used_places.insert(place_at), "key {key:?} has its own slot");
        used_pilots.insert(pilot_at);
        record += (key.prefix().len() + 8 + value.len()).next_multiple_of(8) as u32;
    }
    let unused = (places.0..places.0 + places.1).step_by(4).filter(|at| !used_places.contains(at));
    assert!(unused.clone().all(|at| number_u32(&file, at) == 0), "{} rows: unused slots are zero", rows.len());
    assert_eq!(unused.count() + rows.len(), places.1 / 4);
    let unused = (pilots.0..pilots.0 + pilots.1).filter(|at| !used_pilots.contains(at));
    assert!(unused.into_iter().all(|at| file[at] == 0), "{} rows: unused pilots are zero", rows.len());
}

#[test]
fn the_bakers_pilots_lead_each_key_to_its_own_slot() {
    tables().into_iter().for_each(assert_slots_lead_to_records);
    byte_tables().into_iter().for_each(assert_slots_lead_to_records);
}

/// Reads a 32-bit number, such as a place. Bytes follow even the last place of a file.
fn number_u32(file: &[u8], at: usize) -> u32 {
    number(file, at) as u32
}

#[test]
fn a_reader_accepts_any_seed_and_shape_that_works() {
    let scratch = Scratch::new();
    for rows in [1, 20, 400] {
        let table: BTreeMap<u64, Vec<u8>> = (0..rows).map(|key| (key * key, key.to_string().into_bytes())).collect();
        let files: Vec<_> = [0, 1, u64::MAX]
            .into_iter()
            .flat_map(|seed| {
                // One pilot for every key and many slots; then fewer pilots or slots than the baker chooses.
                let shapes = [(rows, rows * 40), (rows * 9, rows * 2), (rows.div_ceil(4), rows * 2), (rows, rows)];
                let shape = |(pilots, slots)| Shape { parts: 1, pilots, slots };
                shapes.map(|numbers| encoder::encode_as(&table, seed, shape(numbers)).expect("a shape that works"))
            })
            .collect();
        assert_eq!(files.len(), 12);
        for file in files {
            assert_answers(&scratch.open(&file).unwrap(), &table);
        }
    }
}

#[test]
fn the_baker_tries_the_second_seed_if_the_first_does_not_work() {
    // Nine keys that share one of three pilots, each of whose values leads two of the keys to one of ten slots.
    let tables = (0_u64..).map(|i| (i * 9..i * 9 + 9).map(|key| (key, Vec::new())).collect::<BTreeMap<_, _>>());
    let needs_second_seed = |table: &BTreeMap<u64, Vec<u8>>| {
        let seed = encoder::seed(table.keys(), 0);
        let shape = Shape::of_keys(table.keys(), seed);
        let pilots: BTreeSet<_> = table.keys().map(|key| shape.pilot(key.hash(seed))).collect();
        pilots.len() == 1 && encoder::encode_as(table, seed, shape).is_none()
    };
    let table = tables.take(200_000).find(needs_second_seed).expect("about one table in 16000");
    let rows: Rows = table.clone().into_iter().collect();
    let baked = Scratch::new().bake(&rows);
    assert_eq!(number(&baked, encoder::HASH_SEED), encoder::seed(table.keys(), 1));
    assert_same_bytes(&without_choice(baked), &without_choice(encoder::encode(&table)));
}

fn assert_order_does_not_change_the_file<K: TestKey>(table: BTreeMap<K, Vec<u8>>) {
    let scratch = Scratch::new();
    let mut rows: Vec<(K, Vec<u8>)> = table.into_iter().collect();
    let ascending = scratch.bake(&rows);
    assert_same_bytes(&scratch.bake(&rows), &ascending);
    rows.reverse();
    assert_same_bytes(&scratch.bake(&rows), &ascending);
    for seed in 0..4 {
        Random(seed).shuffle(&mut rows);
        assert_same_bytes(&scratch.bake(&rows), &ascending);
    }
}

#[test]
fn the_order_of_the_input_does_not_change_the_file() {
    assert_order_does_not_change_the_file(tables().swap_remove(8));
    assert_order_does_not_change_the_file(byte_tables().swap_remove(7));
}

#[test]
fn no_rows_give_a_header_and_padding() {
    let scratch = Scratch::new();
    let bytes = scratch.bake(&Rows::new());
    assert_same_bytes(&bytes, &encoder::encode(&BTreeMap::<u64, _>::new()));
    assert_same_bytes(&scratch.bake(&ByteRows::new()), &encoder::encode(&BTreeMap::<Vec<u8>, _>::new()));
    scratch.bake(&Rows::new());
    assert_eq!(bytes.len(), 4096);
    let store = Store::open(scratch.path()).unwrap();
    assert!(store.is_empty());
    assert_eq!((store.get(0).unwrap(), store.get(u64::MAX).unwrap(), store.iter().count()), (None, None, 0));
}
