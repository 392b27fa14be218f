//! The numbers that Info returns match the requests that the server received.

use std::io::Write;

use zero_kv::Store;
use zero_kv::bake::Keys;
use zero_kv::client::{Client, ClientError, Info};

use crate::helpers::frames::{EXISTS, GET, answer, expect, request};
use crate::helpers::scenes::Scene;
use crate::helpers::tables::{Table, answer_to_get, answers_to_gets};
use crate::helpers::waiting::eventually;

const FLOOR: u32 = 2;
const INFO: u32 = 6;

fn number(info: &Info, name: &str) -> u64 {
    info.number(name).unwrap_or_else(|| panic!("{name} in {info:?}"))
}

#[test]
fn info_names_the_served_table() {
    let table = Table::of_rows(1000);
    let server = table.serve();
    let store = Store::open(table.db()).unwrap();
    let info = Client::connect(table.socket()).unwrap().info().unwrap();
    assert_eq!((info.rows(), info.digest()), (Some(1000), Some(store.digest())));
    assert_eq!(info.get("keys"), Some("u64"));
    assert_eq!(info.get("version"), Some(env!("CARGO_PKG_VERSION")));
    assert_eq!(info.get("socket"), table.socket().to_str());
    assert_eq!(number(&info, "pid"), u64::from(server.id()));
    assert_eq!(number(&info, "file_len_bytes"), store.file_len_bytes());
    assert_eq!(number(&info, "generation"), 1);

    let mut stream = server.connect();
    stream.write_all(b"ZKV.GENERATION\r\n").unwrap();
    expect(&mut stream, format!("*2\r\n:1\r\n$32\r\n{:032x}\r\n", store.digest()).as_bytes());
}

#[test]
fn requests_are_counted_by_op_and_outcome() {
    let table = Table::of_rows(100);
    let server = table.serve();
    let mut stream = server.connect();
    // In one pipeline, 70 Gets find a value and 30 do not, 2 Exists requests find a key and 1 does not, 1 Floor finds a
    // row and 1 does not, and 5 requests have an unknown op.
    let mut asked: Vec<u8> = (31..=130).flat_map(|key| request(GET, key)).collect();
    [1, 2, 200].iter().for_each(|key| asked.extend(request(EXISTS, *key)));
    [7, 0].iter().for_each(|key| asked.extend(request(FLOOR, *key)));
    (0..5).for_each(|key| asked.extend(request(99, key)));
    stream.write_all(&asked).unwrap();
    let mut expected = answers_to_gets(&table.model, 31..=130);
    [0, 0, 1].iter().for_each(|status| expected.extend(answer(*status, b"")));
    expect(&mut stream, &expected);
    // Another test checks the bytes of this page.
    std::io::Read::read_exact(&mut stream, &mut [0; 56]).unwrap();
    expect(&mut stream, &answer(1, b""));
    (0..5).for_each(|_| expect(&mut stream, &answer(2, b"")));

    let info = Client::connect(table.socket()).unwrap().info().unwrap();
    let counted =
        ["get", "exists", "floor", "other", "ceiling", "redis"].map(|op| number(&info, &format!("requests_{op}")));
    assert_eq!(counted, [100, 3, 2, 5, 0, 0]);
    assert_eq!(["hits", "misses", "errors"].map(|name| number(&info, name)), [72, 31, 5]);
    assert_eq!((number(&info, "connections"), number(&info, "connections_accepted")), (2, 2));
    // The request for this Info has also been read.
    assert_eq!(number(&info, "read_len_bytes"), asked.len() as u64 + 16);
    assert!(number(&info, "written_len_bytes") >= expected.len() as u64);
    let (batches, most) = (number(&info, "batches"), number(&info, "batch_requests_max"));
    assert!(batches >= 1 && most <= 110 && batches * most >= 110, "{info:?}");

    drop(stream);
    eventually("the ended connection is no longer counted", || {
        number(&Client::connect(table.socket()).unwrap().info().unwrap(), "connections") == 1
    });
}

#[test]
fn service_times_are_sampled() {
    let table = Table::of_rows(10);
    let _server = table.serve();
    let mut client = Client::connect(table.socket()).unwrap();
    for _ in 0..200 {
        client.get(7).unwrap();
    }
    let info = client.info().unwrap();
    let times_us = ["p50", "p99", "p99.9"].map(|name| info.number::<f64>(&format!("service_us_{name}")).unwrap());
    assert!(times_us[0] > 0.0 && times_us.is_sorted(), "{times_us:?}");
}

#[test]
fn info_describes_a_table_of_byte_keys() {
    let scene = Scene::baked(Keys::BYTES, b"ant,1\nbee,22\n");
    let server = scene.serve(&[]);
    let mut client = server.client();
    assert_eq!(client.get("bee").unwrap().as_deref(), Some(&b"22"[..]));
    assert_eq!(client.get("cow").unwrap(), None);
    assert!(matches!(client.get(7), Err(ClientError::Server { .. })), "{:?}", client.get(7));
    assert_eq!(client.count(..).unwrap(), 2);
    let info = client.info().unwrap();
    assert_eq!((info.get("keys"), info.rows()), (Some("bytes"), Some(2)));
    assert_eq!(["get", "count"].map(|op| number(&info, &format!("requests_{op}"))), [3, 1]);
    assert_eq!(["hits", "misses", "errors"].map(|name| number(&info, name)), [1, 1, 1]);
}

/// Each response is a text of a kilobyte and more. The server answers other clients between them.
#[test]
fn a_flood_of_info_requests_is_answered_completely() {
    let table = Table::of_rows(10);
    let server = table.serve();
    let mut stream = server.connect();
    let asked: Vec<u8> = (0..500).flat_map(|i| request(if i % 2 == 0 { INFO } else { GET }, 7)).collect();
    std::thread::scope(|scope| {
        let mut writer = stream.try_clone().unwrap();
        scope.spawn(move || writer.write_all(&asked).unwrap());
        for _ in 0..250 {
            let mut header = [0; 8];
            std::io::Read::read_exact(&mut stream, &mut header).unwrap();
            assert_eq!(header[..4], [0; 4]);
            let len = u32::from_be_bytes(header[4..].try_into().unwrap()) as usize;
            let mut text = vec![0; len];
            std::io::Read::read_exact(&mut stream, &mut text).unwrap();
            assert!(text.starts_with(b"version "));
            expect(&mut stream, &answer_to_get(&table.model, 7));
        }
    });
}
