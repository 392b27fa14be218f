//! Columns of typed tables: projected rows, tables with other schemas, reconnects, and responses that are wrong.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use zero_kv::client::request::Floor;
use zero_kv::client::{
    AsyncPool, Client, ClientError, Options, OwnedKey, Pool, PoolOptions, ProjectedRows, RowsOrValues,
};
use zero_kv::protocol::native::Op;
use zero_kv::protocol::response::Violation;
use zero_kv::typed::{ColumnBuffers, ColumnError, Projection, TypedRow};

use super::both::{AnyClient, with_both};
use super::violation;
use crate::helpers::random::Random;
use crate::helpers::repeating::StopOnDrop;
use crate::helpers::scripted_server::{ERROR, EXISTS, NO_SCHEMA, NOT_FOUND, Script, ScriptedServer, found, page};
use crate::helpers::tables::Table;
use crate::helpers::typed_tables::{MIXED, TypedTable, row_of, schema, some_columns};

with_both!(
    projected_rows_are_those_of_the_table,
    a_call_continues_in_a_table_with_another_schema,
    a_missing_column_and_an_untyped_table_are_named,
    columns_are_selected_again_after_a_restart,
    rows_or_values_follow_the_table,
    nearest_rows_have_the_schema_of_their_table,
    calls_return_rows_of_one_schema_while_tables_are_replaced,
);

/// The response to a request that finds another schema.
const SCHEMA_CHANGED: &[u8] = &[0, 0, 0, 5, 0, 0, 0, 0];

fn options() -> Options {
    Options::default()
}

fn names<'t>(table: &'t TypedTable<u64>, columns: &[usize]) -> Vec<&'t str> {
    columns.iter().map(|column| table.schema.columns()[*column].name.as_str()).collect()
}

/// Returns the bytes of the rows.
fn bytes(rows: &ProjectedRows) -> Vec<Option<Vec<u8>>> {
    rows.iter().map(|row| row.map(|row| row.as_bytes().to_vec())).collect()
}

fn projected_rows_are_those_of_the_table<C: AnyClient>() {
    let seed = 0x9e7;
    println!("seed {seed}");
    let mut random = Random(seed);
    let table = TypedTable::new(MIXED, (0..500_u64).map(|key| key * 2), 1);
    let server = table.serve();
    let mut client = C::connect(table.socket(), &options()).unwrap();
    assert_eq!(*client.schema().unwrap().unwrap(), table.schema);
    for count in [0, 1, 2, 700, 3000] {
        let columns = some_columns(&table.schema, &mut random);
        let keys: Vec<u64> = (0..count).map(|_| random.next() % 1100).collect();
        for _ in 0..2 {
            let rows = client.get_projected(&keys, &names(&table, &columns)).unwrap();
            assert!(bytes(&rows).into_iter().eq(keys.iter().map(|key| table.projected(key, &columns))));
            assert_eq!((rows.len(), rows.is_empty()), (count, count == 0));
        }
    }
    // The client has selected columns once for both calls with the same columns.
    assert_eq!(server.number("requests_select"), 5);
    for key in 0..20_u64 {
        let row = client.get_row(key).unwrap();
        let found = row.as_ref().map(|row| row.as_row().as_bytes());
        assert_eq!(found, table.rows.get(&key).map(Vec::as_slice));
        if let Some(row) = row {
            let expected = TypedRow::new(&table.schema, &table.rows[&key]).unwrap();
            assert_eq!(row.get::<i64>("b"), expected.get("b"));
        }
    }
    assert_eq!(server.number("requests_select"), 6);
}

#[test]
fn projected_rows_become_buffers_and_matrices() {
    let table = TypedTable::new(MIXED, 0..40_u64, 3);
    let _server = table.serve();
    let mut client = Client::connect(table.socket()).unwrap();
    let keys: Vec<u64> = (0..60).rev().collect();
    let columns = ["name", "a", "tags", "on"];
    let rows = client.get_projected(&keys, &columns).unwrap();
    let mut expected = ColumnBuffers::new(&table.schema, &Projection::new(&table.schema, &columns).unwrap());
    for key in &keys {
        match table.rows.get(key) {
            Some(row) => expected.push(&TypedRow::new(&table.schema, row).unwrap()).unwrap(),
            None => expected.push_missing(),
        }
    }
    assert_eq!(rows.clone().into_buffers().unwrap().into_columns(), expected.into_columns());
    assert!(matches!(rows.matrix_width::<f32>(), Err(ColumnError::Matrix { column, .. }) if column == "name"));

    let rows = client.get_projected(&keys, &["vector", "a"]).unwrap();
    assert_eq!(rows.matrix_width::<f32>(), Ok(4));
    let mut matrix = vec![0.0_f32; 4 * keys.len()];
    assert_eq!(rows.matrix(-1.0, &mut matrix), Ok(40));
    for (key, cells) in keys.iter().zip(matrix.chunks_exact(4)) {
        let row = table.rows.get(key).map(|row| TypedRow::new(&table.schema, row).unwrap());
        let a = row.and_then(|row| row.get::<Option<f32>>("a").unwrap()).unwrap_or(-1.0);
        assert_eq!(cells[3], a, "key {key}");
        assert!(row.is_some() || *cells == [-1.0; 4], "key {key}");
    }
    assert!(matches!(rows.matrix(0_u8, &mut []), Err(ColumnError::Matrix { .. })));
}

fn a_call_continues_in_a_table_with_another_schema<C: AnyClient>() {
    let table = TypedTable::new("a:f32 b:text", 0..50_u64, 1);
    let other = TypedTable::new("c:u8 b:text a:f64 d:u8", 0..90_u64, 2);
    let server = table.serve();
    let mut client = C::connect(table.socket(), &options()).unwrap();
    let keys: Vec<u64> = (0..100).collect();
    let rows = client.get_projected(&keys, &["b", "a"]).unwrap();
    assert!(bytes(&rows).into_iter().eq(keys.iter().map(|key| table.projected(key, &[1, 0]))));
    other.replace(&table);
    server.wait_for("generation", 2);
    let rows = client.get_projected(&keys, &["b", "a"]).unwrap();
    assert_eq!(rows.schema().to_string(), "b:text,a:f64");
    assert!(bytes(&rows).into_iter().eq(keys.iter().map(|key| other.projected(key, &[1, 2]))));
    assert_eq!(client.get_row(60).unwrap().unwrap().as_row().schema(), &other.schema);
    // A column that the known schema does not have may be new.
    table.replace(&table);
    server.wait_for("generation", 3);
    let newer = TypedTable::new("a:f32 b:text e:u8", 0..50_u64, 3);
    newer.replace(&table);
    server.wait_for("generation", 4);
    let rows = client.get_projected(&keys, &["e"]).unwrap();
    assert!(bytes(&rows).into_iter().eq(keys.iter().map(|key| newer.projected(key, &[2]))));
}

fn a_missing_column_and_an_untyped_table_are_named<C: AnyClient>() {
    let table = TypedTable::new("a:f32 b:text", 0..50_u64, 1);
    let server = table.serve();
    let mut client = C::connect(table.socket(), &options()).unwrap();
    let error = |client: &mut C, columns: &[&str]| client.get_projected(&[1, 2], columns).unwrap_err();
    for (columns, expected) in [
        (&["a", "c"][..], "the table has no column \"c\": its columns are a, b"),
        (&["a", "a"], "two columns have the name \"a\": rename one"),
        (&[], "0 columns, where 1 to 4096 are allowed: choose the columns to store"),
    ] {
        let error = error(&mut client, columns);
        assert!(matches!(error, ClientError::Columns { .. }));
        assert!(error.to_string().ends_with(expected), "{error}");
    }
    assert!(client.get_projected(&[1], &["b"]).unwrap().row(0).is_some());
    TypedTable::new("a:f32", 0..50_u64, 2).replace(&table);
    server.wait_for("generation", 2);
    let disappeared = error(&mut client, &["b"]).to_string();
    assert!(disappeared.ends_with("the table has no column \"b\": its columns are a"), "{disappeared}");
    assert!(client.get_projected(&[1], &["a"]).unwrap().row(0).is_some());
    std::fs::rename(Table::of_rows(3).db(), table.db()).unwrap();
    server.wait_for("generation", 3);
    let untyped = error(&mut client, &["a"]);
    assert!(matches!(untyped, ClientError::NoSchema { .. }), "{untyped}");
    assert!(matches!(client.get_row(1), Err(ClientError::NoSchema { .. })));
    assert!(client.schema().unwrap().is_none());
    assert_eq!(client.get_number(1).unwrap(), Some(b"value_content_at_key_1".to_vec()));
}

fn rows_or_values_follow_the_table<C: AnyClient>() {
    let (typed, other) =
        (TypedTable::new(MIXED, 0..900_u64, 1), TypedTable::new("b:text a:f32", (0..900_u64).map(|key| key * 2), 2));
    let untyped = Table::of_rows(700);
    let server = typed.serve();
    let mut client = C::connect(typed.socket(), &options()).unwrap();
    // More keys than requests in flight, some of which no table has.
    let keys: Vec<u64> = (0..3000).map(|i| i * 7919 % 1000).collect();
    let mut assert_rows = |table: &TypedTable<u64>, keys: &[u64]| {
        let RowsOrValues::Rows(rows) = client.get_rows_or_values(keys).unwrap() else { panic!("the table is typed") };
        assert_eq!(rows.schema().columns(), table.schema.columns());
        assert!(bytes(&rows).into_iter().eq(keys.iter().map(|key| table.rows.get(key).cloned())));
        assert_eq!(bytes(&client.get_rows(keys).unwrap()), bytes(&rows));
    };
    assert_rows(&typed, &keys);
    assert_rows(&typed, &[]);
    other.replace(&typed);
    server.wait_for("generation", 2);
    assert_rows(&other, &keys);
    std::fs::copy(untyped.db(), typed.db().with_extension("new")).unwrap();
    std::fs::rename(typed.db().with_extension("new"), typed.db()).unwrap();
    server.wait_for("generation", 3);
    for keys in [&keys[..], &keys[..1], &[]] {
        let found = client.get_rows_or_values(keys).unwrap();
        let RowsOrValues::Values(values) = found else { panic!("the table is not typed") };
        assert!(values.iter().eq(keys.iter().map(|key| untyped.model.get(key).map(Vec::as_slice))));
    }
    // The client knows that the table was not typed.
    typed.replace(&typed);
    server.wait_for("generation", 4);
    let found = client.get_rows_or_values(&keys).unwrap();
    assert!(matches!(found, RowsOrValues::Rows(rows) if rows.schema().columns() == typed.schema.columns()));
}

fn nearest_rows_have_the_schema_of_their_table<C: AnyClient>() {
    let typed = TypedTable::new("a:u32 b:text", (0..900_u64).map(|key| key * 2), 1);
    let other = TypedTable::new("b:text a:u32", (0..900_u64).map(|key| key * 2), 2);
    let untyped = Table::of_rows(700);
    let server = typed.serve();
    let mut client = C::connect(typed.socket(), &options()).unwrap();
    // More requests than one table must answer.
    let keys = || (0..70_000_u64).map(|key| key % 1800);
    let requests: Vec<Floor> = keys().map(|key| Floor::new(key).unwrap()).collect();
    for (generation, table) in [(1, &typed), (2, &other)] {
        if generation > 1 {
            table.replace(&typed);
        }
        server.wait_for("generation", generation);
        let (rows, schema) = client.call_with_schema(&requests).unwrap();
        assert_eq!(schema.as_deref(), Some(&table.schema));
        let expected = keys().map(|key| key / 2 * 2).map(|key| Some((OwnedKey::U64(key), table.rows[&key].clone())));
        assert!(rows.into_iter().eq(expected));
    }
    std::fs::rename(untyped.db(), typed.db()).unwrap();
    server.wait_for("generation", 3);
    let (rows, schema) = client.call_with_schema(&requests[..1]).unwrap();
    assert!(schema.is_none() && rows.len() == 1);
    assert_eq!(client.call_with_schema(&[]).unwrap(), (Vec::new(), None));
}

fn columns_are_selected_again_after_a_restart<C: AnyClient>() {
    let table = TypedTable::new("a:f32 b:text", 0..50_u64, 1);
    let other = TypedTable::new("b:text a:f32", 0..50_u64, 2);
    let keys: Vec<u64> = (0..60).collect();
    let mut server = table.serve();
    let mut client = C::connect(table.socket(), &options()).unwrap();
    for (served, columns) in [(&table, [0]), (&table, [0]), (&other, [1])] {
        served.write(&table.db());
        server.kill();
        server = table.serve();
        let rows = client.get_projected(&keys, &["a"]).unwrap();
        assert!(bytes(&rows).into_iter().eq(keys.iter().map(|key| served.projected(key, &columns))));
    }
}

fn calls_return_rows_of_one_schema_while_tables_are_replaced<C: AnyClient>() {
    let tables = [("a:u32 b:text c:u8", 1), ("b:text c:u32 a:u32", 2)]
        .map(|(columns, version)| TypedTable::new(columns, 0..400_u64, version));
    let server = tables[0].serve();
    let (calls, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..2)
            .map(|seed| {
                let (tables, calls, is_over) = (&tables, &calls, &is_over);
                scope.spawn(move || {
                    let mut random = Random(seed);
                    let mut client = C::connect(tables[0].socket(), &options()).unwrap();
                    while !is_over.load(Ordering::Relaxed) {
                        let keys: Vec<u64> = (0..2500).map(|_| random.next() % 450).collect();
                        let names = [&["c", "b"][..], &["a"], &["b", "a", "c"]][random.below(3)];
                        let rows = client.get_projected(&keys, names).unwrap();
                        // The type of `c` differs, and without it, both tables have rows of one schema.
                        let rows_in = |table: &TypedTable<u64>, key| {
                            let columns: Vec<usize> =
                                names.iter().map(|name| table.schema.position(name).unwrap()).collect();
                            table.projected(key, &columns)
                        };
                        let is_second = rows
                            .schema()
                            .position("c")
                            .is_some_and(|c| rows.schema().columns()[c] == tables[1].schema.columns()[1]);
                        for (key, row) in keys.iter().zip(bytes(&rows)) {
                            let either = tables.each_ref().map(|table| rows_in(table, key));
                            match names.contains(&"c") {
                                true => assert_eq!(row, either[usize::from(is_second)], "key {key}"),
                                false => assert!(either.contains(&row), "key {key}"),
                            }
                        }
                        let floors: Vec<Floor> = keys.iter().map(|key| Floor::new(*key).unwrap()).collect();
                        let (rows, schema) = client.call_with_schema(&floors).unwrap();
                        let table = &tables[usize::from(schema.as_deref() == Some(&tables[1].schema))];
                        for (key, row) in keys.iter().zip(rows) {
                            let key = *key.min(&399);
                            assert_eq!(row, Some((OwnedKey::U64(key), table.rows[&key].clone())));
                        }
                        calls.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        // If a table is not served in time, the clients must end, too.
        let stop = StopOnDrop(&is_over);
        for version in 1..=20 {
            tables[version % 2].replace(&tables[0]);
            server.wait_for("generation", version as u64 + 1);
        }
        drop(stop);
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    assert!(calls.into_inner() > 0);
}

#[test]
fn pooled_clients_look_columns_up() {
    let table = TypedTable::new("a:f32 b:text", 0..50_u64, 1);
    let _server = table.serve();
    let pool = Pool::connect_with(table.socket(), &PoolOptions::default()).unwrap();
    assert_eq!(pool.get().unwrap().get_projected(&[7], &["a"]).unwrap().len(), 1);
    assert_eq!(pool.get().unwrap().get_row(7).unwrap().unwrap().as_row().schema(), &table.schema);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let pool = AsyncPool::connect(table.socket()).await.unwrap();
        let rows = pool.get().await.unwrap().get_projected(&[7, 99], &["b"]).await.unwrap();
        assert!(rows.row(0).is_some() && rows.row(1).is_none());
    });
}

/// Returns the response to Generation.
fn generation(number: u64) -> Vec<u8> {
    found(&number.to_be_bytes())
}

#[test]
fn rows_are_requested_again_if_the_table_was_replaced_in_between() {
    let schema = schema("a:u8 b:u8");
    let (typed, [first, second]) = (found(&schema.encode()), ["12", "21"].map(|row| page(&[(7_u64, row)], 0)));
    let [one, three] = [1, 3].map(generation);
    let floor = [Floor::new(7_u64).unwrap()];
    // The third table has the schema of the first one. The row may be of the second one.
    let peer = ScriptedServer::answering(&[&one, &typed, &first, &three, &three, &typed, &second, &three]);
    let found_rows = Client::connect(peer.socket()).unwrap().call_with_schema(&floor).unwrap();
    assert_eq!(found_rows.0, [Some((OwnedKey::U64(7), b"21".to_vec()))]);
    assert_eq!(found_rows.1.as_deref(), Some(&schema));

    let values = [&one, NO_SCHEMA, &found(b"x"), &three, &three, NO_SCHEMA, &found(b"y"), &three];
    let peer = ScriptedServer::answering(&values);
    let found_values = Client::connect(peer.socket()).unwrap().get_rows_or_values(&[7]).unwrap();
    assert!(matches!(found_values, RowsOrValues::Values(values) if values.iter().eq([Some(&b"y"[..])])));

    let always: Vec<Vec<u8>> =
        (0..11).flat_map(|at| [generation(at), typed.clone(), first.clone(), generation(at + 1)]).collect();
    let peer = ScriptedServer::answering(&always.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let error = Client::connect(peer.socket()).unwrap().call_with_schema(&floor).unwrap_err();
    assert!(matches!(error, ClientError::TableUnstable { changes: 11, .. }), "{error}");
}

/// A restarted server has the same generation numbers, but perhaps another table.
#[test]
fn all_rows_are_requested_again_after_a_reconnect() {
    let [old, new] = ["a:u8 b:u8", "b:u8 a:u8"].map(schema);
    let [first, second] = ["12", "21"].map(|row| page(&[(7_u64, row)], 0));
    let (one, typed) = (generation(1), [&old, &new].map(|schema| found(&schema.encode())));
    let peer = ScriptedServer::with_scripts(vec![
        Script::closing_after(&[&one, &typed[0], &first]),
        Script::answering(&[&one, &typed[1], &second, &second, &one]),
    ]);
    let floors = [Floor::new(7_u64).unwrap(); 2];
    let (rows, schema) = Client::connect(peer.socket()).unwrap().call_with_schema(&floors).unwrap();
    assert_eq!(rows, [(); 2].map(|()| Some((OwnedKey::U64(7), b"21".to_vec()))));
    assert_eq!(schema.as_deref(), Some(&new));

    let peer = ScriptedServer::with_scripts(vec![
        Script::closing_after(&[&one, NO_SCHEMA, &found(b"xx"), NOT_FOUND]),
        Script::answering(&[&one, NO_SCHEMA, NOT_FOUND, &found(b"y"), &found(b"z"), &one]),
    ]);
    let values = Client::connect(peer.socket()).unwrap().get_rows_or_values(&[7, 8, 9]).unwrap();
    let expected = [None, Some(&b"y"[..]), Some(b"z")];
    assert!(matches!(values, RowsOrValues::Values(values) if values.iter().eq(expected)));
}

#[test]
fn a_table_whose_schema_always_changes_ends_the_call() {
    let schema = schema("a:u8");
    let answers: Vec<Vec<u8>> =
        (0..40).map(|at| if at % 2 == 0 { found(&schema.encode()) } else { SCHEMA_CHANGED.to_vec() }).collect();
    let peer = ScriptedServer::answering(&answers.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let mut client = Client::connect(peer.socket()).unwrap();
    let error = client.get_projected(&[1], &["a"]).unwrap_err();
    assert!(matches!(error, ClientError::TableUnstable { changes: 11, .. }), "{error}");
}

#[test]
fn invalid_schemas_and_rows_are_violations() {
    let schema = schema("a:u32 b:text");
    let row = row_of(&schema, 3);
    let get = |answers: &[&[u8]]| {
        let peer = ScriptedServer::with_scripts(vec![Script::answering(answers)]);
        Client::connect(peer.socket()).unwrap().get_projected(&[1, 2], &["a", "b"]).map(|rows| bytes(&rows))
    };
    let (schema_found, row_found) = (found(&schema.encode()), found(&row));
    let rows = get(&[&schema_found, EXISTS, &row_found, NOT_FOUND]).unwrap();
    assert_eq!(rows, [Some(row), None]);
    let unread = |result| matches!(violation(result), Violation::Schema { len_bytes: 3 });
    assert!(unread(get(&[&found(b"abc")])));
    assert_eq!(
        violation(get(&[&schema_found, EXISTS, &found(b"1234567"), NOT_FOUND])),
        Violation::Row { len_bytes: 7 }
    );
    let with_value = violation(get(&[&schema_found, &found(b"x")]));
    assert!(matches!(with_value, Violation::UnexpectedValue { op: Op::Select, .. }), "{with_value:?}");
    let rejected = get(&[&schema_found, EXISTS, &row_found, ERROR]).unwrap_err();
    assert!(matches!(&rejected, ClientError::Server { request, .. } if request == "key 2"), "{rejected}");
}
