//! Documents with valid checksums whose numbers and texts no publisher writes. A node that reads them continues to
//! serve what it serves, reports the reason, and follows the next generation that is right.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use zero_kv::publish::{Canary, CommitOptions};

use crate::helpers::mixed_load::MixedLoad;
use crate::helpers::published::{Published, SHAPE, health, names, sealed, wait_for_error, wait_until_served};
use crate::helpers::servers::Server;

/// Forges of a manifest, and what the error says.
type Forges = Vec<(Box<dyn Fn(&mut Value)>, &'static str)>;

fn forges() -> Forges {
    let mut forges: Forges = Vec::new();
    let mut add = |change: fn(&mut Value, Value), value: Value, error| {
        forges.push((Box::new(move |body: &mut Value| change(body, value.clone())), error));
    };
    let bytes = |body: &mut Value, value: Value| body["entries"][0]["bytes"] = value;
    add(bytes, json!(1_u64 << 62), "the length in bytes is 4611686018427387904, expected at most 35184372088832");
    add(bytes, json!(u64::MAX), "the length in bytes is 18446744073709551615, expected at most");
    add(bytes, json!((1_u64 << 45) + 1), "the length in bytes is 35184372088833, expected at most");
    add(bytes, json!(-1), "is malformed: invalid value: integer `-1`");
    add(bytes, json!(1e308), "is malformed: invalid type: floating point");
    let rows = |body: &mut Value, value: Value| body["entries"][0]["rows"] = value;
    add(rows, json!(u64::MAX), "the number of rows is 18446744073709551615, expected at most 4294967296");
    let object = |body: &mut Value, value: Value| body["entries"][0]["object"] = value;
    for name in [
        "/etc/passwd",
        "data/../x",
        "data/a/../../x",
        "data//x",
        "data/a/.x",
        "../t/data/a/b",
        "data/a/b/c",
        "data/a/\u{1b}",
    ] {
        add(object, json!(name), "expected data/JOB/NAME");
    }
    add(
        object,
        json!(format!("data/a/{}", "x".repeat(1 << 20))),
        "the name of an object has 1048583 bytes, expected at most 512",
    );
    add(
        |body, value| body["entries"][0]["last_slot"] = value,
        json!(65535),
        "found the slots 0-65535, expected slots from 0 to 16383",
    );
    add(|body, value| body["entries"][0]["digest"] = value, json!("é".repeat(16)), "expected 32 hexadecimal digits");
    add(|body, value| body["entries"] = value, json!([]), "no file has the slots 0-16383");
    add(
        |body, value| body["number"] = value,
        json!(u64::MAX),
        "is the manifest of generation 18446744073709551615, expected 2",
    );
    add(|body, value| body["parent"] = value, json!(u64::MAX), "the number of the parent is 18446744073709551615");
    add(
        |body, value| body["note"] = value,
        json!("x".repeat((128 << 10) + 1)),
        "the note has 131073 bytes, expected at most 131072",
    );
    add(
        |body, value| body["created"] = value,
        json!("9".repeat(5000)),
        "the time has 5000 bytes, expected at most 1024",
    );
    add(
        |body, value| body["created_by"] = value,
        json!("u".repeat(2000)),
        "the name of the creator has 2000 bytes, expected at most 1024",
    );
    add(|body, value| body["schema"] = value, json!(vec![""; 5000]), "a list has more than 4096 elements");
    add(
        |body, value| body["canaries"] = value,
        json!(vec![json!({"key": "", "digest": ""}); (1 << 16) + 1]),
        "more than 65536 elements",
    );
    let canary = |body: &mut Value, value: Value| body["canaries"] = json!([{"key": value, "digest": "absent"}]);
    add(canary, json!("k".repeat(1 << 20)), "the key of a canary has 1048576 bytes, expected at most 65535");
    add(canary, json!("1,absent\n2"), "the key of a canary has a line end");
    add(
        |body, value| body["entries"][0]["bytes"] = value,
        json!("\u{1b}[2J".repeat(10_000)),
        "is malformed: invalid type: string",
    );
    forges
}

#[test]
fn a_manifest_with_impossible_numbers_or_texts_is_rejected() {
    let published = Published::new();
    published.publish(1);
    let node = published.node("a");
    let load = MixedLoad::start(&node, SHAPE, 1);
    let output = published.folder.path().join("pulled.db");
    for (change, error) in forges() {
        published.forge_manifest(2, change);
        let _ = node.client().reload();
        wait_for_error(&node, error);
        let shown = node.info().get("published_error").unwrap().to_owned();
        assert!(shown.chars().count() < 1000 && !shown.chars().any(char::is_control), "{shown}");
        assert_eq!(health(&node).0, Some(0), "{error}");
        let pull = Command::new(env!("CARGO_BIN_EXE_zkv"))
            .args(["pull", published.publication.url(), "-o"])
            .arg(&output)
            .output()
            .unwrap();
        let text = String::from_utf8(pull.stderr).unwrap();
        assert_eq!(pull.status.code(), Some(2), "{error}: {text}");
        assert!(text.contains(error), "{error}: {text}");
        assert!(text.len() < 2000 && !output.exists(), "{text}");
    }
    // These manifests are within the limits.
    published.forge_manifest(2, |body| {
        body["entries"][0]["bytes"] = json!(1_u64 << 45);
        body["entries"][0]["digest"] = json!("0".repeat(32));
    });
    wait_for_error(&node, "free bytes, and the file needs 35184372088832");
    let db = published.folder.path().join("next.db");
    SHAPE.bake(3, &db);
    let canary = Canary { key: "\u{1b}[2J".repeat(10_000), digest: "absent".to_owned() };
    published.publish_file(&db, &CommitOptions { canaries: vec![canary], ..CommitOptions::default() });
    wait_for_error(&node, "not a key of this table");
    assert_eq!(node.number("published_generation"), 1);
    load.wait_for_right(1000);
    let longest = node.log().lines().map(str::len).max();
    assert!(longest < Some(2000), "{longest:?}");
    load.allow(4);
    published.publish(4);
    wait_until_served(&node, 4);
    load.expect_at_least(4);
    assert_eq!(load.finish(), 0);
}

#[test]
fn a_manifest_that_is_too_long_is_not_read() {
    let published = Published::new();
    published.publish(1);
    let node = published.node("a");
    let manifest = published.table().join("manifests/00000000000000000002.json");
    // The file has no blocks.
    fs::File::create(&manifest).unwrap().set_len((64 << 20) + 1).unwrap();
    wait_for_error(&node, "has 67108865 bytes, expected at most 67108864");
    assert_eq!((node.number("published_generation"), health(&node).0), (1, Some(0)));
}

#[test]
fn pins_and_decisions_with_impossible_numbers_are_rejected() {
    let published = Published::new();
    published.publish(1);
    let node = published.node("a");
    let mut number = 1;
    let pin = |number: u64| published.table().join(format!("pins/{number:020}.json"));
    fs::create_dir_all(pin(1).parent().unwrap()).unwrap();
    for (body, error) in [
        (json!({"generation": u64::MAX, "created": ""}), "a generation is 18446744073709551615, expected at most"),
        (json!({"generation": 1, "others": u64::MAX, "created": ""}), "a generation is 18446744073709551615"),
        (
            json!({"generation": (1_u64 << 53) - 1, "created": ""}),
            "the pin names generation 9007199254740991, which does not",
        ),
        (json!({"generation": 0, "created": ""}), "the pin names generation 0, which does not exist"),
        (json!({"generation": -1, "created": ""}), "is malformed: invalid value: integer `-1`"),
        (json!({"generation": 1, "created": "", "nodes": vec![""; 20_000]}), "a list has more than 16384 elements"),
        (json!({"generation": 1, "created": "9".repeat(2000)}), "the time has 2000 bytes"),
        (json!({"generation": 1, "created": "", "created_by": "u".repeat(2000)}), "the name of the creator has 2000"),
        (json!({"generation": 1, "created": "", "tool": "t".repeat(2000)}), "the name of the tool has 2000 bytes"),
        (json!([[1]]), "is malformed"),
    ] {
        fs::write(pin(number), sealed(&body.to_string())).unwrap();
        wait_for_error(&node, error);
        // A pin that was read is not read again.
        number += u64::from(error.starts_with("the pin names"));
        assert_eq!((node.number("published_generation"), health(&node).0), (1, Some(0)), "{error}");
    }
    let duplicate = r#"{"generation":1,"generation":null,"created":""}"#;
    fs::write(pin(number), sealed(duplicate)).unwrap();
    wait_for_error(&node, "duplicate field `generation`");
    let nested = format!(r#"{{"generation":{}1{},"created":""}}"#, "[".repeat(100_000), "]".repeat(100_000));
    fs::write(pin(number), sealed(&nested)).unwrap();
    wait_for_error(&node, "is malformed: invalid type: sequence");
    // A decision that is none.
    published.publish(2);
    fs::write(pin(number), sealed(r#"{"generation":2,"created":"","hold":true}"#)).unwrap();
    let decision = published.table().join(format!("decisions/{number:020}.json"));
    fs::create_dir_all(decision.parent().unwrap()).unwrap();
    fs::write(&decision, sealed(&format!("\"{}\"", "x".repeat(5000)))).unwrap();
    wait_for_error(&node, "expected at most 4096");
    fs::write(&decision, sealed("\"both\"")).unwrap();
    wait_for_error(&node, "unknown variant `both`");
    fs::write(&decision, sealed("\"activate\"")).unwrap();
    wait_until_served(&node, 2);
}

/// A cache that another program has changed must not make a node panic or skip documents.
#[test]
fn a_record_of_impossible_numbers_in_a_cache_is_ignored() {
    for body in [
        json!({"generation": 1, "pin": u64::MAX}),
        json!({"generation": u64::MAX, "pin": 0}),
        json!({"generation": 1, "pin": 0, "slots": vec![json!({"first_slot": 9, "last_slot": 65535}); 9000]}),
        json!({"generation": 1, "pin": 0, "slots": [{"first_slot": 65535, "last_slot": 0}]}),
    ] {
        let published = Published::new();
        published.publish(1);
        let node = published.node("a");
        drop(node);
        let cache = published.cache("a");
        fs::write(cache.join("serving.json"), sealed(&body.to_string())).unwrap();
        fs::write(cache.join("manifests/18446744073709551615.json"), sealed("{}")).unwrap();
        let node = published.node("a");
        wait_until_served(&node, 1);
        published.publish(2);
        wait_until_served(&node, 2);
        published.pin(Some(1));
        wait_until_served(&node, 1);
        assert!(names(&cache).contains(&"serving.json".to_owned()));
    }
}

/// A state of a download that claims parts that are not on the disk must not hide how much space the download needs.
#[test]
fn a_forged_state_of_a_download_does_not_change_what_is_served() {
    let published = Published::new();
    published.publish(1);
    let digest = published.publication.manifest(Some(1)).unwrap().digest();
    let object = published.publication.manifest(Some(1)).unwrap().entries[0].object.clone();
    let range = |start: &str, end: &str| format!(r#"[{{"start":{start},"end":{end}}}]"#);
    let len_bytes = published.data_file(1).metadata().unwrap().len();
    let (first, all) = (range("0", "9"), range("0", &len_bytes.to_string()));
    let (negative, long) = (range("-1", "9"), range("0", "18446744073709551615"));
    for ranges in [first.as_str(), &all, &negative, &long, &range("0", "1e308"), "{}", &range("9", "9")] {
        let cache = published.cache("a");
        let _ = fs::remove_dir_all(&cache);
        fs::create_dir_all(cache.join("data")).unwrap();
        let url = published.publication.url();
        let state = format!(r#"{{"object_url":"{url}/{object}","complete":{{"ranges":{ranges}}}}}"#);
        fs::write(cache.join(format!("data/{digest}.zkv.partial")), b"wrong").unwrap();
        fs::write(cache.join(format!("data/{digest}.zkv.partial.json")), state).unwrap();
        let node: Server = published.node("a");
        wait_until_served(&node, 1);
        published.wait_until_tidy("a");
    }
}
