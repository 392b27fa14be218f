//! Bases and merges of typed tables.

use crate::helpers::baker_runs::Folder;

const KEY: [&str; 3] = ["--header", "--key", "id"];

/// Returns a folder with the table `base.db`.
fn with_base(types: &str, text: &str) -> Folder {
    let folder = Folder::new();
    folder.bake_text(text, &[&KEY[..], &["--types", types, "-o", "base.db"]].concat()).succeeds();
    folder
}

fn bake(folder: &Folder, text: &str, args: &[&str]) -> crate::helpers::baker_runs::Ended {
    folder.bake_text(text, &[&KEY[..], &["--base", "base.db"], args].concat())
}

#[test]
fn columns_of_the_base_are_matched_by_name() {
    let folder = with_base("a:u8,b:text,c:f32?", "id,a,b,c\n1,1,x,0.5\n2,2,y,\n3,3,z,1\n");
    bake(&folder, "id,c,d,a\n2,7,true,9\n", &["--types", "c:f32?,d:bool?,a:u8"]).succeeds();
    assert_eq!(folder.typed_rows(), ["1 c=0.5 d=null a=1", "2 c=7 d=true a=9", "3 c=1 d=null a=3"]);
    // The rows of an unchanged schema are the same as those of a bake of all rows.
    bake(&folder, "id,a,b,c\n2,9,w,7\n", &["--types", "a:u8,b:text,c:f32?"]).succeeds();
    let merged = std::fs::read(folder.path("storage.db")).unwrap();
    let all = "id,a,b,c\n1,1,x,0.5\n2,9,w,7\n3,3,z,1\n";
    folder.bake_text(all, &[&KEY[..], &["--types", "a:u8,b:text,c:f32?"]].concat()).succeeds();
    assert!(std::fs::read(folder.path("storage.db")).unwrap() == merged);
}

#[test]
fn a_converted_base_gives_the_file_of_a_bake_of_all_rows() {
    let row = |i: u32| format!("{i},{},{}\n", i % 200, "x".repeat(i as usize % 20));
    let rows: String = (0..30_000).map(row).collect();
    let folder = with_base("a:u8,b:text", &format!("id,a,b\n{rows}"));
    bake(&folder, "id,b,n,a\n", &["--types", "b:text,n:u8?,a:i32", "--cast", "--slots", "0-8191"]).succeeds();
    let converted = std::fs::read(folder.path("storage.db")).unwrap();
    let rows: String = (0..30_000).map(|i| format!("{i},{},,{}\n", "x".repeat(i as usize % 20), i % 200)).collect();
    let args = ["--types", "b:text,n:u8?,a:i32", "--slots", "0-8191"];
    folder.bake_text(format!("id,b,n,a\n{rows}"), &[&KEY[..], &args].concat()).succeeds();
    assert!(std::fs::read(folder.path("storage.db")).unwrap() == converted);
}

#[test]
fn types_of_the_base_are_kept_if_types_are_inferred() {
    let folder = with_base("a:u8,b:decimal(4,2)", "id,a,b\n1,1,0.50\n");
    bake(&folder, "id,a,b,c\n2,2,1,x\n", &["--typed"]).infers("'id:u64,a:u8,b:decimal(4,2),c:text?'");
    assert_eq!(folder.typed_rows(), ["1 a=1 b=0.50 c=null", "2 a=2 b=1.00 c=x"]);
}

#[test]
fn changed_types_are_rejected_or_converted() {
    let folder = with_base("a:i64,b:text?", "id,a,b\n1,1,x\n2,300,\n");
    bake(&folder, "id,a,b\n3,3,z\n", &["--types", "a:u8,b:text?"]).fails(
        "a:i64 is a column of the base base.db, where a:u8 was expected: declare the type of the base, or convert the values \
         of the base (--types, --cast)",
    );
    bake(&folder, "id,a,b\n3,3,z\n", &["--types", "a:i64,b:text"]).fails(
        "b:text? is a column of the base base.db, where b:text was expected: declare the type of the base, or convert the \
         values of the base (--types, --cast)",
    );
    bake(&folder, "id,a,b,c\n3,3,z,1\n", &["--types", "a:i64,b:text?,c:u8"]).fails(
        "the base base.db has no column \"c\", so its rows have no value for it: declare that the column can be null \
         (--types NAME:TYPE?)",
    );
    bake(&folder, "id,a,b\n3,3,z\n", &["--types", "a:f32,b:text?", "--cast"]).succeeds();
    assert_eq!(folder.typed_rows(), ["1 a=1 b=x", "2 a=300 b=null", "3 a=3 b=z"]);
    let narrow = ["--types", "a:u8,b:text?", "--cast"];
    bake(&folder, "id,a,b\n3,3,z\n", &narrow).fails(
        "base.db: row 1: column \"a\" is \"300\", where u8 was expected (a value that fits exactly): correct the row, or \
         declare another type (--types)",
    );
    let skip = ["--bad-rows", "skip", "--bad-rows-file", "bad.csv"];
    let ended = bake(&folder, "id,a,b\n3,3,z\n4,4000,w\n", &[&narrow[..], &skip].concat());
    assert!(ended.succeeds().out.starts_with("storage.db: 2 rows (2 bad rows skipped), "), "{}", ended.out);
    assert_eq!(folder.typed_rows(), ["1 a=1 b=x", "3 a=3 b=z"]);
    let bad = std::fs::read_to_string(folder.path("bad.csv")).unwrap();
    assert!(bad.contains("\nbase.db,1,\"column \"\"a\"\" is \"\"300\"\""), "{bad}");
}

#[test]
fn a_typed_base_and_untyped_inputs_are_rejected_and_vice_versa() {
    let folder = with_base("a:i64", "id,a\n1,1\n");
    folder
        .bake_text("1,1\n", &["--base", "base.db"])
        .fails("the base base.db is a typed table: bake typed columns as well (--typed)");
    folder.bake_text("1,1\n", &["-o", "base.db"]).succeeds();
    bake(&folder, "id,a\n3,3\n", &["--typed"])
        .fails("the values of the base base.db are not typed: bake values that are not typed, or choose another base");
}

#[test]
fn tables_with_equal_columns_are_merged() {
    let folder = with_base("a:u8,b:text", "id,a,b\n1,1,x\n3,3,z\n");
    folder.bake_text("id,b,a\n2,y,2\n", &[&KEY[..], &["--types", "b:text,a:u8", "-o", "other.db"]].concat()).succeeds();
    folder.bake(&["merge", "base.db", "other.db"]).succeeds();
    assert_eq!(folder.schema(), "a:u8,b:text");
    assert_eq!(folder.typed_rows(), ["1 a=1 b=x", "2 a=2 b=y", "3 a=3 b=z"]);
    let merged = std::fs::read(folder.path("storage.db")).unwrap();
    let all = "id,a,b\n1,1,x\n2,2,y\n3,3,z\n";
    folder.bake_text(all, &[&KEY[..], &["--types", "a:u8,b:text"]].concat()).succeeds();
    assert!(std::fs::read(folder.path("storage.db")).unwrap() == merged);
    // Rows keep their numbers in messages.
    let text = "id,b,a\n0,w,0\n3,y,2\n";
    folder.bake_text(text, &[&KEY[..], &["--types", "b:text,a:u8", "-o", "other.db"]].concat()).succeeds();
    folder.bake(&["merge", "base.db", "other.db"]).fails(
        "other.db: row 1: key 3 is already on row 1 of base.db: remove one, or choose which row to keep (--duplicates first \
         or --duplicates last)",
    );
    folder.bake_text(text, &[&KEY[..], &["--types", "b:text,a:u8?", "-o", "other.db"]].concat()).succeeds();
    folder
        .bake(&["merge", "base.db", "other.db"])
        .fails("other.db has the columns a:u8?, and base.db has the columns a:u8: merge tables with equal columns");
    folder.bake_text("9,x\n", &["-o", "other.db"]).succeeds();
    folder.bake(&["merge", "base.db", "other.db"]).fails(
        "other.db has values that are not typed, and base.db has the columns a:u8,b:text: merge tables with equal columns",
    );
}
