//! Replies from a file with a damaged block.

use std::fs;
use std::fs::OpenOptions;
use std::io::Write;

use super::{ServedRows, ask, command, reply};
use crate::helpers::waiting::eventually;

/// The start of the reply where the file is damaged.
const DAMAGED: &str = "-ERR the result depends on damaged bytes of the file";

#[test]
fn each_key_in_a_damaged_block_gets_an_error_in_its_place() {
    // Four blocks; all but the last have 512 rows.
    let served = ServedRows::numbers(2000);
    let mut stream = served.connect();
    let mut bytes = fs::read(served.scene.db()).unwrap();
    let value_at = bytes.windows(13).position(|window| window == b"value of 1000").unwrap();
    bytes[value_at] ^= 1;
    OpenOptions::new().write(true).open(served.scene.db()).unwrap().write_all(&bytes).unwrap();
    eventually("the server examines the file again", || ask(&mut stream, "GET 43") == "$11\r\nvalue of 43\r\n");

    assert!(ask(&mut stream, "GET 1000").starts_with(DAMAGED));
    let mget = ask(&mut stream, "MGET 41 1000 1043");
    assert!(mget.starts_with(&format!("*3\r\n$11\r\nvalue of 41\r\n{DAMAGED}")), "{mget}");
    assert!(ask(&mut stream, "MGET 41 1000 1500").ends_with("\r\n$13\r\nvalue of 1500\r\n"));
    let by_order = ["ZKV.FLOOR 1000", "ZKV.FLOOR 1001", "ZKV.CEILING 1000", "ZKV.RANGE 950 1044"];
    for words in ["STRLEN 900", "EXISTS 1000", "SCAN 0 COUNT 2000", "KEYS *4*"].into_iter().chain(by_order) {
        assert!(ask(&mut stream, words).starts_with("-ERR"), "{words}");
    }
    // A pipeline of commands that are looked up together.
    for words in ["ZKV.FLOOR 41", "ZKV.CEILING 1000", "ZKV.FLOOR 1500"] {
        stream.write_all(&command(words)).unwrap();
    }
    assert_eq!(String::from_utf8(reply(&mut stream)).unwrap(), "*2\r\n$2\r\n41\r\n$11\r\nvalue of 41\r\n");
    assert!(reply(&mut stream).starts_with(DAMAGED.as_bytes()));
    assert_eq!(String::from_utf8(reply(&mut stream)).unwrap(), "*2\r\n$4\r\n1500\r\n$13\r\nvalue of 1500\r\n");
    // The fences alone determine the number of rows.
    assert_eq!(ask(&mut stream, "ZKV.COUNT 1000 1500"), ":501\r\n");
    // The reply has already announced this number of keys, so each key in a damaged block is replaced with an error.
    let keys = ask(&mut stream, "KEYS *");
    assert!(keys.starts_with("*2000\r\n$1\r\n0\r\n") && keys.contains(&format!("\r\n{DAMAGED}")), "{keys}");
    assert_eq!(ask(&mut stream, "GET 1500"), "$13\r\nvalue of 1500\r\n");
}
