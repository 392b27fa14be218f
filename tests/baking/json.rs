//! JSON that is not JSON Lines: lists, objects over several lines, and objects after each other.

use crate::helpers::baker_runs::{Folder, rows};

/// The same two rows in every layout.
const LAYOUTS: [&str; 9] = [
    "{\"id\":1,\"x\":\"a]}\\\"\",\"l\":[1,{}]}\n{\"id\":2,\"x\":\"b\",\"l\":[]}\n",
    "[{\"id\":1,\"x\":\"a]}\\\"\",\"l\":[1,{}]},{\"id\":2,\"x\":\"b\",\"l\":[]}]",
    "[\n  {\n    \"id\": 1,\n    \"x\": \"a]}\\\"\",\n    \"l\":[1,{}]\n  },\r\n  {\"id\":2,\"x\":\"b\",\"l\":[]}\n]\n",
    "{\n\"id\":1,\"x\":\"a]}\\\"\",\"l\":[1,{}]}\n{\n\"id\":2,\"x\":\"b\",\"l\":[]}",
    "{\"id\":1,\"x\":\"a]}\\\"\",\"l\":[1,{}]}{\"id\":2,\"x\":\"b\",\"l\":[]}",
    "{\"id\":1,\"x\":\"a]}\\\"\",\"l\":[1,{}]} {\"id\":2,\"x\":\"b\",\"l\":[]}\n",
    "\n [{\"id\":1,\"x\":\"a]}\\\"\",\"l\":[1,{}]}]\n[{\"id\":2,\"x\":\"b\",\"l\":[]}]\n[]",
    "\u{feff}[{\"id\":1,\"x\":\"a]}\\\"\",\"l\":[1,{}]},\n{\"id\":2,\"x\":\"b\",\"l\":[]}]",
    "{\"id\":1,\"x\":\"a]}\\\"\",\"l\":[1,{}]},\n{\"id\":2,\"x\":\"b\",\"l\":[]},\n",
];

#[test]
fn objects_are_read_from_lists_and_over_several_lines() {
    for text in LAYOUTS {
        let folder = Folder::new();
        folder.write("rows.json", text);
        folder.bake(&["rows.json", "--key", "id", "--value", "x"]).succeeds();
        assert_eq!(folder.rows(), rows([(1, b"a]}\""), (2, b"b")]), "{text:?}");
        folder.bake(&["rows.json", "--key", "id", "--typed"]).infers("id:u64,x:text,l:text");
        assert_eq!(folder.typed_rows(), ["1 x=a]}\\\" l=[1,{}]", "2 x=b l=[]"], "{text:?}");
    }
}

#[test]
fn a_long_list_is_read_in_pieces() {
    let folder = Folder::new();
    let row = |key: u32| format!("{{\n  \"key\": {key},\n  \"value\": [\n    \"{}\"\n  ]\n}}", "x".repeat(200));
    let list: Vec<_> = (0..60_000).map(row).collect();
    let text = format!("[\n{}\n]\n", list.join(",\n"));
    assert!(text.len() > 12 << 20);
    let args = ["--format", "jsonl", "--memory", "16MiB"];
    folder.bake_text(&text, &args).succeeds();
    let rows = folder.rows();
    assert_eq!(rows.len(), 60_000);
    assert_eq!(rows[59_999].1, format!("[\n    \"{}\"\n  ]", "x".repeat(200)).as_bytes());
    // A list of which the end is missing is not complete.
    let ended = folder.bake_text(text.trim_end().trim_end_matches(']'), &args);
    assert!(ended.err.contains("a JSON list or object is not closed before the input ends"), "{}", ended.err);
    let ended = folder.bake_text(text.replacen("\"key\": 50000", "\"key\": x", 1), &args);
    assert!(ended.err.contains("standard input:300002: invalid JSON at byte 12: expected value"), "{}", ended.err);
}

#[test]
fn elements_of_lists_that_are_no_objects_are_bad_rows() {
    let folder = Folder::new();
    let text =
        "[1, {\"key\":1,\"value\":\"a\"}, [2], \"x\", null,\n{\"key\":2 \"value\":1}, {\"key\":3,\"value\":\"c\"}]";
    let args = ["--format", "jsonl", "--bad-rows", "skip", "--bad-rows-file", "bad.csv"];
    folder.bake_text(text, &args).succeeds();
    assert_eq!(folder.rows(), rows([(1, b"a"), (3, b"c")]));
    let bad = std::fs::read_to_string(folder.path("bad.csv")).unwrap();
    assert_eq!(bad.lines().count(), 6, "{bad}");
    assert!(bad.contains("standard input,2,"), "{bad}");
    folder.bake_text("[1]", &["--format", "jsonl"]).fails(
        "standard input:1: the row is a number, where an object was expected: write one object per line, or a list of \
         objects",
    );
    for (text, line) in [("[{\"key\":1,\"value\":2}", 1), ("[\n{\"key\":1,\"value\":2},\n{\"key\":2,", 3), ("[\n", 2)] {
        folder.bake_text(text, &["--format", "jsonl"]).fails(&format!(
            "standard input:{line}: a JSON list or object is not closed before the input ends: copy or export the input \
             again"
        ));
    }
}

#[test]
fn a_malformed_first_line_of_json_lines_does_not_swallow_the_others() {
    let folder = Folder::new();
    for first in ["{\"key\":1", "{\"key\":\"a", "{\"key\":1,\"value\":[}", "x", "{\"key\":1,\"value\":2}}"] {
        let text = format!("{first}\n{{\"key\":7,\"value\":\"a\"}}\n{{\"key\":8,\"value\":\"b\"}}\n");
        let ended = folder.bake_text(text, &["--format", "jsonl", "--bad-rows", "skip"]);
        assert!(ended.succeeds().out.contains("2 rows (1 bad row"), "{first}: {}", ended.out);
    }
    // If none of the first rows is an object, the error is about the first row, whether or not types are inferred.
    let ended = folder.bake_text("{\"id\":1,}\n", &["--format", "jsonl", "--key", "id", "--typed"]);
    assert!(ended.err.starts_with("baker: standard input:1: invalid JSON at byte 9: "), "{}", ended.err);
}
