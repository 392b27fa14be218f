//! Native frames, as bytes in memory.
//!
//! Canonical load: a pipeline of 256 frames, seed 1, nine of ten for Get. In
//! `decode_requests`, 4096 bytes of requests are read as requests, and op and
//! key of each are taken out. In `read_answers`, the answers to these requests,
//! values of 26 bytes, one of ten "not found", are told apart and each value
//! passed over. In `assemble_answers`, a server's answers to Gets for all of
//! 100,000 rows, values of 26 bytes, in random order, are looked up and put
//! together, 256 at a time. A sample is many pipelines, as many as the harness
//! takes; those that are read are in the first-level cache. What comes out is
//! checked once before it is timed.

mod support;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use support::{Random, VALUE_LEN_MIN_BYTES, is_test, push_csv_row, push_value, warn_if_slow};
use zero_kv::Store;
use zero_kv::bake::{self, Options};
use zero_kv::protocol::answer::{Announced, Violation};
use zero_kv::protocol::native::{Op, RESPONSE_HEADER_LEN_BYTES, Request, ResponseHeader, Status};
use zero_kv::server::Answers;
use zerocopy::{FromBytes, IntoBytes};

const PIPELINE_FRAMES: usize = 256;

fn main() {
    warn_if_slow();
    divan::main();
}

fn asked() -> Vec<(Op, u64)> {
    let mut random = Random(1);
    let mut op = || if random.below(10) == 0 { Op::Exists } else { Op::Get };
    let ops: Vec<Op> = (0..PIPELINE_FRAMES).map(|_| op()).collect();
    ops.into_iter().map(|op| (op, random.number())).collect()
}

/// Hands on op and key of each request.
#[inline(always)]
fn decode(bytes: &[u8], mut request: impl FnMut(Option<Op>, u64)) {
    for frame in <[Request]>::ref_from_bytes(bytes).expect("whole requests") {
        request(Op::from_code(frame.op_code()), frame.key());
    }
}

#[divan::bench]
fn decode_requests(bencher: Bencher) {
    let asked = asked();
    let bytes: Vec<u8> = asked.iter().flat_map(|(op, key)| Request::new(*op, *key).as_bytes().to_vec()).collect();
    let mut decoded = Vec::new();
    decode(&bytes, |op, key| decoded.extend(op.map(|op| (op, key))));
    assert_eq!(decoded, asked);
    bencher.counter(ItemsCount::new(PIPELINE_FRAMES)).counter(BytesCount::new(bytes.len())).bench_local(|| {
        decode(black_box(&bytes), |op, key| {
            black_box((op, key));
        });
    });
}

/// Hands on what each answer announces, and its value.
#[inline(always)]
fn read(asked: &[(Op, u64)], mut bytes: &[u8], mut answer: impl FnMut(Announced, &[u8])) -> Result<(), Violation> {
    for (op, _) in asked {
        let (header, rest) = ResponseHeader::ref_from_prefix(bytes).expect("a whole header");
        let announced = Announced::check(*op, header)?;
        let value_len_bytes = match announced {
            Announced::Found { value_len_bytes } => value_len_bytes,
            Announced::NotFound | Announced::Error => 0,
        };
        let (value, rest) = rest.split_at(value_len_bytes);
        answer(announced, value);
        bytes = rest;
    }
    match bytes.len() {
        0 => Ok(()),
        len_bytes => Err(Violation::Unasked { len_bytes }),
    }
}

#[divan::bench]
fn read_answers(bencher: Bencher) {
    let asked = asked();
    let mut random = Random(2);
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    for (op, key) in &asked {
        let header_at = bytes.len();
        bytes.resize(header_at + RESPONSE_HEADER_LEN_BYTES, 0);
        let (header, announced) = match op {
            _ if random.below(10) == 0 => (ResponseHeader::bare(Status::NotFound), Announced::NotFound),
            Op::Exists => (ResponseHeader::bare(Status::Ok), Announced::Found { value_len_bytes: 0 }),
            _ => {
                push_value(&mut bytes, *key, VALUE_LEN_MIN_BYTES);
                let header = ResponseHeader::of_value(VALUE_LEN_MIN_BYTES).expect("a value that is not too long");
                (header, Announced::Found { value_len_bytes: VALUE_LEN_MIN_BYTES })
            }
        };
        bytes[header_at..header_at + RESPONSE_HEADER_LEN_BYTES].copy_from_slice(header.as_bytes());
        expected.push((announced, bytes[header_at + RESPONSE_HEADER_LEN_BYTES..].to_vec()));
    }
    let mut answers = Vec::new();
    assert_eq!(read(&asked, &bytes, |announced, value| answers.push((announced, value.to_vec()))), Ok(()));
    assert_eq!(answers, expected);
    bencher.counter(ItemsCount::new(PIPELINE_FRAMES)).counter(BytesCount::new(bytes.len())).bench_local(|| {
        read(black_box(&asked), black_box(&bytes), |announced, value| {
            black_box((announced, value));
        })
    });
}

#[divan::bench]
fn assemble_answers(bencher: Bencher) {
    let row_count = if is_test() { 1000 } else { 100_000 };
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let db = folder.path().join("storage.db");
    let mut csv = Vec::new();
    (0..row_count).for_each(|key| push_csv_row(&mut csv, key, VALUE_LEN_MIN_BYTES));
    bake::bake_csv(&csv[..], &db, &Options::default(), &mut |_| ()).expect("good rows");
    let store = Store::open(&db).expect("the file just baked");
    let mut keys: Vec<u64> = (0..row_count).collect();
    Random(3).shuffle(&mut keys);
    let requests: Vec<Request> = keys.iter().map(|key| Request::new(Op::Get, *key)).collect();

    let mut answers = Answers::new();
    for (requests, keys) in requests.chunks(PIPELINE_FRAMES).zip(keys.chunks(PIPELINE_FRAMES)) {
        let mut expected = Vec::new();
        for key in keys {
            let header = ResponseHeader::of_value(VALUE_LEN_MIN_BYTES).expect("a value that is not too long");
            expected.extend_from_slice(header.as_bytes());
            push_value(&mut expected, *key, VALUE_LEN_MIN_BYTES);
        }
        answers.clear();
        assert_eq!(answers.assemble(&store, requests), requests.len());
        let check = |unsent: &[std::io::IoSlice]| assert!(*unsent[0] == expected[..] && unsent.len() == 1);
        answers.with_unsent(&store, 0, check).expect("the file is as it was");
    }
    let mut pipelines = requests.chunks_exact(PIPELINE_FRAMES).cycle();
    bencher.counter(ItemsCount::new(PIPELINE_FRAMES)).bench_local(|| {
        answers.clear();
        answers.assemble(&store, black_box(pipelines.next().expect("chunks without end")));
        answers.total_len_bytes()
    });
}
