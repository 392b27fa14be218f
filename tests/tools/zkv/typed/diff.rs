//! `zkv diff` of typed tables.

use super::*;

fn diff(a: &Path, b: &Path, more: &[&str]) -> Output {
    zkv().arg("diff").arg(a).arg(b).args(more).output().unwrap()
}

/// Returns two tables: in the second one, a column was added, one was removed, and one has another type.
fn two_tables() -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a.db", "b.db"].map(|name| folder.path().join(name));
    let row = |price, name, stock| vec![Value::F32(price), Value::Text(name), stock];
    let rows = [
        (1_u64, row(1.5, "pen", Value::Uint(3))),
        (2, row(2.0, "cup", Value::Null)),
        (3, row(f32::NAN, "", Value::Uint(7))),
        (4, row(0.5, "bag", Value::Null)),
    ];
    write_table(&a, &schema("id", &["price:f32", "name:text", "stock:u16?"]), &rows);
    let row = |name, price, weight| vec![Value::Text(name), Value::F64(price), Value::Uint(weight)];
    let rows = [
        (1_u64, row("pen", 1.5, 1)),
        (2, row("mug \"x\"", 2.5, 1)),
        (3, row("", f64::NAN, 2)),
        (5, row("hat", 9.0, 9)),
    ];
    write_table(&b, &schema("id", &["name:text", "price:f64", "weight:u8"]), &rows);
    (folder, a, b)
}

#[test]
fn columns_and_cells_that_differ_are_named() {
    let (_folder, a, b) = two_tables();
    let columns = "~ column price f32 f64\n- column stock u16?\n+ column weight u8\n";
    let counts = "column price differs in 1 row\ncolumn name differs in 1 row\n\
                  1 only in A, 1 only in B, 1 changed, 2 equal\n";
    assert_answer(&diff(&a, &b, &["--summary"]), 1, format!("{columns}{counts}").as_bytes());
    let keys = "~ 2 price name\n- 4\n+ 5\n";
    assert_answer(&diff(&a, &b, &[]), 1, format!("{columns}{keys}{counts}").as_bytes());
    let values = "~ 2 price \"2\" \"2.5\" name \"cup\" \"mug \\\"x\\\"\"\n\
                  - 4 price \"0.5\" name \"bag\" stock null\n\
                  + 5 name \"hat\" price \"9\" weight \"9\"\n";
    assert_answer(&diff(&a, &b, &["--values"]), 1, format!("{columns}{values}{counts}").as_bytes());
}

#[test]
fn json_lines_have_the_columns_that_differ() {
    let (_folder, a, b) = two_tables();
    let columns = concat!(
        r#"{"change":"column_changed","column":"price","a":"f32","b":"f64"}"#,
        "\n",
        r#"{"change":"column_only_in_a","column":"stock","a":"u16?"}"#,
        "\n",
        r#"{"change":"column_only_in_b","column":"weight","b":"u8"}"#,
        "\n"
    );
    let counts = concat!(r#"{"only_in_a":1,"only_in_b":1,"changed":1,"same":2,"columns":{"price":1,"name":1}}"#, "\n");
    let keys = concat!(
        r#"{"change":"changed","key":2,"columns":["price","name"]}"#,
        "\n",
        r#"{"change":"only_in_a","key":4}"#,
        "\n",
        r#"{"change":"only_in_b","key":5}"#,
        "\n"
    );
    let output = diff(&a, &b, &["--format", "jsonl"]);
    assert_answer(&output, 1, format!("{columns}{keys}{counts}").as_bytes());
    let values = concat!(
        r#"{"change":"changed","key":2,"columns":["price","name"],"a":{"price":2.0,"name":"cup"},"b":{"price":2.5,"name":"mug \"x\""}}"#,
        "\n",
        r#"{"change":"only_in_a","key":4,"a":{"price":0.5,"name":"bag","stock":null}}"#,
        "\n",
        r#"{"change":"only_in_b","key":5,"b":{"name":"hat","price":9.0,"weight":9}}"#,
        "\n"
    );
    let output = diff(&a, &b, &["--format", "jsonl", "--values"]);
    assert_answer(&output, 1, format!("{columns}{values}{counts}").as_bytes());
}

#[test]
fn null_and_empty_text_differ_and_the_order_of_columns_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a.db", "b.db"].map(|name| folder.path().join(name));
    let columns = schema("id", &["a:text?", "b:i8"]);
    write_table(&a, &columns, &[(1_u64, vec![Value::Null, Value::Int(1)]), (2, vec![Value::Text("x"), Value::Int(2)])]);
    write_table(
        &b,
        &columns,
        &[(1_u64, vec![Value::Text(""), Value::Int(1)]), (2, vec![Value::Text("x"), Value::Int(2)])],
    );
    let differences = "~ 1 a null \"\"\ncolumn a differs in 1 row\n0 only in A, 0 only in B, 1 changed, 1 equal\n";
    assert_answer(&diff(&a, &b, &["--values"]), 1, differences.as_bytes());
    let other_order = schema("id", &["b:i8", "a:text?"]);
    write_table(
        &b,
        &other_order,
        &[(1_u64, vec![Value::Int(1), Value::Null]), (2, vec![Value::Int(2), Value::Text("x")])],
    );
    assert_answer(&diff(&a, &b, &[]), 0, b"0 only in A, 0 only in B, 0 changed, 2 equal\n");
    // Equal rows do not make tables with different columns equal.
    write_table(&b, &schema("id", &["b:i8"]), &[(1_u64, vec![Value::Int(1)]), (2, vec![Value::Int(2)])]);
    let removed = b"- column a text?\n0 only in A, 0 only in B, 0 changed, 2 equal\n";
    assert_answer(&diff(&a, &b, &[]), 1, removed);
}

#[test]
fn a_typed_and_an_untyped_table_cannot_be_compared() {
    let (_folder, typed) = products();
    let (_folder, untyped) = baked();
    let expected = "products.db is typed, and ";
    assert_error(&diff(&typed, &untyped, &[]), &[expected, "pass two typed tables or none"]);
    assert_error(&diff(&untyped, &typed, &[]), &[expected, "pass two typed tables or none"]);
}
