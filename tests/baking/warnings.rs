//! Warnings about inputs that may mean something else: forgotten delete columns, and escapes that are read as text.

use crate::helpers::baker_runs::{Ended, Folder, rows};

/// Returns the warnings of a bake that succeeds, without the inferred types.
#[track_caller]
fn warnings(ended: &Ended) -> Vec<String> {
    assert_eq!(ended.status.code(), Some(0), "{}", ended.err);
    let lines = ended.err.lines().filter_map(|line| line.strip_prefix("baker: warning: "));
    lines.map(str::to_owned).collect()
}

fn deletion(input: &str, column: &str, found: &str) -> String {
    format!(
        "{input}: the column {column:?} seems to mark deletions, as {found:?} does, and removes no row: choose it as the \
         delete column, with values such as true and false (--delete-column)"
    )
}

/// Returns a folder with the base `base.db`, which has the typed column `name`.
fn with_base() -> Folder {
    let folder = Folder::new();
    folder.write("base.csv", "id,name\n1,one\n2,two\n");
    let args = ["--header", "--key", "id", "--types", "id:u64,name:text?", "-o", "base.db"];
    folder.bake(&[&["base.csv"], &args[..]].concat()).succeeds();
    folder
}

const UPDATE: [&str; 6] = ["--header", "--key", "id", "--typed", "--base", "base.db"];

#[test]
fn a_forgotten_delete_column_of_an_update_is_a_warning() {
    let folder = with_base();
    for (column, values, found) in [
        ("deleted", ["false", "true"], "true"),
        ("__deleted", ["", "1"], "1"),
        ("_is_deleted", ["n", "Y"], "Y"),
        ("Deleted", ["0", "t"], "t"),
        ("op", ["u", "d"], "d"),
        ("_op", ["c", "DELETE"], "DELETE"),
        ("change_type", ["insert", "delete"], "delete"),
    ] {
        folder.write("delta.csv", format!("id,name,{column}\n1,uno,{}\n2,,{}\n", values[0], values[1]));
        let expected = [deletion("delta.csv", column, found)];
        assert_eq!(warnings(&folder.bake(&[&["delta.csv"], &UPDATE[..]].concat())), expected);
        // The column is not read.
        let args = ["--header", "--key", "id", "--types", "name:text?", "--base", "base.db"];
        assert_eq!(warnings(&folder.bake(&[&["delta.csv"], &args[..]].concat())), expected);
        // Once for all inputs.
        let several = ["delta.csv", "delta.csv", "--duplicates", "last"];
        assert_eq!(warnings(&folder.bake(&[&several, &UPDATE[..]].concat())), expected);
    }
    folder.write("delta.jsonl", "{\"id\":1,\"name\":\"uno\",\"deleted\":false}\n{\"id\":2,\"deleted\":true}\n");
    let expected = [deletion("delta.jsonl", "deleted", "true")];
    let args = ["delta.jsonl", "--key", "id", "--typed", "--base", "base.db"];
    assert_eq!(warnings(&folder.bake(&args)), expected);
    folder.bake(&[&args[..], &["--delete-column", "deleted"]].concat());
    assert_eq!(folder.typed_rows(), ["1 name=uno"]);
}

#[test]
fn a_forgotten_delete_column_of_a_table_without_columns_is_a_warning() {
    let folder = Folder::new();
    folder.bake_text("1,one\n2,two\n", &["-o", "base.db"]).succeeds();
    folder.write("delta.csv", "id,name,deleted\n2,two,true\n");
    let args = ["delta.csv", "--header", "--key", "id", "--value", "name", "--base", "base.db"];
    assert_eq!(warnings(&folder.bake(&args)), [deletion("delta.csv", "deleted", "true")]);
    folder.bake(&[&args[..], &["--delete-column", "deleted"]].concat()).succeeds();
    assert_eq!(folder.rows().len(), 1);
    for args in [&["--value", "deleted"][..], &["--columns", "name,deleted"]] {
        let args = [&["delta.csv", "--header", "--key", "id", "--base", "base.db"], args].concat();
        assert_eq!(warnings(&folder.bake(&args)), [""; 0], "{args:?}");
    }
}

#[test]
fn columns_that_mark_no_deletions_are_no_warning() {
    let folder = with_base();
    let bake = |header: &str, rows: &str, args: &[&str]| {
        folder.write("delta.csv", format!("{header}\n{rows}"));
        warnings(&folder.bake(&[&["delta.csv"], args].concat()))
    };
    let none: [&str; 0] = [];
    // No value marks a deletion.
    assert_eq!(bake("id,name,deleted", "1,uno,false\n2,dos,\n", &UPDATE), none);
    assert_eq!(bake("id,name,op", "1,uno,u\n2,dos,c\n", &UPDATE), none);
    assert_eq!(bake("id,name,op", "1,uno,1\n2,dos,true\n", &UPDATE), none);
    // Other names.
    assert_eq!(bake("id,name,deleted_by", "1,uno,1\n2,dos,true\n", &UPDATE), none);
    assert_eq!(bake("id,name,active", "1,uno,1\n2,dos,true\n", &UPDATE), none);
    // The column is declared, or the base has it.
    let declared = ["--header", "--key", "id", "--types", "name:text?,deleted:bool?", "--base", "base.db"];
    assert_eq!(bake("id,name,deleted", "1,uno,false\n2,,true\n", &declared), none);
    let in_base = ["--header", "--key", "id", "--typed", "--base", "storage.db"];
    assert_eq!(bake("id,name,deleted", "1,uno,true\n2,,true\n", &in_base), none);
    // Without a base, no row can be removed.
    assert_eq!(bake("id,name,deleted", "1,uno,false\n2,,true\n", &UPDATE[..4]), none);
}

#[cfg(feature = "full")]
#[test]
fn a_forgotten_delete_column_of_parquet_is_a_warning() {
    use std::sync::Arc;

    use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
    use ::parquet::file::writer::SerializedFileWriter;
    use ::parquet::schema::parser::parse_message_type;

    let folder = with_base();
    let schema = "message rows { required int64 id; optional binary name (STRING); optional boolean __deleted; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    macro_rules! put {
        ($type:ty, $values:expr, $levels:expr) => {{
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<$type>().write_batch($values, $levels, None).unwrap();
            column.close().unwrap();
        }};
    }
    put!(Int64Type, &[1, 2, 3], None);
    put!(ByteArrayType, &["uno", "dos", "tres"].map(ByteArray::from), Some(&[1, 1, 1]));
    put!(BoolType, &[false, true], Some(&[0, 1, 1]));
    group.close().unwrap();
    folder.write("delta.parquet", writer.into_inner().unwrap());
    let args = ["delta.parquet", "--key", "id", "--typed", "--base", "base.db"];
    assert_eq!(warnings(&folder.bake(&args)), [deletion("delta.parquet", "__deleted", "true")]);
    folder.bake(&[&args[..], &["--delete-column", "__deleted"]].concat()).succeeds();
    assert_eq!(folder.typed_rows(), ["1 name=uno", "2 name=dos"]);
    assert_eq!(warnings(&folder.bake(&["delta.parquet", "--key", "id", "--typed"])), [""; 0]);
}

fn escape(line: u64, escape: &str) -> String {
    format!(
        "rows.tsv:{line}: {escape} looks like an escape, as all backslashes of the first rows do, and is baked as text: read \
         fields with escapes, and \\N as null (--escape, --null)"
    )
}

#[test]
fn escapes_that_are_read_as_text_are_a_warning() {
    let folder = Folder::new();
    for (rows, line, found) in [
        ("1\tone\n2\ttwo\\nlines\n3\ta\\tb\n4\tc\\\\d\n", 2, "\\n"),
        ("1\t\\N\n2\t\\N\n3\t\\N\n", 1, "\\N"),
        ("1\ta\\\\b\\\\c\\\\d\n", 1, "\\\\"),
    ] {
        folder.write("rows.tsv", rows);
        assert_eq!(warnings(&folder.bake(&["rows.tsv"])), [escape(line, found)], "{rows}");
        folder.write("more.tsv", rows);
        let several = ["rows.tsv", "more.tsv", "--duplicates", "last"];
        assert_eq!(warnings(&folder.bake(&several)), [escape(line, found)]);
    }
    folder.write("rows.tsv", "1\ta\\nb\n2\tc\\td\n3\te\\\\f\n");
    folder.bake(&["rows.tsv", "--escape", "\\"]).succeeds();
    assert_eq!(folder.rows(), rows([(1, b"a\nb"), (2, b"c\td"), (3, b"e\\f")]));
}

#[test]
fn backslashes_that_are_no_escapes_are_no_warning() {
    let folder = Folder::new();
    for rows in [
        // Paths, also those whose backslashes look like escapes.
        "1\tC:\\temp\\new\\bin\n2\tD:\\temp\n3\tE:\\new\n",
        "1\t\\\\server\\share\n2\t\\\\server\\new\n",
        // Regular expressions and TeX.
        "1\t\\d+\\b\n2\t\\bword\\b\n3\t\\n\\t\n",
        "1\t\\beta \\nu \\rho\n2\t\\alpha\n",
        // JSON.
        "1\t{\"a\":\"b\\nc\\nd\\ne\"}\n2\t\"b\\nc\\td\"\n",
        // Too few.
        "1\ta\\nb\n2\ttwo\n3\tc\\td\n",
    ] {
        folder.write("rows.tsv", rows);
        assert_eq!(warnings(&folder.bake(&["rows.tsv"])), [""; 0], "{rows}");
    }
    // These nulls are declared. In quoted text, backslashes are text.
    folder.write("rows.tsv", "1\ta\t\\N\n2\tb\t\\N\n3\tc\t\\N\n");
    let args = ["rows.tsv", "--null", "\\N", "--key", "1", "--columns", "2,3"];
    assert_eq!(warnings(&folder.bake(&args)), [""; 0]);
    folder.write("rows.csv", "1,a\\nb\n2,c\\td\n3,e\\\\f\n");
    assert_eq!(warnings(&folder.bake(&["rows.csv"])), [""; 0]);
}
