//! Publishing, listing, pinning, and pulling.

use std::fs;

use serde_json::{Value, json};

use super::stores::{Ran, Store};
use crate::helpers::published::sealed;

pub(crate) fn a_published_file_is_pulled_byte_by_byte(store: &Store) {
    store.bake("table.db", "1,one\n7,seven\n");
    let published = store.zkv(&["publish", "table.db", "--to", "URL", "--note", "first"]);
    let stages: Vec<_> =
        published.err.lines().filter_map(|line| line.split_once("  ")).map(|(stage, _)| stage).collect();
    assert_eq!(stages, ["verify", "upload", "read back"], "{published:?}");
    let text = published.succeeds();
    assert!(text.starts_with(&format!("{}: generation 1: 2 rows, ", store.url())), "{text}");
    let pulled = store.zkv(&["pull", "URL", "-o", "copy.db"]).succeeds();
    assert!(pulled.starts_with("copy.db: generation 1 (the newest one), 2 rows, "), "{pulled}");
    assert!(fs::read(store.path("table.db")).unwrap() == fs::read(store.path("copy.db")).unwrap());
    let mut names: Vec<_> = fs::read_dir(store.files.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    names.sort();
    names.retain(|name| name != "published");
    assert_eq!(names, ["copy.db", "table.db"], "no other file is left");
}

pub(crate) fn a_table_without_generations_is_reported(store: &Store) {
    store.zkv(&["generations", "URL"]).fails(1, &["has no generation"]);
    store.zkv(&["pull", "URL", "-o", "copy.db"]).fails(1, &["has no generation"]);
    assert!(!store.path("copy.db").exists());
    let listed = store.zkv(&["generations", "URL", "--json"]);
    assert_eq!(listed.output.status.code(), Some(1));
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    assert_eq!(listed, json!({"url": store.url(), "pin": null, "generations": []}));
}

pub(crate) fn pins_select_what_is_pulled(store: &Store) {
    for generation in 1..=3 {
        store.publish(generation);
    }
    let pulled = |args: &[&str]| store.zkv(&[&["pull", "URL", "-o", "copy.db"], args].concat()).succeeds();
    assert!(pulled(&[]).contains(": generation 3 (the newest one), "));
    assert!(pulled(&["1"]).contains(": generation 1 (requested), "));
    assert_eq!(store.zkv(&["pin", "URL", "2"]).succeeds(), "pin 1: all nodes serve generation 2\n");
    assert!(pulled(&[]).contains(": generation 2 (pinned), "));
    // The nodes that a pin does not name keep their generation.
    let pin = store.zkv(&["pin", "URL", "3", "--node", "b,a", "--hold"]);
    assert!(pin.err.contains("warning: no node \"b\" has reported a status"), "{pin:?}");
    assert_eq!(pin.succeeds(), "pin 2: nodes b,a prepare generation 3, and other nodes serve generation 2\n");
    assert!(pulled(&[]).contains(": generation 2 (pinned), "));
    let listed = store.zkv(&["generations", "URL", "--count", "2"]).succeeds();
    let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), 4, "{listed}");
    assert_eq!((lines[1][0], lines[2][0], lines[2].last()), ("2", "3", Some(&"yes")), "{listed}");
    let pin = "pin 2: nodes b,a prepare generation 3, and other nodes serve generation 2 (created ";
    assert!(lines[3].join(" ").starts_with(pin), "{listed}");
    assert_eq!(store.zkv(&["unpin", "URL"]).succeeds(), "pin 3: all nodes serve the newest generation\n");
    assert!(pulled(&[]).contains(": generation 3 (the newest one), "));
    store.zkv(&["pull", "URL", "4", "-o", "copy.db"]).fails(1, &["has no generation 4"]);
}

/// Returns the user and the machine of this process, from other programs than those under test.
fn user_and_machine() -> String {
    let output = |program: &str, option: &str| {
        let output = std::process::Command::new(program).arg(option).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    format!("{}@{}", output("id", "-un"), output("uname", "-n"))
}

pub(crate) fn generations_and_pins_name_who_created_them(store: &Store) {
    let (creator, tool) = (user_and_machine(), concat!("zero-kv ", env!("CARGO_PKG_VERSION")));
    store.publish(1);
    store.zkv(&["pin", "URL", "1"]).succeeds();
    let listed = store.zkv(&["generations", "URL"]).succeeds();
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((rows[0][2], rows[1][2]), ("by", &*creator), "{listed}");
    assert!(listed.ends_with(&format!(" by {creator} with {tool})\n")), "{listed}");
    let listed = store.zkv(&["generations", "URL", "--json"]).json();
    for document in [&listed["generations"][0], &listed["pin"]] {
        assert_eq!((&document["created_by"], &document["tool"]), (&json!(creator), &json!(tool)));
    }
}

pub(crate) fn json_has_the_facts_of_the_text(store: &Store) {
    store.bake("table.db", "1,one\n7,seven\n");
    let manifest = store.zkv(&["publish", "table.db", "--to", "URL", "--note", "a\nb", "--json"]).json();
    assert_eq!((&manifest["number"], &manifest["note"]), (&json!(1), &json!("a\nb")));
    assert_eq!(manifest["entries"][0]["rows"], json!(2));
    let pin = store.zkv(&["pin", "URL", "1", "--json"]).json();
    assert_eq!((&pin["number"], &pin["generation"], &pin["hold"]), (&json!(1), &json!(1), &json!(false)));
    let listed = store.zkv(&["generations", "URL", "--json"]).json();
    let generation = &listed["generations"][0];
    assert_eq!(
        (&generation["number"], &generation["pinned"], &generation["nodes"]),
        (&json!(1), &json!(true), &json!([]))
    );
    assert_eq!(generation["digest"], manifest["entries"][0]["digest"]);
    assert_eq!(listed["pin"], pin);
    assert_eq!(store.zkv(&["pull", "URL", "-o", "copy.db", "--json"]).json(), manifest);
    assert_eq!(store.zkv(&["unpin", "URL", "--json"]).json()["generation"], json!(null));
    // A line end in a note does not begin another line.
    assert_eq!(store.zkv(&["generations", "URL"]).succeeds().lines().count(), 3);
}

pub(crate) fn hostile_notes_are_listed_on_one_line(store: &Store) {
    store.bake("table.db", "1,one\n");
    let note = format!("a\x1b[2J\u{9b}1;1H\u{202e}\n9  {}", "x".repeat(66_000));
    store.zkv(&["publish", "table.db", "--to", "URL", "--note", &note]).succeeds();
    let listed = store.zkv(&["generations", "URL"]).succeeds();
    assert!(listed.contains(r"a\u001b[2J\u009b1;1H\u202e\n9  xxx"), "{listed}");
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(listed.lines().all(|line| line.len() < 400), "{listed}");
    let hostile = "n\u{1b}[2J\n".repeat(100);
    let pin = json!({"generation": 1, "created": hostile, "created_by": hostile, "tool": hostile});
    store.write("pins/00000000000000000001.json", sealed(&pin.to_string()));
    let listed = store.zkv(&["generations", "URL"]).succeeds();
    assert!(listed.contains(r"(created n\u001b[2J\n") && !listed.contains('\u{1b}'), "{listed}");
    assert_eq!(listed.lines().count(), 3, "{listed}");
}

pub(crate) fn racing_publishers_lose_no_generation(store: &Store) {
    store.bake("a.db", "1,a\n2,a\n");
    store.bake("b.db", "1,b\n2,b\n3,b\n");
    for round in 0..10 {
        let publish = |file| store.zkv_command(&["publish", file, "--to", "URL", "--json"]).spawn().unwrap();
        let numbers = [publish("a.db"), publish("b.db")]
            .map(|child| Ran::new(child.wait_with_output().unwrap()).json()["number"].as_u64().unwrap());
        let mut sorted = numbers;
        sorted.sort();
        assert_eq!(sorted, [2 * round + 1, 2 * round + 2], "both publishers get the next numbers");
        for (number, rows) in numbers.into_iter().zip([2, 3]) {
            let pulled = store.zkv(&["pull", "URL", &number.to_string(), "-o", "copy.db"]).succeeds();
            assert!(pulled.contains(&format!(", {rows} rows, ")), "{pulled}");
        }
    }
    // Only one of two publishers with the same parent succeeds.
    let publish = || store.zkv_command(&["publish", "a.db", "--to", "URL", "--parent", "20"]).spawn().unwrap();
    let ran = [publish(), publish()].map(|child| Ran::new(child.wait_with_output().unwrap()));
    let failed: Vec<&Ran> = ran.iter().filter(|ran| ran.output.status.code() != Some(0)).collect();
    assert_eq!(failed.len(), 1, "{ran:?}");
    failed[0].fails(2, &["generation 21 is the newest one, expected 20"]);
}

pub(crate) fn the_store_is_checked(store: &Store) {
    let ran = store.zkv(&["store", "check", "URL", "--races", "20"]);
    // Servers for tests lose some races, which the check then finds.
    let is_usable = ran.out.contains("creates an object only once in a race: yes, in 20 of 20 races\n");
    assert_eq!(ran.output.status.code(), Some(if is_usable { 0 } else { 1 }), "{ran:?}");
    assert!(is_usable || !store.is_folder(), "{ran:?}");
    assert!(ran.out.contains("returns new objects: yes\nlists new objects: yes\n"), "{ran:?}");
    let sure = "a store that loses 1 % of races passes this check with a probability of 81.79 %, and one that loses 5 % with \
        35.85 %";
    assert_eq!(ran.out.contains(&format!("{}: usable\n{sure}", store.url())), is_usable, "{ran:?}");
    let report: Value =
        serde_json::from_str(&store.zkv(&["store", "check", "URL", "--json", "--races", "3"]).out).unwrap();
    assert_eq!((&report["creates_once"], &report["races"]), (&json!(true), &json!(3)));
    assert_eq!(report["usable"], json!(report["lost_races"] == 0));
    assert!(report["upload_bytes_per_s"].as_u64().unwrap() > 0);
    assert_eq!(store.objects("probe"), [""; 0], "nothing is left");
}
