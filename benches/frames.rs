//! Encoding and decoding of the native protocol, in memory.
//!
//! Canonical load: a pipeline of 256 requests, seed 1, of which nine in ten are `get`. `decode_requests` decodes the op
//! and key of each request (4096 bytes in total). `read_responses` splits the responses to these requests. One response
//! in ten is "not found", and the other responses to `get` have values of 26 bytes. `assemble_responses` looks up all
//! keys of a table with 100,000 rows and values of 26 bytes, in random order, and assembles the responses, 256 at a
//! time. The harness chooses the number of pipelines per sample. The inputs of the first two benches fit into the
//! first-level cache. Results are checked once before the measurement.

mod support;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use support::{VALUE_LEN_MIN_BYTES, is_test, push_csv_row, push_value, warn_if_slow};
use zero_kv::Store;
use zero_kv::bake::{self, Options};
use zero_kv::protocol::native::{Op, RESPONSE_HEADER_LEN_BYTES, Request, ResponseHeader, Status};
use zero_kv::protocol::response::{CheckedHeader, Violation};
use zero_kv::server::{Responses, answer_requests};
use zerocopy::{FromBytes, IntoBytes};

const PIPELINE_FRAMES: usize = 256;

fn main() {
    warn_if_slow();
    divan::main();
}

fn requested() -> Vec<(Op, u64)> {
    let mut random = SmallRng::seed_from_u64(1);
    let mut op = || if random.random_range(0..10) == 0 { Op::Exists } else { Op::Get };
    let ops: Vec<Op> = (0..PIPELINE_FRAMES).map(|_| op()).collect();
    ops.into_iter().map(|op| (op, random.next_u64())).collect()
}

/// Calls `request` with the op and key of each request.
#[inline(always)]
fn decode(bytes: &[u8], mut request: impl FnMut(Option<Op>, u64)) {
    for frame in <[Request]>::ref_from_bytes(bytes).expect("complete requests") {
        request(Op::from_code(frame.op_code()), frame.key());
    }
}

#[divan::bench]
fn decode_requests(bencher: Bencher) {
    let requested = requested();
    let bytes: Vec<u8> = requested.iter().flat_map(|(op, key)| Request::new(*op, *key).as_bytes().to_vec()).collect();
    let mut decoded = Vec::new();
    decode(&bytes, |op, key| decoded.extend(op.map(|op| (op, key))));
    assert_eq!(decoded, requested);
    bencher.counter(ItemsCount::new(PIPELINE_FRAMES)).counter(BytesCount::new(bytes.len())).bench_local(|| {
        decode(black_box(&bytes), |op, key| {
            black_box((op, key));
        });
    });
}

/// Calls `visit` with the header and the value of each response.
#[inline(always)]
fn read(
    requested: &[(Op, u64)],
    mut bytes: &[u8],
    mut visit: impl FnMut(CheckedHeader, &[u8]),
) -> Result<(), Violation> {
    for (op, _) in requested {
        let (header, rest) = ResponseHeader::ref_from_prefix(bytes).expect("complete header");
        let announced = CheckedHeader::new(*op, header)?;
        let value_len_bytes = match announced {
            CheckedHeader::Found { value_len_bytes } => value_len_bytes,
            _ => 0,
        };
        let (value, rest) = rest.split_at(value_len_bytes);
        visit(announced, value);
        bytes = rest;
    }
    match bytes.len() {
        0 => Ok(()),
        len_bytes => Err(Violation::UnexpectedBytes { len_bytes }),
    }
}

#[divan::bench]
fn read_responses(bencher: Bencher) {
    let requested = requested();
    let mut random = SmallRng::seed_from_u64(2);
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    for (op, key) in &requested {
        let header_at = bytes.len();
        bytes.resize(header_at + RESPONSE_HEADER_LEN_BYTES, 0);
        let (header, announced) = match op {
            _ if random.random_range(0..10) == 0 => (ResponseHeader::bare(Status::NotFound), CheckedHeader::NotFound),
            Op::Exists => (ResponseHeader::bare(Status::Ok), CheckedHeader::Found { value_len_bytes: 0 }),
            _ => {
                push_value(&mut bytes, *key, VALUE_LEN_MIN_BYTES);
                let header = ResponseHeader::of_value(VALUE_LEN_MIN_BYTES).expect("valid length");
                (header, CheckedHeader::Found { value_len_bytes: VALUE_LEN_MIN_BYTES })
            }
        };
        bytes[header_at..header_at + RESPONSE_HEADER_LEN_BYTES].copy_from_slice(header.as_bytes());
        expected.push((announced, bytes[header_at + RESPONSE_HEADER_LEN_BYTES..].to_vec()));
    }
    let mut responses = Vec::new();
    assert_eq!(read(&requested, &bytes, |announced, value| responses.push((announced, value.to_vec()))), Ok(()));
    assert_eq!(responses, expected);
    bencher.counter(ItemsCount::new(PIPELINE_FRAMES)).counter(BytesCount::new(bytes.len())).bench_local(|| {
        read(black_box(&requested), black_box(&bytes), |announced, value| {
            black_box((announced, value));
        })
    });
}

#[divan::bench]
fn assemble_responses(bencher: Bencher) {
    let row_count = if is_test() { 1000 } else { 100_000 };
    let folder = tempfile::tempdir().expect("temporary folder");
    let db = folder.path().join("storage.db");
    let mut csv = Vec::new();
    (0..row_count).for_each(|key| push_csv_row(&mut csv, key, VALUE_LEN_MIN_BYTES));
    bake::bake_csv(&csv[..], &db, &Options::default()).expect("bake");
    let store = Store::open(&db).expect("open the baked table");
    let mut keys: Vec<u64> = (0..row_count).collect();
    keys.shuffle(&mut SmallRng::seed_from_u64(3));
    let requests: Vec<Request> = keys.iter().map(|key| Request::new(Op::Get, *key)).collect();

    let mut responses = Responses::new();
    for (requests, keys) in requests.chunks(PIPELINE_FRAMES).zip(keys.chunks(PIPELINE_FRAMES)) {
        let mut expected = Vec::new();
        for key in keys {
            let header = ResponseHeader::of_value(VALUE_LEN_MIN_BYTES).expect("valid length");
            expected.extend_from_slice(header.as_bytes());
            push_value(&mut expected, *key, VALUE_LEN_MIN_BYTES);
        }
        responses.clear();
        assert_eq!(answer_requests(&store, requests, &mut responses), requests.len());
        let check = |unsent: &[std::io::IoSlice]| assert!(*unsent[0] == expected[..] && unsent.len() == 1);
        responses.with_unsent(&store, 0, check).expect("intact file");
    }
    let mut pipelines = requests.chunks_exact(PIPELINE_FRAMES).cycle();
    bencher.counter(ItemsCount::new(PIPELINE_FRAMES)).bench_local(|| {
        responses.clear();
        answer_requests(&store, black_box(pipelines.next().expect("endless iterator")), &mut responses);
        responses.total_len_bytes()
    });
}
