//! A connection that has requested the type of the keys, and a swap to a table with keys of another type.

use std::io::Write;
use std::net::Shutdown;

use rustix::process::Signal;
use zero_kv::bake::Keys;

use crate::helpers::frames::{answer, connect, expect, expect_end, request};
use crate::helpers::reference_server::{
    CEILING, COUNT, EXISTS, FLOOR, GENERATION, GET, KEY_TYPE, PING, RANGE, long, range_body,
};
use crate::helpers::rows::bake_text;
use crate::helpers::servers::Server;
use crate::helpers::tables::Table;

const GET_COLUMNS: u32 = 14;
const COVER: u32 = 18;
const CHANGED: u32 = 7;

fn swap_to(keys: Keys, table: &Table, server: &Server) {
    let new = table.db().with_extension("new");
    bake_text(&new, keys, "7,new seven\n");
    let before = server.number("generation");
    std::fs::rename(new, table.db()).unwrap();
    server.signal(Signal::HUP);
    server.wait_for("generation", before + 1);
}

#[test]
fn keys_are_looked_up_only_in_a_table_of_the_requested_type() {
    let table = Table::new([(7, b"seven".to_vec())]);
    let server = table.serve_with(&["--allow-key-type-change"]);
    let [mut typed, mut untyped] = [(); 2].map(|()| connect(server.socket()));
    typed.write_all(&[request(KEY_TYPE, 0), request(GET, 7)].concat()).unwrap();
    expect(&mut typed, &[answer(0, b"u64"), answer(0, b"seven")].concat());
    untyped.write_all(&request(GET, 7)).unwrap();
    expect(&mut untyped, &answer(0, b"seven"));
    // A table of the same type changes nothing.
    swap_to(Keys::U64, &table, &server);
    typed.write_all(&request(GET, 7)).unwrap();
    expect(&mut typed, &answer(0, b"new seven"));

    swap_to(Keys::Type("i64".parse().unwrap()), &table, &server);
    let stored = 7 ^ (1 << 63);
    let all = range_body(0, 0, b"", b"");
    let (changed, value) = (answer(CHANGED, b""), answer(0, b"new seven"));
    let exchanges: Vec<(Vec<u8>, Vec<u8>)> = vec![
        (request(PING, 0).to_vec(), answer(0, b"")),
        (request(GET, stored).to_vec(), changed.clone()),
        (request(EXISTS, stored).to_vec(), changed.clone()),
        (request(FLOOR, stored).to_vec(), changed.clone()),
        (request(CEILING, stored).to_vec(), changed.clone()),
        (request(COVER, stored).to_vec(), changed.clone()),
        (request(GET_COLUMNS, stored).to_vec(), changed.clone()),
        (long(RANGE, &all), changed.clone()),
        (long(COUNT, &all), changed.clone()),
        (request(99, 0).to_vec(), answer(2, b"")),
        (request(GENERATION, 0).to_vec(), answer(0, &3_u64.to_be_bytes())),
        (request(GET, stored).to_vec(), changed.clone()),
        (request(KEY_TYPE, 0).to_vec(), answer(0, b"i64")),
        (request(GET, stored).to_vec(), value.clone()),
        (request(EXISTS, 7).to_vec(), answer(1, b"")),
    ];
    let (sent, expected): (Vec<_>, Vec<_>) = exchanges.into_iter().unzip();
    typed.write_all(&sent.concat()).unwrap();
    typed.shutdown(Shutdown::Write).unwrap();
    expect_end(&mut typed, &expected.concat());
    // A client that has not requested the type sends stored keys.
    untyped.write_all(&[request(GET, 7), request(GET, stored)].concat()).unwrap();
    expect(&mut untyped, &[answer(1, b""), value].concat());
    assert_eq!(server.number("errors"), 10);
}

#[test]
fn a_long_pipeline_of_keys_of_the_old_type_gets_a_response_for_each_of_them() {
    let table = Table::new([(7, b"seven".to_vec())]);
    let server = table.serve_with(&["--allow-key-type-change"]);
    let mut stream = connect(server.socket());
    stream.write_all(&request(KEY_TYPE, 0)).unwrap();
    expect(&mut stream, &answer(0, b"u64"));
    swap_to(Keys::BYTES, &table, &server);
    const GETS: usize = 50_000;
    let mut writer = stream.try_clone().unwrap();
    let sent = [request(GET, 7).repeat(GETS), request(KEY_TYPE, 0).to_vec(), long(GET, b"7")].concat();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&sent).unwrap());
        let expected = [answer(CHANGED, b"").repeat(GETS), answer(0, b"bytes"), answer(0, b"new seven")].concat();
        expect(&mut stream, &expected);
    });
}
