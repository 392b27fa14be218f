//! Runs the code of each fuzz target with random inputs.

use super::{answers, canaries, csv, descriptors, merge, native, open, resp, session, structure, typed, typed_text};
#[cfg(feature = "full")]
use super::{compressed, documents, parquet_file};
use crate::helpers::random::{Random, seed};

/// Pieces whose sequences are valid or almost valid rows.
#[rustfmt::skip]
const ROWS: &[&[u8]] = &[
    b"1,one\n", b"2,two\r\n", b"\"3\",\"a\nb\"\n", b"4,\"\"\"\n\"\"\"\r\n", b"key,b\n", b"\n", b"5,-\n", b"6,\n", b"007,x\r\n", b"k,",
    b",", b"\"", b"\"\"", b"a\"b", b"\r", b"\r\n", b"-", b"7", b"18446744073709551615", b"18446744073709551616", b"\xef\xbb\xbf",
    b"\xff", b"x", b"5,\"c\"d\n", b"{\"key\":1,\"value\":\"x\"}\n", b"{\"key\":\"a\",\"value\":[1]}\n", b"\t", b"6\tsix\n", b"yes",
    b"8,\xc3\xa9,1\n", b"\\", b"\\\n", b"9,\"\\\"\\n\"\n", b"#x,\"\n", b"'", b"10,'q''r\n'\n",
];

/// Pieces whose sequences are valid or almost valid rows of typed tables.
#[rustfmt::skip]
const TYPED_ROWS: &[&[u8]] = &[
    b"1,1,x,2.5\n", b"2,,,\n", b"3,200,1.50,\r\n", b"4,true,2026-11-21T19:09:38.5Z,\"[1,2]\"\n",
    b"5,2026-11-21,x,\"[0.5,1e3]\"\n", b"{\"id\":1,\"a\":2,\"b\":\"x\",\"c\":1.5}\n",
    b"{\"id\":2,\"a\":null,\"b\":\"\\u0061\",\"c\":[1,2]}\n", b"{\"id\":3,\"c\":[null],\"d\":{\"x\":1},\"a\":true}\n", b"\n", b"6,",
    b",", b"-", b"1", b"9", b".", b"e", b"NaN", b"-inf", b"\"", b"\"\"", b"[", b"]", b"true", b"2026-11-21", b"\xc3\xa4", b"\xff",
    b"18446744073709551615", b"9007199254740993", b"{", b"}", b":", b"null", b"\"id\":7", b"\r",
];

/// Pieces whose sequences are valid or almost valid commands.
#[rustfmt::skip]
const COMMANDS: &[&[u8]] = &[
    b"*2\r\n$3\r\nGET\r\n$1\r\n7\r\n", b"GET k5\r\n", b"MGET 1 2 k3 99\n", b"ZKV.RANGE k1 k9 LIMIT 3\r\n", b"ZKV.FLOOR 7\r\n",
    b"SCAN 0 MATCH *1* COUNT 7\r\n", b"KEYS *\r\n", b"HELLO 3\r\n", b"INFO\r\n", b"CLIENT LIST\r\n", b"COMMAND DOCS get\r\n",
    b"GETRANGE 4 0 -2\r\n", b"EXISTS 1 k1\r\n", b"SET a b\r\n", b"FOO 'a b' \"\\x00\"\r\n", b"ECHO ", b"\r\n", b"*1\r\n", b"$4\r\nPING\r\n",
    b"QUIT\r\n", b"RESET\r\n", b"*", b"$3\r\n", b"\"", b"\xff", b"*-1\r\n",
];

/// Pieces whose sequences are valid or almost valid input for the parser of the Redis protocol.
const REDIS_BYTES: &[&[u8]] = &[
    b"*1\r\n$4\r\nPING\r\n",
    b"*2\r\n$3\r\nGET\r\n$16\r\nkey:000000012345\r\n",
    b"*2\r\n$3\r\nget\r\n$1\r\nk\r\n",
    b"*3\r\n$4\r\nMGET\r\n$0\r\n\r\n$3\r\na\r\n\r\n",
    b"PING\r\n",
    b"set 'a b' \"\\x00\\n\"\n",
    b"\r\n",
    b" \t\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"*2\r\n",
    b"$3\r\n",
    b"GET\r\n",
    b"$1048576\r\n",
    b"*1048577\r\n",
    b"*699049\r\n",
    b"\"",
    b"'",
    b"\\",
    b"*",
    b"$",
    b"\r",
    b"\n",
    b"1",
    b"x",
    b"\0",
    b"\xff",
];

/// Checks random inputs, each of which is a number of random bytes that select choices, followed by random pieces.
fn try_random(cases: usize, choices_len_bytes: usize, pieces: &[&[u8]], check: impl Fn(&[u8])) {
    let seed = seed("random inputs");
    let mut random = Random(seed);
    for _ in 0..cases {
        let mut data = random.bytes(choices_len_bytes);
        if pieces.is_empty() {
            data.truncate(random.below(choices_len_bytes));
        } else {
            // Zeros select the simplest options. A text of few kinds of pieces often continues after its first error.
            data.iter_mut().for_each(|choice| *choice *= u8::from(random.below(3) == 0));
            let usual = 2 + random.below(pieces.len() - 1);
            (0..random.below(40)).for_each(|_| data.extend_from_slice(pieces[random.below(usual)]));
        }
        check(&data);
    }
}

#[test]
fn any_text_is_baked_as_its_rows_or_rejected() {
    let folder = tempfile::tempdir().unwrap();
    try_random(800, 28, ROWS, |data| csv::check(folder.path(), data));
}

#[test]
fn any_text_is_baked_as_its_typed_rows_or_rejected() {
    let folder = tempfile::tempdir().unwrap();
    try_random(600, 10, TYPED_ROWS, |data| typed_text::check(folder.path(), data));
}

#[test]
fn a_merge_is_the_bake_of_the_resulting_rows() {
    let folder = tempfile::tempdir().unwrap();
    try_random(150, 1000, &[], |data| merge::check(folder.path(), data));
}

#[test]
fn any_file_is_rejected_or_every_lookup_matches_its_records() {
    let folder = tempfile::tempdir().unwrap();
    let files = open::Files::bake(folder.path());
    try_random(4000, 40, &[], |data| open::check(&files, data));
}

#[test]
fn a_forged_field_leads_to_an_error_or_to_records() {
    let folder = tempfile::tempdir().unwrap();
    let (path, originals) = (folder.path().join("storage.db"), structure::Originals::encode());
    let mut count = 0;
    for (forgery, file) in originals.single_forgeries() {
        let checked = std::panic::catch_unwind(|| structure::check(&path, &file));
        assert!(checked.is_ok(), "{forgery}: {} bytes", file.len());
        count += 1;
    }
    assert!(count > 1000, "{count} files");
}

#[test]
fn forged_fields_lead_to_an_error_or_to_records() {
    let folder = tempfile::tempdir().unwrap();
    let (path, originals) = (folder.path().join("storage.db"), structure::Originals::encode());
    try_random(1500, 16, &[], |data| structure::check(&path, &originals.forgery(data)));
}

#[test]
fn a_forged_schema_or_row_is_rejected_or_all_lookups_agree_on_its_cells() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("storage.db");
    try_random(4000, 120, &[], |data| typed::check(&path, &typed::file(data)));
}

#[test]
fn any_native_stream_is_answered_as_documented_wherever_it_is_split() {
    let tables = native::Tables::start();
    try_random(1500, 600, &[], |data| native::check(&tables, data));
}

#[test]
fn any_redis_session_has_one_reply_per_command_wherever_it_is_split() {
    let tables = session::Tables::start();
    try_random(1500, 11, COMMANDS, |data| session::check(&tables, data));
}

#[test]
fn any_response_is_rejected_or_valid_for_its_request() {
    let folder = tempfile::tempdir().unwrap();
    let tables = answers::Tables::start(folder.path());
    try_random(1000, 40, &[], |data| answers::check(&tables, data));
}

#[test]
fn any_descriptors_that_a_server_passes_are_rejected_or_usable() {
    let folder = tempfile::tempdir().unwrap();
    let passing = descriptors::TamperingServer::start(folder.path());
    descriptors::check(&passing, &[]);
    try_random(400, 40, &[], |data| descriptors::check(&passing, data));
}

#[cfg(feature = "full")]
#[test]
fn any_value_of_a_document_leads_to_an_error_or_is_within_the_limits() {
    let table = documents::Table::publish();
    let scalars = table.scalar_count();
    let mut random = Random(seed("random inputs"));
    for value in 0..table.value_count() {
        // Each run has other texts. A case takes a tenth of a second, because readers of new files wait.
        table.check_scalar(value, random.below(scalars));
    }
}

#[cfg(feature = "full")]
#[test]
fn any_documents_of_a_table_lead_to_an_error_or_are_within_the_limits() {
    let table = documents::Table::publish();
    try_random(100, 60, &[], |data| documents::check(&table, data));
}

#[cfg(feature = "full")]
#[test]
fn any_compressed_input_is_baked_as_its_text_or_rejected() {
    let folder = tempfile::tempdir().unwrap();
    try_random(200, 200, &[], |data| compressed::check(folder.path(), data));
}

#[cfg(feature = "full")]
#[test]
fn any_parquet_input_is_baked_as_its_rows_or_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = parquet_file::Inputs::write();
    (0..=u8::MAX).step_by(9).for_each(|input| parquet_file::check(&inputs, folder.path(), &[input]));
    try_random(400, 30, &[], |data| parquet_file::check(&inputs, folder.path(), data));
}

#[test]
fn a_table_is_served_exactly_if_it_matches_every_canary() {
    let folder = tempfile::tempdir().unwrap();
    let tables = canaries::Tables::bake(folder.path());
    try_random(400, 40, &[], |data| canaries::check(&tables, data));
}

#[test]
fn random_streams_are_parsed_equally_wherever_they_are_split() {
    let seed = seed("random inputs");
    let mut random = Random(seed);
    for _ in 0..20_000 {
        let mut data = random.next().to_le_bytes().to_vec();
        // Most pieces are complete commands, so that streams continue after the first command.
        let usual = 4 + random.below(REDIS_BYTES.len() - 3);
        for _ in 0..random.below(12) {
            data.extend_from_slice(REDIS_BYTES[random.below(usual)]);
        }
        resp::check(&data);
    }
}
