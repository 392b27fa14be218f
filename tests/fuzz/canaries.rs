//! Properties of a file of canaries: a server serves a table exactly if the table matches every line.

use std::fs;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_128;
use zero_kv::server::{Config, Opened};

use super::rows::{Numbers, Rows};
use super::source::Source;
use super::tamper;

/// Tables with both kinds of keys, and the path of the canaries.
pub struct Tables {
    tables: Vec<(Numbers, Rows, PathBuf)>,
    canaries: PathBuf,
}

impl Tables {
    pub fn bake(folder: &Path) -> Tables {
        let tables = [true, false].map(|are_numbers| {
            let key =
                |i: u8| if are_numbers { u64::from(i).to_be_bytes().to_vec() } else { vec![b'k', i % 10 + b'0', i] };
            let (numbers, rows) = (Numbers(are_numbers), (0..20).map(|i| (key(i), vec![i; usize::from(i)])).collect());
            let db = folder.join(format!("{are_numbers}.db"));
            numbers.bake(&rows, &db);
            (numbers, rows, db)
        });
        Tables { tables: tables.into(), canaries: folder.join("canaries") }
    }
}

/// Opens a table with canaries that the bytes describe, as a server does.
pub fn check(tables: &Tables, data: &[u8]) {
    let mut source = Source::new(data);
    let (numbers, rows, db) = &tables.tables[source.below(2)];
    let mut text = Vec::new();
    for _ in 0..source.below(5) {
        let row = rows.iter().nth(source.below(rows.len())).expect("20 rows");
        let key = match source.one_in(4) {
            true => vec![b'9'; 1 + source.below(30)],
            false => numbers.key(row.0).to_string().into_bytes(),
        };
        let digest = match source.below(4) {
            0 => "absent".to_owned(),
            _ => format!("{:032x}", XxHash3_128::oneshot(row.1)),
        };
        text.extend_from_slice(&[&key, &b","[..], digest.as_bytes(), [&b"\n"[..], b"\r\n"][source.below(2)]].concat());
    }
    if source.one_in(2) {
        tamper::change(&mut source, &mut text);
    }
    text.extend_from_slice(source.rest());
    fs::write(&tables.canaries, &text).unwrap();
    let config = Config { canaries: Some(tables.canaries.clone()), lease: false, ..Config::default() };
    let opened = Opened::new(db, &config).map(drop).map_err(|error| error.to_string());
    assert_eq!(opened.is_ok(), is_right(*numbers, rows, &text), "{opened:?}: {}", text.escape_ascii());
}

/// Returns whether every line is a canary that the table matches.
fn is_right(numbers: Numbers, rows: &Rows, text: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(text) else { return false };
    let lines = text.split_inclusive('\n').map(|line| match line.strip_suffix('\n') {
        Some(line) => line.strip_suffix('\r').unwrap_or(line),
        None => line,
    });
    lines.filter(|line| !line.is_empty()).all(|line| {
        let Some((key, digest)) = line.rsplit_once(',') else { return false };
        let value = match numbers {
            Numbers(true) => match key.parse::<u64>() {
                Ok(key) => rows.get(&key.to_be_bytes()[..]),
                Err(_) => return false,
            },
            Numbers(false) => rows.get(key.as_bytes()),
        };
        match value {
            None => digest == "absent",
            Some(value) => digest.to_lowercase() == format!("{:032x}", XxHash3_128::oneshot(value)),
        }
    })
}
