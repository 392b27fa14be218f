//! `--keys`: the valid keys of each kind, and how they are stored.

use zero_kv::KeyKind;
use zero_kv::Lookup;

use crate::helpers::baker_runs::Folder;
use crate::helpers::encoder::KEY_KIND;

/// Returns the rows of `storage.db`, whose keys are bytes.
fn byte_rows(folder: &Folder) -> Vec<(Vec<u8>, Vec<u8>)> {
    let store = folder.open("storage.db");
    assert_eq!(store.key_kind(), KeyKind::Bytes);
    store
        .iter()
        .map(Result::unwrap)
        .map(|(key, value)| (key.as_bytes().expect("bytes").to_vec(), value.to_vec()))
        .collect()
}

#[track_caller]
fn assert_bakes<const N: usize>(text: impl AsRef<[u8]>, args: &[&str], expected: [(&[u8], &[u8]); N]) {
    let folder = Folder::new();
    let args: Vec<&str> = ["--keys", "bytes"].iter().chain(args).copied().collect();
    folder.bake_text(text, &args).succeeds();
    assert_eq!(byte_rows(&folder), expected.map(|(key, value)| (key.to_vec(), value.to_vec())));
}

#[track_caller]
fn assert_refused(text: impl AsRef<[u8]>, args: &[&str], message: &str) {
    let folder = Folder::new();
    folder.bake_text(text, args).fails(&format!("standard input{message}"));
    assert_eq!(folder.names(), [""; 0]);
}

/// Returns the file that a bake with these keys writes.
fn baked(text: &[u8], keys: &str) -> Vec<u8> {
    let folder = Folder::new();
    folder.bake_text(text, &["--keys", keys]).succeeds();
    std::fs::read(folder.path("storage.db")).unwrap()
}

#[test]
fn keys_of_bytes_are_the_unchanged_fields() {
    assert_bakes("b,2\na,1\n", &[], [(b"a", b"1"), (b"b", b"2")]);
    // Numbers are text too: they are not trimmed or parsed.
    assert_bakes(
        "10,a\n9,b\n010,c\n 9,d\n-1,e\n",
        &[],
        [(b" 9", b"d"), (b"-1", b"e"), (b"010", b"c"), (b"10", b"a"), (b"9", b"b")],
    );
    assert_bakes("n,id\nx,K\ny,k\n", &["--header", "--key", "id", "--value", "n"], [(b"K", b"x"), (b"k", b"y")]);
}

#[test]
fn keys_may_hold_quotes_delimiters_line_ends_and_any_byte() {
    assert_bakes(
        "\"say \"\"so\"\"\",1\n\"a,b\",2\n\"two\r\nlines\n\",3\n\"\"\"\",4\n",
        &[],
        [(b"\"", b"4"), (b"a,b", b"2"), (b"say \"so\"", b"1"), (b"two\r\nlines\n", b"3")],
    );
    assert_bakes(
        b"a\0,1\n\0,2\na,3\n\xff\xfe,4\n\xc3\xa9,5\n",
        &[],
        [(b"\0", b"2"), (b"a", b"3"), (b"a\0", b"1"), (b"\xc3\xa9", b"5"), (b"\xff\xfe", b"4")],
    );
    let all: Vec<u8> = (0..=255).filter(|byte| !b"\",\r\n".contains(byte)).collect();
    assert_bakes([&all[..], b",all\n"].concat(), &[], [(&all, b"all")]);
}

#[test]
fn keys_of_bytes_are_ordered_by_their_bytes() {
    let text = "b\na\nab\naa\n\u{e9}\nB\na \nzz\nz\n~\n".replace('\n', ",v\n");
    let folder = Folder::new();
    folder.bake_text(&text, &["--keys", "bytes"]).succeeds();
    let keys: Vec<Vec<u8>> = byte_rows(&folder).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["B", "a", "a ", "aa", "ab", "b", "z", "zz", "~", "\u{e9}"].map(|key| key.as_bytes().to_vec()));
}

#[test]
fn a_key_is_1_to_65535_bytes() {
    let long = |len: usize| "k".repeat(len);
    let folder = Folder::new();
    folder.bake_text(format!("{},long\nk,short\n", long(65_535)), &["--keys", "bytes"]).succeeds();
    assert_eq!(byte_rows(&folder), [(b"k".to_vec(), b"short".to_vec()), (long(65_535).into_bytes(), b"long".to_vec())]);
    let allowed = "where 1 to 65535 are allowed: correct the row, or choose another key column (--key)";
    for keys in ["bytes", "auto"] {
        let args = ["--keys", keys];
        assert_refused("a,1\n,2\n", &args, &format!(":2: a key of 0 bytes, {allowed}"));
        assert_refused("a,1\r\n\r\n\"\",2\r\n", &args, &format!(":3: a key of 0 bytes, {allowed}"));
        for len in [65_536, 65_537, 1 << 17] {
            let text = format!("a,\"x\ny\"\n{},2\nb,3\n", long(len));
            assert_refused(text, &args, &format!(":3: a key of {len} bytes, {allowed}"));
        }
    }
}

#[test]
fn a_duplicate_key_of_bytes_is_an_error_that_names_both_lines_or_one_is_kept() {
    let remedy = "remove one, or choose which row to keep (--duplicates first or --duplicates last)";
    let keys = ["--keys", "bytes"];
    assert_refused("e,a\nc,b\ne,c\n", &keys, &format!(":3: key \"e\" is already on line 1: {remedy}"));
    // The first duplicate in the input is reported, whatever its key. An additional leading zero makes a different key.
    assert_refused(
        b"k,v\nz,a\na,b\na\0,b\nz,c\na,d\n",
        &["--keys", "bytes", "--header"],
        &format!(":5: key \"z\" is already on line 2: {remedy}"),
    );
    // The keys share their first 60 bytes, more than a message shows.
    let long = "x".repeat(60);
    assert_refused(
        format!("{long}1,a\n{long}2,b\n{long}1,c\n"),
        &keys,
        &format!(":3: key \"{}…\" is already on line 1: {remedy}", &long[..40]),
    );
    for (policy, kept) in [("first", b"a"), ("last", b"d")] {
        let folder = Folder::new();
        let ended = folder.bake_text("e,a\nc,b\ne,c\ne,d\n", &["--keys", "bytes", "--duplicates", policy]);
        assert!(ended.succeeds().out.contains(" 2 rows (2 duplicates dropped), "), "{}", ended.out);
        assert_eq!(byte_rows(&folder), [(b"c".to_vec(), b"b".to_vec()), (b"e".to_vec(), kept.to_vec())]);
    }
}

#[test]
fn the_error_for_a_duplicate_is_one_line_for_any_key() {
    let remedy = "remove one, or choose which row to keep (--duplicates first or --duplicates last)";
    let message = format!(":4: key \"a\\nb \\\"\\u{{1b}}\u{fffd}\" is already on line 2: {remedy}");
    assert_refused(b"x,1\n\"a\nb \"\"\x1b\xff\",2\n\"a\nb \"\"\x1b\xff\",3\n", &["--keys", "bytes"], &message);
}

#[test]
fn auto_takes_numbers_if_every_key_is_a_decimal_without_leading_zeros() {
    let numbers = b"7,a\n18446744073709551615,b\n0,c\n10,d\n";
    assert!(baked(numbers, "auto") == baked(numbers, "u64"));
    // A number with a leading zero, a number that is too great, a word, a sign, and a space.
    for other in ["007", "00", "18446744073709551616", "word", "+7", "-7", " 7", "7 ", "7.0", "0x7", "\u{0667}"] {
        for text in [format!("7,a\n{other},b\n9,c\n"), format!("{other},b\n7,a\n"), format!("{other},b\n")] {
            assert!(baked(text.as_bytes(), "auto") == baked(text.as_bytes(), "bytes"), "{text:?}");
        }
    }
    assert!(baked(b"", "auto") == baked(b"", "u64"), "no key is not a number");
    // Lines are reported correctly in both cases.
    let remedy = "remove one, or choose which row to keep (--duplicates first or --duplicates last)";
    let auto = ["--keys", "auto"];
    assert_refused("1,\"x\ny\"\n2,b\n1,c\n", &auto, &format!(":4: key 1 is already on line 1: {remedy}"));
    assert_refused("1,\"x\ny\"\nz,b\n1,c\n", &auto, &format!(":4: key \"1\" is already on line 1: {remedy}"));
}

#[test]
fn auto_keeps_the_same_row_of_a_duplicate_key() {
    let folder = Folder::new();
    folder.bake_text("5,a\n3,b\n5,c\n", &["--keys", "auto", "--duplicates", "last"]).succeeds();
    assert_eq!(folder.rows(), [(3, b"b".to_vec()), (5, b"c".to_vec())]);
    // 7 and 007 are one number, and two keys of bytes.
    folder.bake_text("7,a\n007,b\n", &["--keys", "auto", "--allow-key-type-change"]).succeeds();
    assert_eq!(byte_rows(&folder), [(b"007".to_vec(), b"b".to_vec()), (b"7".to_vec(), b"a".to_vec())]);
}

#[test]
fn keys_are_numbers_by_default_and_the_summary_names_their_kind() {
    let folder = Folder::new();
    for (args, kind) in
        [(&[][..], "u64"), (&["--keys", "u64"], "u64"), (&["--keys", "bytes"], "bytes"), (&["--keys", "auto"], "u64")]
    {
        let ended = folder.bake_text("7,a\n", &[args, &["--allow-key-type-change"]].concat());
        assert!(ended.succeeds().out.ends_with(&format!("; keys are {kind}\n")), "{args:?}: {}", ended.out);
    }
    assert!(baked(b"7,a\n", "u64")[KEY_KIND] == 1 && baked(b"7,a\n", "bytes")[KEY_KIND] == 2);
    let ended = folder.bake_text("7,a\n", &["--keys", "text"]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.err.contains("expected u64, i64, ipv4, ip, uuid, hex, date, timestamp, or bytes"), "{}", ended.err);
}

/// Returns the commands in the parentheses at the end of a message, without the name of the program.
fn commands(message: &str) -> Vec<Vec<String>> {
    let (_, commands) = message.trim_end().trim_end_matches(')').rsplit_once(" (").expect("parentheses");
    let words = |command: &str| {
        let args = command.strip_prefix("baker ").expect("a command").split(' ');
        args.map(|arg| arg.trim_matches('\'').to_owned()).collect()
    };
    commands.split(", or ").map(words).collect()
}

#[test]
fn the_error_for_a_text_key_in_the_first_row_has_commands_that_work() {
    for (text, args, count) in [
        ("user,age\nu1,31\n", &["users.csv"][..], 2),
        ("u1,31\n", &["--keys", "u64", "users.csv", "-o", "users.db"], 2),
        ("user,age\nu1,31\n", &["--keys=u64", "--header", "users.csv"], 1),
        ("user,age\nu1,31\n", &["--header", "--key", "user", "--types", "user:u64,age:i64?", "users.csv"], 1),
        ("user,age\nu1,31\n", &["--header", "--key=user", "--types=age:i64?", "users.csv"], 1),
    ] {
        let folder = Folder::new();
        folder.write("users.csv", text);
        let ended = folder.bake(args);
        assert_eq!(ended.status.code(), Some(1), "{args:?}: {}", ended.err);
        let key = &ended.err[..ended.err.rfind(" (").unwrap()];
        let commands = commands(&ended.err.replace("(--key, or ", "("));
        assert_eq!(commands.len(), count, "{args:?}: {key}");
        let command: Vec<_> = commands[count - 1].iter().map(String::as_str).collect();
        let ended = folder.bake(&[&command[..], &["--no-header"][usize::from(count == 1)..]].concat());
        assert_eq!((ended.status.code(), &*ended.err), (Some(0), ""), "{command:?}");
    }
    // A text key among numbers is a bad row.
    let ended = Folder::new().bake_text("1,a\nx,b\n", &[]);
    assert!(ended.err.ends_with("(--key, --keys bytes)\n"), "{}", ended.err);
}

#[test]
fn a_bake_that_infers_types_infers_the_kind_of_the_keys() {
    let folder = Folder::new();
    let args = ["--header", "--key", "user", "--typed"];
    for (text, types) in [
        ("user,age\nu_1,31\nu_2,7\n", "user:text,age:i64"),
        ("user,age\n1,31\n02,7\n", "user:text,age:i64"),
        ("user,age\n1,31\n2,7\n", "user:u64,age:i64"),
    ] {
        let again = ["--header", "--key", "user", "--types", types, "--allow-key-type-change"];
        folder.bake_text(text, &[&args[..], &["--allow-key-type-change"]].concat()).infers(types);
        let inferred = std::fs::read(folder.path("storage.db")).unwrap();
        folder.bake_text(text, &again).succeeds();
        assert!(std::fs::read(folder.path("storage.db")).unwrap() == inferred, "{types}");
    }
    let json = ["--format", "jsonl", "--key", "user", "--typed", "--allow-key-type-change"];
    folder.bake_text("{\"user\":\"u\",\"age\":1}\n", &json).infers("user:text,age:i64");
    folder.bake_text("{\"user\":\"7\",\"age\":1}\n", &json).infers("user:u64,age:i64");
    // The options decide.
    folder
        .bake_text("user,age\n1,31\n", &[&args[..], &["--keys", "bytes", "--allow-key-type-change"]].concat())
        .infers("user:bytes,age:i64");
    let ended = folder.bake_text("user,age\n1,31\nu,7\n", &[&args[..], &["--keys", "u64"]].concat());
    assert!(ended.err.contains("the key is \"u\" where"), "{}", ended.err);
}

#[test]
fn a_row_that_looks_like_a_header_is_a_warning() {
    for (text, is_header) in [
        ("user_id,name\nu1,Ann\nu2,Bob\n", true),
        ("ID,city\na,Oslo\n", true),
        ("user,age\nu1,31\nu2,7\n", true),
        ("user,born\nu1,2026-11-21\n", true),
        ("ann,Oslo\nbob,Rome\n", false),
        ("u1,Oslo\nu2,Rome\n", false),
        ("user_id,name\n", false),
        ("ann,a book\nbob,7\neve,x\n", false),
        ("ann,7\nbob,8\n", false),
    ] {
        let folder = Folder::new();
        folder.write("users.csv", text);
        for keys in ["bytes", "auto"] {
            let args = ["users.csv", "--keys", keys, "--allow-key-type-change"];
            let ended = folder.bake(&args);
            assert_eq!(ended.status.code(), Some(0), "{}", ended.err);
            if !is_header {
                assert_eq!(ended.err, "", "{text:?}");
                continue;
            }
            let start = "baker: warning: users.csv:1: the row looks like the names of columns, and is baked as a row: read it \
                         as a header, or confirm that it is a row (baker --header users.csv ";
            assert!(ended.err.starts_with(start), "{}", ended.err);
            for command in commands(&ended.err) {
                let command: Vec<_> = command.iter().map(String::as_str).collect();
                folder.bake(&command).succeeds();
            }
        }
    }
}

#[test]
fn keys_of_each_type_are_sorted_as_values_and_found_in_their_written_form() {
    for (keys, texts) in [
        ("i64", &["-9223372036854775808", "-7", "-1", "0", "1", "42", "9223372036854775807"][..]),
        ("ipv4", &["0.0.0.0", "9.0.0.1", "10.0.0.1", "192.0.2.1", "255.255.255.255"]),
        ("ip", &["::1", "9.0.0.1", "10.0.0.1", "255.255.255.255", "64:ff9b::1", "2001:db8::1", "fe80::1"]),
        ("uuid", &["00000000-0000-0000-0000-000000000000", "0190163d-8694-739b-aea5-966c26f8ad91"]),
        ("hex", &["00", "0001", "0a", "ff"]),
        ("date", &["-0044-03-15", "1969-12-31", "1970-01-01", "2026-11-29", "+10000-01-01"]),
        ("timestamp", &["1969-12-31T23:59:59.999999Z", "1970-01-01T00:00:00.000000Z", "2026-11-29T10:00:00.500000Z"]),
        ("bytes,date", &["a,2026-11-28", "a,2026-11-29", "a\\,b,1970-01-01", "ab,1970-01-01", "b,1969-12-31"]),
        ("date,i64", &["2026-11-28,5", "2026-11-29,-1", "2026-11-29,0"]),
    ] {
        let folder = Folder::new();
        // The rows of the input are in another order.
        let rows: String = texts.iter().rev().map(|text| format!("\"{text}\",value\n")).collect();
        let ended = folder.bake_text(rows, &["--keys", keys]);
        assert!(ended.succeeds().out.ends_with(&format!("; keys are {keys}\n")), "{}", ended.out);
        let store = folder.open("storage.db");
        let key_type = store.key_type();
        assert_eq!(key_type.to_string(), keys);
        let found: Vec<String> = store.iter().map(|row| key_type.display(row.unwrap().0).to_string()).collect();
        assert_eq!(found, texts, "{keys}");
        for text in texts {
            let key = key_type.parse(text.as_bytes()).unwrap();
            assert!(store.get(&key).unwrap().is_some(), "{keys}: {text}");
        }
    }
}

#[test]
fn the_parts_of_composite_keys_come_from_columns_of_all_formats() {
    let args = ["--key", "city,day", "--keys", "bytes,date", "--types", "n:u8"];
    let csv = "day,n,city\n2026-11-29,1,\"Berlin, Ost\"\n2026-11-28,2,A\\B\n";
    let jsonl = "{\"city\": \"Berlin, Ost\", \"day\": \"2026-11-29\", \"n\": 1}\n\
                 {\"city\": \"A\\\\B\", \"day\": \"2026-11-28\", \"n\": 2}\n";
    let folder = Folder::new();
    folder.bake_text(csv, &[&args[..], &["--header", "-o", "csv.db"]].concat()).succeeds();
    folder
        .bake_text(
            csv.replace(',', "\t").replace("\"Berlin\t Ost\"", "Berlin, Ost"),
            &[&args[..], &["--header", "--format", "tsv", "-o", "tsv.db"]].concat(),
        )
        .succeeds();
    folder.bake_text(jsonl, &[&args[..], &["--format", "jsonl", "-o", "jsonl.db"]].concat()).succeeds();
    // One column with the written form of the keys gives the same rows.
    let written = "\"city,day\",n\n\"Berlin\\, Ost,2026-11-29\",1\n\"A\\\\B,2026-11-28\",2\n";
    folder
        .bake_text(written, &["--header", "--key", "1", "--keys", "bytes,date", "--types", "n:u8", "-o", "one.db"])
        .succeeds();
    let file = |name: &str| std::fs::read(folder.path(name)).unwrap();
    for other in ["tsv.db", "jsonl.db", "one.db"] {
        assert!(file(other) == file("csv.db"), "{other} differs from csv.db");
    }
    let store = folder.open("csv.db");
    let (key_type, prefix) = (store.key_type(), store.key_type().parse_prefix(b"Berlin\\, Ost").unwrap());
    let found = store.prefix(prefix).unwrap().map(|row| key_type.display(row.unwrap().0).to_string());
    assert_eq!(found.collect::<Vec<_>>(), ["Berlin\\, Ost,2026-11-29"]);
    assert_eq!(store.schema().unwrap().key_name(), Some("city,day"));

    // Untyped rows: the value is the column that is left.
    folder.bake_text("a,b,1\n", &["--key", "1,2", "-o", "untyped.db"]).succeeds();
    let store = folder.open("untyped.db");
    assert_eq!(store.get(&store.key_type().parse(b"a,b").unwrap()), Ok(Some(&b"1"[..])));
    folder.bake_text("a,b,1\n", &["--key", "1,2", "--keys", "u64"]).fails(
        "2 key columns are chosen, and keys are u64: give a type for each column, with commas between them (--keys, --key)",
    );
    let inferred = folder.bake_text("city,day,n\na,b,1\n", &["--header", "--key", "city,day", "--typed", "-o", "t.db"]);
    assert!(inferred.err.contains("types: --types city:bytes,day:bytes,n:i64"), "{}", inferred.err);
    let declared = ["--header", "--key", "city,day", "--types", "city:text,day:date,n:u8", "-o", "d.db"];
    assert!(folder.bake_text(csv, &declared).succeeds().out.ends_with("keys are bytes,date\n"));
}
