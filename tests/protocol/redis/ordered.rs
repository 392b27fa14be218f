//! Scans of all keys, and pages of ranges.

use std::io::Write;
use std::os::unix::net::UnixStream;

use zero_kv::bake::Keys;

use super::{ServedRows, array, ask, bulk, command, reply, strings};
use crate::helpers::random::Random;
use crate::helpers::servers::Server;

/// Returns all keys of a complete SCAN, and the number of calls.
fn scan(stream: &mut UnixStream, options: &str) -> (Vec<String>, usize) {
    let (mut cursor, mut keys, mut calls) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let mut found = strings(&ask(stream, &format!("SCAN {cursor}{options}")));
        cursor = found.remove(0);
        keys.append(&mut found);
        calls += 1;
        if cursor == "0" {
            return (keys, calls);
        }
    }
}

#[test]
fn a_scan_returns_each_key_once_for_any_count_and_pattern() {
    for served in [ServedRows::numbers(700), ServedRows::names()] {
        let mut stream = served.connect();
        for (options, wanted) in [
            ("", &(|_: &str| true) as &dyn Fn(&str) -> bool),
            (" MATCH user:*", &|key| key.starts_with("user:")),
            (" MATCH *9", &|key| key.ends_with('9')),
            (" MATCH 1?3", &|key| key.len() == 3 && key.starts_with('1') && key.ends_with('3')),
            (" MATCH nothing", &|_| false),
            (" TYPE hash", &|_| false),
            (" TYPE string MATCH item:00*", &|key| key.starts_with("item:00")),
        ] {
            let expected = served.rows.keys().map(|key| String::from_utf8(key.clone()).unwrap());
            let mut expected: Vec<String> = expected.filter(|key| wanted(key)).collect();
            expected.sort();
            for count in [1, 2, 3, 7, 10, 100, 699, 700, 701, 100_000] {
                let (mut keys, calls) = scan(&mut stream, &format!("{options} COUNT {count}"));
                keys.sort();
                assert_eq!(keys, expected, "{options} {count}");
                assert!(calls <= served.rows.len().div_ceil(count).max(1), "{options} {count}: {calls} calls");
            }
        }
    }
}

#[test]
fn a_scan_with_a_prefix_skips_other_keys() {
    let served = ServedRows::names();
    let (keys, calls) = scan(&mut served.connect(), " MATCH user:* COUNT 10");
    assert_eq!(calls, keys.len().div_ceil(10));
}

#[test]
fn a_cursor_of_another_generation_is_rejected() {
    let (served, other) = (ServedRows::numbers(100), ServedRows::numbers(101));
    let (mut stream, mut another) = (served.connect(), other.connect());
    let cursor = strings(&ask(&mut stream, "SCAN 0")).remove(0);
    assert!(cursor.parse::<i64>().unwrap() > 0);
    assert!(ask(&mut stream, &format!("SCAN {cursor}")).starts_with("*2\r\n"));
    let refused = ask(&mut another, &format!("SCAN {cursor}"));
    assert!(refused.starts_with("-ERR") && refused.contains("begin again with 0"), "{refused}");
    // After a restart on the same file, the server accepts the cursor.
    let again = Server::start(&served.scene.db(), &served.scene.path("again.sock"));
    assert!(ask(&mut again.connect(), &format!("SCAN {cursor}")).starts_with("*2\r\n"));
}

#[test]
fn the_pages_of_a_range_have_all_its_rows_in_order() {
    let served = ServedRows::names();
    let mut stream = served.connect();
    let page = |stream: &mut UnixStream, words: &str| {
        stream.write_all(&command(words)).unwrap();
        let reply = String::from_utf8(reply(stream)).unwrap();
        (reply.starts_with("*2\r\n$-1\r\n"), strings(&reply))
    };
    for (span, lower, upper) in
        [("- +", "", "~"), ("[item:0100 (page:0300", "item:0100", "page:0300"), ("PREFIX user:", "user:", "user;")]
    {
        let inside = |key: &&Vec<u8>| key.as_slice() >= lower.as_bytes() && key.as_slice() < upper.as_bytes();
        let mut expected: Vec<&Vec<u8>> = served.rows.keys().filter(inside).collect();
        assert_eq!(ask(&mut stream, &format!("ZKV.COUNT {span}")), format!(":{}\r\n", expected.len()));
        for order in ["", " REV"] {
            for limit in [1, 7, 100, 1_000_000] {
                let (mut found, mut from) = (Vec::new(), String::new());
                loop {
                    let (is_last, mut strings) =
                        page(&mut stream, &format!("ZKV.RANGE {span}{order} LIMIT {limit}{from}"));
                    if !is_last {
                        from = format!(" FROM {}", strings.remove(0));
                    }
                    assert!(strings.len() <= 2 * limit);
                    for row in strings.chunks(2) {
                        assert_eq!(served.rows[row[0].as_bytes()], row[1].as_bytes(), "{}", row[0]);
                        found.push(row[0].clone().into_bytes());
                    }
                    if is_last {
                        break;
                    }
                }
                assert!(found.iter().eq(expected.iter().copied()), "{span}{order} LIMIT {limit}");
            }
            expected.reverse();
        }
    }
    let row = |key: &str| String::from_utf8(array([key.as_bytes(), &served.rows[key.as_bytes()]])).unwrap();
    assert_eq!(ask(&mut stream, "ZKV.FLOOR item:0002"), row("item:0001"));
    assert_eq!(ask(&mut stream, "ZKV.CEILING item:0002"), row("item:0004"));
    let pipeline: Vec<(&str, String)> = (0..700)
        .map(|i| {
            (
                ["ZKV.FLOOR", "zkv.ceiling"][i * 7 % 3 % 2],
                format!("{}:{:04}", ["item", "user", "page"][i % 3], i * 13 % 1000),
            )
        })
        .collect();
    let commands: Vec<u8> = pipeline.iter().flat_map(|(name, key)| command(&format!("{name} {key}"))).collect();
    stream.write_all(&commands).unwrap();
    for (name, key) in &pipeline {
        let key = key.as_bytes().to_vec();
        let expected = match *name {
            "ZKV.FLOOR" => served.rows.range(..=key).next_back(),
            _ => served.rows.range(key..).next(),
        };
        let expected = expected.map_or(b"*-1\r\n".to_vec(), |(key, value)| array([&key[..], &value[..]]));
        assert!(reply(&mut stream) == expected, "{name}");
    }
    assert_eq!(ask(&mut stream, "ZKV.FLOOR a"), "*-1\r\n");
    assert_eq!(ask(&mut stream, "ZKV.CEILING z"), "*-1\r\n");
    assert_eq!(ask(&mut stream, "ZKV.RANGE - + LIMIT 0"), "-ERR value is out of range, must be positive\r\n");
    assert_eq!(ask(&mut stream, "ZKV.COUNT - + x"), "-ERR wrong number of arguments for 'zkv.count' command\r\n");
    assert_eq!(ask(&mut stream, "ZKV.RANGE - + x"), "-ERR syntax error\r\n");
    assert!(ask(&mut stream, "ZKV.COUNT -x +").starts_with("-ERR min or max not valid string range item"));
}

/// Returns the reply to a ZKV.COUNT, or to a ZKV.RANGE with these words after the span. `rows` are all rows in key
/// order. `is_inside` returns whether the span contains a row.
fn expected_reply(
    rows: &[(Vec<u8>, Vec<u8>)],
    is_inside: impl Fn(usize) -> bool,
    range: Option<(bool, usize)>,
) -> Vec<u8> {
    let mut inside: Vec<&(Vec<u8>, Vec<u8>)> =
        (0..rows.len()).filter(|row| is_inside(*row)).map(|row| &rows[row]).collect();
    let Some((is_reverse, limit)) = range else { return format!(":{}\r\n", inside.len()).into_bytes() };
    if is_reverse {
        inside.reverse();
    }
    let page = &inside[..limit.min(inside.len())];
    let cursor = match page.last() {
        Some((key, _)) if page.len() < inside.len() => bulk(&[b"(", &key[..]].concat()),
        _ => b"$-1\r\n".to_vec(),
    };
    let items = array(page.iter().flat_map(|(key, value)| [&key[..], &value[..]]));
    [b"*2\r\n", &cursor[..], &items[..]].concat()
}

#[test]
fn pipelined_ranges_and_counts_match_the_model() {
    let seed = 0x5eed_0017;
    println!("seed {seed}");
    let mut random = Random(seed);
    let value = |i: usize| vec![b'a' + (i % 26) as u8; i % 40];
    let names = |i: usize| format!("{}:{:04}", ["user", "item", "page"][i % 3], i * 3).into_bytes();
    let numbers = |i: usize| (i * 5).to_string().into_bytes();
    for (keys, key) in [(Keys::BYTES, &names as &dyn Fn(usize) -> Vec<u8>), (Keys::U64, &numbers)] {
        let served = ServedRows::new(keys, (0..700).map(|i| (key(i), value(i))).collect());
        let mut rows: Vec<(Vec<u8>, Vec<u8>)> = served.rows.clone().into_iter().collect();
        let is_number = keys == Keys::U64;
        // Padding makes the order of the decimal keys the order of the numbers.
        let order = |key: &[u8]| if is_number { [&b"000000"[key.len()..], key].concat() } else { key.to_vec() };
        rows.sort_by_key(|(key, _)| order(key));
        let position = |key: &[u8], or_equal: bool| {
            rows.partition_point(|(row, _)| order(row) < order(key) || or_equal && row == key)
        };
        let mut pipeline = Vec::new();
        for _ in 0..600 {
            let mut edge = |is_start: bool| match random.below(9) {
                0 => ("-".to_owned(), 0),
                1 => ("+".to_owned(), rows.len()),
                kind => {
                    let mut key = rows[random.below(rows.len())].0.clone();
                    if kind < 4 {
                        *key.last_mut().unwrap() = b'7';
                    }
                    let text = String::from_utf8(key.clone()).unwrap();
                    let is_excluded = kind.is_multiple_of(2);
                    let mark = if is_excluded { "(" } else { ["", "["][kind / 3 % 2] };
                    (format!("{mark}{text}"), position(&key, is_start == is_excluded))
                }
            };
            let ((min, mut start), (max, mut end)) = (edge(true), edge(false));
            let (is_reverse, from) = (edge(true).1 % 2 == 0, edge(true).1 % 3 == 0);
            let mut span = format!("{min} {max}");
            let limit = 1 + random.below(20);
            if !is_number && random.below(4) == 0 {
                let prefix =
                    String::from_utf8(rows[random.below(rows.len())].0[..1 + random.below(8)].to_vec()).unwrap();
                start = position(prefix.as_bytes(), false);
                end = rows.iter().rposition(|(key, _)| key.starts_with(prefix.as_bytes())).unwrap() + 1;
                span = format!("PREFIX {prefix}");
            }
            let (words, range) = match random.below(3) {
                0 => (format!("{} {span}", ["ZKV.COUNT", "zkv.count"][random.below(2)]), None),
                _ => {
                    let mut words = format!("ZKV.RANGE {span}{} LIMIT {limit}", if is_reverse { " REV" } else { "" });
                    if from {
                        let key = rows[random.below(rows.len())].0.clone();
                        words += &format!(" FROM ({}", String::from_utf8(key.clone()).unwrap());
                        match is_reverse {
                            true => end = end.min(position(&key, false)),
                            false => start = start.max(position(&key, true)),
                        }
                    }
                    (words, Some((is_reverse, limit)))
                }
            };
            pipeline.push((words, expected_reply(&rows, |row| (start..end).contains(&row), range)));
            if random.below(40) == 0 {
                pipeline.push(("ZKV.RANGE - + x".to_owned(), b"-ERR syntax error\r\n".to_vec()));
                pipeline.push(("PING".to_owned(), b"+PONG\r\n".to_vec()));
            }
        }
        let mut stream = served.connect();
        for (words, expected) in &pipeline {
            assert_eq!(ask(&mut stream, words), String::from_utf8(expected.clone()).unwrap(), "{words}");
        }
        let mut writer = stream.try_clone().unwrap();
        let commands: Vec<u8> = pipeline.iter().flat_map(|(words, _)| command(words)).collect();
        let writer = std::thread::spawn(move || writer.write_all(&commands).unwrap());
        for (words, expected) in &pipeline {
            assert!(reply(&mut stream) == *expected, "{words}");
        }
        writer.join().unwrap();
    }
}
