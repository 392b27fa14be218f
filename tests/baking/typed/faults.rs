//! Rows that do not fit the declared types, and options that contradict each other.

use crate::helpers::baker_runs::Folder;

#[test]
fn a_value_that_does_not_fit_its_type_is_named() {
    let folder = Folder::new();
    let long = "9".repeat(100);
    let shown = format!("{}…", &long[..40]);
    for (column_type, text, expected) in [
        ("i8", "128", "an integer from -128 to 127"),
        ("u64", "-1", "an integer from 0 to 18446744073709551615"),
        ("f32", "one", "a number, NaN, inf, or -inf"),
        ("f32", "3.4028236e38", "a number in the range of the type"),
        ("f64", "-1e400", "a number in the range of the type"),
        ("list(f32)", "[1e39]", "a number in the range of the type"),
        ("f32", "16777217", "an integer that the type holds exactly, or a number with a point"),
        ("f64", "-9007199254740993", "an integer that the type holds exactly, or a number with a point"),
        ("f64", "18446744073709551615", "an integer that the type holds exactly, or a number with a point"),
        ("bool", "yes", "true, false, 1, or 0"),
        ("date", "2026-02-30", "a date, such as 2026-11-21"),
        (
            "timestamp(ms)",
            "2026-11-21",
            "a time with at most the decimal places of the column, such as 2026-11-21T19:09:38.5Z",
        ),
        ("decimal(4,2)", "1.234", "a decimal number with at most the digits of the column"),
        ("list(u8)", "[256]", "an integer from 0 to 255"),
        ("list(u8,2)", "[1]", "a list of the column's length; a type without a length has lists of any length"),
        ("i8", &long, "an integer from -128 to 127"),
    ] {
        let found = if text.len() > 40 { &shown } else { text };
        let text = format!("id,a\n1,\n2,{text}\n");
        folder.bake_text(text, &["--header", "--key", "id", "--types", &format!("a:{column_type}?")]).fails(&format!(
            "standard input:3: column \"a\" is {found:?}, where {column_type} was expected ({expected}): correct the row, \
             or declare another type (--types)"
        ));
    }
    folder.bake_text(b"id,a\n1,\xff\n", &["--header", "--key", "id", "--types", "a:text"]).fails(
        "standard input:2: column \"a\" is \"\u{fffd}\", where text was expected (UTF-8 text): correct the row, or declare \
         another type (--types)",
    );
    folder.bake_text("id,a\n1,\n", &["--header", "--key", "id", "--types", "a:u8"]).fails(
        "standard input:2: column \"a\" has no value, where u8 was expected in every row: correct the row, or declare that \
         the column can be null (--types NAME:TYPE?)",
    );
    // An empty field is an empty text.
    folder.bake_text("id,a\n1,\n", &["--header", "--key", "id", "--types", "a:text"]).succeeds();
}

#[test]
fn a_field_of_json_lines_that_does_not_fit_is_named() {
    let folder = Folder::new();
    for (column_type, json, expected) in [
        ("i8", "128", "an integer from -128 to 127"),
        ("i8", "1.0", "an integer from -128 to 127"),
        ("i8", "true", "a number"),
        ("bool", "1", "true or false"),
        ("date", "1", "a string"),
        ("bytes", "1", "a string"),
        ("f64", "[1]", "a number"),
        ("f64", "1e400", "a number in the range of the type"),
        ("f64", "9007199254740993", "an integer that the type holds exactly, or a number with a point"),
        ("list(f32)", "[1,16777217]", "an integer that the type holds exactly, or a number with a point"),
        ("list(f32)", "1", "a list"),
        ("list(f32)", "\"[1]\"", "a list"),
        ("list(f32)", "[true]", "a number, NaN, inf, or -inf"),
        ("list(i32)", "[null]", "an integer from -2147483648 to 2147483647"),
        ("list(text)", "\"[1]\"", "a list"),
        ("list(text)", "[null]", "a list of strings, such as [\"a\",\"b\"]"),
        ("list(text)", "[1]", "a list of strings, such as [\"a\",\"b\"]"),
        ("u8", "{}", "a number"),
    ] {
        let found = if json == "\"[1]\"" { "\\\"[1]\\\"" } else { json };
        let args = ["--format", "jsonl", "--key", "k", "--types", &format!("a:{column_type}")];
        folder.bake_text(format!("\n{{\"k\":1,\"a\":{json}}}\n"), &args).fails(&format!(
            "standard input:2: column \"a\" is \"{found}\", where {column_type} was expected ({expected}): correct the row, \
             or declare another type (--types)"
        ));
    }
    for json in ["{\"k\":1}", "{\"k\":1,\"a\":null}"] {
        folder.bake_text(json, &["--format", "jsonl", "--key", "k", "--types", "a:text"]).fails(
            "standard input:1: column \"a\" has no value, where text was expected in every row: correct the row, or declare \
             that the column can be null (--types NAME:TYPE?)",
        );
    }
    folder
        .bake_text("{\"k\":1,\"a\":\"\\ud800\"}", &["--format", "jsonl", "--key", "k", "--types", "a:text"])
        .fails("standard input:1: invalid JSON at byte 19: unexpected end of hex escape: an object was expected");
}

#[test]
fn rows_that_do_not_fit_are_skipped_if_bad_rows_are() {
    let folder = Folder::new();
    let args = ["--header", "--key", "id", "--types", "a:u8", "--bad-rows", "skip", "--bad-rows-file", "bad.csv"];
    folder.bake_text("id,a\n1,1\n2,300\n3,\n4,4\n", &args).succeeds();
    assert_eq!(folder.typed_rows(), ["1 a=1", "4 a=4"]);
    let bad = std::fs::read_to_string(folder.path("bad.csv")).unwrap();
    let lines: Vec<_> = bad.lines().skip(1).collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("standard input,3,\"column \"\"a\"\" is \"\"300\"\", where u8 was expected"), "{bad}");
    assert!(lines[0].ends_with(",\"2,300\""), "{bad}");
}

#[test]
fn columns_and_types_that_do_not_fit_the_input_are_named() {
    let folder = Folder::new();
    let text = "id,a,b\n1,1,x\n";
    for (args, message) in [
        (&["--header", "--typed"][..], "typed columns are chosen: choose the key column as well (--key)"),
        (
            &["--key", "1", "--typed"],
            "no row names the columns: read the first row as a header, or declare the types of all columns (--header, --types)",
        ),
        (
            &["--key", "id", "--types", "id:u64,a:u8"],
            "rows have 3 fields, and 2 types are declared: read the first row as a header, or declare one type per field, \
             including the key (--header, --types)",
        ),
        (
            &["--header", "--key", "id", "--types", "c:u8"],
            "the typed column \"c\" does not exist: the header has id, a, b (--columns, --types NAME:TYPE?)",
        ),
        (
            &["--header", "--key", "id", "--types", "a:u8", "--columns", "a,b"],
            "the column \"b\" has no type: declare its type as well (--types)",
        ),
        (
            &["--header", "--key", "id", "--typed", "--columns", "id,a"],
            "the column \"id\" is the key, which is stored beside the columns: leave it out (--columns)",
        ),
        (
            &["--header", "--key", "1", "--types", "id:text,a:u8"],
            "the key column \"id\" is bytes, and keys are u64: choose one of them (--types, --keys)",
        ),
        (
            &["--header", "--key", "id", "--types", "a:u8,a:u8"],
            "two columns have the name \"a\": rename one (--types, --columns)",
        ),
    ] {
        folder.bake_text(text, args).fails(&format!("standard input: {message}"));
    }
    folder.bake_text(text, &["--header", "--key", "id", "--types", "id:f64,a:u8"]).fails(
        "typed columns: the key column is id:f64, where u64, i64, text, bytes, date, or timestamp was expected: declare \
         one of them (--types)",
    );
}

#[test]
fn options_that_typed_tables_do_not_have_are_usage_errors() {
    let folder = Folder::new();
    for (args, message) in [
        (&["--typed", "--value", "a"][..], "cannot be used with"),
        (&["--types", "a:u8", "--value", "a"], "cannot be used with"),
        (&["--typed", "--delete-marker", "x"], "cannot be used with"),
        (&["--typed", "--cast"], "--base"),
        (&["--base", "storage.db", "--cast"], "--cast requires --typed or --types: pass one of them"),
        (&["--types", "a:int"], "the column \"a\": \"int\" is not a type"),
        (&["--types", "a"], "\"a\", where a column and its type were expected, as in price:f32"),
        (
            &["--key", "id", "--types", "id:text,a:u8", "--keys", "u64"],
            "--keys contradicts the type of the key in --types: give only one of them",
        ),
    ] {
        let ended = folder.bake_text("", args);
        assert_eq!(ended.status.code(), Some(2), "{args:?}: {}", ended.err);
        assert!(ended.err.contains(message), "{args:?}: {}", ended.err);
    }
}
