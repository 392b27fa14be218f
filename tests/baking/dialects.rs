//! Dialects of delimited text: quotes, escapes, nulls, comments, and lines before the header.

use crate::helpers::baker_runs::{Folder, rows};

const TITLES: &str = "1\t\"Rome\n2\tBerlin\n3\tParis\"\n4\tOslo\n";

#[test]
fn tsv_has_no_quotes() {
    let folder = Folder::new();
    let expected = rows([(1, b"\"Rome"), (2, b"Berlin"), (3, b"Paris\""), (4, b"Oslo")]);
    folder.write("titles.tsv", TITLES);
    folder.bake(&["titles.tsv"]).succeeds();
    assert_eq!(folder.rows(), expected);
    for args in [&["--format", "tsv"][..], &["--delimiter", "\\t"], &["--format", "tsv", "--quote", "none"]] {
        folder.bake_text(TITLES, args).succeeds();
        assert_eq!(folder.rows(), expected, "{args:?}");
    }
    let typed = "tconst\ttitle\tyear\ntt1\t\"Foo\t1999\ntt2\tBar\t\\N\ntt3\tBaz\"\t2001\n";
    let args = ["--format", "tsv", "--header", "--key", "tconst", "--keys", "bytes", "--null", "\\N"];
    let ended = folder.bake_text(typed, &[&args[..], &["--typed", "--allow-key-type-change"]].concat());
    ended.infers("'tconst:bytes,title:text,year:i64?'");
    assert_eq!(
        folder.typed_rows(),
        ["tt1 title=\\\"Foo year=1999", "tt2 title=Bar year=null", "tt3 title=Baz\\\" year=2001"]
    );
}

#[test]
fn quotes_can_be_another_byte_or_none() {
    let folder = Folder::new();
    folder.bake_text("1\t\"a\tb\"\n", &["--format", "tsv", "--quote", "\""]).succeeds();
    assert_eq!(folder.rows(), rows([(1, b"a\tb")]));
    folder.bake_text("1,'it''s, so'\n2,\"x\n", &["--quote", "'"]).succeeds();
    assert_eq!(folder.rows(), rows([(1, b"it's, so"), (2, b"\"x")]));
    folder.bake_text("1,\"x\n2,y\"\n", &["--quote", "none"]).succeeds();
    assert_eq!(folder.rows(), rows([(1, b"\"x"), (2, b"y\"")]));
}

#[test]
fn quoted_lines_that_look_like_rows_are_a_warning_with_their_number() {
    let folder = Folder::new();
    folder.write("titles.csv", "1,\"Rome\n2,Berlin\n3,Paris\"\n4,Oslo\n5,\"x\n6,y\n7,z\n8,\"\n");
    let ended = folder.bake(&["titles.csv"]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.err);
    assert_eq!(
        ended.err,
        "baker: warning: titles.csv:1: the lines of a quoted field look like rows (2 rows with such a field): if \
         quotes are part of the text, read fields without quotes (--quote none)\n"
    );
    folder.bake(&["titles.csv", "--quiet"]).succeeds();
    // Texts with line ends are usual.
    folder.bake_text("1,\"Main Street 1\n10115 Berlin, Mitte\n\nGermany\"\n", &[]).succeeds();
    folder.bake_text("1,\"a,b\nc\nd,e,f\ng\"\n", &[]).succeeds();
}

#[test]
fn an_escape_removes_the_meaning_of_the_next_byte() {
    let folder = Folder::new();
    let spark = "1,\"foo (\\\"foo\\\"), \\\\ and \\n\"\n2,b\\n\n";
    folder.bake_text(spark, &["--escape", "\\"]).succeeds();
    assert_eq!(folder.rows(), rows([(1, b"foo (\"foo\"), \\ and \\n"), (2, b"b\\n")]));
    folder.bake_text("1,\"a\"\"b\"\n", &["--escape", "\""]).succeeds();
    assert_eq!(folder.rows(), rows([(1, b"a\"b")]));
    // MySQL's INTO OUTFILE and PostgreSQL's COPY.
    let outfile = "1\ta\\\tb\\\nc\n2\t\\\\\\t\\n\\0\\x\n";
    folder.bake_text(outfile, &["--format", "tsv", "--escape", "\\"]).succeeds();
    assert_eq!(folder.rows(), rows([(1, b"a\tb\nc"), (2, b"\\\t\n\0x")]));
    folder.bake_text("1,\"a \\\"b\\\"\"\n", &[]).fails(
        "standard input:1: text follows a closing quote: if a backslash escapes quotes, set it as the escape; otherwise, \
         double each quote inside a quoted field (--escape)",
    );
    folder.bake_text("1,\"a\" b\n", &[]).fails(
        "standard input:1: text follows a closing quote: double each quote inside a quoted field, or, if quotes are part of \
         the text, read fields without quotes (--quote none)",
    );
}

#[test]
fn texts_that_stand_for_null_are_null() {
    let folder = Folder::new();
    let text = "id,a,b\n1,NA,x\n2,,\n3,7,NULL\n";
    let args = ["--header", "--key", "id", "--null", "NA", "--null", "NULL", "--types", "a:u8?,b:text?"];
    folder.bake_text(text, &args).succeeds();
    assert_eq!(folder.typed_rows(), ["1 a=null b=x", "2 a=null b=", "3 a=7 b=null"]);
    folder.bake_text(text, &[&args[..], &["--null", ""]].concat()).succeeds();
    assert_eq!(folder.typed_rows(), ["1 a=null b=x", "2 a=null b=null", "3 a=7 b=null"]);
    // An escaped N is not the text of null.
    let text = "1\t\\N\n2\t\\\\N\n3\tN\n";
    let args = ["--format", "tsv", "--escape", "\\", "--null", "\\N", "--key", "id", "--types", "id:u64,a:text?"];
    folder.bake_text(text, &args).succeeds();
    assert_eq!(folder.typed_rows(), ["1 a=null", "2 a=\\\\N", "3 a=N"]);
    folder.bake_text("id,a,b\n1,NA,x\n", &["--header", "--key", "id", "--null", "NA", "--columns", "a,b"]).succeeds();
    assert_eq!(folder.rows(), rows([(1, b"{\"a\":null,\"b\":\"x\"}")]));
    let remedy = "give every row a key and a value, or pack the column into the value, which may hold null (--columns)";
    folder
        .bake_text("id,a\n1,NA\n", &["--header", "--null", "NA"])
        .fails(&format!("standard input:2: \"a\" is null: {remedy}"));
    folder.bake_text("NA,a\n", &["--null", "NA"]).fails(&format!("standard input:1: \"1\" is null: {remedy}"));
    folder.bake_text("id,a\n1,\\N\n", &["--header", "--key", "id", "--types", "a:u8?"]).fails(
        "standard input:2: column \"a\" is \"\\\\N\", where u8 was expected (an integer from 0 to 255): correct the row, or \
         declare another type, or, if this text stands for null, set the null text (--types, --null)",
    );
    for (of_mysql, column_type) in [("0000-00-00", "date"), ("0000-00-00 00:00:00", "timestamp")] {
        let types = format!("a:{column_type}?");
        let args = ["--header", "--key", "id", "--types", &types];
        let text = format!("id,a\n1,{of_mysql}\n");
        let ended = folder.bake_text(&text, &args);
        assert!(ended.err.contains("or, if this text stands for null, set the null text"), "{}", ended.err);
        folder.bake_text(&text, &[&args[..], &["--null", of_mysql]].concat()).succeeds();
        assert_eq!(folder.typed_rows(), ["1 a=null"]);
    }
}

#[test]
fn comments_and_leading_lines_are_skipped() {
    let folder = Folder::new();
    let text = "# exported, \"today\n#,\"\n1,2,AU\n\n# 5,6,DE\n3,4,\"#\n# C,N\"\n#";
    let args = ["--key", "1", "--value", "3"];
    folder.bake_text(text, &[&args[..], &["--comment", "#"]].concat()).succeeds();
    assert_eq!(folder.rows(), rows([(1, b"AU"), (3, b"#\n# C,N")]));
    folder.bake_text("a report\n\"of\nid,x\n1,y\n", &["--skip-lines", "2", "--header"]).succeeds();
    assert_eq!(folder.rows(), rows([(1, b"y")]));
    for lines in ["4", "5", "1000000"] {
        folder.bake_text("a report\n\"of\nid,x\n1,y\n", &["--skip-lines", lines, "--allow-empty"]).succeeds();
        assert_eq!(folder.rows(), rows([]));
    }
    // Messages count the skipped lines.
    folder.bake_text("x\ny\n1,a\n1\n", &["--skip-lines", "2"]).fails(
        "standard input:4: 1 field where 2 were expected: give a key and a value, or set the delimiter between them \
         (--delimiter)",
    );
    folder
        .bake_text("# exported\n1,a\n", &[])
        .fails("standard input:1: 1 field where 2 were expected: if the line is a comment, skip comments (--comment)");
}

#[test]
fn a_bad_first_row_is_skipped_like_any_other() {
    let folder = Folder::new();
    let skip = ["--bad-rows", "skip"];
    for (text, args) in [
        ("# exported\n1,2,AU\n3,4,CN\n", &["--key", "1", "--columns", "2,3"][..]),
        ("1\n1,AU\n3,CN\n", &[]),
        ("\"a\"b,c\n1,AU\n3,CN\n", &[]),
        ("a,b,c\n1,AU\n3,CN\n", &["--key", "1", "--value", "2"]),
        ("x\n1,2,AU\n3,4,CN\n", &["--key", "id", "--types", "id:u64,a:u8,b:text"]),
    ] {
        let ended = folder.bake_text(text, &[&skip[..], args].concat());
        assert!(ended.succeeds().out.contains("2 rows (1 bad row"), "{text:?}: {}", ended.out);
    }
    // The first row is not a bad one because it is the first one.
    let ended = folder.bake_text("1,a,x\n2,b\n3,c,z\n4,d\n", &[&skip[..], &["--key", "1", "--value", "2"]].concat());
    assert!(ended.succeeds().out.contains("2 rows (2 bad rows"), "{}", ended.out);
}

#[test]
fn a_byte_with_two_meanings_is_rejected() {
    let folder = Folder::new();
    for (args, message) in [
        (&["--delimiter", "\""][..], "the quote is '\"', which is also the delimiter: choose another quote (--quote)"),
        (&["--quote", ","], "the quote is ',', which is also the delimiter: choose another quote (--quote)"),
        (&["--escape", ","], "the escape is ',', which is also the delimiter: choose another escape (--escape)"),
        (
            &["--comment", "\""],
            "the first byte of comments is '\"', which is also the quote: choose another first byte of comments (--comment)",
        ),
        (
            &["--delimiter", "\r"],
            "the delimiter is '\\r', which is also the end of a line: choose another delimiter (--delimiter)",
        ),
        (
            &["--delimiter", "\n"],
            "the delimiter is '\\n', which is also the end of a line: choose another delimiter (--delimiter)",
        ),
    ] {
        folder.bake_text("1,a\n", args).fails(message);
    }
    folder.bake_text("1\"a\n", &["--delimiter", "\"", "--quote", "none"]).succeeds();
    let ended = folder.bake_text("1,a\n", &["--quote", "ab"]);
    assert!(ended.status.code() == Some(2) && ended.err.contains("one byte or `none` was expected"), "{}", ended.err);
}
