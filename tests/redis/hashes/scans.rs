//! Commands that return some fields of a hash: HSCAN and HRANDFIELD. SCAN for keys of hashes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use zero_kv::typed::Schema;

use super::{Texts, redis, rows, schema, serve};
use crate::helpers::redis_replies::Reply;
use crate::helpers::trials::Missing;
use crate::redis::more_reads::assert_equal_everywhere;
use crate::redis::served::{ask, line};

/// Returns all names that HSCAN returns with these arguments.
fn scanned(socket: &Path, key: &str, args: &str, has_values: bool) -> Vec<String> {
    let (mut cursor, mut names) = ("0".to_owned(), Vec::new());
    loop {
        let reply = &Reply::all(&ask(socket, &[&format!("HSCAN {key} {cursor}{args}")]))[0];
        let [next, fields] = reply.list() else { panic!("{reply:?}") };
        names.extend(fields.list().iter().step_by(if has_values { 2 } else { 1 }).map(Reply::text));
        cursor = next.text();
        if cursor == "0" {
            return names;
        }
    }
}

/// A table with so many columns that Redis stores its rows as hash tables.
fn wide() -> (Schema, BTreeMap<u64, Texts>) {
    let columns = (0..3000).map(|i| format!("field{i}:u16?").parse().unwrap());
    let text = |key: u64, i: u64| (!(key + i).is_multiple_of(3)).then(|| (i % 60_000).to_string().into_bytes());
    (Schema::new("", columns).unwrap(), (0..3).map(|key| (key, (0..3000).map(|i| text(key, i)).collect())).collect())
}

pub(crate) fn scans_of_wide_hashes_return_all_fields_once() -> Result<(), Missing> {
    let (schema, rows) = wide();
    let redis = redis(&schema, &rows)?;
    let (_scene, served) = serve(&schema, &rows, &[]);
    for args in ["", " COUNT 1000", " COUNT 7 MATCH *1?5", " MATCH field2*", " COUNT 100000", " MATCH x"] {
        let [expected, found] = [redis.socket(), served.socket()].map(|socket| scanned(socket, "1", args, true));
        assert_eq!(found.len(), BTreeSet::from_iter(&found).len(), "{args}");
        assert_eq!(BTreeSet::from_iter(found), BTreeSet::from_iter(expected), "{args}");
    }
    let without_values = scanned(served.socket(), "1", " COUNT 50 NOVALUES MATCH *7", false);
    assert_eq!(without_values, scanned(served.socket(), "1", " MATCH *7", true));
    assert!(without_values.len() > 100);
    let lines: Vec<String> = (0..3000).step_by(17).map(|i| format!("HGET 2 field{i}")).collect();
    let all: Vec<String> = (0..1000).map(|i| format!("field{}", i * 3)).collect();
    let commands: Vec<u8> = lines.iter().flat_map(|text| line(text)).collect();
    for commands in [commands, line(&format!("HMGET 0 {}", all.join(" "))), line("HLEN 0"), line("OBJECT ENCODING 0")] {
        assert_equal_everywhere(redis.socket(), served.socket(), &commands);
    }
    let replies = Reply::all(&ask(served.socket(), &["HSCAN 1 77"]));
    assert!(matches!(&replies[0], Reply::Error(text) if text.contains("begin again with 0")), "{replies:?}");
    for key in 0..3 {
        let [expected, found] = [redis.socket(), served.socket()]
            .map(|socket| Reply::all(&ask(socket, &[&format!("HGETALL {key}")]))[0].fields());
        assert!(expected == found);
    }
    Ok(())
}

pub(crate) fn random_fields_are_fields_of_the_row() {
    let (schema, rows) = (schema(), rows());
    let (_scene, served) = serve(&schema, &rows, &[]);
    for (key, texts) in rows.iter().take(10) {
        let fields: BTreeMap<String, Vec<u8>> = schema
            .columns()
            .iter()
            .zip(texts)
            .filter_map(|(column, text)| Some((column.name.clone(), text.clone()?)))
            .collect();
        let names = |text: &str| {
            let replies = Reply::all(&ask(served.socket(), &[text]));
            replies[0].list().iter().map(Reply::text).collect::<Vec<String>>()
        };
        let mut seen = BTreeSet::new();
        for _ in 0..40 {
            let one = Reply::all(&ask(served.socket(), &[&format!("HRANDFIELD {key}")]))[0].text();
            assert!(fields.contains_key(&one));
            let some = names(&format!("HRANDFIELD {key} 5"));
            assert_eq!((some.len(), BTreeSet::from_iter(&some).len()), (5, 5));
            assert!(some.iter().all(|name| fields.contains_key(name)));
            seen.extend(some);
        }
        assert_eq!(seen.len(), fields.len(), "every field is chosen sometimes");
        let repeated = names(&format!("HRANDFIELD {key} -5000"));
        assert_eq!((repeated.len(), BTreeSet::from_iter(&repeated).len()), (5000, fields.len()));
        let pairs = Reply::all(&ask(served.socket(), &[&format!("HRANDFIELD {key} -50 WITHVALUES")]));
        for pair in pairs[0].list().chunks(2) {
            assert_eq!(pair[1], Reply::Bytes(fields[&pair[0].text()].clone()));
        }
    }
}

pub(crate) fn scan_finds_rows_by_the_type_hash() -> Result<(), Missing> {
    let (schema, rows) = (schema(), rows());
    let redis = redis(&schema, &rows)?;
    let (_scene, served) = serve(&schema, &rows, &[]);
    for kind in ["hash", "string", "zset"] {
        let keys = [redis.socket(), served.socket()].map(|socket| {
            let replies = Reply::all(&ask(socket, &[&format!("SCAN 0 COUNT 1000 TYPE {kind}")]));
            replies[0].list()[1].list().iter().map(Reply::text).collect::<BTreeSet<_>>()
        });
        assert_eq!(keys[0], keys[1], "{kind}");
        assert_eq!(keys[1].len(), if kind == "hash" { rows.len() } else { 0 });
    }
    Ok(())
}
