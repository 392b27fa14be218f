//! Keys of all types: read and written in their written form on every surface, and dumped so that they bake to the same
//! file.

use zero_kv::bake::Keys;
use zero_kv::{KeyType, KeyValue, Lookup, MappedStore, PartType};

use super::both::Both;
use super::*;
use crate::helpers::key_types::KEY_TYPES;
use crate::helpers::random::{Random, seed};

/// Characters that CSV quotes, that written keys escape, or that JSON escapes. TSV has all of them.
const PIECES: &[&str] = &[",", "\\", "\"", "é", "a", " ", "\0", "#"];

fn bytes(random: &mut Random) -> String {
    (0..1 + random.below(4)).map(|_| PIECES[random.below(PIECES.len())]).collect()
}

/// Returns the field of a random part of a key.
fn part(random: &mut Random, part_type: PartType) -> String {
    let number = random.next() >> random.below(64);
    let signed = if random.below(2) == 0 { number as i64 } else { (number as i64).wrapping_neg() };
    match part_type {
        PartType::U64 => number.to_string(),
        PartType::Bytes => bytes(random),
        PartType::I64 => signed.to_string(),
        PartType::Ipv4 => std::net::Ipv4Addr::from(number as u32).to_string(),
        PartType::Ip if random.below(2) == 0 => std::net::Ipv4Addr::from(number as u32).to_string(),
        PartType::Ip => std::net::Ipv6Addr::from(u128::from(random.next()) << 64 | u128::from(number)).to_string(),
        PartType::Uuid => {
            let value = KeyValue::Uuid(random.bytes(16).try_into().unwrap());
            value.text(part_type)
        }
        PartType::Hex => (0..1 + random.below(20)).map(|_| format!("{:02x}", random.next() as u8)).collect(),
        PartType::Date => KeyValue::Date(signed as i32 % 500_000).text(part_type),
        PartType::Timestamp => KeyValue::Timestamp(signed % 100_000_000_000_000_000).text(part_type),
    }
}

/// Runs `baker` in a folder. `output` is the new table.
fn baker(folder: &Path, args: &[&str], output: &str) {
    // A table with other keys is not replaced.
    let _ = fs::remove_file(folder.join(output));
    let args = [args, &["-o", output]].concat();
    let output = Command::new(env!("CARGO_BIN_EXE_baker")).current_dir(folder).args(&args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Writes rows as CSV: the fields of the key, and the value.
fn write_csv(path: &Path, header: Option<&[&str]>, rows: &[Vec<String>]) {
    let mut csv = csv::Writer::from_path(path).unwrap();
    header.iter().for_each(|header| csv.write_record(*header).unwrap());
    rows.iter().for_each(|row| csv.write_record(row).unwrap());
    csv.flush().unwrap();
}

#[test]
fn a_dump_bakes_to_the_identical_file_for_all_key_types_and_formats() {
    let mut random = Random(seed("dumps of key types"));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for keys in KEY_TYPES {
        let key_type: KeyType = keys.parse().unwrap();
        let part_count = key_type.parts().len();
        let rows: Vec<Vec<String>> = (0..200)
            .map(|i: u32| {
                let parts = key_type.parts().iter().map(|part_type| part(&mut random, *part_type));
                parts.chain([i.to_string()]).collect()
            })
            .collect();
        let numbers: Vec<String> = (1..=part_count).map(|number| number.to_string()).collect();
        let names: Vec<String> = numbers.iter().map(|number| format!("part{number}")).collect();
        let fields: Vec<String> = numbers.iter().map(|number| format!("key{number}")).collect();
        let [numbers, names, fields] = [numbers, names, fields].map(|list| list.join(","));

        // Untyped: a field for each part, and the value.
        write_csv(&path("in.csv"), None, &rows);
        let value = (part_count + 1).to_string();
        let of_text = ["--key", &numbers, "--value", &value, "--keys", keys, "--duplicates", "last"];
        baker(folder.path(), &[&of_text[..], &["in.csv"]].concat(), "a.db");
        let of_fields = match part_count {
            1 => vec!["--keys", keys],
            _ => vec!["--key", &fields, "--value", "value", "--keys", keys],
        };
        assert_bakes_again(folder.path(), &of_text, &of_fields, keys);

        // Typed: the schema has the names of the parts.
        let columns: Vec<&str> = names.split(',').chain(["n"]).collect();
        write_csv(&path("in.csv"), Some(&columns), &rows);
        let of_names = ["--key", &names, "--keys", keys, "--types", "n:u32", "--duplicates", "last"];
        let of_header = [&of_names[..], &["--header"]].concat();
        baker(folder.path(), &[&of_header[..], &["in.csv"]].concat(), "a.db");
        assert_bakes_again(folder.path(), &of_header, &of_names, keys);

        // The lookup of every key finds its row, and prints the key as the table's writer wrote it.
        let store = MappedStore::open(path("a.db")).unwrap();
        let written: Vec<String> =
            store.iter().map(|row| key_type.display(row.unwrap().0.as_key()).to_string()).collect();
        let mut command = zkv();
        command.args(["exists", "--print", "present", "-", "--db"]).arg(path("a.db"));
        let found = output_with(command, written.join("\n").as_bytes());
        let expected: String = written.iter().map(|key| format!("{key}\n")).collect();
        assert_answer(&found, 0, expected.as_bytes());
    }
}

/// Dumps `a.db` in all formats, and bakes the dumps, text with the options `of_text`, and other formats with the options
/// `of_fields`.
fn assert_bakes_again(folder: &Path, of_text: &[&str], of_fields: &[&str], keys: &str) {
    let is_typed = of_fields.contains(&"--types");
    for format in ["csv", "tsv", "jsonl", "parquet"] {
        if format == "parquet" && !cfg!(feature = "parquet") {
            continue;
        }
        let name = format!("dump.{format}");
        assert_answer(
            &zkv().current_dir(folder).args(["dump", "a.db", "--format", format, "-o", &name]).output().unwrap(),
            0,
            b"",
        );
        let options = if matches!(format, "csv" | "tsv") { of_text } else { of_fields };
        baker(folder, &[options, &[&name]].concat(), "b.db");
        let [a, b] = ["a.db", "b.db"].map(|name| fs::read(folder.join(name)).unwrap());
        assert!(a == b, "{keys}, {format}, typed {is_typed}");
    }
}

#[cfg(feature = "parquet")]
#[test]
fn a_parquet_dump_has_uuids_that_select_the_type_of_the_keys() {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.csv"), "0190163d-8694-739b-aea5-966c26f8ad91,a\n").unwrap();
    baker(folder.path(), &["--keys", "uuid", "in.csv"], "a.db");
    let dump = ["dump", "a.db", "--format", "parquet", "-o", "dump.parquet"];
    assert_answer(&zkv().current_dir(folder.path()).args(dump).output().unwrap(), 0, b"");
    let reader = SerializedFileReader::new(fs::File::open(folder.path().join("dump.parquet")).unwrap()).unwrap();
    let column = reader.metadata().file_metadata().schema_descr().column(0);
    assert_eq!((column.logical_type_ref(), column.type_length()), (Some(&parquet::basic::LogicalType::Uuid), 16));
    baker(folder.path(), &["dump.parquet"], "b.db");
    let [a, b] = ["a.db", "b.db"].map(|name| fs::read(folder.path().join(name)).unwrap());
    assert!(a == b);
}

fn both(keys: &str, csv: &str) -> Both {
    Both::new(Keys::Type(keys.parse().unwrap()), csv.as_bytes())
}

#[test]
fn keys_of_one_part_are_read_and_printed_in_their_written_form() {
    let table = both("ip", "10.0.0.1,a\n10.0.0.255,b\n2001:db8::1,c\n2.0.0.0,d\n");
    table.assert(&["get", "10.0.0.1"], 0, "a");
    table.assert(&["get", "2001:DB8:0::1", "2.0.0.0"], 0, "2001:db8::1,c\n2.0.0.0,d\n");
    table.assert(&["floor", "10.0.0.200"], 0, "10.0.0.1,a\n");
    table.assert(&["floor", "99.0.0.1", "2.0.0.1"], 0, "99.0.0.1,10.0.0.255,b\n2.0.0.1,2.0.0.0,d\n");
    table.assert(&["ceiling", "::ffff:10.0.0.2", "--format", "json"], 0, "{\"key\":\"10.0.0.255\",\"value\":\"b\"}\n");
    table.assert(&["range", "--from", "2.0.0.1", "--before", "10.0.0.255"], 0, "10.0.0.1,a\n");
    table.assert(&["range", "--only", "keys"], 0, "2.0.0.0\n10.0.0.1\n10.0.0.255\n2001:db8::1\n");
    table.assert(&["count", "--to", "255.255.255.255"], 0, "3\n");
    table.assert(&["first"], 0, "2.0.0.0,d\n");
    table.assert(&["last", "--format", "hex"], 0, "2001:db8::1\t63\n");
    for key in ["10.0.0", "7", "10.0.0.1,", ""] {
        let (status, _, error) = table.ask_with(&["get", key], b"");
        let expected = format!("the keys of this table are ip: {key:?} is not an IP address, such as 192.0.2.1");
        assert!(status == Some(2) && error.contains(&expected), "{error}");
    }

    let table = both("i64", "-5,a\n0,b\n7,c\n");
    table.assert(&["range", "--from", "-5", "--to", "0"], 0, "-5,a\n0,b\n");
    table.assert(&["floor", "--", "-1"], 0, "-5,a\n");
    table.assert(&["first", "--format", "hex"], 0, "-5\t61\n");

    let table = both("uuid", "0190163d-8694-739b-aea5-966c26f8ad91,a\n");
    table.assert(&["get", "0190163D8694739BAEA5966C26F8AD91"], 0, "a");
    table.assert(&["last"], 0, "0190163d-8694-739b-aea5-966c26f8ad91,a\n");
}

#[test]
fn composite_keys_are_joined_and_may_lack_their_last_parts_in_ranges() {
    let table =
        both("bytes,date", "\"DE,2026-01-01\",a\n\"DE,2026-02-01\",b\n\"FR,2026-01-01\",c\n\"A\\,B,2026-01-01\",d\n");
    table.assert(&["get", "DE,2026-02-01"], 0, "b");
    table.assert(&["get", "A\\,B,2026-01-01"], 0, "d");
    table.assert(&["scan", "DE"], 0, "\"DE,2026-01-01\",a\n\"DE,2026-02-01\",b\n");
    table.assert(&["count", "--prefix", "DE"], 0, "2\n");
    table.assert(&["range", "--from", "DE", "--to", "DE"], 0, "\"DE,2026-01-01\",a\n\"DE,2026-02-01\",b\n");
    table.assert(&["count", "--after", "DE"], 0, "1\n");
    table.assert(&["count", "--before", "DE"], 0, "1\n");
    table.assert(&["count", "--from", "DE,2026-01-02", "--before", "FR,2026-01-01"], 0, "1\n");
    table.assert(&["floor", "DE,2026-12-31"], 0, "\"DE,2026-02-01\",b\n");
    let json = "{\"key1\":\"A,B\",\"key2\":\"2026-01-01\",\"value\":\"d\"}\n";
    table.assert(&["first", "--format", "json"], 0, json);
    let (status, _, error) = table.ask_with(&["get", "DE"], b"");
    let expected = "\"DE\" has 1 part, where a key has 2: bytes,date, with commas between them";
    assert!(status == Some(2) && error.contains(expected), "{error}");

    let db = table.scene.path("storage.db");
    let canaries = zkv().args(["canary", "--sample", "9"]).arg(&db).output().unwrap();
    let lines = String::from_utf8(canaries.stdout).unwrap();
    assert!(lines.starts_with("A\\,B,2026-01-01,") && lines.lines().count() == 4, "{lines}");
    let canary_file = table.scene.path("canaries");
    fs::write(&canary_file, &lines).unwrap();
    let inspected = String::from_utf8(zkv().arg("inspect").arg(&db).output().unwrap().stdout).unwrap();
    assert!(
        inspected.contains("last key      \"FR,2026-01-01\"\n") && !inspected.contains("prefix of all"),
        "{inspected}"
    );
    let other = table.scene.path("other.db");
    bake_text(&other, Keys::Type("bytes,date".parse().unwrap()), b"\"DE,2026-01-01\",a\n");
    let diff = zkv().arg("diff").args([&db, &other]).output().unwrap();
    let expected = "- \"A\\\\,B,2026-01-01\"\n- \"DE,2026-02-01\"\n- \"FR,2026-01-01\"\n\
                    3 only in A, 0 only in B, 0 changed, 1 equal\n";
    assert_answer(&diff, 1, expected.as_bytes());
}
