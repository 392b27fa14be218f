//! A connection of the Redis protocol.

use std::os::unix::net::UnixStream;
use std::thread;

use zero_kv::server::{Config, Server};
use zero_kv::typed::{ElementType, List, RowEncoder, Schema, TimeUnit, Value};

use crate::helpers::encoder::encode_typed;
use crate::helpers::tables::Table;
use crate::{Batch, assert_exchanges_allocate_nothing};

pub(crate) fn gets_of_the_redis_protocol_allocate_nothing_after_warm_up() {
    let value_len_bytes = |key: u64| [0, 7, 26, 100, 4096, 5000][key as usize % 6];
    let table = Table::new((0..600_u64).map(|key| (key, vec![b'v'; value_len_bytes(key)])));
    let config = Config { socket: table.socket(), ..Config::default() };
    let server = Server::bind(table.db(), &config).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = thread::spawn(move || {
        server.run(async { stopped.await.unwrap_or_default() }).unwrap();
    });

    let mut stream = UnixStream::connect(table.socket()).unwrap();
    let reply = |key: u64| match table.model.get(&key) {
        Some(value) => [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat(),
        None => b"$-1\r\n".to_vec(),
    };
    // Each batch has so few replies that the socket accepts all of them at once.
    let batches: Vec<Batch> = [1..2, 0..30, 590..620, 600..856]
        .into_iter()
        .flat_map(|keys: std::ops::Range<u64>| {
            let get = |key: u64| format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.to_string().len());
            let requests = keys.clone().map(get).collect::<String>().into_bytes();
            let expected: Vec<u8> = keys.flat_map(reply).collect();
            // As a whole, and with the last command in two parts.
            [requests.len(), requests.len() - 5].map(|split_at| Batch {
                requests: requests.clone(),
                split_at,
                expected: expected.clone(),
            })
        })
        .collect();
    assert_exchanges_allocate_nothing(&mut stream, &batches);
    stop.send(()).unwrap();
    running.join().unwrap();
}

pub(crate) fn hash_reads_allocate_nothing_after_warm_up() {
    let columns =
        ["price:f32", "count:i64?", "name:text", "day:date", "at:timestamp(ms)", "cost:decimal(10,2)", "v:list(f32)"];
    let schema = Schema::new("", columns.map(|column| column.parse().unwrap())).unwrap();
    let (mut encoder, list) = (RowEncoder::new(&schema), 2.5_f32.to_le_bytes().repeat(9));
    let rows = (0..300_u64).map(|key| {
        let values = [
            Value::F32(key as f32 / 3.0),
            if key.is_multiple_of(2) { Value::Null } else { Value::Int(key as i64) },
            Value::Text("a name"),
            Value::Date(20_000),
            Value::Timestamp(key as i64, TimeUnit::Millis),
            Value::Decimal { unscaled: 1234, scale: 2 },
            Value::List(List::new(ElementType::F32, &list).unwrap()),
        ];
        (key, encoder.encode(&values).unwrap().to_vec())
    });
    let folder = tempfile::tempdir().unwrap();
    let (db, socket) = (folder.path().join("storage.db"), folder.path().join("s.sock"));
    std::fs::write(&db, encode_typed(&rows.collect(), &schema.encode())).unwrap();
    let config = Config { socket: socket.clone(), ..Config::default() };
    let server = Server::bind(&db, &config).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = thread::spawn(move || {
        server.run(async { stopped.await.unwrap_or_default() }).unwrap();
    });

    let all = |key: u64| {
        let texts = [
            ("price", Some((key as f32 / 3.0).to_string())),
            ("count", (!key.is_multiple_of(2)).then(|| key.to_string())),
            ("name", Some("a name".to_owned())),
            ("day", Some("2024-10-04".to_owned())),
            ("at", Some(format!("1970-01-01T00:00:00.{key:03}Z"))),
            ("cost", Some("12.34".to_owned())),
            ("v", Some(format!("[{}]", ["2.5"; 9].join(",")))),
        ];
        let present: Vec<String> =
            texts.into_iter().filter_map(|(name, text)| Some([name.to_owned(), text?])).flatten().collect();
        present
            .iter()
            .fold(format!("*{}\r\n", present.len()), |all, text| format!("{all}${}\r\n{text}\r\n", text.len()))
    };
    let commands = |key: u64| {
        let (len, key) = (key.to_string().len(), key);
        format!(
            "*2\r\n$7\r\nHGETALL\r\n${len}\r\n{key}\r\n*4\r\n$5\r\nHMGET\r\n${len}\r\n{key}\r\n$4\r\nname\r\n$1\r\nx\r\n\
             *3\r\n$4\r\nHGET\r\n${len}\r\n{key}\r\n$4\r\ncost\r\n"
        )
    };
    let others = "*2\r\n$6\r\na name\r\n$-1\r\n$5\r\n12.34\r\n";
    let batches: Vec<Batch> = [1..2_u64, 0..30, 270..300]
        .into_iter()
        .map(|keys| {
            let requests = keys.clone().map(commands).collect::<String>().into_bytes();
            let expected = keys.map(|key| all(key) + others).collect::<String>().into_bytes();
            Batch { split_at: requests.len(), requests, expected }
        })
        .collect();
    let mut stream = UnixStream::connect(&socket).unwrap();
    assert_exchanges_allocate_nothing(&mut stream, &batches);
    stop.send(()).unwrap();
    running.join().unwrap();
}
