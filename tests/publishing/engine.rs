//! Shards that the tasks of an engine bake with the library, and that its driver commits.

use std::collections::BTreeMap;
use std::{fs, slice};

use tempfile::TempDir;
use zero_kv::Lookup;
use zero_kv::Store;
use zero_kv::bake::{BakeError, Cancel, Column, Input, Keys, Options, RowPiece, TypedColumns, parse_types};
use zero_kv::publish::{CommitOptions, Entry, Manifest, Publication, PublishError};
use zero_kv::slots::{SlotRange, slot_of};

/// A table in a folder.
struct Table {
    folder: TempDir,
    publication: Publication,
}

impl Table {
    fn new() -> Table {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}/users", folder.path().display());
        Table { publication: Publication::create(&url).unwrap(), folder }
    }

    fn write(&self, keys: &[u64], slots: &str) -> Result<Entry, PublishError> {
        self.publication.write_shard(vec![rows(keys)], range(slots), &numbers())
    }

    fn commit(&self, entries: &[Entry], empty: &[&str], options: &CommitOptions) -> Result<Manifest, PublishError> {
        let empty: Vec<SlotRange> = empty.iter().map(|slots| range(slots)).collect();
        self.publication.commit_shards(entries.to_vec(), &empty, options, &Cancel::default())
    }

    fn objects(&self, folder: &str) -> usize {
        let path = self.folder.path().join("users").join(folder);
        fs::read_dir(path).map_or(0, |names| names.flatten().count())
    }

    /// Returns the rows of a generation.
    fn pull(&self, manifest: &Manifest) -> BTreeMap<u64, Vec<u8>> {
        let path = self.folder.path().join("copy.db");
        self.publication.pull(manifest, &path, None, &Cancel::default()).unwrap();
        let store = Store::open(&path).unwrap();
        (0..4000).filter_map(|key| Some((key, store.get(key).unwrap()?.to_vec()))).collect()
    }
}

fn range(text: &str) -> SlotRange {
    text.parse().unwrap()
}

fn numbers() -> Options {
    let mut options = Options::default();
    options.keys = Keys::U64;
    options
}

fn value(key: u64) -> Vec<u8> {
    format!("value of {key}").into_bytes()
}

fn rows(keys: &[u64]) -> Input<'_> {
    let mut keys = keys.iter();
    Input::rows("rows", move |piece: &mut RowPiece| {
        keys.by_ref().take(100).for_each(|key| piece.push(*key, value(*key)));
        Ok(())
    })
}

fn keys_of(slots: &str) -> Vec<u64> {
    (0..4000).filter(|key| range(slots).has(slot_of((*key).into()))).collect()
}

pub(crate) fn entries_of_tasks_are_one_generation() {
    let (table, shards) = (Table::new(), ["0-4095", "4096-8191", "12288-16383"]);
    // The driver receives the entries as text, in any order.
    let entries = shards.iter().rev().map(|slots| {
        let entry = table.write(&keys_of(slots), slots).unwrap();
        assert_eq!(entry.object.split('/').nth(2).unwrap(), format!("{slots}-{}.zkv", entry.digest));
        Entry::from_json(&entry.to_json()).unwrap()
    });
    let entries: Vec<Entry> = entries.collect();
    assert_eq!((table.objects("data"), table.objects("manifests")), (3, 0), "readers see nothing before the commit");
    let options = CommitOptions { note: "nightly".to_owned(), parent: Some(0), ..CommitOptions::default() };
    let manifest = table.commit(&entries, &["8192-12287"], &options).unwrap();
    assert_eq!((manifest.number, &*manifest.note, manifest.entries.len()), (1, "nightly", 4));
    assert_eq!((&*manifest.entries[2].key_kind, manifest.entries[2].rows), ("u64", 0));
    let expected = shards.iter().flat_map(|slots| keys_of(slots)).map(|key| (key, value(key))).collect();
    assert_eq!(table.pull(&manifest), expected);
    assert!(matches!(table.commit(&entries, &["8192-12287"], &options), Err(PublishError::Parent { newest: 1, .. })));
}

pub(crate) fn each_attempt_of_a_task_has_its_own_file() {
    let table = Table::new();
    let attempts = [0, 1].map(|_| table.write(&keys_of("0-8191"), "0-8191").unwrap());
    let high = table.write(&keys_of("8192-16383"), "8192-16383").unwrap();
    assert!(attempts[0].digest == attempts[1].digest && attempts[0].object != attempts[1].object);
    let error = table
        .commit(&[attempts[0].clone(), attempts[1].clone(), high.clone()], &[], &CommitOptions::default())
        .unwrap_err();
    assert!(error.to_string().ends_with("several files have the slots 0-8191"), "{error}");
    let manifest = table.commit(&[attempts[1].clone(), high], &[], &CommitOptions::default()).unwrap();
    assert_eq!(table.pull(&manifest).len(), 4000);
}

pub(crate) fn incomplete_entries_are_rejected() {
    let (table, other) = (Table::new(), Table::new());
    let low = table.write(&keys_of("0-8191"), "0-8191").unwrap();
    let foreign = other.write(&keys_of("8192-16383"), "8192-16383").unwrap();
    for (entries, empty, problem) in [
        (&[][..], &[][..], "no file has the slots 0-16383"),
        (&[], &["0-16383"], "no shard was written, so that the kind of keys is unknown"),
        (slice::from_ref(&low), &[], "no file has the slots 8192-16383"),
        (
            slice::from_ref(&low),
            &["8000-16383"],
            "several files have the slots 8000-8191: those with the slots 0-8191 and 8000-16383",
        ),
        (&[low.clone(), foreign], &[], "the store has no such object"),
    ] {
        let error = table.commit(entries, empty, &CommitOptions::default()).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    assert_eq!((table.objects("data"), table.objects("manifests")), (1, 0));
    for text in ["", "{}", "[]", "{\"first_slot\":0,\"last_slot\":-1}"] {
        let error = Entry::from_json(text).unwrap_err().to_string();
        assert!(error.contains("expected the JSON of an entry"), "{error}");
    }
    let mut damaged = low;
    damaged.key_kind = "u32".to_owned();
    let error = table.commit(&[damaged], &["8192-16383"], &CommitOptions::default()).unwrap_err().to_string();
    assert!(error.contains("\"u32\", expected u64, i64"), "{error}");
}

pub(crate) fn rows_of_other_slots_are_rejected() {
    let table = Table::new();
    let error = table.write(&[42], "0-4095").unwrap_err();
    assert!(matches!(error, PublishError::Slot { slot: 8000, .. }), "{error}");
    // With the option, each task can read all rows.
    let mut options = numbers();
    options.slots = Some(range("0-4095"));
    let keys: Vec<u64> = (0..4000).collect();
    let entry = table.publication.write_shard(vec![rows(&keys)], range("0-4095"), &options).unwrap();
    assert_eq!(entry.rows, keys_of("0-4095").len() as u64);
    options.keys = Keys::Auto;
    let error = table.publication.write_shard(vec![rows(&[42])], range("0-4095"), &options).unwrap_err();
    assert!(matches!(error, PublishError::Bake(BakeError::SlotsKeysUnknown)), "{error}");
    let invalid = SlotRange { first_slot: 5, last_slot: 4 };
    let error = table.publication.write_shard(vec![rows(&[42])], invalid, &numbers()).unwrap_err();
    assert!(matches!(error, PublishError::Bake(BakeError::Slots { .. })), "{error}");
    let error = table.write(&[7, 7], "0-16383").unwrap_err().to_string();
    assert!(error.contains("rows:2: key 7 is already on row 1"), "{error}");
    assert_eq!(table.objects("manifests"), 0);
}

pub(crate) fn an_empty_shard_has_the_columns_of_the_others() {
    let table = Table::new();
    let mut options = numbers();
    let mut columns = TypedColumns::default();
    columns.types = parse_types("price:f32,\"name, quoted:text?\"").unwrap();
    (options.typed, options.key) = (Some(columns), Some(Column::Name("id".to_owned())));
    let bake = |slots: &str| {
        let rows = Input::rows("rows", |_: &mut RowPiece| Ok(()));
        table.publication.write_shard(vec![rows], range(slots), &options).unwrap()
    };
    let manifest = table.commit(&[bake("5-16383")], &["0-4"], &CommitOptions::default()).unwrap();
    assert_eq!(manifest.schema, ["price:f32", "name, quoted:text?"]);
    // Files without rows are equal if their columns and the name of the key are equal.
    assert_eq!(manifest.entries[0].digest, manifest.entries[1].digest);
    assert_eq!(manifest.entries[0].key_name, "id");
}
