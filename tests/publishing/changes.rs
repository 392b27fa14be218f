//! Generations that differ from the preceding one as the result of a failed export does.

use serde_json::json;
use zero_kv::bake::Keys;

use super::stores::Store;
use crate::helpers::rows::bake_text;

fn rows(count: u64) -> String {
    (0..count).map(|key| format!("{key},value\n")).collect()
}

pub(crate) fn suspicious_changes_are_rejected_unless_they_are_allowed(store: &Store) {
    store.bake("table.db", &rows(100));
    store.zkv(&["publish", "table.db", "--to", "URL"]).succeeds();
    store.bake("empty.db", "");
    store.bake("half.db", &rows(50));
    bake_text(&store.path("bytes.db"), Keys::BYTES, rows(100));
    let typed: String = (0..100).map(|key| format!("{key},{key}\n")).collect();
    std::fs::write(store.path("typed.csv"), format!("id,price\n{typed}")).unwrap();
    let mut bake = store.command(env!("CARGO_BIN_EXE_baker"));
    bake.args(["--header", "--key", "id", "--typed", "--types", "price:u32", "typed.csv", "-o", "typed.db"]);
    super::stores::Ran::new(bake.output().unwrap()).succeeds();
    let uploaded = store.objects("data");
    let mut generation = 1;
    for (file, option, name, problem) in [
        ("empty.db", "--allow-empty", "empty", "it has no rows, expected about 100"),
        ("half.db", "--allow-shrink", "shrink", "it has 50 rows, expected at least 51"),
        ("bytes.db", "--allow-key-type-change", "key-type", "its keys are bytes, expected u64"),
        ("typed.db", "--allow-schema-change", "schema", "its columns differ: price:u32 is new"),
    ] {
        let publish = |options: &[&str]| store.zkv(&[&["publish", file, "--to", "URL", "--json"], options].concat());
        let differs = format!("the new generation differs from generation {generation}: {problem}");
        publish(&[]).fails(2, &[&differs, &format!("({option})")]);
        // An option for another change does not help.
        let other = if name == "shrink" { "--allow-empty" } else { "--allow-shrink" };
        publish(&[other]).fails(2, &[&differs]);
        if generation == 1 {
            assert_eq!(store.objects("data"), uploaded, "nothing is uploaded before the comparison");
        }
        assert_eq!(publish(&[option]).json()["allowed"], json!([name]));
        // Back to the first table. Only what differs is recorded.
        let all = ["--allow-empty", "--allow-shrink", "--allow-key-type-change", "--allow-schema-change"];
        let back = store.zkv(&[&["publish", "table.db", "--to", "URL", "--json"], &all[..]].concat()).json();
        let expected = if name == "empty" || name == "shrink" { json!(null) } else { json!([name]) };
        assert_eq!(back["allowed"], expected);
        generation += 2;
    }
    // A table with one row more than half of the rows is not suspicious.
    store.bake("table.db", &rows(51));
    store.zkv(&["publish", "table.db", "--to", "URL"]).succeeds();
}

pub(crate) fn a_generation_is_compared_with_the_newest_one_that_can_be_read(store: &Store) {
    store.bake("table.db", &rows(100));
    for _ in 1..=3 {
        store.zkv(&["publish", "table.db", "--to", "URL"]).succeeds();
    }
    store.write("manifests/00000000000000000003.json", b"{}".to_vec());
    store.remove("manifests/00000000000000000002.json");
    store.bake("half.db", &rows(50));
    let publish = |options: &[&str]| store.zkv(&[&["publish", "half.db", "--to", "URL", "--json"], options].concat());
    publish(&[]).fails(2, &["differs from generation 1"]);
    assert_eq!(publish(&["--allow-shrink"]).json()["number"], json!(4));
}

/// Readers that name the old column would fail on every node.
pub(crate) fn a_renamed_removed_or_retyped_column_is_rejected_unless_it_is_allowed(store: &Store) {
    let bake = |columns: &str, types: &str, options: &[&str]| {
        std::fs::write(store.path("rows.csv"), format!("id,{columns}\n1,2,3\n")).unwrap();
        let mut command = store.command(env!("CARGO_BIN_EXE_baker"));
        command.args(["rows.csv", "--header", "--key", "id", "--typed", "--types", types, "-o", "table.db"]);
        super::stores::Ran::new(command.args(options).output().unwrap())
    };
    let to_url = ["--to", store.url()];
    bake("views,score", "views:u32,score:f32", &to_url).succeeds();
    for (columns, types, problem) in [
        ("views,rating", "views:u32,rating:f32", "its columns differ: score:f32 is missing; rating:f32 is new"),
        ("views,score", "views:u32,score:f64", "its columns differ: score is f64, expected f32"),
    ] {
        let failed = bake(columns, types, &to_url);
        assert_eq!(failed.output.status.code(), Some(1), "{failed:?}");
        assert!(failed.err.contains(problem) && failed.err.contains("(--allow-schema-change)"), "{failed:?}");
        // The baked file is in place.
        store.zkv(&["publish", "table.db", "--to", "URL"]).fails(2, &[problem, "(--allow-schema-change)"]);
    }
    assert_eq!(store.objects("manifests").len(), 1);
    bake("views,rating", "views:u32,rating:f32", &[&to_url[..], &["--allow-schema-change"]].concat()).succeeds();
    let listed = store.zkv(&["generations", "URL", "--json"]).json();
    assert_eq!(listed["generations"].as_array().unwrap().len(), 2);
}

pub(crate) fn a_bake_that_publishes_is_compared(store: &Store) {
    std::fs::write(store.path("rows.csv"), rows(100)).unwrap();
    std::fs::write(store.path("half.csv"), rows(50)).unwrap();
    let bake = |input: &str, options: &[&str]| {
        let mut command = store.command(env!("CARGO_BIN_EXE_baker"));
        command.args([input, "-o", "table.db", "--to", store.url()]).args(options);
        super::stores::Ran::new(command.output().unwrap())
    };
    bake("rows.csv", &[]).succeeds();
    let failed = bake("half.csv", &[]);
    assert_eq!(failed.output.status.code(), Some(1), "{failed:?}");
    assert!(
        failed.err.contains("it has 50 rows, expected at least 51") && failed.err.contains("(--allow-shrink)"),
        "{failed:?}"
    );
    bake("half.csv", &["--allow-shrink"]).succeeds();
    // The options for the file also apply to the generation.
    std::fs::write(store.path("empty.csv"), "").unwrap();
    bake("empty.csv", &["--allow-empty"]).succeeds();
}
