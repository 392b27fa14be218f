//! Tests that a turn is short even if a request reads long values, whether or not their blocks have been verified
//! before.

use std::io::{Cursor, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::SystemTime;

use zerocopy::IntoBytes;

use super::tests::{connections_over, runtime};
use super::turn_tests::{PIPELINE_LEN_BYTES, TURNS_BETWEEN_MAX, Used, serve, serve_and};
use super::*;
use crate::bake::{Keys, Options, bake_csv};
use crate::protocol::native::{Op, Request, ResponseHeader, Status, push_long, range_flags};
use crate::server::stats::REDIS;
use crate::server::turns::TURN_STEPS_MAX;

/// The length of a value whose verification takes about 100,000 steps.
const LONG_LEN_BYTES: usize = 32 << 20;
/// The maximum number of steps of a turn that verifies blocks. A turn can exceed `TURN_STEPS_MAX`, because it ends only
/// after the pass in which it exceeds `TURN_STEPS_MAX`.
const STEPS_MAX: usize = 3 * TURN_STEPS_MAX;
/// The minimum number of turns that do work: one turn of at most `STEPS_MAX` steps cannot verify the whole long value.
const TURNS_MIN: usize = 2;

struct Table {
    folder: tempfile::TempDir,
}

impl Table {
    /// Bakes a table whose row 16, with the key 40, has the long value. Row 16 has a fence, so an ordered lookup of any
    /// row between this fence and the next one reads row 16 first.
    fn with_long_value(keys: Keys) -> Table {
        let short = |key| (key, 1);
        Table::bake(keys, (10..26).map(short).chain([(40, LONG_LEN_BYTES)]).chain((41..56).chain([90]).map(short)))
    }

    fn bake(keys: Keys, rows: impl Iterator<Item = (u64, usize)>) -> Table {
        let table = Table { folder: tempfile::tempdir().unwrap() };
        let csv = rows.fold(Box::new(std::io::empty()) as Box<dyn Read + Send>, |csv, (key, len_bytes)| {
            let value = std::io::repeat(b'v').take(len_bytes as u64);
            Box::new(csv.chain(Cursor::new(format!("{key},"))).chain(value).chain(&b"\n"[..]))
        });
        bake_csv(csv, &table.db(), &Options { keys, ..Options::default() }).unwrap();
        table
    }

    fn db(&self) -> PathBuf {
        self.folder.path().join("storage.db")
    }

    /// Opens the table, and marks all its blocks as unverified.
    fn open(&self) -> Connections {
        let connections = connections_over(&self.db());
        // The checks before serving verified the blocks of the rows that they looked up.
        connections.worker.pin().store.forget_verified_blocks();
        connections
    }
}

fn short_request(op: Op, key: u64) -> Vec<u8> {
    Request::new(op, key).as_bytes().to_vec()
}

fn long_request(op: Op, body: &[&[u8]]) -> Vec<u8> {
    let mut request = Vec::new();
    push_long(op, body, &mut request);
    request
}

/// Returns a request for the range of all rows.
fn all_rows(op: Op, flags: u32) -> Vec<u8> {
    long_request(op, &[&[flags.to_be_bytes(), [0; 4], [0; 4], [0; 4]].concat()])
}

fn value_header() -> Vec<u8> {
    ResponseHeader::of_value(LONG_LEN_BYTES).unwrap().as_bytes().to_vec()
}

fn bare(status: Status) -> Vec<u8> {
    ResponseHeader::bare(status).as_bytes().to_vec()
}

fn assert_bounded(used: &Used, case: &str) {
    assert!(used.turn_steps_max <= STEPS_MAX, "{} steps in a turn: {case}", used.turn_steps_max);
    assert!(used.turns_between_max <= TURNS_BETWEEN_MAX, "{} turns: {case}", used.turns_between_max);
}

/// Commands that read the long value. Each is followed by the beginning of its reply, and by the number of keys that
/// the server counts as found.
const COMMANDS: [(&str, &str, u64); 22] = [
    ("GET 40", "$33554432\r\nvvvv", 1),
    ("*2\r\n$3\r\nGET\r\n$2\r\n40", "$33554432\r\nvvvv", 1),
    ("GET 41\r\nGET 40\r\nGET 9", "$1\r\nv\r\n$33554432\r\nvvvv", 2),
    ("*2\r\n$3\r\nGET\r\n$2\r\n41\r\n*2\r\n$3\r\nGET\r\n$2\r\n40", "$1\r\nv\r\n$33554432\r\nvvvv", 2),
    ("MGET 41 40 42", "*3\r\n$1\r\nv\r\n$33554432\r\nvvvv", 3),
    ("EXISTS 41 40 9 40", ":3\r\n", 3),
    ("STRLEN 40", ":33554432\r\n", 1),
    ("GETRANGE 40 -3 -1", "$3\r\nvvv\r\n", 1),
    ("TYPE 40", "+string\r\n", 0),
    ("TOUCH 40", ":1\r\n", 1),
    ("GETBIT 40 1", ":1\r\n", 1),
    ("HGET 40 x", "-WRONGTYPE ", 1),
    ("TTL 40", ":-1\r\n", 0),
    ("OBJECT ENCODING 40", "$3\r\nraw\r\n", 0),
    ("MEMORY USAGE 40", ":3355", 0),
    ("RANDOMKEY", "$2\r\n", 0),
    ("SCAN 0 COUNT 100", "*2\r\n$1\r\n0\r\n*33\r\n$2\r\n10\r\n", 0),
    ("KEYS *3", "*4\r\n$2\r\n13\r\n$2\r\n23\r\n$2\r\n43\r\n$2\r\n53\r\n", 0),
    ("ZKV.FLOOR 40", "*2\r\n$2\r\n40\r\n$33554432\r\nvvvv", 0),
    ("ZKV.CEILING 40", "*2\r\n$2\r\n40\r\n$33554432\r\nvvvv", 0),
    ("*3\r\n$9\r\nZKV.RANGE\r\n$2\r\n40\r\n$2\r\n44", "*2\r\n$3\r\n(40\r\n*2\r\n$2\r\n40\r\n$33554432\r\nvvvv", 0),
    ("ZKV.RANGE 40 44", "*2\r\n$3\r\n(40\r\n*2\r\n$2\r\n40\r\n$33554432\r\nvvvv", 0),
];

#[test]
fn commands_verify_a_long_value_in_several_turns() {
    let (table, runtime) = (Table::with_long_value(Keys::U64), runtime());
    for (command, begin, hits) in COMMANDS {
        let connections = table.open();
        // One of the 33 rows has the long value, so 1000 random rows include it except with a probability of 4e-14.
        let count = if command == "RANDOMKEY" { 1000 } else { 1 };
        let (used, response) =
            serve(&runtime, &connections, format!("{command}\r\n").repeat(count).into_bytes(), usize::MAX);
        assert!(response.begins_with(begin.as_bytes()), "{command}: {}", response.begin.escape_ascii());
        assert!(used.busy_turns >= TURNS_MIN, "{command}: {} turns", used.busy_turns);
        assert_bounded(&used, command);
        // A command that is repeated in the next turn is counted once.
        let sums = connections.worker.server.statistics.sums();
        let errors = u64::from(begin.starts_with('-'));
        assert_eq!((sums.redis_hits, sums.requests[REDIS][Status::Error as usize]), (hits, errors), "{command}");
    }
}

#[test]
fn native_requests_verify_a_long_value_in_several_turns() {
    let runtime = runtime();
    let numbers = Table::with_long_value(Keys::U64);
    let bytes = Table::with_long_value(Keys::BYTES);
    let ok = bare(Status::Ok);
    let count_of_all = [ResponseHeader::of_page(8).as_bytes(), &33_u64.to_be_bytes()].concat();
    let both = [ok.clone(), value_header()].concat();
    let page = vec![0, 0, 0, 0];
    let cases = [
        (&numbers, short_request(Op::Get, 40), value_header()),
        (&numbers, short_request(Op::Exists, 40), ok.clone()),
        (&numbers, short_request(Op::Floor, 40), page.clone()),
        (&numbers, short_request(Op::Ceiling, 40), page.clone()),
        (
            &numbers,
            [short_request(Op::Exists, 41), short_request(Op::Get, 40), short_request(Op::Exists, 9)].concat(),
            both.clone(),
        ),
        (&numbers, all_rows(Op::Range, 0), page.clone()),
        (&bytes, long_request(Op::Get, &[b"40"]), value_header()),
        (&bytes, long_request(Op::Exists, &[b"40"]), ok.clone()),
        (&bytes, long_request(Op::Floor, &[b"40"]), page.clone()),
        (&bytes, long_request(Op::Ceiling, &[b"40"]), page.clone()),
        (&bytes, [long_request(Op::Exists, &[b"41"]), long_request(Op::Get, &[b"40"])].concat(), both),
        (&bytes, all_rows(Op::Range, range_flags::BACKWARD), page),
    ];
    for (table, request, begin) in cases {
        let case = request.escape_ascii().to_string();
        let connections = table.open();
        let (used, response) = serve(&runtime, &connections, request, usize::MAX);
        assert!(response.begins_with(&begin), "{case}: {}", response.begin.escape_ascii());
        assert!(used.busy_turns >= TURNS_MIN, "{case}: {} turns", used.busy_turns);
        assert_bounded(&used, &case);
        let errors: u64 = connections
            .worker
            .server
            .statistics
            .sums()
            .requests
            .iter()
            .map(|of_op| of_op[Status::Error as usize])
            .sum();
        assert_eq!(errors, 0, "{case}");
    }
    // Counting rows reads no row.
    let counts = [(all_rows(Op::Count, 0), count_of_all), (b"ZKV.COUNT 41 44\r\n".to_vec(), b":4\r\n".to_vec())];
    for (request, expected) in counts {
        let (used, response) = serve(&runtime, &numbers.open(), request, usize::MAX);
        assert!(response.begins_with(&expected) && used.busy_turns < TURNS_MIN, "{} turns", used.busy_turns);
    }
}

/// The verification of a value is interrupted, and the file changes before the next turn.
#[test]
fn a_change_between_two_turns_ends_the_verification_with_an_error() {
    let runtime = runtime();
    for (request, error) in [(b"GET 40\r\n".to_vec(), &b"-"[..]), (short_request(Op::Get, 40), &bare(Status::Error))] {
        let table = Table::with_long_value(Keys::U64);
        let connections = table.open();
        let file = std::fs::File::options().write(true).open(table.db()).unwrap();
        let mut is_written = false;
        let (used, response) = serve_and(&runtime, &connections, request, usize::MAX, |used| {
            if used.busy_turns > 0 && !is_written {
                file.write_all_at(b"x", (LONG_LEN_BYTES / 2) as u64).unwrap();
                // Sets a different time, because the system's clock may not have advanced since the table was opened.
                file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
                is_written = true;
            }
        });
        assert!(is_written && !connections.worker.pin().store.is_trusted());
        assert!(response.begins_with(error), "{}", response.begin.escape_ascii());
        assert!(used.busy_turns < LONG_LEN_BYTES >> 20, "{} turns", used.busy_turns);
    }
}

/// A block's tag records whether the block is verified. A lookup of a long value reads the tag of each block of the
/// value, or one tag for a whole group of these blocks.
#[test]
fn the_tags_that_a_lookup_of_a_verified_long_value_reads_count_as_steps() {
    // About 200 blocks of the second value precede the first whole group of blocks in this value.
    let (table, runtime) = (Table::bake(Keys::U64, [(1, 1_000_000), (2, 8 << 20)].into_iter()), runtime());
    let command = |name: &str| format!("*2\r\n${}\r\n{name}\r\n$1\r\n2\r\n", name.len()).into_bytes();
    let exists_many = [b"*20001\r\n$6\r\nEXISTS\r\n".to_vec(), b"$1\r\n2\r\n".repeat(20_000)].concat();
    let pipeline = |request: Vec<u8>| {
        let count = PIPELINE_LEN_BYTES / request.len();
        (request.repeat(count), count)
    };
    for (requests, count) in [
        pipeline(short_request(Op::Exists, 2)),
        pipeline(command("EXISTS")),
        pipeline(command("STRLEN")),
        pipeline(command("TYPE")),
        (exists_many, 20_000),
    ] {
        let case = requests[..40].escape_ascii().to_string();
        let connections = table.open();
        let (used, _) = serve(&runtime, &connections, requests, usize::MAX);
        assert_bounded(&used, &case);
        assert!(used.steps >= 4 * count, "{} steps of {count} lookups: {case}", used.steps);
    }
}
