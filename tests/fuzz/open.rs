//! What must hold of any bytes that are opened as a file: it is refused, or every
//! lookup is answered from its records.

use std::fs;
use std::path::{Path, PathBuf};

use zero_kv::{KeyKind, Store};

use crate::rows::{Numbers, Rows};
use crate::source::Source;
use crate::support::encoder::{self, HEADER, SECTIONS, number, put, seal, seal_header};
use crate::support::records::assert_answers_as_its_records;

/// Baked files, and the rows of each.
pub(crate) struct Files {
    good: Vec<(Numbers, Rows, Vec<u8>)>,
    path: PathBuf,
}

impl Files {
    /// Bakes them in a folder.
    pub(crate) fn bake(folder: &Path) -> Files {
        let path = folder.join("storage.db");
        let value = |i: u64| vec![i as u8; [0, 1, 7, 60, 20_000][if i % 40 == 39 { 4 } else { i as usize % 4 }]];
        let number = |i: u64| (i * i * 3).to_be_bytes().to_vec();
        let bytes = |i: u64| format!("user:{}{}", i % 7, "/part".repeat(i as usize % 30)).into_bytes();
        let tables =
            [0, 1, 3, 17, 60].map(|count| (Numbers(true), (0..count).map(|i| (number(i), value(i))).collect()));
        let of_bytes = [1, 3, 17, 60].map(|count| (Numbers(false), (0..count).map(|i| (bytes(i), value(i))).collect()));
        let baked = |(numbers, rows): (Numbers, Rows)| {
            numbers.bake(&rows, &path);
            (numbers, rows, fs::read(&path).unwrap())
        };
        Files { good: tables.into_iter().chain(of_bytes).map(baked).collect(), path }
    }
}

/// Opens a file with changes that the bytes describe, or the bytes themselves.
pub(crate) fn check(files: &Files, data: &[u8]) {
    let mut source = Source::new(data);
    let (_, rows, good) = &files.good[source.below(files.good.len())];
    let sealing = source.below(4);
    let mut file = match source.one_in(16) {
        true => source.rest().to_vec(),
        false => good.clone(),
    };
    while !source.is_empty() && file.len() >= HEADER {
        change(&mut source, &mut file);
    }
    if file.len() >= HEADER {
        match sealing {
            0 => {}
            1 => seal_header(&mut file),
            _ => seal(&mut file),
        }
    }
    fs::write(&files.path, &file).unwrap();
    let Ok(store) = Store::open(&files.path) else { return };
    match store.key_kind() {
        KeyKind::U64 => {
            let keys = rows.keys().filter_map(|key| Some(u64::from_be_bytes(key[..].try_into().ok()?)));
            let keys: Vec<u64> = keys.flat_map(|key| [key, key.wrapping_add(1), key ^ 1 << 63]).collect();
            assert_answers_as_its_records(&store, &file, &keys);
        }
        _ => {
            let near = |key: &Vec<u8>| [key.clone(), [key, &b"\0"[..]].concat(), key[..key.len() - 1].to_vec()];
            let keys: Vec<Vec<u8>> = rows.keys().flat_map(near).collect();
            assert_answers_as_its_records(&store, &file, &keys);
        }
    }
}

/// Changes a number, a byte, a stretch, or the length.
fn change(source: &mut Source<'_>, file: &mut Vec<u8>) {
    let section = source.below(8);
    let (start, len) = match SECTIONS.get(section) {
        Some(section) => encoder::section(file, *section),
        None if section == 7 => (0, file.len()),
        None => (0, HEADER),
    };
    let last = file.len() - 8;
    let at = start.saturating_add(source.below(1 << 16) % len.max(1)).min(last);
    let word = at / 8 * 8;
    let old = number(file, word);
    match source.below(12) {
        0..3 => file[at] ^= 1 << source.below(8),
        3..5 => file[at] = source.byte(),
        5 => put(file, word, old.wrapping_add(1)),
        6 => put(file, word, old.wrapping_sub(1)),
        7 => put(file, word, source.number()),
        8 => put(file, word, u64::from(source.byte())),
        9 => {
            let (from, len) = (source.below(1 << 16) % file.len(), 1 + source.below(256));
            let copied = file[from..(from + len).min(file.len())].to_vec();
            let to = at.min(file.len() - copied.len());
            file[to..to + copied.len()].copy_from_slice(&copied);
        }
        10 => file.truncate(at),
        _ => file.resize(file.len() + source.below(1 << 16), source.byte()),
    }
}
