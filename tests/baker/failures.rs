//! What the program refuses, in which words, and that it leaves nothing then.

use super::runs::{Ended, Folder};

const DECIMAL: &str = "where an unsigned 64-bit decimal (0 to 18446744073709551615) was expected";
const REMEDY: &str = "correct the row, choose another column with --key, or take keys as text with --keys bytes";

/// A folder with a table in it from before.
fn folder_with_a_table() -> (Folder, Vec<u8>) {
    let folder = Folder::new();
    folder.bake_text("1,from before\n", &[]).succeeds();
    let before = std::fs::read(folder.path("storage.db")).unwrap();
    (folder, before)
}

#[track_caller]
fn assert_untouched(folder: &Folder, before: &[u8], names: &[&str]) {
    assert!(std::fs::read(folder.path("storage.db")).unwrap() == before, "the file from before is as it was");
    assert_eq!(folder.names(), names, "nothing else is left");
}

/// The input is refused with this message, and nothing has changed.
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
fn a_bad_key_is_named_with_its_line_and_a_remedy() {
    let cases: [(&[u8], &[&str], String); 10] = [
        (
            b"id,name\n1,a\n",
            &[],
            format!(
                ":1: the key is \"id\" {DECIMAL}: if this row names the columns, pass --header; if keys are text, --keys bytes"
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
fn a_row_with_other_fields_than_expected_is_named() {
    let unchosen = "quote the value, or choose columns with --key and --value";
    let too_few = "give a key and a value, or say with --delimiter what is between them";
    let chosen = "give every row as many fields as the first, and quote values that hold the delimiter";
    assert_refused("1,a,b\n", &[], &format!(":1: 3 fields where 2 were expected: {unchosen}"));
    assert_refused("1\n", &[], &format!(":1: 1 field where 2 were expected: {too_few}"));
    assert_refused("1,a\n2,b,c\n", &[], &format!(":2: 3 fields where 2 were expected: {unchosen}"));
    assert_refused("1;a\n", &[], &format!(":1: 1 field where 2 were expected: {too_few}"));
    let columns = ["--key", "1", "--value", "3"];
    assert_refused("1,a,b\n2,c\n", &columns, &format!(":2: 2 fields where 3 were expected: {chosen}"));
}

#[test]
fn columns_that_are_not_there_are_named() {
    let wide = "colour,id,note\nred,7,x\n";
    assert_refused(wide, &["--key", "4"], ": --key 4 is not a column: the first row has 3");
    assert_refused(wide, &["--key", "0"], ": --key 0 is not a column: the first row has 3");
    assert_refused(
        wide,
        &["--header", "--key", "ID", "--value", "note"],
        ": --key \"ID\" is not a column: the header has colour, id, note",
    );
    assert_refused(
        wide,
        &["--key", "id"],
        ": --key \"id\" is a name, and no row names the columns: pass --header, or give a number",
    );
    assert_refused(
        wide,
        &["--header", "--key", "id"],
        ": --key is given, and rows have 3 fields: give --value as well",
    );
    assert_refused(wide, &["--value", "1"], ": --value is given, and rows have 3 fields: give --key as well");
}

#[test]
fn a_duplicate_is_refused_with_both_lines() {
    let say = |line: u64, key: u64, first: u64| {
        format!(
            ":{line}: key {key} is already on line {first}: \
             remove one, or choose with --duplicates first or --duplicates last"
        )
    };
    assert_refused("5,a\n3,b\n5,c\n", &[], &say(3, 5, 1));
    assert_refused("k,v\n5,a\n3,b\n5,c\n", &["--header"], &say(4, 5, 2));
    assert_refused("1,\"x\r\ny\"\r\n\r\n2,\"3\n\n\"\r\n1,z\r\n", &[], &say(7, 1, 1));
    assert_refused("9,z\n1,\"x\ny\"\n2,b\n1,\"three\nmore\nlines\"", &[], &say(5, 1, 2));
    // The one that comes first in the input, whatever its key.
    assert_refused("9,a\n1,b\n9,c\n1,d\n", &[], &say(3, 9, 1));
}

#[test]
fn a_line_is_counted_right_through_a_long_input() {
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
fn a_quote_that_is_not_closed_is_named_with_the_line_of_its_row() {
    let message = "a quoted field is not closed before the input ends: \
                   add the closing quote, and write a quote inside as two";
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
fn text_after_a_closing_quote_is_refused() {
    let message = "text follows a closing quote: write a quote inside a quoted field as two";
    for (text, line) in
        [("1,\"a\"b\n", 1), ("1,\"a\"b,\"c\n", 1), ("1,a\n2,\"say \"so\"\"\n", 2), ("1,\"x\ny\"\n2,\"b\" \n", 3)]
    {
        assert_refused(text, &[], &format!(":{line}: {message}"));
    }
}

#[test]
fn an_input_that_cannot_be_read_is_named_once() {
    let (folder, before) = folder_with_a_table();
    folder.bake(&["missing.csv"]).fails("missing.csv: No such file or directory (os error 2)");
    folder
        .bake(&["."])
        .fails(".: is a folder, where a file was expected: name the files in it, or a pattern such as '*.csv'");
    assert_untouched(&folder, &before, &["storage.db"]);
}

#[test]
fn an_output_that_cannot_be_written_is_named_once() {
    let (folder, before) = folder_with_a_table();
    std::fs::create_dir(folder.path("sub")).unwrap();
    let nothing = "nothing was put in place";
    for (output, why) in [
        ("none/table.db", "No such file or directory (os error 2)"),
        ("storage.db/table.db", "Not a directory (os error 20)"),
        ("sub", "is a folder: name a file in it"),
        ("..", "is not the name of a file"),
        ("/dev/null", "is not a regular file, and will not be replaced"),
    ] {
        folder.bake_text("1,a\n", &["-o", output]).fails(&format!("{output}: {why}: {nothing}"));
    }
    assert_untouched(&folder, &before, &["storage.db", "sub"]);
    assert_eq!(std::fs::read_dir(folder.path("sub")).unwrap().count(), 0);
}

#[test]
fn a_wrong_command_line_ends_with_code_2_and_says_what_was_wanted() {
    let (folder, before) = folder_with_a_table();
    for (args, part) in [
        (&["--nonsense", "rows.csv"][..], "unexpected argument '--nonsense'"),
        (&[], "<INPUT>"),
        (&["-", "--delimiter", ";;"], "one byte was expected, such as `;` or `\\t`"),
        (&["-", "--delimiter", ""], "one byte was expected"),
        (&["-", "--delimiter", "é"], "one byte was expected"),
        (&["-", "--delimiter", "\""], "a quote or a line end cannot part fields"),
        (&["-", "--delimiter", "\n"], "a quote or a line end cannot part fields"),
        (&["-", "--duplicates", "some"], "possible values: error, first, last"),
    ] {
        let Ended { status, out, err, .. } = folder.bake(args);
        assert_eq!((status.code(), &*out), (Some(2), ""), "{args:?}: {err}");
        assert!(err.contains(part), "{args:?}: {err}");
    }
    assert_untouched(&folder, &before, &["storage.db"]);
}

#[test]
fn a_carriage_return_alone_is_no_line_end() {
    let message = "a carriage return without a line feed: end lines with LF or CRLF, and quote values that hold one";
    assert_refused("1,a\r2,b\r", &[], &format!(":1: {message}"));
    assert_refused("1,a\n2,one\rtwo\n", &[], &format!(":2: {message}"));
    assert_refused("1,a\r\n2,b\r", &[], &format!(":2: {message}"));
}
