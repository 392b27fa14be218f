//! Tests of lookups in a table that counts as too long for memory: every record counts as not in memory, so every
//! lookup waits for the threads that read records.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use zerocopy::IntoBytes;

use super::tests::{connections_over, runtime};
use super::*;
use crate::bake::{Keys, Options, TableLayout, bake_csv};
use crate::protocol::native::{Op, RangeHeader, Request, ResponseHeader, Status, push_long, range_flags};
use crate::server::state::tests::worker_over;
use crate::server::{Config, worker};
use crate::store::OpenOptions;

const ROWS: u64 = 3000;

/// Returns a value whose length depends on the key.
fn value(key: u64) -> Vec<u8> {
    let len_bytes = if key % 97 == 8 { 70_000 } else { [0, 1, 26, 100, 300, 4087, 4089, 9000][key as usize / 2 % 8] };
    (0..len_bytes).map(|at| b'a' + ((key + at) % 26) as u8).collect()
}

fn bake(db: &Path, layout: TableLayout, keys: Keys, rows: impl Iterator<Item = (String, Vec<u8>)>) {
    let mut csv = Vec::new();
    for (key, value) in rows {
        csv.extend_from_slice(key.as_bytes());
        csv.push(b',');
        csv.extend_from_slice(&value);
        csv.push(b'\n');
    }
    bake_csv(&csv[..], db, &Options { keys, layout, ..Options::default() }).unwrap();
}

fn numbers() -> impl Iterator<Item = (String, Vec<u8>)> {
    (0..ROWS).map(|key| ((2 * key).to_string(), value(2 * key)))
}

pub(super) fn cold_connections(db: &Path) -> Connections {
    let open = OpenOptions { assume_cold: true, ..OpenOptions::default() };
    let worker = worker_over(db, &Config { open, ..Config::default() });
    assert!(worker.pin().store.may_be_cold());
    Connections { worker, redis_clients: Arc::default() }
}

fn cold_table(keys: Keys, rows: impl Iterator<Item = (String, Vec<u8>)>) -> (tempfile::TempDir, PathBuf, Connections) {
    cold_table_as(TableLayout::Fast, keys, rows)
}

fn cold_table_as(
    layout: TableLayout,
    keys: Keys,
    rows: impl Iterator<Item = (String, Vec<u8>)>,
) -> (tempfile::TempDir, PathBuf, Connections) {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("storage.db");
    bake(&db, layout, keys, rows);
    let connections = cold_connections(&db);
    (folder, db, connections)
}

/// Must be called inside the runtime.
pub(super) fn connect(connections: &Connections) -> UnixStream {
    let (client, server) = StdUnixStream::pair().unwrap();
    [&client, &server].into_iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    connections.worker.counters().connection_opened();
    let server = UnixStream::from_std(server).unwrap();
    let peer = Peer::from_stream(&server);
    connections.open(server, peer).spawn();
    UnixStream::from_std(client).unwrap()
}

/// Sends requests, and asserts that the server sends these responses.
async fn assert_exchanged(client: UnixStream, requests: Vec<u8>, expected: Vec<u8>) {
    let (mut reader, mut writer) = client.into_split();
    let sent = tokio::spawn(async move {
        writer.write_all(&requests).await.unwrap();
        writer
    });
    let mut responses = vec![0; expected.len()];
    reader.read_exact(&mut responses).await.unwrap();
    let differs = responses.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert_eq!(differs, None, "the first byte that differs, of {}", expected.len());
    sent.await.unwrap();
}

fn response(value: &[u8]) -> Vec<u8> {
    [ResponseHeader::of_value(value.len()).unwrap().as_bytes(), value].concat()
}

fn native_exchange(keys: impl Iterator<Item = u64>) -> (Vec<u8>, Vec<u8>) {
    let (mut requests, mut expected) = (Vec::new(), Vec::new());
    for key in keys {
        let is_present = key.is_multiple_of(2) && key < 2 * ROWS;
        let op = if key % 7 == 3 { Op::Exists } else { Op::Get };
        requests.extend_from_slice(Request::new(op, key).as_bytes());
        match (is_present, op) {
            (false, _) => expected.extend_from_slice(ResponseHeader::bare(Status::NotFound).as_bytes()),
            (true, Op::Exists) => expected.extend_from_slice(ResponseHeader::bare(Status::Ok).as_bytes()),
            (true, _) => expected.extend(response(&value(key))),
        }
    }
    (requests, expected)
}

#[test]
fn cold_lookups_return_the_rows() {
    for layout in [TableLayout::Fast, TableLayout::Compact] {
        let (_folder, _, connections) = cold_table_as(layout, Keys::U64, numbers());
        runtime().block_on(async {
            for count in [1, 2, 63, 64, 65, 1500] {
                let (requests, expected) = native_exchange((0..count).map(|i| i * 7919 % (2 * ROWS + 9)));
                assert_exchanged(connect(&connections), requests, expected).await;
            }
        });
        connections.worker.server.cold_reads.stop();
    }
}

#[test]
fn cold_lookups_of_byte_keys_return_the_rows() {
    let rows: BTreeMap<String, Vec<u8>> = (0..ROWS).map(|key| (format!("user:{key}"), value(key))).collect();
    let (_folder, _, connections) = cold_table(Keys::BYTES, rows.clone().into_iter());
    let (mut requests, mut expected) = (Vec::new(), Vec::new());
    for i in 0..700 {
        let key = format!("user:{}", i * 7919 % (ROWS + 9));
        push_long(Op::Get, &[key.as_bytes()], &mut requests);
        match rows.get(&key) {
            Some(value) => expected.extend(response(value)),
            None => expected.extend_from_slice(ResponseHeader::bare(Status::NotFound).as_bytes()),
        }
    }
    runtime().block_on(assert_exchanged_on(&connections, requests, expected));
    connections.worker.server.cold_reads.stop();
}

/// Does what [`assert_exchanged`] does, on a new connection.
async fn assert_exchanged_on(connections: &Connections, requests: Vec<u8>, expected: Vec<u8>) {
    assert_exchanged(connect(connections), requests, expected).await;
}

#[test]
fn cold_commands_of_redis_return_the_rows() {
    let (_folder, _, connections) = cold_table(Keys::U64, numbers());
    let keys: Vec<u64> = (0..400).map(|i| i * 7919 % (2 * ROWS + 9)).collect();
    let (mut requests, mut expected) = (Vec::new(), Vec::new());
    let bulk = |key: u64| match key.is_multiple_of(2) && key < 2 * ROWS {
        true => [format!("${}\r\n", value(key).len()).as_bytes(), &value(key), b"\r\n"].concat(),
        false => b"$-1\r\n".to_vec(),
    };
    for key in &keys {
        let key_text = key.to_string();
        write!(requests, "*2\r\n$3\r\nGET\r\n${}\r\n{key_text}\r\n", key_text.len()).unwrap();
        expected.extend(bulk(*key));
    }
    let names: String = keys.iter().map(|key| format!(" {key}")).collect();
    write!(requests, "MGET{names}\r\nMULTI\r\nGET 4\r\nEXEC\r\n").unwrap();
    write!(expected, "*{}\r\n", keys.len()).unwrap();
    keys.iter().for_each(|key| expected.extend(bulk(*key)));
    expected.extend_from_slice(b"+OK\r\n+QUEUED\r\n*1\r\n");
    expected.extend(bulk(4));
    runtime().block_on(assert_exchanged_on(&connections, requests, expected));
    connections.worker.server.cold_reads.stop();
}

fn get_command(key: u64) -> Vec<u8> {
    let text = key.to_string();
    format!("*2\r\n$3\r\nGET\r\n${}\r\n{text}\r\n", text.len()).into_bytes()
}

/// A pipeline that a client sends.
struct Load {
    name: &'static str,
    requests: Vec<u8>,
}

fn long(op: Op, bodies: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut requests = Vec::new();
    bodies.for_each(|body| push_long(op, &[&body], &mut requests));
    requests
}

/// Returns the body of a Range or a Count of numbers from `start` to `end`, exclusive.
fn range_body(start: u64, end: u64, flags: u32) -> Vec<u8> {
    let header = RangeHeader {
        flags: (range_flags::START | range_flags::END | range_flags::END_EXCLUDED | range_flags::NUMBERS | flags)
            .into(),
        limit_rows: 20.into(),
        start_len_bytes: 8.into(),
        end_len_bytes: 8.into(),
    };
    [header.as_bytes(), &start.to_be_bytes(), &end.to_be_bytes()].concat()
}

/// Returns pipelines of `count` lookups of every kind in the table of [`numbers`].
fn loads(count: u64) -> Vec<Load> {
    let keys = || (0..count).map(|i| i * 7919 % (2 * ROWS + 9));
    let native = |op| keys().flat_map(|key| Request::new(op, key).as_bytes().to_vec()).collect();
    let commands = |text: &dyn Fn(u64) -> String| keys().flat_map(|key| text(key).into_bytes()).collect();
    let range = |op, flags| long(op, keys().map(|key| range_body(key, key + 300, flags)));
    let load = |name, requests| Load { name, requests };
    let names = || keys().map(|key| format!(" {key}")).collect::<String>();
    let array = |words: &[&str]| {
        let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n{}", words.len(), words.collect::<String>())
    };
    vec![
        load("Get", native(Op::Get)),
        load("Exists", native(Op::Exists)),
        load("Floor", native(Op::Floor)),
        load("Ceiling", native(Op::Ceiling)),
        load("Range", range(Op::Range, 0)),
        load("Range, backward", range(Op::Range, range_flags::BACKWARD)),
        load("Count", range(Op::Count, 0)),
        load("GET", commands(&|key| array(&["GET", &key.to_string()]))),
        load("MGET", format!("MGET{}\r\n", names()).into_bytes()),
        load("EXISTS", format!("EXISTS{}\r\n", names()).into_bytes()),
        load("STRLEN", commands(&|key| format!("STRLEN {key}\r\n"))),
        load("ZKV.FLOOR", commands(&|key| array(&["ZKV.FLOOR", &key.to_string()]))),
        load("ZKV.CEILING, inline", commands(&|key| format!("ZKV.CEILING {key}\r\n"))),
        load("ZKV.RANGE", commands(&|key| array(&["ZKV.RANGE", &key.to_string(), "+", "LIMIT", "5"]))),
        load("ZKV.COUNT, inline", commands(&|key| format!("ZKV.COUNT {key} +\r\n"))),
        // A SCAN ends early when its pass ends, so only the first SCAN of a pipeline always returns the same rows.
        load("SCAN", b"SCAN 0 COUNT 20\r\n".to_vec()),
        load("KEYS", b"KEYS *7*\r\n".to_vec()),
        load(
            "MULTI",
            commands(&|key| format!("MULTI\r\nGET {key}\r\nZKV.FLOOR {key}\r\nZKV.RANGE {key} + LIMIT 5\r\nEXEC\r\n")),
        ),
    ]
}

/// Returns the reply to a SCAN without the cursor.
fn keys_of_scan(reply: &[u8]) -> &[u8] {
    &reply[reply.iter().rposition(|byte| *byte == b'*').expect("an array of keys")..]
}

/// Sends requests, and returns all responses.
pub(super) async fn responses_to(client: UnixStream, requests: Vec<u8>) -> Vec<u8> {
    let (mut reader, mut writer) = client.into_split();
    let sent = tokio::spawn(async move {
        writer.write_all(&requests).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let mut responses = Vec::new();
    reader.read_to_end(&mut responses).await.unwrap();
    sent.await.unwrap();
    responses
}

#[test]
fn lookups_of_every_kind_return_the_same_bytes_from_cold_and_warm_tables_of_both_layouts() {
    let (_folder, db, cold) = cold_table(Keys::U64, numbers());
    let (_compact_folder, compact_db, compact_cold) = cold_table_as(TableLayout::Compact, Keys::U64, numbers());
    let (warm, compact_warm) = (connections_over(&db), connections_over(&compact_db));
    assert!(!warm.worker.pin().store.may_be_cold());
    let others = [("cold", &cold), ("compact", &compact_warm), ("compact and cold", &compact_cold)];
    runtime().block_on(async {
        for load in loads(300) {
            let expected = responses_to(connect(&warm), load.requests.clone()).await;
            assert!(expected.len() > 3, "{}", load.name);
            for (table, connections) in others {
                let found = responses_to(connect(connections), load.requests.clone()).await;
                // The cursor of a SCAN depends on the bytes of the file.
                let is_scan = load.name == "SCAN";
                let [found, expected] =
                    [&found, &expected].map(|reply| if is_scan { keys_of_scan(reply) } else { reply });
                let lens = (found.len(), expected.len());
                assert!(found == expected, "{}, {table}: {} bytes, expected {}", load.name, lens.0, lens.1);
            }
        }
    });
    cold.worker.server.cold_reads.stop();
    compact_cold.worker.server.cold_reads.stop();
}

#[test]
fn ordered_lookups_of_byte_keys_return_the_same_bytes_from_a_cold_table_as_from_a_warm_table() {
    // Keys in groups with equal heads, so that lookups compare the keys of records.
    let (_folder, db, cold) =
        cold_table(Keys::BYTES, (0..ROWS).map(|key| (format!("user:{:05}:{}", key / 5, key % 5), value(key))));
    let warm = connections_over(&db);
    let mut requests = Vec::new();
    for i in 0..300 {
        let key = format!("user:{:05}:{}", i * 7919 % (ROWS / 5 + 9), i % 7);
        push_long(Op::Floor, &[key.as_bytes()], &mut requests);
        push_long(Op::Ceiling, &[key.as_bytes()], &mut requests);
        for op in [Op::Range, Op::Count] {
            let header = RangeHeader {
                flags: range_flags::START.into(),
                limit_rows: (i as u32 % 30).into(),
                start_len_bytes: (key.len() as u32).into(),
                end_len_bytes: 0.into(),
            };
            push_long(op, &[header.as_bytes(), key.as_bytes()], &mut requests);
        }
    }
    runtime().block_on(async {
        let expected = responses_to(connect(&warm), requests.clone()).await;
        assert!(responses_to(connect(&cold), requests).await == expected);
    });
    cold.worker.server.cold_reads.stop();
}

#[test]
fn commands_with_keys_of_other_types_return_the_same_bytes_from_a_cold_table_as_from_a_warm_table() {
    type Written = fn(u64) -> String;
    let written: [(&str, Written); 4] = [
        ("i64", |key| (key as i64 - 1000).to_string()),
        ("ip", |key| format!("2001:db8::{:x}", key + 1)),
        ("hex", |key| format!("{key:06x}")),
        ("bytes,date", |key| format!("user {},20{:02}-03-{:02}", key / 500, key % 50, 1 + key % 28)),
    ];
    for (key_type, text) in written {
        // Each key once, although the texts of some numbers are equal.
        let rows: BTreeMap<String, Vec<u8>> = (0..ROWS).map(|key| (text(key), value(key))).collect();
        let quoted = rows.into_iter().map(|(key, value)| (format!("\"{key}\""), value));
        let (_folder, db, cold) = cold_table(Keys::Type(key_type.parse().unwrap()), quoted);
        let warm = connections_over(&db);
        let texts: Vec<String> = (0..100).map(|i| text(i * 7919 % (ROWS + 9))).collect();
        let (mut points, mut names) = (Vec::new(), String::new());
        for (i, text) in texts.iter().enumerate() {
            write!(points, "*2\r\n$3\r\nGET\r\n${}\r\n{text}\r\n", text.len()).unwrap();
            if i % 3 == 0 {
                write!(points, "STRLEN \"{text}\"\r\n").unwrap();
            }
            names.push_str(&format!(" \"{text}\""));
        }
        let mut ordered = Vec::new();
        for text in &texts {
            for command in ["ZKV.FLOOR", "ZKV.CEILING"] {
                let [name_len, len] = [command.len(), text.len()];
                write!(ordered, "*2\r\n${name_len}\r\n{command}\r\n${len}\r\n{text}\r\n").unwrap();
            }
            write!(ordered, "ZKV.RANGE \"[{text}\" + LIMIT 5\r\nZKV.COUNT - \"({text}\"\r\n").unwrap();
        }
        let transaction = format!("MULTI\r\nGET \"{}\"\r\nZKV.FLOOR \"{}\"\r\nEXEC\r\n", texts[0], texts[1]);
        for requests in [
            points,
            format!("MGET{names}\r\nEXISTS{names}\r\n").into_bytes(),
            ordered,
            transaction.into_bytes(),
            b"SCAN 0 COUNT 20 MATCH *1*\r\n".to_vec(),
            b"KEYS *7*\r\n".to_vec(),
        ] {
            runtime().block_on(async {
                let expected = responses_to(connect(&warm), requests.clone()).await;
                assert!(expected.len() > 3 && !expected.starts_with(b"-"), "{}", expected.escape_ascii());
                assert!(responses_to(connect(&cold), requests.clone()).await == expected, "{key_type}");
            });
        }
        cold.worker.server.cold_reads.stop();
    }
}

/// While the disk is slow, a worker must neither wait for it nor be busy: otherwise, other clients would wait, and the
/// worker would not report progress to the watchdog.
#[test]
#[expect(clippy::await_holding_lock, reason = "only the threads that read wait for this lock")]
fn clients_with_4096_lookups_that_wait_for_a_slow_disk_delay_no_other_client() {
    let (_folder, _, connections) = cold_table(Keys::U64, numbers());
    let cold_reads = &connections.worker.server.cold_reads;
    let ping = Request::new(Op::Ping, 0);
    runtime().block_on(async {
        for load in loads(4096) {
            let slow = cold_reads.delay();
            let mut cold = connect(&connections);
            let mut other = connect(&connections);
            cold.writable().await.unwrap();
            let sent = cold.try_write(&load.requests).unwrap();
            assert!(sent > 0);
            for _ in 0..200 {
                other.write_all(ping.as_bytes()).await.unwrap();
                other.read_exact(&mut [0; 8]).await.unwrap();
            }
            // The connection waits for the threads, and has looked nothing up itself.
            let mut received = vec![0; 1 << 20];
            let answered = cold.try_read(&mut received);
            let has_waited = match load.name {
                // The reply to MGET begins with the number of values, and MULTI is answered at once.
                "MGET" | "MULTI" => answered.is_ok_and(|len_bytes| len_bytes < 100),
                _ => answered.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock),
            };
            assert!(has_waited, "{}: answered without the threads", load.name);
            drop(slow);
            assert!(cold.read(&mut received).await.unwrap() > 0, "{}", load.name);
        }
    });
    cold_reads.stop();
}

/// When the disk has answered, the lookups of all connections are ready at the same time. Another client must not wait
/// until all of them are answered.
#[test]
#[expect(clippy::await_holding_lock, reason = "only the threads that read wait for this lock")]
fn clients_whose_lookups_become_ready_together_delay_another_client_by_a_few_turns() {
    let (_folder, _, connections) = cold_table(Keys::U64, (0..ROWS).map(|key| (key.to_string(), vec![b'v'; 26])));
    let cold_reads = &connections.worker.server.cold_reads;
    let lookups = || (0..256).map(|i| i * 7919 % ROWS);
    let gets: Vec<u8> = lookups().flat_map(get_command).collect();
    let requests = lookups().flat_map(|key| Request::new(Op::Get, key).as_bytes().to_vec()).collect::<Vec<u8>>();
    for requests in [gets, requests] {
        worker::runtime(true).unwrap().block_on(async {
            let slow = cold_reads.delay();
            let mut cold: Vec<UnixStream> = (0..40).map(|_| connect(&connections)).collect();
            let mut other = connect(&connections);
            for client in &mut cold {
                client.write_all(&requests).await.unwrap();
            }
            other.write_all(Request::new(Op::Ping, 0).as_bytes()).await.unwrap();
            other.read_exact(&mut [0; 8]).await.unwrap();
            // All connections wait for the disk. The worker runs none of them until all reads are done.
            drop(slow);
            while cold_reads.is_reading() {
                std::thread::yield_now();
            }
            other.try_write(Request::new(Op::Ping, 0).as_bytes()).unwrap();
            other.read_exact(&mut [0; 8]).await.unwrap();
            let is_answered = |client: &&UnixStream| rustix::io::ioctl_fionread(client).unwrap() > 0;
            let answered = cold.iter().filter(is_answered).count();
            // A slow machine may notice the request some turns later.
            assert!(answered < cold.len() / 2, "{answered} of 40 clients were answered first");
        });
    }
    cold_reads.stop();
}

#[test]
fn requests_that_wait_for_the_disk_are_answered_from_one_generation() {
    let rows = |letter: u8| (0..1000_u64).map(move |key| (key.to_string(), vec![letter; 10]));
    let (_folder, db, connections) = cold_table(Keys::U64, rows(b'a'));
    let requests: Vec<u8> = (0..300_u64).flat_map(|key| Request::new(Op::Get, key).as_bytes().to_vec()).collect();
    let response_len_bytes = response(&[0; 10]).len();
    runtime().block_on(async {
        for letter in b'b'..b'l' {
            let mut client = connect(&connections);
            client.write_all(&requests).await.unwrap();
            // The connection begins its first turn.
            yield_now().await;
            bake(&db, TableLayout::Fast, Keys::U64, rows(letter));
            let worker = &connections.worker;
            worker.server.table.replace(&Arc::new(worker.server.settings.source.open().unwrap()));
            let mut responses = vec![0; 300 * response_len_bytes];
            client.read_exact(&mut responses).await.unwrap();
            let letters: Vec<u8> = responses.chunks(response_len_bytes).map(|response| response[8]).collect();
            assert!(letters.iter().all(|found| *found == letters[0]), "{letters:?}");
            assert!(letters[0] == letter || letters[0] == letter - 1);
        }
    });
    connections.worker.server.cold_reads.stop();
}

#[test]
fn a_damaged_block_fails_only_the_lookups_that_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("storage.db");
    bake(&db, TableLayout::Fast, Keys::U64, (0..100_000_u64).map(|key| (key.to_string(), vec![b'v'; 84])));
    // Each record has 100 bytes and 4 bytes of padding, and the records begin at 4096. The check before the file is
    // served does not read block 1.
    let file = File::options().write(true).open(&db).unwrap();
    file.write_all_at(b"?", 4096 + 4096 + 2000).unwrap();
    file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(10)).unwrap();
    drop(file);
    let connections = cold_connections(&db);
    // Until the change time is settled, an epoch can end during the lookups, which clears the list of damaged blocks.
    assert!(connections.worker.pin().store.begin_batch_of_whole_file().is_some());
    let (mut requests, mut expected) = (Vec::new(), Vec::new());
    for key in 0..200_u64 {
        requests.extend_from_slice(Request::new(Op::Get, key).as_bytes());
        let (start, end) = (key * 104, key * 104 + 100);
        match start < 8192 && end > 4096 {
            true => expected.extend_from_slice(ResponseHeader::bare(Status::Error).as_bytes()),
            false => expected.extend(response(&[b'v'; 84])),
        }
    }
    runtime().block_on(assert_exchanged_on(&connections, requests, expected));
    assert_eq!(connections.worker.pin().store.take_damaged_blocks(), [1]);
    connections.worker.server.cold_reads.stop();
}

#[test]
fn a_client_that_disconnects_while_it_waits_for_the_disk_leaves_nothing_behind() {
    let (_folder, _, connections) = cold_table(Keys::U64, numbers());
    let (requests, expected) = native_exchange(0..200);
    runtime().block_on(async {
        for _ in 0..50 {
            let mut client = connect(&connections);
            client.write_all(&requests).await.unwrap();
            yield_now().await;
            drop(client);
        }
        assert_exchanged(connect(&connections), requests.clone(), expected.clone()).await;
        while connections.worker.counters().connections() > 0 {
            yield_now().await;
        }
    });
    let worker = &connections.worker;
    worker.server.cold_reads.stop();
    // Only the worker's slot and this variable refer to the generation.
    assert_eq!(worker.pin().count(), 2);
}

#[test]
fn the_threads_end_when_the_server_stops() {
    let (_folder, _, connections) = cold_table(Keys::U64, numbers());
    let cold_reads = &connections.worker.server.cold_reads;
    assert_eq!(cold_reads.thread_count(), 0, "no record was needed yet");
    let (requests, expected) = native_exchange(0..10);
    let runtime = runtime();
    runtime.block_on(assert_exchanged_on(&connections, requests.clone(), expected.clone()));
    assert!(cold_reads.thread_count() > 0);
    cold_reads.stop();
    assert_eq!(cold_reads.thread_count(), 0);
    // Lookups then read the records themselves.
    runtime.block_on(assert_exchanged_on(&connections, requests, expected));
    assert_eq!(cold_reads.thread_count(), 0);
}
