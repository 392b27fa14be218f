//! Covers through every client, and through Redis commands, compared with a model.

use std::io::{Read, Write};

use tokio::runtime::Builder;
use zero_kv::bake::{self, Column, Keys, Options, RangeEnds, TableLayout};
use zero_kv::client::{AsyncClient, Client, ClientError, Pool, Row};
use zero_kv::{Key, KeyType, Lookup, LookupError, OwnedKey, RangeRow, Store};

use crate::helpers::random::Random;
use crate::helpers::rows::LAYOUTS;
use crate::helpers::scenes::{Scene, settle};
use crate::helpers::servers::Server;

const RANGES: u64 = 600;

/// A table of ranges of one type, as texts.
struct Table {
    key_type: &'static str,
    /// The text of the key with a number.
    text: fn(u64) -> String,
}

const TABLES: [Table; 4] = [
    Table { key_type: "u64", text: |number| number.to_string() },
    Table { key_type: "i64", text: |number| (number as i64 - 3000).to_string() },
    Table { key_type: "ip", text: |number| format!("10.0.{}.{}", number / 256, number % 256) },
    Table { key_type: "bytes,u64", text: |number| format!("user{},{}", number / 100, number % 100) },
];

/// Returns the numbers of the first and the last key of a range. There are gaps between some ranges.
fn ends(range: u64) -> (u64, u64) {
    (range * 10, range * 10 + [0, 3, 8, 9][(range % 4) as usize])
}

impl Table {
    /// The layouts that a table of these keys can have.
    fn layouts(&self) -> &'static [TableLayout] {
        match self.key_type {
            "u64" | "i64" => &LAYOUTS,
            _ => &[TableLayout::Fast],
        }
    }

    fn scene(&self, layout: TableLayout, has_ranges: bool) -> Scene {
        let scene = Scene::new();
        let mut options = Options::default();
        options.layout = layout;
        options.keys = Keys::Type(self.key_type.parse().unwrap());
        let parts = self.key_type.split(',').count();
        options.key = Some(Column::Number(1));
        options.more_key_columns = (2..=parts).map(Column::Number).collect();
        if has_ranges {
            options.ranges = Some(RangeEnds::Column(Column::Number(parts + 1)));
        }
        let line = |range: u64| {
            let (first, last) = ends(range);
            let last = (self.text)(last);
            let end = if has_ranges { format!("{},", last.rsplit(',').next().unwrap()) } else { String::new() };
            format!("{},{end}value {range}\n", (self.text)(first))
        };
        let csv: String = (0..RANGES).map(line).collect();
        bake::bake_csv(csv.as_bytes(), &scene.db(), &options).unwrap();
        settle(&scene.db());
        scene
    }

    fn key(&self, number: u64) -> OwnedKey {
        self.key_type.parse::<KeyType>().unwrap().parse((self.text)(number).as_bytes()).unwrap()
    }

    fn range_of(&self, number: u64) -> Option<RangeRow> {
        let (first, last) = ends(number / 10);
        let is_inside = number / 10 < RANGES && (first..=last).contains(&number);
        is_inside.then(|| (self.key(first), self.key(last), format!("value {}", number / 10).into_bytes()))
    }
}

/// Sends ZKV.COVER for each key in one pipeline, and returns the replies.
fn redis_replies(server: &Server, texts: &[String]) -> String {
    let mut stream = server.connect();
    let commands: String =
        texts.iter().map(|text| format!("*2\r\n$9\r\nZKV.COVER\r\n${}\r\n{text}\r\n", text.len())).collect();
    stream.write_all(commands.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut replies = String::new();
    stream.read_to_string(&mut replies).unwrap();
    replies
}

#[test]
fn every_client_finds_the_range_of_a_key() {
    let mut random = Random(46);
    for (table, layout) in TABLES.iter().flat_map(|table| table.layouts().iter().map(move |layout| (table, *layout))) {
        let scene = table.scene(layout, true);
        for memory in ["map", "copy"] {
            let server = scene.serve(&["--memory", memory]);
            let numbers: Vec<u64> = (0..RANGES)
                .flat_map(|range| [ends(range).0, ends(range).1, ends(range).1 + 1])
                .chain((0..500).map(|_| random.below(6200) as u64))
                .collect();
            let keys: Vec<OwnedKey> = numbers.iter().map(|number| table.key(*number)).collect();
            let keys: Vec<Key<'_>> = keys.iter().map(OwnedKey::as_key).collect();
            let expected: Vec<Option<RangeRow>> = numbers.iter().map(|number| table.range_of(*number)).collect();

            let mut client = server.client();
            let rows: Vec<Row> = client.range(..).unwrap().map(Result::unwrap).collect();
            let store = Store::open(scene.db()).unwrap();
            let stored = store.iter().map(Result::unwrap);
            assert!(rows.into_iter().eq(stored.map(|(key, value)| (OwnedKey::from(key), value.to_vec()))));
            assert_eq!(client.cover_many(&keys).unwrap(), expected, "{}", table.key_type);
            assert_eq!(client.cover(keys[4]).unwrap(), expected[4]);
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut client = AsyncClient::connect(server.socket()).await.unwrap();
                assert_eq!(client.cover_many(&keys).await.unwrap(), expected, "{}", table.key_type);
                assert_eq!(client.cover(keys[3]).await.unwrap(), expected[3]);
            });
            let pool = Pool::connect(server.socket()).unwrap();
            assert_eq!(pool.get().unwrap().cover(keys[5]).unwrap(), expected[5]);
            // A server does not transfer a copy of its file.
            if memory != "copy" {
                let direct = Client::connect(server.socket()).unwrap().direct().unwrap();
                assert!(direct.has_ranges());
                assert_eq!(direct.cover_many(&keys).unwrap(), expected, "{}", table.key_type);
                assert_eq!(direct.snapshot().cover(keys[6]).unwrap(), expected[6]);
            }

            let texts: Vec<String> = numbers.iter().map(|number| (table.text)(*number)).collect();
            let reply = |number: &u64| match table.range_of(*number) {
                None => "*-1\r\n".to_owned(),
                Some((.., value)) => {
                    let (first, last) = ends(number / 10);
                    let value = String::from_utf8(value).unwrap();
                    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
                    ["*3\r\n", &bulk(&(table.text)(first)), &bulk(&(table.text)(last)), &bulk(&value)].concat()
                }
            };
            let expected: String = numbers.iter().map(reply).collect();
            assert!(redis_replies(&server, &texts) == expected, "{}: replies to ZKV.COVER", table.key_type);
        }
    }
}

#[test]
fn a_cover_in_a_table_of_single_keys_is_an_error_that_names_the_remedy() {
    for table in &TABLES {
        let scene = table.scene(TableLayout::Fast, false);
        let server = scene.serve(&[]);
        let key = table.key(5);
        match server.client().cover(&key).unwrap_err() {
            ClientError::Server { .. } => {}
            other => panic!("{other:?}"),
        }
        let reply = redis_replies(&server, &[(table.text)(5)]);
        assert!(reply.starts_with("-ERR ") && reply.contains("bake a table of ranges"), "{reply}");
        let store = Store::open(scene.db()).unwrap();
        assert_eq!(store.cover(&key), Err(LookupError::NoRanges));
    }
}
