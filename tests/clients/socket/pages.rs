//! Rows and ranges from a scripted server.

use std::ops::Bound;

use zero_kv::client::{Client, ClientError, OwnedKey, Row, RowPage};
use zero_kv::protocol::native::{Op, PAGE_MAX_BYTES, Status};
use zero_kv::protocol::response::{PageError, Violation};
use zero_kv::{Key, KeyKind};

use crate::helpers::scripted_server::{
    COUNT_7, ERROR, NOT_FOUND, Script, ScriptedServer, found, page, page_header, response_header,
};

/// Requests the first page of a range from a peer with this response.
fn first_page(range: (Bound<Key<'_>>, Bound<Key<'_>>), limit: u32, answer: &[u8]) -> Result<RowPage, ClientError> {
    let peer = ScriptedServer::answering(&[answer]);
    Client::connect(peer.socket()).unwrap().first_page(range, limit)
}

const ALL: (Bound<Key<'static>>, Bound<Key<'static>>) = (Bound::Unbounded, Bound::Unbounded);

/// Returns the violation in a result.
#[track_caller]
fn violation<T>(result: Result<T, ClientError>) -> Violation {
    match result {
        Err(ClientError::Protocol { error, .. }) => error,
        Err(other) => panic!("a violation was expected, not {other:?}"),
        Ok(_) => panic!("a violation was expected, not a success"),
    }
}

#[track_caller]
fn page_error<T>(result: Result<T, ClientError>) -> PageError {
    match violation(result) {
        Violation::Page(error) => error,
        other => panic!("a page error was expected, not {other:?}"),
    }
}

fn keys(page: &RowPage) -> Vec<OwnedKey> {
    page.iter().map(|(key, _)| key.into()).collect()
}

#[test]
fn ordered_requests_have_the_documented_bytes() {
    let five = page(&[(5_u64, "five")], 0);
    let bee = page(&[("bee", "22")], 0);
    let answers = [&five[..], &five, &bee, NOT_FOUND, &bee, COUNT_7, COUNT_7];
    let peer = ScriptedServer::answering(&answers);
    let mut client = Client::connect(peer.socket()).unwrap();
    assert_eq!(client.floor(5).unwrap(), Some((OwnedKey::U64(5), b"five".to_vec())));
    assert_eq!(peer.request(), [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]);
    assert_eq!(client.ceiling(2).unwrap(), Some((OwnedKey::U64(5), b"five".to_vec())));
    assert_eq!(peer.request(), [0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    assert_eq!(client.floor("cat").unwrap().unwrap().0, "bee");
    assert_eq!(peer.request(), *b"\0\x01\0\x02\0\0\0\x03cat\0\0\0\0\0");
    assert_eq!(client.ceiling("cow").unwrap(), None);
    assert_eq!(peer.request(), *b"\0\x01\0\x03\0\0\0\x03cow\0\0\0\0\0");
    assert_eq!(client.last_page("b".."c", 9).unwrap().len(), 1);
    assert_eq!(peer.request(), *b"\0\x01\0\x04\0\0\0\x12\0\0\0\x1b\0\0\0\x09\0\0\0\x01\0\0\0\x01bc\0\0\0\0\0\0");
    assert_eq!(client.count(..).unwrap(), 7);
    assert_eq!(peer.request(), *b"\0\x01\0\x05\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(client.count(3..=258).unwrap(), 7);
    let request = peer.request();
    assert_eq!(request[8..24], *b"\0\0\0\x2a\0\0\0\0\0\0\0\x08\0\0\0\x08");
    assert_eq!(request[24..], *b"\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\0");
}

#[test]
fn all_types_of_ranges_are_accepted() {
    let none = page::<&str>(&[], 0);
    let peer = ScriptedServer::answering(&[COUNT_7, COUNT_7, COUNT_7, COUNT_7, COUNT_7, &none, &none, &none, &none]);
    let mut client = Client::connect(peer.socket()).unwrap();
    let (start, end) = ("a".to_owned(), b"c".to_vec());
    client.count((Bound::Included("a"), Bound::Excluded("c"))).unwrap();
    let asked = peer.request();
    client.count("a".."c").unwrap();
    assert_eq!(peer.request(), asked);
    client.count(b"a"..b"c").unwrap();
    assert_eq!(peer.request(), asked);
    client.count(Key::from(&start)..Key::from(&end)).unwrap();
    assert_eq!(peer.request(), asked);
    client.count(start.as_bytes()..&end).unwrap();
    assert_eq!(peer.request(), asked);
    assert!(client.first_page(&start.., 1).unwrap().is_empty());
    assert!(client.last_page(..=&end, 1).unwrap().is_empty());
    assert!(client.range(..).unwrap().next().is_none());
    assert!(client.range(&end..&end).unwrap().next().is_none());
}

#[test]
fn a_page_has_its_rows_and_the_rest_of_the_range() {
    let answers = [page(&[("ant", "1"), ("bee", "")], 1), page(&[("cow", "333")], 0), page(&[("bee", "")], 1)];
    let peer = ScriptedServer::answering(&answers.each_ref().map(|answer| &answer[..]));
    let mut client = Client::connect(peer.socket()).unwrap();
    let first = client.first_page("a".., 2).unwrap();
    assert_eq!((first.key_kind(), first.len(), first.is_empty()), (KeyKind::Bytes, 2, false));
    assert!(first.iter().eq([("ant".into(), &b"1"[..]), ("bee".into(), b"")]));
    let rest = first.rest().unwrap().clone();
    assert_eq!(rest.bounds(), (Bound::Excluded("bee".into()), Bound::Unbounded));
    let second = client.first_page(rest.bounds(), 2).unwrap();
    assert_eq!((keys(&second), second.rest()), (vec![OwnedKey::Bytes(b"cow".to_vec())], None));
    let back = client.last_page(.."cow", 1).unwrap();
    assert_eq!(back.rest().unwrap().bounds(), (Bound::Unbounded, Bound::Excluded("bee".into())));
}

#[test]
fn rows_are_requested_page_by_page_from_either_end() {
    let pages = [
        page(&[(1_u64, "a"), (2, "b")], 1),
        page(&[(8_u64, "h"), (9, "i")], 1),
        page(&[(3_u64, "c"), (4, "d")], 1),
        page(&[(5_u64, "e")], 0),
    ];
    let peer = ScriptedServer::answering(&pages.each_ref().map(|page| &page[..]));
    let mut client = Client::connect(peer.socket()).unwrap();
    let mut rows = client.range(0..10).unwrap().page_rows(2);
    let mut taken = Vec::new();
    for backward in [false, true, false, false, true, false, false, true, false] {
        let row = if backward { rows.next_back() } else { rows.next() };
        taken.push(row.map(|row| row.unwrap().0.as_key().as_u64().unwrap()));
    }
    assert_eq!(taken, [Some(1), Some(9), Some(2), Some(3), Some(8), Some(4), Some(5), None, None]);
    let sent = |_| {
        let request = peer.request();
        let number = |at: usize| u64::from_be_bytes(request[at..at + 8].try_into().unwrap());
        assert_eq!(request[12..16], [0, 0, 0, 2]);
        (request[11], number(24), number(32))
    };
    // The flags, the start, and the end of each request. The values of the flags are: backward 1, start 2, start
    // excluded 4, end 8, end excluded 16, numbers 32.
    let expected = [(2 + 24 + 32, 0, 10), (2 + 24 + 32 + 1, 0, 10), (6 + 24 + 32, 2, 8), (6 + 24 + 32, 4, 8)];
    // After the first page, the keys above 2 remain; after the second page, the keys below 8.
    let expected = [expected[0], (expected[1].0 + 4, 2, 10), expected[2], expected[3]];
    assert_eq!([0; 4].map(sent), expected);
}

#[test]
fn iteration_ends_at_the_first_error() {
    let one = page(&[(1_u64, "a")], 1);
    let peer = ScriptedServer::answering(&[&one, ERROR, NOT_FOUND]);
    let mut client = Client::connect(peer.socket()).unwrap();
    let mut rows = client.iter();
    assert_eq!(rows.next().unwrap().unwrap().0, 1);
    assert!(matches!(rows.next(), Some(Err(ClientError::Server { .. }))));
    assert!(rows.next().is_none() && rows.next_back().is_none());
    // An error status does not close the connection.
    assert_eq!(client.get(7).unwrap(), None);
}

#[test]
fn the_key_type_is_one_that_this_version_knows() {
    let answered = |text: &str| {
        let peer = ScriptedServer::answering(&[&found(text.as_bytes())]);
        Client::connect(peer.socket()).unwrap().key_type()
    };
    for text in ["u64", "ip", "bytes,date", &["timestamp"; 8].join(",")] {
        assert_eq!(answered(text).unwrap().to_string(), text);
    }
    for text in ["u128", "U64", "ip,", " ip", &"\u{fffd}".repeat(20)] {
        assert_eq!(violation(answered(text)), Violation::KeyType { len_bytes: text.len() });
    }
    for len_bytes in [0, 80] {
        let length = Violation::ResponseLen { op: Op::KeyType, len_bytes, min_bytes: 1, max_bytes: 79 };
        assert_eq!(violation(answered(&"x".repeat(len_bytes))), length);
    }
    let peer = ScriptedServer::answering(&[ERROR]);
    let error = Client::connect(peer.socket()).unwrap().key_type().unwrap_err();
    assert!(matches!(error, ClientError::Server { .. }), "{error:?}");
}

#[test]
fn an_impossible_length_of_a_page_or_count_is_rejected_before_its_bytes_arrive() {
    for len_bytes in [0, 7, PAGE_MAX_BYTES + 1, u32::MAX as usize] {
        let refused = |op| Violation::ResponseLen { op, len_bytes, min_bytes: 8, max_bytes: PAGE_MAX_BYTES };
        let answer = response_header(0, len_bytes as u32);
        assert_eq!(violation(first_page(ALL, 0, &answer)), refused(Op::Range));
        let peer = ScriptedServer::answering(&[&answer]);
        assert_eq!(violation(Client::connect(peer.socket()).unwrap().floor(7)), refused(Op::Floor));
    }
    for len_bytes in [0, 7, 9] {
        let peer = ScriptedServer::answering(&[&response_header(0, len_bytes)]);
        let refused =
            Violation::ResponseLen { op: Op::Count, len_bytes: len_bytes as usize, min_bytes: 8, max_bytes: 8 };
        assert_eq!(violation(Client::connect(peer.socket()).unwrap().count(..)), refused);
    }
    let refused = Violation::UnexpectedStatus { op: Op::Range, status: Status::NotFound };
    assert_eq!(violation(first_page(ALL, 0, NOT_FOUND)), refused);
}

/// Encodes a page with this header and these records.
fn raw_page(header: [u8; 8], records: &[u8]) -> Vec<u8> {
    found(&[&header[..], records].concat())
}

#[test]
fn every_part_of_a_page_is_checked() {
    let good = page(&[(1_u64, "one"), (2, "two")], 0);
    let records = &good[16..];
    let refused = |answer: &[u8]| page_error(first_page(ALL, 0, answer));
    assert_eq!(first_page(ALL, 0, &good).unwrap().len(), 2);

    // Form 3 has keys of 16 bytes, and form 5 numbers that are ranges.
    for form in [3, 5] {
        assert_eq!(refused(&raw_page(page_header(2, form, 3, 0), records)), PageError::Truncated { row: 0 });
    }
    for code in [0, 4, 8, 255] {
        assert_eq!(refused(&raw_page(page_header(2, code, 3, 0), records)), PageError::RecordForm { code });
    }
    for bits in [0, 2, 13, 255] {
        assert_eq!(refused(&raw_page(page_header(2, 1, bits, 0), records)), PageError::Align { bits });
    }
    for more in [2, 256, u16::MAX] {
        assert_eq!(refused(&raw_page(page_header(2, 1, 3, more), records)), PageError::MoreFlag { more });
    }
    // A page with the flag for more rows, but without a row to continue after. A client that accepts it would send
    // requests forever.
    assert_eq!(refused(&raw_page(page_header(0, 1, 3, 1), b"")), PageError::MoreFlag { more: 1 });
    for (rows, row) in [(3, 2), (u32::MAX, 2)] {
        assert_eq!(refused(&raw_page(page_header(rows, 1, 3, 0), records)), PageError::Truncated { row });
    }
    assert_eq!(refused(&raw_page(page_header(1, 1, 3, 0), records)), PageError::TrailingBytes { len_bytes: 24 });
    assert_eq!(refused(&raw_page(page_header(0, 1, 3, 0), records)), PageError::TrailingBytes { len_bytes: 48 });
    for len in 0..records.len() {
        let row = u32::from(len >= 24);
        assert_eq!(refused(&raw_page(page_header(2, 1, 3, 0), &records[..len])), PageError::Truncated { row });
    }
    // A larger alignment than the actual one.
    assert_eq!(refused(&raw_page(page_header(2, 1, 6, 0), records)), PageError::Truncated { row: 0 });
    let mut status = records.to_vec();
    status[11] = 1;
    assert_eq!(refused(&raw_page(page_header(2, 1, 3, 0), &status)), PageError::Truncated { row: 0 });
    assert_eq!(refused(&page(&[(2_u64, ""), (1, "")], 0)), PageError::KeyOrder { row: 1 });
    assert_eq!(refused(&page(&[(2_u64, ""), (3, ""), (3, "")], 0)), PageError::KeyOrder { row: 2 });
    assert_eq!(refused(&page(&[("", "")], 0)), PageError::EmptyKey { row: 0 });
    let long = "x".repeat(65_536);
    assert_eq!(refused(&page(&[(1_u64, &*long), (2, "")], 0)), PageError::Len { len_bytes: 65_552 + 16 });
    assert_eq!(first_page(ALL, 0, &page(&[(1_u64, &*long)], 0)).unwrap().len(), 1);
}

/// Encodes a page of ranges of numbers without values.
fn range_page(ranges: &[(u64, u64)]) -> Vec<u8> {
    let record = |(first, last): &(u64, u64)| [&first.to_le_bytes()[..], &last.to_le_bytes(), &[0; 8]].concat();
    raw_page(page_header(ranges.len() as u32, 5, 3, 0), &ranges.iter().flat_map(record).collect::<Vec<_>>())
}

#[test]
fn ranges_are_in_order_and_do_not_overlap() {
    let page = first_page(ALL, 0, &range_page(&[(1, 1), (2, 5), (6, 9)])).unwrap();
    assert_eq!(keys(&page), [1, 2, 6].map(OwnedKey::U64));
    for (ranges, row) in [([(2, 1), (3, 3)], 0), ([(1, 2), (2, 3)], 1), ([(1, 9), (2, 3)], 1)] {
        assert_eq!(page_error(first_page(ALL, 0, &range_page(&ranges))), PageError::RangeOrder { row });
    }
}

#[test]
fn a_cover_has_the_documented_bytes_and_accepts_one_range_that_contains_the_key() {
    let ranges = [range_page(&[(5, 9)]), NOT_FOUND.to_vec()];
    let peer = ScriptedServer::answering(&ranges.each_ref().map(Vec::as_slice));
    let mut client = Client::connect(peer.socket()).unwrap();
    assert_eq!(client.cover(7).unwrap(), Some((OwnedKey::U64(5), OwnedKey::U64(9), vec![])));
    assert_eq!(peer.request(), [0, 0, 0, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    assert_eq!(client.cover("cat").unwrap(), None);
    assert_eq!(peer.request(), *b"\0\x01\0\x12\0\0\0\x03cat\0\0\0\0\0");

    let error_of = |answer: &[u8]| {
        let peer = ScriptedServer::answering(&[answer]);
        Client::connect(peer.socket()).unwrap().cover(7)
    };
    for outside in [range_page(&[(8, 9)]), range_page(&[(5, 6)]), page(&[(7_u64, "")], 0)] {
        assert_eq!(page_error(error_of(&outside)), PageError::OutOfRange { row: 0 });
    }
    assert_eq!(page_error(error_of(&range_page(&[]))), PageError::RowCount { rows: 0, rows_max: 1 });
    assert_eq!(page_error(error_of(&range_page(&[(5, 7), (8, 9)]))), PageError::RowCount { rows: 2, rows_max: 1 });
    let refused = error_of(ERROR).unwrap_err().to_string();
    assert!(refused.contains("the range of key 7") && refused.contains("bake a table of ranges"), "{refused}");
}

#[test]
fn rows_outside_the_request_are_rejected() {
    let range = |start: u64, end: u64| (Bound::Included(Key::U64(start)), Bound::Excluded(Key::U64(end)));
    let rows = page(&[(3_u64, ""), (5, "")], 0);
    assert_eq!(first_page(range(3, 6), 2, &rows).unwrap().len(), 2);
    assert_eq!(page_error(first_page(range(4, 6), 2, &rows)), PageError::OutOfRange { row: 0 });
    assert_eq!(page_error(first_page(range(3, 5), 2, &rows)), PageError::OutOfRange { row: 1 });
    assert_eq!(page_error(first_page(range(3, 6), 1, &rows)), PageError::RowCount { rows: 2, rows_max: 1 });
    let excluded = (Bound::Excluded(Key::U64(3)), Bound::Included(Key::U64(4)));
    assert_eq!(page_error(first_page(excluded, 2, &rows)), PageError::OutOfRange { row: 0 });
    let of_bytes = (Bound::Included(Key::from("a")), Bound::Unbounded);
    assert_eq!(page_error(first_page(of_bytes, 2, &rows)), PageError::RecordForm { code: 1 });
    let bytes = page(&[("ant", "")], 0);
    assert_eq!(page_error(first_page(range(0, 9), 2, &bytes)), PageError::RecordForm { code: 2 });
}

#[test]
fn floor_and_ceiling_accept_one_row_on_the_right_side() {
    let error_of = |answer: Vec<u8>, call: fn(&mut Client) -> Result<Option<Row>, ClientError>| {
        let peer = ScriptedServer::answering(&[&answer]);
        page_error(call(&mut Client::connect(peer.socket()).unwrap()))
    };
    let (above, below) = (page(&[(8_u64, "")], 0), page(&[(6_u64, "")], 0));
    assert_eq!(error_of(above, |client| client.floor(7)), PageError::OutOfRange { row: 0 });
    assert_eq!(error_of(below, |client| client.ceiling(7)), PageError::OutOfRange { row: 0 });
    let none = page::<u64>(&[], 0);
    assert_eq!(error_of(none, |client| client.floor(7)), PageError::RowCount { rows: 0, rows_max: 1 });
    let two = page(&[(6_u64, ""), (7, "")], 0);
    assert_eq!(error_of(two, |client| client.floor(7)), PageError::RowCount { rows: 2, rows_max: 1 });
    assert_eq!(error_of(page(&[(7_u64, "")], 1), |client| client.floor(7)), PageError::MoreFlag { more: 1 });
    let bytes = page(&[("bee", "")], 0);
    assert_eq!(error_of(bytes, |client| client.floor(7)), PageError::RecordForm { code: 2 });
}

#[test]
fn the_call_after_an_invalid_page_reconnects() {
    let wrong = page(&[(2_u64, ""), (1, "")], 0);
    let peer = ScriptedServer::with_scripts(vec![Script::answering(&[&wrong]), Script::answering(&[NOT_FOUND])]);
    let mut client = Client::connect(peer.socket()).unwrap();
    let error = client.first_page(.., 0).map(drop).unwrap_err();
    let said = "an invalid page of rows: row 1 is out of key order";
    assert!(error.to_string().contains(said), "{error}");
    assert_eq!(page_error::<()>(Err(error)), PageError::KeyOrder { row: 1 });
    assert_eq!(client.get(7).unwrap(), None);
}
