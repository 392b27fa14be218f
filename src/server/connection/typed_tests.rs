//! Tests of connections to typed tables: bounded turns for the widest table, and lookups in a table that counts as too
//! long for memory.

use std::path::Path;

use zerocopy::IntoBytes;

use super::cold_tests::{cold_connections, connect, responses_to};
use super::tests::{connections_over, runtime};
use super::turn_tests::{PIPELINE_LEN_BYTES, STEPS_MAX, TURNS_BETWEEN_MAX, serve};
use super::*;
use crate::bake::{Column, Keys, Options, TypedColumns, bake_csv, parse_types};
use crate::protocol::native::{Op, Request, push_long};
use crate::typed::COLUMN_COUNT_MAX;

/// Bakes rows of CSV, whose fields are the key and the columns of these types.
fn bake(db: &Path, types: &str, rows: impl Iterator<Item = String>) {
    let types = parse_types(types).unwrap();
    let typed = Some(TypedColumns { types, ..TypedColumns::default() });
    let options = Options { keys: Keys::U64, key: Some(Column::Number(1)), typed, ..Options::default() };
    let csv: String = rows.map(|row| row + "\n").collect();
    bake_csv(csv.as_bytes(), db, &options).unwrap();
}

/// Returns a Select of columns of a connection's table.
fn select(connections: &Connections, positions: impl Iterator<Item = usize>) -> Vec<u8> {
    let mut request = Vec::new();
    let id = connections.worker.pin().store.schema_ref().unwrap().id();
    let positions: Vec<u8> = positions.flat_map(|position| (position as u16).to_be_bytes()).collect();
    push_long(Op::Select, &[&id.to_be_bytes(), &positions], &mut request);
    request
}

fn get_columns(keys: impl Iterator<Item = u64>) -> Vec<u8> {
    keys.flat_map(|key| Request::new(Op::GetColumns, key).as_bytes().to_vec()).collect()
}

#[test]
fn turns_are_bounded_for_4096_columns() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("wide.db");
    let types: String = (0..COLUMN_COUNT_MAX).map(|column| format!(",c{column}:text?")).collect();
    let row = |key: u64| (0..COLUMN_COUNT_MAX).fold(key.to_string(), |row, at| row + "," + ["", "a", "text"][at % 3]);
    bake(&db, &format!("id:u64{types}"), (0..20).map(row));
    let connections = connections_over(&db);
    let all = || 0..COLUMN_COUNT_MAX;
    let whole = select(&connections, all());
    let reversed = select(&connections, all().rev());
    // The last column is selected twice.
    let repeated = select(&connections, all().take(COLUMN_COUNT_MAX - 1).chain([0]));
    let hash = |text: &str| text.as_bytes().to_vec();
    for (name, prefix, repeating) in [
        ("Select", vec![], whole.clone()),
        ("Select, reversed", vec![], reversed.clone()),
        ("Select of a repeated column", vec![], repeated),
        ("Select and GetColumns", vec![], [&whole[..], &get_columns(0..1)].concat()),
        ("GetColumns", whole, get_columns(0..20)),
        ("GetColumns, reversed", reversed, get_columns(0..20)),
        ("Schema", vec![], Request::new(Op::Schema, 0).as_bytes().to_vec()),
        ("HGETALL", vec![], hash("HGETALL 7\r\n")),
        ("HSCAN", vec![], hash("HSCAN 7 0 COUNT 10000\r\n")),
        ("HRANDFIELD", vec![], hash("HRANDFIELD 7 10000 WITHVALUES\r\n")),
    ] {
        let repeats = (PIPELINE_LEN_BYTES / repeating.len()).max(1);
        let pipeline = [prefix, repeating.repeat(repeats)].concat();
        let (used, response) = serve(&runtime(), &connections, pipeline, 50);
        assert!(used.steps > 0 && !response.begin.is_empty(), "{name}");
        assert!(used.turn_steps_max <= STEPS_MAX, "{name}: {} steps in a turn", used.turn_steps_max);
        assert!(used.turns_between_max <= TURNS_BETWEEN_MAX, "{name}: {} turns", used.turns_between_max);
    }
}

#[test]
fn columns_and_hashes_of_a_cold_table_are_those_of_a_warm_table() {
    const ROWS: u64 = 2000;
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("storage.db");
    // Some rows are longer than a response that is copied at once.
    let row = |key: u64| {
        let text = "text ".repeat([0, 1, 30, 900, 2000][key as usize % 5]);
        format!("{},{}.5,{text},{}", 2 * key, key, if key.is_multiple_of(3) { String::new() } else { key.to_string() })
    };
    bake(&db, "id:u64,price:f32,name:text,stock:u32?", (0..ROWS).map(row));
    let (cold, warm) = (cold_connections(&db), connections_over(&db));
    let keys = || (0..400).map(|i| i * 7919 % (2 * ROWS + 9));
    let commands = |text: &dyn Fn(u64) -> String| keys().flat_map(|key| text(key).into_bytes()).collect::<Vec<u8>>();
    let short = get_columns(keys());
    runtime().block_on(async {
        for (name, requests) in [
            ("two columns", [select(&warm, [2, 0].into_iter()), short.clone()].concat()),
            ("all columns", [select(&warm, 0..3), short.clone(), select(&warm, [1].into_iter()), short].concat()),
            ("HGETALL", commands(&|key| format!("HGETALL {key}\r\n"))),
            ("HMGET", commands(&|key| format!("HMGET {key} stock none price\r\n"))),
            ("HGET", commands(&|key| format!("HGET {key} name\r\n"))),
            ("HLEN and HSTRLEN", commands(&|key| format!("HLEN {key}\r\nHSTRLEN {key} name\r\n"))),
            ("MULTI", commands(&|key| format!("MULTI\r\nHGETALL {key}\r\nHEXISTS {key} stock\r\nEXEC\r\n"))),
        ] {
            let expected = responses_to(connect(&warm), requests.clone()).await;
            assert!(expected.len() > 2000, "{name}: {} bytes", expected.len());
            let found = responses_to(connect(&cold), requests).await;
            assert!(found == expected, "{name}: {} bytes, expected {}", found.len(), expected.len());
        }
    });
    cold.worker.server.cold_reads.stop();
}
