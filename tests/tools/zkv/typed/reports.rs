//! `zkv inspect` and `zkv verify`.

use serde_json::{Value as Json, json};

use super::*;

#[test]
fn inspect_describes_the_schema() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    let columns = ["price:decimal(10,2)", "is_new:bool?", "name:text", "vector:list(f32,3)"];
    let rows = [(7_u64, {
        vec![
            Value::Decimal { unscaled: 1, scale: 2 },
            Value::Null,
            Value::Text("pen"),
            Value::List(List::new(ElementType::F32, &[0; 12]).unwrap()),
        ]
    })];
    let schema = schema("id", &columns);
    write_table(&db, &schema, &rows);
    let output = zkv().arg("inspect").arg(&db).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = format!(
        "\n\nschema        {:016x}\nkey column    id\nfixed part    25 bytes per row\n\n\
         column  type           nullable   bytes\n\
         price   decimal(10,2)        no       8\n\
         is_new  bool                yes   1 bit\n\
         name    text                 no  varies\n\
         vector  list(f32,3)          no      12\n\nfirst key     7\n",
        schema.id()
    );
    assert!(text.contains(&expected), "{text}");
    assert!(text.lines().any(|line| line.starts_with("schema  ") && line.contains(" % ")), "{text}");

    let output = zkv().args(["inspect", "--json"]).arg(&db).output().unwrap();
    let report: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["header_len_bytes"], &report["schema"]["key_name"]), (&json!(304), &json!("id")));
    assert_eq!(report["schema"]["fixed_len_bytes"], 25);
    let column = |name, column_type, is_nullable, width_bytes: Option<u64>| json!({"name": name, "type": column_type, "is_nullable": is_nullable, "width_bytes": width_bytes});
    assert_eq!(
        report["schema"]["columns"],
        json!([
            column("price", "decimal(10,2)", false, Some(8)),
            column("is_new", "bool", true, None),
            column("name", "text", false, None),
            column("vector", "list(f32,3)", false, Some(12)),
        ])
    );
    let (_folder, untyped) = baked();
    let output = zkv().args(["inspect", "--json"]).arg(untyped).output().unwrap();
    assert_eq!(serde_json::from_slice::<Json>(&output.stdout).unwrap()["schema"], Json::Null);
}

#[test]
fn verify_checks_every_row() {
    let (_folder, db) = products();
    assert_eq!(zkv().arg("verify").arg(&db).output().unwrap().status.code(), Some(0));
    let schema = schema("id", &["name:text", "stock:u16?"]);
    let mut encoder = RowEncoder::new(&schema);
    let whole = encoder.encode(&[Value::Text("pen"), Value::Null]).unwrap().to_vec();
    // The stock of a null cell, an unused bit, text that is not UTF-8, and the end of the row.
    for (at, xor, fault) in [
        (4, 1, "a null cell has a value"),
        (6, 2, "an unused bit is not zero"),
        (7, 0x80, "text is not UTF-8"),
        (0, 1, "a value is not inside the row"),
    ] {
        let mut wrong = whole.clone();
        wrong[at] ^= xor;
        let rows = |wrong: Vec<u8>| [(b"a".to_vec(), whole.clone()), (b"b\xff".to_vec(), wrong)].into();
        fs::write(&db, encoder::encode_typed(&rows(wrong), &schema.encode())).unwrap();
        let message = format!("row 1 (key \"b\\xff\"): the value is not a row of the schema ({fault})");
        assert_damaged(&zkv().arg("verify").arg(&db).output().unwrap(), &message);
        assert_error(&zkv().arg("dump").arg(&db).output().unwrap(), &[&message]);
    }
}
