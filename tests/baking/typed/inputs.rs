//! The formats of inputs, and the columns that options choose.

use crate::helpers::baker_runs::Folder;
use zero_kv::Lookup;

const CSV: &str = "id,price,name,on\n2,0.5,\"a, b\",true\n1,-3,,FALSE\n";
const TYPES: &str = "id:u64,name:text?,price:f32,on:bool";

#[test]
fn declared_types_select_and_order_the_columns() {
    let folder = Folder::new();
    folder.bake_text(CSV, &["--header", "--key", "id", "--types", TYPES]).succeeds();
    assert_eq!(folder.typed_rows(), ["1 name=null price=-3 on=false", "2 name=a, b price=0.5 on=true"]);
    assert_eq!(folder.schema(), "name:text?,price:f32,on:bool");
    assert_eq!(folder.open("storage.db").schema().unwrap().key_name(), Some("id"));
    // --columns selects and orders columns of the declared types.
    folder.bake_text(CSV, &["--header", "--key", "id", "--types", TYPES, "--columns", "on,price"]).succeeds();
    assert_eq!(folder.schema(), "on:bool,price:f32");
    // Numbers select columns, too.
    folder.bake_text(CSV, &["--header", "--key", "1", "--types", TYPES, "--columns", "4,2"]).succeeds();
    assert_eq!(folder.schema(), "on:bool,price:f32");
    // Without a header, the types name the fields.
    folder.bake_text("7,x\n", &["--key", "id", "--types", "id:u64,name:text"]).succeeds();
    assert_eq!(folder.typed_rows(), ["7 name=x"]);
}

#[test]
fn types_are_inferred_and_printed() {
    let folder = Folder::new();
    let args = ["--header", "--key", "id", "--typed"];
    folder.bake_text(CSV, &args).infers("'id:u64,price:f64,name:text?,on:bool'");
    assert_eq!(folder.typed_rows(), ["1 price=-3 name=null on=false", "2 price=0.5 name=a, b on=true"]);
    folder.bake_text(CSV, &[&args[..], &["--columns", "on"]].concat()).infers("id:u64,on:bool");
    let ended = folder.bake_text(CSV, &[&args[..], &["--quiet"]].concat());
    assert_eq!((&*ended.succeeds().out, &*ended.err), ("", ""));
    // The printed line gives the same table.
    let inferred = std::fs::read(folder.path("storage.db")).unwrap();
    folder.bake_text(CSV, &[&args[..], &["--types", "id:u64,price:f64,name:text?,on:bool"]].concat()).succeeds();
    assert!(std::fs::read(folder.path("storage.db")).unwrap() == inferred);
    // Text keys.
    let text = "id,day,at\na,2026-11-21,2026-11-21T19:09:38.5Z\n";
    folder
        .bake_text(text, &[&args[..], &["--keys", "bytes", "--allow-key-type-change"]].concat())
        .infers("'id:bytes,day:date,at:timestamp(us)'");
    assert_eq!(folder.typed_rows(), ["a day=2026-11-21 at=2026-11-21T19:09:38.500000Z"]);
}

#[test]
fn fields_of_json_lines_are_cells() {
    let folder = Folder::new();
    let text = r#"{"id":1,"a":1,"b":"x\u0041","c":[1,2],"d":true,"x":"2026-11-21"}
{"id":2,"a":null,"c":[0.5],"b":{"n": 1},"d":false,"x":"2026-11-22"}
"#;
    folder
        .bake_text(text, &["--format", "jsonl", "--key", "id", "--typed"])
        .infers("'id:u64,a:i64?,b:text,c:list(f64),d:bool,x:date'");
    let expected = ["1 a=1 b=xA c=[1,2] d=true x=2026-11-21", "2 a=null b={\"n\": 1} c=[0.5] d=false x=2026-11-22"];
    assert_eq!(folder.typed_rows(), expected.map(|row| row.replace('"', "\\\"")));
    let types = "d:bool,e:u8?,c:list(f32)";
    folder.bake_text(text, &["--format", "jsonl", "--key", "id", "--types", types]).succeeds();
    assert_eq!(folder.typed_rows(), ["1 d=true e=null c=[1,2]", "2 d=false e=null c=[0.5]"]);
    // Lists of strings, however they are spelled.
    let text = "{\"id\":1,\"t\":[ \"a\\u0041\" , \"\\/\" ]}\n{\"id\":2,\"t\":[]}\n{\"id\":3}\n";
    folder.bake_text(text, &["--format", "jsonl", "--key", "id", "--typed"]).infers("'id:u64,t:list(text)?'");
    assert_eq!(folder.typed_rows(), ["1 t=[\\\"aA\\\",\\\"/\\\"]", "2 t=[]", "3 t=null"]);
    let csv = "id,t\n1,\"[\"\"aA\"\", \"\"/\"\"]\"\n2,[]\n3,\n";
    let of_json = std::fs::read(folder.path("storage.db")).unwrap();
    folder.bake_text(csv, &["--header", "--key", "id", "--types", "t:list(text)?"]).succeeds();
    assert!(std::fs::read(folder.path("storage.db")).unwrap() == of_json);
    // A string has the text of its value.
    let text =
        "{\"k\":\"a\",\"v\":\"-1.50\",\"f\":\"NaN\",\"n\":\"18446744073709551615\",\"t\":\"2026-11-21T00:00:00Z\"}\n";
    let types = "k:text,v:decimal(4,2),f:f32,n:u64,t:timestamp(ms)";
    let args = ["--format", "jsonl", "--key", "k", "--types", types, "--allow-key-type-change"];
    folder.bake_text(text, &args).succeeds();
    assert_eq!(folder.typed_rows(), ["a v=-1.50 f=NaN n=18446744073709551615 t=2026-11-21T00:00:00.000Z"]);
}

#[test]
fn other_inputs_have_the_columns_of_the_first() {
    let folder = Folder::new();
    folder.write("1.csv", "id,a,b\n1,1,x\n");
    folder.write("2.csv", "b,extra,id,a\ny,?,2,2\n");
    folder.write("3.jsonl", "{\"id\":3,\"b\":\"z\",\"a\":3}\n");
    folder.bake(&["1.csv", "2.csv", "3.jsonl", "--header", "--key", "id", "--typed"]).infers("id:u64,a:i64,b:text");
    assert_eq!(folder.typed_rows(), ["1 a=1 b=x", "2 a=2 b=y", "3 a=3 b=z"]);
    folder.write("4.csv", "id,b\n4,w\n");
    folder
        .bake(&["1.csv", "4.csv", "--header", "--key", "id", "--types", "a:i8,b:text"])
        .fails("4.csv: the typed column \"a\" does not exist: the header has id, b (--columns, --types NAME:TYPE?)");
}

#[test]
fn a_column_that_can_be_null_is_null_in_an_older_input_that_lacks_it() {
    let folder = Folder::new();
    folder.write("new.csv", "id,a,b\n1,1,x\n2,,y\n");
    folder.write("old.csv", "b,id\nz,3\n");
    folder.write("older.csv", "id,b\n4,w\n");
    folder.write("old.jsonl", "{\"id\":5,\"b\":\"v\"}\n");
    let inputs = ["old.csv", "older.csv", "new.csv", "old.jsonl", "--header", "--key", "id"];
    let types = ["--types", "a:i64?,b:text"];
    let ended = folder.bake(&[&inputs[..], &types].concat());
    assert_eq!(
        (ended.status.code(), &*ended.err),
        (
            Some(0),
            "baker: warning: old.csv: the typed column \"a\" does not exist, and is null in all rows of the input: correct \
             the name, or require all columns (--require-columns)\n"
        )
    );
    let rows = ["1 a=1 b=x", "2 a=null b=y", "3 a=null b=z", "4 a=null b=w", "5 a=null b=v"];
    assert_eq!(folder.typed_rows(), rows);
    folder
        .bake(&[&inputs[..], &types, &["--require-columns"]].concat())
        .fails("old.csv: the typed column \"a\" does not exist: the header has b, id (--columns)");
    // The types of the first input apply to the others.
    let ended = folder.bake(&["new.csv", "old.csv", "--header", "--key", "id", "--typed"]);
    assert!(ended.status.success() && ended.err.contains("old.csv: the typed column \"a\""), "{}", ended.err);
    assert_eq!(folder.typed_rows(), rows[..3]);
    let ended = folder.bake(&["new.csv", "--require-columns"]);
    assert!(ended.err.contains("--require-columns requires --typed or --types: pass one of them"), "{}", ended.err);
}

#[cfg(feature = "full")]
#[test]
fn a_column_that_can_be_null_is_null_in_an_older_parquet_file() {
    let folder = Folder::new();
    folder.bake_text("id,b\n3,z\n", &["--header", "--key", "id", "--types", "b:text"]).succeeds();
    let zkv = crate::helpers::programs::program("zkv");
    let dump = ["dump", "storage.db", "--format", "parquet", "-o", "old.parquet"];
    folder.run(folder.command(&zkv).args(dump), b"").succeeds();
    let types = ["old.parquet", "--key", "id", "--types", "a:list(f32)?,b:text,c:i64?"];
    let ended = folder.bake(&types);
    assert_eq!((ended.status.code(), ended.err.matches("is null in all rows").count()), (Some(0), 2), "{}", ended.err);
    assert_eq!(folder.typed_rows(), ["3 a=null b=z c=null"]);
    let ended = folder.bake(&[&types[..], &["--require-columns"]].concat());
    assert!(ended.status.code() == Some(1) && ended.err.contains("\"a\" does not exist"), "{}", ended.err);
}

#[test]
fn a_row_that_removes_its_key_needs_no_cells() {
    let folder = Folder::new();
    let args = ["--header", "--key", "id", "--delete-column", "gone", "--duplicates", "last"];
    let text = "id,a,gone\n1,1,0\n2,2,\n1,,1\n";
    folder.bake_text(text, &[&args[..], &["--types", "a:u8"]].concat()).succeeds();
    assert_eq!(folder.typed_rows(), ["2 a=2"]);
    folder.bake_text(text, &[&args[..], &["--typed"]].concat()).infers("id:u64,a:i64");
    let json = "{\"id\":1,\"a\":1}\n{\"id\":1,\"gone\":true}\n{\"id\":2,\"a\":2,\"gone\":false}\n";
    folder.bake_text(json, &[&args[..], &["--typed", "--format", "jsonl"]].concat()).infers("id:u64,a:i64");
    assert_eq!(folder.typed_rows(), ["2 a=2"]);
}

#[test]
fn inputs_without_rows_give_an_empty_table_if_types_are_declared() {
    let folder = Folder::new();
    folder.bake_text("", &["--header", "--key", "id", "--types", "id:u64,a:i8", "--allow-empty"]).succeeds();
    assert_eq!((folder.schema(), folder.typed_rows().len()), ("a:i8".to_owned(), 0));
    folder.bake_text("", &["--header", "--key", "id", "--typed"]).fails(
        "the inputs have no rows, from which the types of columns could be inferred: declare the types (--types)",
    );
}

#[test]
fn the_same_rows_give_the_same_file_in_any_order_and_from_pieces_of_any_length() {
    let folder = Folder::new();
    let row = |i: u32| format!("{i},{},{}\n", i % 7, "x".repeat(i as usize % 50));
    let rows: Vec<_> = (0..60_000).map(row).collect();
    let backward: String = rows.iter().rev().map(String::as_str).collect();
    let text = rows.concat();
    let args = ["--header", "--key", "id", "--typed"];
    let mut files = Vec::new();
    for (text, memory) in [(&text, "1GiB"), (&text, "16MiB"), (&backward, "16MiB")] {
        let ended = folder.bake_text(format!("id,a,b\n{text}"), &[&args[..], &["--memory", memory]].concat());
        ended.infers("'id:u64,a:i64,b:text?'");
        files.push(std::fs::read(folder.path("storage.db")).unwrap());
    }
    assert!(files.windows(2).all(|pair| pair[0] == pair[1]));
}
