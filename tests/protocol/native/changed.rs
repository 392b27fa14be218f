//! A process writes into the served file: the server sends a response to every request, and stays up.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;

use super::ordered::Draw;
use crate::helpers::frames::request;
use crate::helpers::random::random;
use crate::helpers::reference_server::{
    BACKWARD, CEILING, COUNT, END, EXISTS, FLOOR, GET, NUMBERS, RANGE, START, long, number, range_body,
};
use crate::helpers::tables::Table;

/// Returns requests that reach every part of the table.
fn all_requests() -> Vec<Vec<u8>> {
    let mut all_requests = Vec::new();
    for key in (0..200_u64).step_by(7) {
        all_requests.extend([GET, EXISTS, FLOOR, CEILING].map(|op| request(op, key).to_vec()));
        let bytes = key.to_be_bytes();
        for flags in [NUMBERS, NUMBERS | BACKWARD] {
            for limit in [0, 1, 20] {
                all_requests.push(long(RANGE, &range_body(flags | START, limit, &bytes, b"")));
                all_requests.push(long(RANGE, &range_body(flags | END, limit, b"", &bytes)));
            }
            all_requests.push(long(COUNT, &range_body(flags | START, 0, &bytes, b"")));
        }
    }
    all_requests
}

#[test]
fn a_file_changed_in_place_gives_errors_and_the_server_stays_up() {
    let seed = 0xbad_f11e;
    println!("seed {seed}");
    let mut draw = Draw(random(seed));
    for round in 0..12 {
        // The lengths of the two kinds of records, of which one is longer than a page.
        let lens = [30, 9000];
        let table = Table::new((0..150).map(|key| (key, vec![b'v'; lens[usize::from(key % 10 == 0)]])));
        let mut server = table.serve();
        let file = OpenOptions::new().read(true).write(true).open(table.db()).unwrap();
        let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
        match round {
            0 => file.write_all_at(&vec![0xff; len - 256], 256).unwrap(),
            1 => file.write_all_at(&vec![0; len - 256], 256).unwrap(),
            // The first records.
            2 => file.write_all_at(&[0xff; 160], 256).unwrap(),
            _ => {
                for _ in 0..200 {
                    let at = 256 + draw.below([160, 3000, len - 264][round % 3]);
                    file.write_all_at(&[u8::try_from(draw.below(256)).unwrap()], at as u64).unwrap();
                }
            }
        }
        let mut connection = server.connect();
        for sent in all_requests() {
            connection.write_all(&sent).unwrap();
            let mut header = [0; 8];
            connection.read_exact(&mut header).unwrap();
            assert!(number(&header[..4]) <= 2, "round {round}: {header:?}");
            let mut value = vec![0; number(&header[4..]) as usize];
            connection.read_exact(&mut value).unwrap();
        }
        assert!(server.is_alive());
    }
}
