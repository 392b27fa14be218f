//! Inputs that `baker` rejects: the message names the reason, and nothing is left behind.

use crate::helpers::baker_runs::{Ended, Folder};

const DECIMAL: &str = "where an unsigned 64-bit decimal (0 to 18446744073709551615) was expected";
const REMEDY: &str = "correct the row, choose another key column, or take keys as bytes (--key, --keys bytes)";

/// Returns a folder with an old table in it.
fn folder_with_a_table() -> (Folder, Vec<u8>) {
    let folder = Folder::new();
    folder.bake_text("1,from before\n", &[]).succeeds();
    let before = std::fs::read(folder.path("storage.db")).unwrap();
    (folder, before)
}

#[track_caller]
fn assert_untouched(folder: &Folder, before: &[u8], names: &[&str]) {
    assert!(std::fs::read(folder.path("storage.db")).unwrap() == before, "the old file is unchanged");
    assert_eq!(folder.names(), names, "no other file is left");
}

/// Asserts that the input is rejected with this message, and that nothing has changed.
#[track_caller]
fn assert_refused(text: impl AsRef<[u8]>, args: &[&str], message: &str) {
    let (folder, before) = folder_with_a_table();
    folder.bake_text(&text, args).fails(&format!("standard input{message}"));
    assert_untouched(&folder, &before, &["storage.db"]);
    let empty = Folder::new();
    empty.bake_text(&text, args).fails(&format!("standard input{message}"));
    assert_eq!(empty.names(), [""; 0]);
}

#[test]
fn the_error_for_a_bad_key_names_its_line_and_a_remedy() {
    let cases: [(&[u8], &[&str], String); 10] = [
        (
            b"id,name\n1,a\n",
            &[],
            format!(
                ":1: the key is \"id\" {DECIMAL}: if this row names the columns, read it as a header; if keys are text, take them as bytes (baker --header -, or baker --keys bytes -)"
            ),
        ),
        (b"1,a\nx,b\n", &[], format!(":2: the key is \"x\" {DECIMAL}: {REMEDY}")),
        (b"1,a\r\n\r\n 2,b\r\n", &[], format!(":3: the key is \" 2\" {DECIMAL}: remove the spaces around it")),
        (b"1,a\n,b\n", &[], format!(":2: the key is \"\" {DECIMAL}: {REMEDY}")),
        (b"1,a\n-2,b", &[], format!(":2: the key is \"-2\" {DECIMAL}: {REMEDY}")),
        (b"1,a\n+2,b", &[], format!(":2: the key is \"+2\" {DECIMAL}: {REMEDY}")),
        (b"1,a\n18446744073709551616,b", &[], format!(":2: the key is \"18446744073709551616\" {DECIMAL}: {REMEDY}")),
        (b"n,i\nb,1\na,zz\n", &["--header", "--key", "i"], format!(":3: the key is \"zz\" {DECIMAL}: {REMEDY}")),
        (b"1,a\n\"2\n\",b", &[], format!(":2: the key is \"2\\n\" {DECIMAL}: remove the spaces around it")),
        (b"1,a\n\xff,b", &[], format!(":2: the key is \"\u{fffd}\" {DECIMAL}: {REMEDY}")),
    ];
    for (text, args, message) in cases {
        assert_refused(text, args, &message);
    }
    let long = "x".repeat(1000);
    let shown = format!(":2: the key is \"{}…\" {DECIMAL}: {REMEDY}", &long[..40]);
    assert_refused(format!("1,a\n{long},b\n"), &[], &shown);
}

#[test]
fn the_error_for_a_wrong_number_of_fields_names_the_row() {
    let unchosen = "quote the value, or choose the key and value columns (--key, --value)";
    let too_few = "give a key and a value, or set the delimiter between them (--delimiter)";
    let chosen = "give every row as many fields as the first, and quote values that hold the delimiter";
    assert_refused("1,a,b\n", &[], &format!(":1: 3 fields where 2 were expected: {unchosen}"));
    assert_refused("1\n", &[], &format!(":1: 1 field where 2 were expected: {too_few}"));
    assert_refused("1,a\n2,b,c\n", &[], &format!(":2: 3 fields where 2 were expected: {unchosen}"));
    assert_refused("1;a\n", &[], &format!(":1: 1 field where 2 were expected: {too_few}"));
    let columns = ["--key", "1", "--value", "3"];
    assert_refused("1,a,b\n2,c\n", &columns, &format!(":2: 2 fields where 3 were expected: {chosen}"));
}

#[test]
fn the_error_for_a_missing_column_names_it() {
    let wide = "color,id,note\nred,7,x\n";
    assert_refused(wide, &["--key", "4"], ": the key column 4 does not exist: the first row has 3 fields (--key)");
    assert_refused(wide, &["--key", "0"], ": the key column 0 does not exist: the first row has 3 fields (--key)");
    assert_refused(
        wide,
        &["--header", "--key", "ID", "--value", "note"],
        ": the key column \"ID\" does not exist: the header has color, id, note (--key)",
    );
    assert_refused(
        wide,
        &["--key", "id"],
        ": the key column \"id\" is a name, and no row names the columns: read the first row as a header, or give a number (--header, --key)",
    );
    assert_refused(
        wide,
        &["--header", "--key", "id"],
        ": rows have 3 fields: choose the value column as well (--value)",
    );
    assert_refused(wide, &["--value", "1"], ": rows have 3 fields: choose the key column as well (--key)");
}

#[test]
fn the_error_for_a_duplicate_names_both_lines() {
    let say = |line: u64, key: u64, first: u64| {
        format!(
            ":{line}: key {key} is already on line {first}: \
             remove one, or choose which row to keep (--duplicates first or --duplicates last)"
        )
    };
    assert_refused("5,a\n3,b\n5,c\n", &[], &say(3, 5, 1));
    assert_refused("k,v\n5,a\n3,b\n5,c\n", &["--header"], &say(4, 5, 2));
    assert_refused("1,\"x\r\ny\"\r\n\r\n2,\"3\n\n\"\r\n1,z\r\n", &[], &say(7, 1, 1));
    assert_refused("9,z\n1,\"x\ny\"\n2,b\n1,\"three\nmore\nlines\"", &[], &say(5, 1, 2));
    // The first duplicate in the input is reported, whatever its key.
    assert_refused("9,a\n1,b\n9,c\n1,d\n", &[], &say(3, 9, 1));
}

#[test]
fn lines_are_counted_correctly_in_a_long_input() {
    let mut text = Vec::new();
    let mut line = 1;
    for key in 0..60_000 {
        let (row, lines) = match key % 4 {
            0 => (format!("{key},plain\r\n"), 1),
            1 => (format!("{key},\"two\nlines, \"\"quoted\"\"\"\n"), 2),
            2 => (format!("\"{key}\",\"with\r\nline\r\nends\r\n\"\r\n"), 4),
            _ => (format!("\n{key},after an empty line\n"), 2),
        };
        text.extend_from_slice(row.as_bytes());
        line += lines;
    }
    assert!(text.len() > 1 << 20, "more than is read at once");
    text.extend_from_slice(b"oops,\"a\nb\"\n1,c\n");
    let message = format!(":{line}: the key is \"oops\" {DECIMAL}: {REMEDY}");
    assert_refused(&text, &[], &message);
}

#[test]
fn the_error_for_an_unclosed_quote_names_the_line_of_its_row() {
    let message = "a quoted field is not closed before the input ends: add the closing quote, and double each inner quote, \
                   or, if quotes are part of the text, read fields without quotes (--quote none)";
    for (text, line) in [
        ("1,\"a", 1),
        ("1,\"a\n", 1),
        ("1,a\n2,\"b\n3,c\n", 2),
        ("1,a\n2,\"b\n3,c", 2),
        ("1,a\r\n2,\"b\r\n3,c\r\n", 2),
        ("1,\"x\ny\"\n2,\"b\n\n\n", 3),
    ] {
        assert_refused(text, &[], &format!(":{line}: {message}"));
    }
}

#[test]
fn text_after_a_closing_quote_is_rejected() {
    let message = "text follows a closing quote: double each quote inside a quoted field, or, if quotes are part of the \
                   text, read fields without quotes (--quote none)";
    for (text, line) in
        [("1,\"a\"b\n", 1), ("1,\"a\"b,\"c\n", 1), ("1,a\n2,\"say \"so\"\"\n", 2), ("1,\"x\ny\"\n2,\"b\" \n", 3)]
    {
        assert_refused(text, &[], &format!(":{line}: {message}"));
    }
}

#[test]
fn the_error_for_an_unreadable_input_names_it_once() {
    let (folder, before) = folder_with_a_table();
    folder.bake(&["missing.csv"]).fails("missing.csv: No such file or directory (os error 2)");
    folder
        .bake(&["."])
        .fails(".: is a folder, where a file was expected: name the files in it, or a pattern such as '*.csv'");
    assert_untouched(&folder, &before, &["storage.db"]);
}

#[test]
fn the_error_for_an_unwritable_output_names_it_once() {
    let (folder, before) = folder_with_a_table();
    std::fs::create_dir(folder.path("sub")).unwrap();
    let nothing = "nothing was put in place";
    for (output, why) in [
        ("none/table.db", "No such file or directory (os error 2)"),
        ("storage.db/table.db", "Not a directory (os error 20)"),
        ("sub", "is a folder: name a file in it"),
        ("..", "is not the name of a file"),
        ("/dev/null", "is not a regular file, so it is not replaced"),
    ] {
        folder.bake_text("1,a\n", &["-o", output]).fails(&format!("{output}: {why}: {nothing}"));
    }
    assert_untouched(&folder, &before, &["storage.db", "sub"]);
    assert_eq!(std::fs::read_dir(folder.path("sub")).unwrap().count(), 0);
}

#[test]
fn an_invalid_command_line_exits_with_2_and_names_the_valid_form() {
    let (folder, before) = folder_with_a_table();
    for (args, part) in [
        (&["--nonsense", "rows.csv"][..], "unexpected argument '--nonsense'"),
        (&[], "<INPUT>"),
        (&["-", "--delimiter", ";;"], "one byte was expected, such as `;`, `\\`, or `\\t` (a tab)"),
        (&["-", "--escape", "\\\\"], "one byte was expected, such as `;`, `\\`, or `\\t` (a tab)"),
        (&["-", "--delimiter", ""], "one byte was expected"),
        (&["-", "--delimiter", "é"], "one byte was expected"),
        (&["-", "--duplicates", "some"], "possible values: error, first, last"),
    ] {
        let Ended { status, out, err, .. } = folder.bake(args);
        assert_eq!((status.code(), &*out), (Some(2), ""), "{args:?}: {err}");
        assert!(err.contains(part), "{args:?}: {err}");
    }
    assert_untouched(&folder, &before, &["storage.db"]);
}

#[test]
fn a_carriage_return_alone_does_not_end_a_line() {
    let message = "a carriage return without a line feed: end lines with LF or CRLF, and quote values that contain CR";
    assert_refused("1,a\r2,b\r", &[], &format!(":1: {message}"));
    assert_refused("1,a\n2,one\rtwo\n", &[], &format!(":2: {message}"));
    assert_refused("1,a\r\n2,b\r", &[], &format!(":2: {message}"));
}
