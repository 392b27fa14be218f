//! All tables and clients of the library have the same lookups: the methods of `Lookup`, with the same names, arguments,
//! and results.
//!
//! Differences: the lookups of clients need `&mut`, their errors are of another type, and counts are `u64`. Clients have
//! no `row`, `range_many`, and `count_many`, because the protocol has no such request. For columns, tables fill buffers
//! (`get_columns`), and clients receive projected rows (`get_projected`).

use tokio::runtime::Builder;
use zero_kv::bake::Keys;
use zero_kv::client::{AsyncClient, Client, ClusterClient, OwnedKey, Row};
use zero_kv::{Lookup, MappedStore, Store};

use super::clients::start;
use super::nodes::{Cluster, members};
use crate::helpers::servers::{Server, kv_store};

/// The result of each lookup as text, or `an error`.
type Results = Vec<(&'static str, String)>;

fn row<K: Into<OwnedKey>, V: AsRef<[u8]>>((key, value): (K, V)) -> Row {
    (key.into(), value.as_ref().to_vec())
}

fn shown<T: std::fmt::Debug, E>(result: Result<T, E>) -> String {
    result.map_or_else(|_| "an error".to_owned(), |found| format!("{found:?}"))
}

/// The rows of an iterator. A client learns only from the first page that the keys are of the wrong kind.
fn all<K: Into<OwnedKey>, V: AsRef<[u8]>, F, E>(rows: Result<impl Iterator<Item = Result<(K, V), F>>, E>) -> String {
    let Ok(rows) = rows else { return "an error".to_owned() };
    shown(rows.map(|found| found.map(row)).collect::<Result<Vec<_>, F>>())
}

/// Calls every lookup of a table or client. `$present`, `$absent`, and `$wrong` are keys: of a row, of no row, and of the
/// wrong kind; `$prefix` is a prefix of keys; `$columns` is the lookup of columns.
macro_rules! look_up {
    ($table:ident, $columns:ident, [$($await:tt)*], $present:expr, $absent:expr, $wrong:expr, $prefix:expr) => {{
        let (present, absent, wrong) = ($present, $absent, $wrong);
        let keys = [absent, present, absent, present];
        let bytes = |value: Option<_>| value.map(|value: _| AsRef::<[u8]>::as_ref(&value).to_vec());
        let mut visited = Vec::new();
        let mut results: Results = vec![
            ("get", shown($table.get(present)$($await)*.map(|value| value.map(|value| value.to_vec())))),
            ("get of an absent key", shown($table.get(absent)$($await)*.map(|value| value.is_some()))),
            ("get of a wrong key", shown($table.get(wrong)$($await)*.map(|value| value.is_some()))),
            ("get_with", shown($table.get_with(present, |value| value.map(<[u8]>::len))$($await)*)),
            ("get_many", shown($table.get_many(&keys)$($await)*.map(|found| found.into_iter().map(bytes).collect::<Vec<_>>()))),
            ("contains", shown($table.contains(present)$($await)*)),
            ("contains of an absent key", shown($table.contains(absent)$($await)*)),
            ("contains_many", shown($table.contains_many(&keys)$($await)*)),
            ("floor", shown($table.floor(absent)$($await)*.map(|found| found.map(row)))),
            ("floor_many", shown($table.floor_many(&keys)$($await)*.map(|found| found.into_iter().map(|found| found.map(row)).collect::<Vec<_>>()))),
            ("ceiling", shown($table.ceiling(absent)$($await)*.map(|found| found.map(row)))),
            ("ceiling_many", shown($table.ceiling_many(&keys)$($await)*.map(|found| found.into_iter().map(|found| found.map(row)).collect::<Vec<_>>()))),
            ("first", shown($table.first()$($await)*.map(|found| found.map(row)))),
            ("last", shown($table.last()$($await)*.map(|found| found.map(row)))),
            ("count", shown($table.count(present..)$($await)*)),
            ("count of a wrong range", shown($table.count(wrong..)$($await)*)),
            ("count_prefix", shown($table.count_prefix($prefix)$($await)*)),
            ("get_row of a table without columns", shown($table.get_row(present)$($await)*.map(|found| found.is_some()))),
            ("columns of a table without columns", shown($table.$columns(&keys, &["a"])$($await)*.map(drop))),
        ];
        let visit = |at, value: Option<&[u8]>| visited.push((at, value.map(<[u8]>::to_vec)));
        results.push(("get_many_with", shown($table.get_many_with(&keys, visit)$($await)*)));
        results.push(("what get_many_with visits", format!("{visited:?}")));
        results
    }};
}

/// Calls the lookups that return iterators.
macro_rules! iterate {
    ($table:ident, $present:expr, $wrong:expr, $prefix:expr) => {{
        let results: Results = vec![
            ("iter", all(Ok::<_, ()>($table.iter().take(9)))),
            ("iter from the end", all(Ok::<_, ()>($table.iter().rev().take(9)))),
            ("range", all($table.range($present..))),
            ("prefix", all($table.prefix($prefix))),
            ("range of wrong keys", all($table.range($wrong..))),
        ];
        results
    }};
}

macro_rules! compare_surfaces {
    ($cluster:ident, $present:expr, $absent:expr, $wrong:expr, $prefix:expr) => {{
        let members = members(1, 0);
        let _node = start(&$cluster, &members);
        // A node of a cluster has no direct mode.
        let (path, socket) = ($cluster.path("whole.db"), $cluster.path("server.sock"));
        let _server = Server::of(kv_store(&path, &socket), &socket);
        let store = Store::open(&path).unwrap();
        let mapped = MappedStore::open(&path).unwrap();
        let mut client = Client::connect(&socket).unwrap();
        let direct = client.direct().unwrap();
        let snapshot = direct.snapshot();
        let mut nodes = ClusterClient::connect(&[format!("zkv://127.0.0.1:{}", members[0].port)]).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let on_tokio = runtime.block_on(async {
            let mut client = AsyncClient::connect(&socket).await.unwrap();
            look_up!(client, get_projected, [.await], $present, $absent, $wrong, $prefix)
        });

        let expected = look_up!(store, get_columns, [], $present, $absent, $wrong, $prefix);
        assert!(expected.iter().filter(|(_, result)| result == "an error").count() <= 5, "{expected:?}");
        assert_eq!(look_up!(mapped, get_columns, [], $present, $absent, $wrong, $prefix), expected, "MappedStore");
        assert_eq!(look_up!(direct, get_columns, [], $present, $absent, $wrong, $prefix), expected, "Direct");
        assert_eq!(look_up!(snapshot, get_columns, [], $present, $absent, $wrong, $prefix), expected, "DirectSnapshot");
        assert_eq!(look_up!(client, get_projected, [], $present, $absent, $wrong, $prefix), expected, "Client");
        assert_eq!(look_up!(nodes, get_projected, [], $present, $absent, $wrong, $prefix), expected, "ClusterClient");
        assert_eq!(on_tokio, expected, "AsyncClient");

        let expected = iterate!(store, $present, $wrong, $prefix);
        assert_eq!(iterate!(mapped, $present, $wrong, $prefix), expected, "MappedStore");
        assert_eq!(iterate!(direct, $present, $wrong, $prefix), expected, "Direct");
        assert_eq!(iterate!(snapshot, $present, $wrong, $prefix), expected, "DirectSnapshot");
        assert_eq!(iterate!(client, $present, $wrong, $prefix), expected, "Client");
        let rows: Vec<_> = nodes.iter().take(9).map(Result::unwrap).collect();
        assert_eq!(("iter", format!("{rows:?}")), expected[0], "ClusterClient");
    }};
}

pub(crate) fn all_tables_and_clients_have_the_same_lookups() {
    let rows = (0..2000_u64).map(|key| format!("{},value {key}\n", 10 * key)).collect::<String>();
    let numbers = Cluster::new(Keys::U64, rows);
    compare_surfaces!(numbers, 70_u64, 75_u64, "seven", "1");
    let rows = (0..2000).map(|key| format!("key/{key},value {key}\n")).collect::<String>();
    let texts = Cluster::new(Keys::BYTES, rows);
    compare_surfaces!(texts, "key/77", "key/77a", 7_u64, "key/199");
}
