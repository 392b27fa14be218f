//! The examples in `docs/PROTOCOL.md`.

use super::long::{assert_same_bytes, exchange};
use crate::helpers::reference_server::{Reference, number};
use crate::helpers::tables::Table;

const DOCUMENT: &str = include_str!("../../../docs/PROTOCOL.md");

/// An example: a table, the sent bytes, and the expected responses.
struct Example {
    table: Reference,
    sent: Vec<u8>,
    /// The expected bytes before, between, and after responses with text.
    answered: Vec<Vec<u8>>,
}

fn examples() -> Vec<Example> {
    let blocks = DOCUMENT.split("```text\n").skip(1).map(|block| block.split("```").next().unwrap());
    blocks.filter(|block| block.contains('→')).map(example).collect()
}

fn example(block: &str) -> Example {
    let (head, lines) = block.split_once('\n').unwrap();
    let (kind, rows) = head.split_once(": ").unwrap();
    let rows = rows.split(' ').map(|row| row.split_once(',').unwrap());
    let value = |value: &str| value.as_bytes().to_vec();
    let table = match kind {
        "table of numbers" => Reference::of_numbers(rows.map(|(key, text)| (key.parse().unwrap(), value(text)))),
        "table of bytes" => Reference::of_bytes(rows.map(|(key, text)| (value(key), value(text)))),
        _ => panic!("{head:?} does not name the kind of keys"),
    };
    let (mut sent, mut answered) = (Vec::new(), vec![Vec::new()]);
    for line in lines.lines() {
        let (arrow, rest) = line.split_once(' ').unwrap();
        let (bytes, meaning) = rest.split_once("  ").unwrap_or_else(|| panic!("{line:?} does not explain its bytes"));
        assert!(!meaning.trim().is_empty(), "{line:?} does not explain its bytes");
        match arrow {
            "←" if bytes == "text" => answered.push(Vec::new()),
            "→" => sent.extend(hex(bytes)),
            "←" => answered.last_mut().unwrap().extend(hex(bytes)),
            _ => panic!("{line:?} has no arrow"),
        }
    }
    Example { table, sent, answered }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split(' ').collect();
    assert_eq!(digits.len() % 2, 0, "{text:?} has an odd number of digits");
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits")).collect()
}

#[test]
fn the_documents_examples_match_the_server() {
    let examples = examples();
    assert_eq!(examples.len(), 7);
    for Example { table, sent, answered } in examples {
        let server = table.serve();
        let found = exchange(&mut server.connect(), &sent);
        let mut expected = Vec::new();
        for (i, bytes) in answered.iter().enumerate() {
            if i > 0 {
                let length = number(&found[expected.len() + 4..expected.len() + 8]) as usize;
                assert!(found[expected.len() + 8..].starts_with(b"version "));
                expected.extend_from_slice(&found[expected.len()..expected.len() + 8 + length]);
            }
            expected.extend_from_slice(bytes);
        }
        assert_same_bytes(&found, &expected);
        // The reference server of the other tests agrees with the example.
        assert_same_bytes(&table.answers_given(&sent, &found).0, &expected);
    }
}

/// In a row of the table, `x_a`, `_b`, and `_c` mean `x_a`, `x_b`, and `x_c`.
#[test]
fn the_document_lists_every_field_of_info() {
    let section = DOCUMENT.split("\n## Info\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut listed = Vec::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let mut first = "";
        for name in row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2) {
            match name.starts_with('_') {
                true => listed.push(format!("{}{name}", first.rsplit_once('_').unwrap().0)),
                false => {
                    first = name;
                    listed.push(name.to_owned());
                }
            }
        }
    }
    let table = Table::of_rows(3);
    let _server = table.serve();
    let info = zero_kv::client::Client::connect(table.socket()).unwrap().info().unwrap();
    assert_eq!(listed, info.iter().map(|(name, _)| name).collect::<Vec<_>>());
}

#[test]
fn the_documented_limits_match_the_library() {
    use zero_kv::protocol::native::{KEY_LEN_MAX_BYTES, LONG_BODY_MAX_BYTES, PAGE_LEN_MAX_BYTES, PAGE_MAX_BYTES};

    for limit in [KEY_LEN_MAX_BYTES, LONG_BODY_MAX_BYTES, PAGE_LEN_MAX_BYTES, PAGE_LEN_MAX_BYTES + 8, PAGE_MAX_BYTES] {
        let digits = limit.to_string();
        let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap()).collect();
        assert!(DOCUMENT.contains(&groups.join(",")), "{limit}");
    }
}
