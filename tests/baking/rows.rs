//! The rows that `baker` accepts.

use crate::helpers::baker_runs::{Folder, rows};

#[track_caller]
fn assert_bakes<const N: usize>(text: impl AsRef<[u8]>, args: &[&str], expected: [(u64, &[u8]); N]) {
    let folder = Folder::new();
    folder.bake_text(text, args).succeeds();
    assert_eq!(folder.rows(), rows(expected));
}

#[test]
fn rows_end_with_any_line_end_or_with_the_input() {
    let expected: [(u64, &[u8]); 2] = [(1, b"one"), (2, b"two")];
    for text in ["2,two\n1,one\n", "2,two\n1,one", "2,two\r\n1,one\r\n", "2,two\r\n1,one", "\n2,two\n\n\r\n1,one\n\n"] {
        assert_bakes(text, &[], expected);
    }
}

#[test]
fn a_byte_order_mark_is_skipped() {
    assert_bakes(b"\xef\xbb\xbf1,one\n", &[], [(1, b"one")]);
    assert_bakes(b"\xef\xbb\xbf\"1\",one\n", &[], [(1, b"one")]);
    assert_bakes(b"\xef\xbb\xbfid,name\n1,one\n", &["--header", "--key", "id"], [(1, b"one")]);
    assert_bakes(b"1,\xef\xbb\xbfone\n", &[], [(1, b"\xef\xbb\xbfone")]);
}

#[test]
fn quoted_values_hold_delimiters_quotes_and_line_ends() {
    let text = "1,\"a,b\"\n2,\"say \"\"so\"\"\"\n3,\"two\r\nlines\n\"\n\"4\",\"\"\"\"\n5,\"\"\n6,\n7,5\" pipe\n";
    assert_bakes(
        text,
        &[],
        [(1, b"a,b"), (2, b"say \"so\""), (3, b"two\r\nlines\n"), (4, b"\""), (5, b""), (6, b""), (7, b"5\" pipe")],
    );
}

#[test]
fn values_need_not_be_text() {
    let mut text = b"1,".to_vec();
    let value: Vec<u8> = (0..=255).filter(|byte| !b"\",\r\n".contains(byte)).collect();
    text.extend_from_slice(&value);
    text.extend_from_slice(b"\n2,\" \"\n3,  spaced  \n");
    assert_bakes(text, &[], [(1, &value), (2, b" "), (3, b"  spaced  ")]);
}

#[test]
fn the_least_and_the_greatest_key_are_accepted() {
    let text = "18446744073709551615,greatest\n0,least\n007,leading zeros\n9223372036854775808,middle\n";
    let expected: [(u64, &[u8]); 4] =
        [(0, b"least"), (7, b"leading zeros"), (1 << 63, b"middle"), (u64::MAX, b"greatest")];
    assert_bakes(text, &[], expected);
}

#[test]
fn any_byte_except_a_quote_or_a_line_end_can_be_the_delimiter() {
    for (delimiter, byte) in [(";", ';'), ("\\t", '\t'), ("\t", '\t'), ("|", '|'), (" ", ' ')] {
        let text = format!("1{byte}a,b\n2{byte}\"c{byte}d\"\n");
        let inner = format!("c{byte}d");
        assert_bakes(&text, &["--delimiter", delimiter, "--quote", "\""], [(1, b"a,b"), (2, inner.as_bytes())]);
    }
}

#[test]
fn columns_are_chosen_by_number_or_by_name() {
    let wide = "color,id,note,code\nred,7,x,99\nblue,3,y,98\n";
    let expected: [(u64, &[u8]); 2] = [(3, b"blue"), (7, b"red")];
    assert_bakes(wide, &["--header", "--key", "id", "--value", "color"], expected);
    assert_bakes(wide, &["--header", "--key", "2", "--value", "color"], expected);
    assert_bakes(wide, &["--header", "--key", "2", "--value", "1"], expected);
    assert_bakes("red,7,x\nblue,3,y\n", &["--key", "2", "--value", "1"], expected);
    assert_bakes(wide, &["--header", "--key", "4", "--value", "3"], [(98, b"y"), (99, b"x")]);
    // With two columns, the choice of one determines the other.
    assert_bakes("red,7\nblue,3\n", &["--key", "2"], expected);
    assert_bakes("red,7\nblue,3\n", &["--value", "1"], expected);
    assert_bakes("color,id\nred,7\nblue,3\n", &["--header", "--value", "color"], expected);
    assert_bakes("id,color\n7,red\n3,blue\n", &["--header"], expected);
    assert_bakes("id,color\n", &["--header"], []);
}

#[test]
fn the_first_or_the_last_duplicate_is_kept_and_the_others_are_counted() {
    let text = "5,a\n3,b\n5,c\n5,d\n";
    for (policy, kept) in [("first", b"a"), ("last", b"d")] {
        let folder = Folder::new();
        let ended = folder.bake_text(text, &["--duplicates", policy]);
        assert!(ended.succeeds().out.contains(" 2 rows (2 duplicates dropped), "), "{}", ended.out);
        assert_eq!(folder.rows(), rows([(3, b"b"), (5, kept)]));
    }
}

#[test]
fn an_empty_input_gives_an_empty_table() {
    for (text, args) in [("", &[][..]), ("\n\r\n", &[]), ("\u{feff}", &[]), ("", &["--header"]), ("", &["--key", "9"])]
    {
        let folder = Folder::new();
        folder.bake_text(text, args).succeeds();
        assert_eq!(folder.rows(), rows([]), "{text:?} {args:?}");
    }
}

#[test]
fn the_summary_is_one_line_and_quiet_prints_nothing() {
    let folder = Folder::new();
    folder.write("rows.csv", "1,one\n2,two\n");
    let ended = folder.bake(&["rows.csv", "-o", "table.db"]);
    let out = &ended.succeeds().out;
    assert_eq!(out.matches('\n').count(), 1, "{out}");
    let bytes = std::fs::metadata(folder.path("table.db")).unwrap().len();
    let (start, rest) = out.split_once(" s, ").expect("seconds");
    let (figures, seconds) = start.rsplit_once(" in ").expect("seconds");
    folder.bake(&["rows.csv", "-o", "compact.db", "--layout", "compact"]).succeeds();
    let compact_bytes = std::fs::metadata(folder.path("compact.db")).unwrap().len();
    assert_eq!(figures, format!("table.db: 2 rows, {bytes} bytes (--layout compact: {compact_bytes})"));
    assert!(seconds.parse::<f64>().is_ok(), "{out}");
    let (rate, overhead) = rest.trim_end().split_once(" rows/s, ").expect("a rate");
    assert!(rate.parse::<f64>().is_ok_and(|rate| rate > 0.0), "{out}");
    assert_eq!(overhead, format!("{:.1} bytes of overhead per row; keys are u64", (bytes - 6) as f64 / 2.0));
    for quiet in ["--quiet", "-q"] {
        assert_eq!(folder.bake(&["rows.csv", quiet]).succeeds().out, "");
    }
    assert_eq!(folder.names(), ["compact.db", "rows.csv", "storage.db", "table.db"]);
}

#[test]
fn help_and_version_are_printed() {
    let folder = Folder::new();
    let version = folder.bake(&["-V"]);
    assert_eq!(version.succeeds().out, format!("baker {}\n", env!("CARGO_PKG_VERSION")));
    let help = folder.bake(&["--help"]);
    for option in ["--output", "--delimiter", "--header", "--key", "--value", "--keys", "--duplicates", "--quiet"] {
        assert!(help.succeeds().out.contains(option), "{option} in {}", help.out);
    }
}
