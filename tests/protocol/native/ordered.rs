//! Ordered lookups.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::long::{assert_same_bytes, exchange};
use crate::helpers::frames::{expect, request};
use crate::helpers::random::random;
use crate::helpers::reference_server::{
    BACKWARD, CEILING, COUNT, END, END_EXCLUDED, EXISTS, FLOOR, GET, NUMBERS, RANGE, Reference, START, START_EXCLUDED,
    long, number, range_body,
};

/// Draws numbers below a limit.
pub(super) struct Draw<R>(pub(super) R);

impl<R: FnMut() -> u64> Draw<R> {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::try_from((self.0)() % limit as u64).unwrap()
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.below(40) {
            0 => 4000 + self.below(300),
            1 => 66_000,
            2..8 => 0,
            _ => self.below(200),
        };
        vec![b'a' + u8::try_from(self.below(26)).unwrap(); len]
    }

    /// Returns a key that consists of three letters, the least byte, and the greatest byte, so that many keys share
    /// prefixes.
    fn key(&mut self) -> Vec<u8> {
        let len = 1 + self.below(12);
        (0..len).map(|_| b"\x00abc\xff"[self.below(5)]).collect()
    }

    /// Returns a key of the table, a key near one, or any key.
    fn near(&mut self, table: &Reference) -> Vec<u8> {
        let row = self.below(table.rows.len().max(1));
        let Some(key) = table.rows.keys().nth(row) else { return vec![b'k'; 8] };
        let mut key = key.clone();
        if table.numbers {
            let number = u64::from_be_bytes(key.try_into().unwrap());
            let near = match self.below(6) {
                0..3 => number,
                3 => number.wrapping_add(1),
                4 => number.wrapping_sub(1),
                _ => (self.0)(),
            };
            return near.to_be_bytes().to_vec();
        }
        match self.below(8) {
            0 => key.push(0),
            1 => key.truncate(self.below(key.len())),
            2 => *key.last_mut().unwrap() ^= 1,
            3 => key = self.key(),
            _ => {}
        }
        key
    }

    /// Returns any request, with keys of the table's kind.
    pub(super) fn any_request(&mut self, table: &Reference) -> Vec<u8> {
        let op = [GET, EXISTS, FLOOR, CEILING, RANGE, COUNT, RANGE, FLOOR][self.below(8)];
        if op < RANGE {
            let key = self.near(table);
            return match table.numbers {
                true => request(op, u64::from_be_bytes(key.try_into().unwrap())).to_vec(),
                false => long(op, &key),
            };
        }
        self.any_range(table, op)
    }

    /// Returns a Range or a Count with any ends.
    fn any_range(&mut self, table: &Reference, op: u32) -> Vec<u8> {
        let mut flags = if table.numbers { NUMBERS } else { 0 };
        flags |= BACKWARD * u32::from(self.below(2) == 0);
        let mut keys = [Vec::new(), Vec::new()];
        for (key, given, excluded) in [(0, START, START_EXCLUDED), (1, END, END_EXCLUDED)] {
            if self.below(4) > 0 {
                keys[key] = self.near(table);
                flags |= given | (excluded * u32::from(self.below(2) == 0));
            }
        }
        let limit = [0, 1, 2, 3, 10, 100, u32::MAX][self.below(7)];
        long(op, &range_body(flags, limit, &keys[0], &keys[1]))
    }
}

/// Returns tables with both kinds of keys, with no rows to thousands of rows.
pub(super) fn tables(draw: &mut Draw<impl FnMut() -> u64>) -> Vec<Reference> {
    let mut tables = Vec::new();
    for rows in [0, 1, 2, 17, 18, 19, 37, 500, 3000] {
        let numbers: BTreeMap<u64, _> =
            (0..rows).map(|i| (if i == 0 { u64::MAX } else { (draw.0)() % (rows * 5) }, draw.value())).collect();
        tables.push(Reference::of_numbers(numbers));
        let bytes: BTreeMap<Vec<u8>, _> = (0..rows).map(|_| (draw.key(), draw.value())).collect();
        // Adds a common prefix to all keys.
        let common = |(key, value): (&Vec<u8>, &Vec<u8>)| ([b"common/", &key[..]].concat(), value.clone());
        tables.push(Reference::of_bytes(bytes.iter().map(common)));
        tables.push(Reference::of_bytes(bytes));
    }
    tables
}

#[test]
fn every_request_gets_the_reference_response() {
    let seed = 0x0f1a_2b3c;
    println!("seed {seed}");
    let mut draw = Draw(random(seed));
    for table in tables(&mut draw) {
        let server = table.serve();
        // Sends one request at a time, so that a failure shows the request, and then all at once.
        let requests: Vec<_> = (0..150).map(|_| draw.any_request(&table)).collect();
        let mut connection = server.connect();
        for sent in &requests {
            connection.write_all(sent).unwrap();
            let expected = table.answers(sent).0;
            let mut found = vec![0; expected.len()];
            connection.read_exact(&mut found).unwrap();
            assert!(found == expected, "{} rows, {sent:x?}", table.rows.len());
        }
        let stream = requests.concat();
        assert_same_bytes(&exchange(&mut connection, &stream), &table.answers(&stream).0);
        // Long runs of ranges, with few other requests and few malformed ranges.
        let ranges = (0..400).map(|i| match i % 90 {
            88 => draw.any_request(&table),
            89 => long(RANGE, &range_body(u32::MAX, 0, &[], &[])),
            _ => {
                let op = [RANGE, COUNT][draw.below(2)];
                draw.any_range(&table, op)
            }
        });
        let stream = ranges.collect::<Vec<_>>().concat();
        assert_same_bytes(&exchange(&mut server.connect(), &stream), &table.answers(&stream).0);
    }
}

/// Reads a page. Returns its keys, and whether more rows follow.
fn read_page(table: &Reference, connection: &mut UnixStream, sent: &[u8]) -> (Vec<Vec<u8>>, bool) {
    connection.write_all(sent).unwrap();
    let expected = table.answers(sent).0;
    expect(connection, &expected);
    let (page, mut keys) = (&expected[8..], Vec::new());
    let (mut rest, rows) = (&page[8..], number(&page[..4]));
    for _ in 0..rows {
        let (key, prefix_len) = match table.numbers {
            true => (rest[..8].iter().rev().copied().collect(), 8),
            false => {
                let len = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
                (rest[2..2 + len].to_vec(), (2 + len).next_multiple_of(8))
            }
        };
        keys.push(key);
        let value_len = number(&rest[prefix_len + 4..prefix_len + 8]) as usize;
        rest = &rest[(prefix_len + 8 + value_len).next_multiple_of(8)..];
    }
    (keys, page[7] == 1)
}

/// Reads a table page by page, and continues as docs/PROTOCOL.md specifies. Returns all keys, and the number of rows of
/// each page.
fn read_all(table: &Reference, connection: &mut UnixStream, backward: bool, limit: u32) -> (Vec<Vec<u8>>, Vec<usize>) {
    let kind = if table.numbers { NUMBERS } else { 0 };
    let (mut keys, mut pages) = (Vec::<Vec<u8>>::new(), Vec::new());
    loop {
        let body = match (keys.last(), backward) {
            (None, false) => range_body(kind, limit, b"", b""),
            (None, true) => range_body(kind | BACKWARD, limit, b"", b""),
            (Some(last), false) => range_body(kind | START | START_EXCLUDED, limit, last, b""),
            (Some(last), true) => range_body(kind | BACKWARD | END | END_EXCLUDED, limit, b"", last),
        };
        let (mut page, more) = read_page(table, connection, &long(RANGE, &body));
        if backward {
            page.reverse();
        }
        assert!(limit == 0 || page.len() <= limit as usize);
        pages.push(page.len());
        keys.extend(page);
        if !more {
            return (keys, pages);
        }
    }
}

#[test]
fn a_table_read_page_by_page_is_complete_for_any_limit() {
    let seed = 0x7a63;
    println!("seed {seed}");
    let mut draw = Draw(random(seed));
    for table in tables(&mut draw) {
        let server = table.serve();
        let mut connection = server.connect();
        let forward: Vec<_> = table.rows.keys().cloned().collect();
        let backward: Vec<_> = forward.iter().rev().cloned().collect();
        for limit in [0, 1, 7, 16, 100, u32::MAX] {
            if table.rows.len() > 600 && (1..16).contains(&limit) {
                continue;
            }
            let (keys, pages) = read_all(&table, &mut connection, false, limit);
            assert!(keys == forward, "{} rows in pages of {limit}", forward.len());
            let (keys, pages_back) = read_all(&table, &mut connection, true, limit);
            assert!(keys == backward, "{} rows in pages of {limit}, backward", forward.len());
            if limit > 0 {
                assert!(pages.len().min(pages_back.len()) >= forward.len().div_ceil(limit as usize));
            }
        }
    }
}

#[test]
fn a_value_longer_than_a_page_has_its_own_page() {
    // The first two rows fill a page exactly, the third fills one alone, and the fourth is one byte too long for one.
    let lens = [10, 65_488, 65_520, 65_521, 70_000, 3, 1 << 20, 4, 5];
    let table = Reference::of_numbers(lens.into_iter().zip(0..).map(|(len, key)| (key, vec![b'v'; len])));
    let server = table.serve();
    let mut connection = server.connect();
    for backward in [false, true] {
        assert_eq!(read_all(&table, &mut connection, backward, 0).1, [2, 1, 1, 1, 1, 1, 2]);
    }
}

#[test]
fn a_page_is_filled_exactly_to_its_limit() {
    // A page holds 4096 rows of 16 bytes.
    let table = Reference::of_numbers((0..4097).map(|key| (key, Vec::new())));
    let server = table.serve();
    let mut connection = server.connect();
    for backward in [0, BACKWARD] {
        let body = range_body(backward, 0, b"", b"");
        let (keys, more) = read_page(&table, &mut connection, &long(RANGE, &body));
        assert_eq!((keys.len(), more), (4096, true));
        let one = range_body(START | NUMBERS | backward, 0, &1_u64.to_be_bytes(), b"");
        let (keys, more) = read_page(&table, &mut connection, &long(RANGE, &one));
        assert_eq!((keys.len(), more), (4096, false));
    }
}
