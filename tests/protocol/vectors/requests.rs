//! The crate's requests: each encodes to its vector's bytes, and accepts or rejects responses as its vector specifies.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound;

use serde_json::{Value, json};
use zero_kv::Key;
use zero_kv::client::request::{Ceiling, Count, Exists, Floor, Get, GetPage, RequestError};
use zero_kv::client::{OwnedKey, Row, RowPage, TypedRequest};
use zero_kv::protocol::native::{Op, VALUE_LEN_MAX_BYTES};
use zero_kv::protocol::reader::{Response, ResponseReader};
use zero_kv::protocol::response::Violation;

use super::{BYTES, NUMBERS, REFUSED, bytes, hex, read, text};

/// Parses a key as a vector file with these keys writes it.
fn key(field: &Value, keys: &str) -> OwnedKey {
    let written = field.as_str().expect("a key");
    match keys {
        "numbers" => OwnedKey::U64(written.parse().expect("a number")),
        _ => OwnedKey::Bytes(bytes(written)),
    }
}

fn written(key: Key<'_>) -> String {
    key.as_u64().map_or_else(|| hex(key.as_bytes().unwrap()), |number| number.to_string())
}

/// Passes the response in these bytes to `decode`.
fn received<T>(op: Op, mut bytes: &[u8], decode: impl FnOnce(Response<'_>) -> T) -> Result<T, Violation> {
    let mut reader = ResponseReader::new(VALUE_LEN_MAX_BYTES);
    while !bytes.is_empty() {
        let spare = reader.spare();
        let len_bytes = spare.len().min(bytes.len());
        spare[..len_bytes].copy_from_slice(&bytes[..len_bytes]);
        reader.received(len_bytes);
        bytes = &bytes[len_bytes..];
        if let Some(response) = reader.next(op)? {
            return Ok(decode(response));
        }
    }
    panic!("no whole response to {op:?}")
}

/// Decodes the response to a request.
fn decoded<R: TypedRequest>(request: &R, bytes: &[u8]) -> Result<R::Output, Violation> {
    received(request.op(), bytes, |response| request.decode(response))?.map_err(|error| match error {
        RequestError::Violation(violation) => violation,
        error => panic!("a response was expected, not {error:?}"),
    })
}

/// Checks a request's encoding and decoding against a vector.
fn check<R: TypedRequest>(vector: &Value, request: Result<R, impl Debug>, to_json: impl FnOnce(R::Output) -> Value) {
    let (name, request) = (text(vector, "name"), request.unwrap());
    let mut encoded = Vec::new();
    request.encode(&mut encoded);
    assert!(encoded == bytes(text(vector, "request")), "{name}: the request is {}", hex(&encoded));
    let output = to_json(decoded(&request, &bytes(text(vector, "answer"))).unwrap());
    let expected = &vector["says"];
    // A vector omits rows that are too long, which are only in its response.
    if expected.get("rows").is_some() == output.get("rows").is_some() {
        assert_eq!(output, *expected, "{name}");
    }
}

fn missing() -> Value {
    json!({ "status": "not found" })
}

fn row(row: Option<Row>) -> Value {
    row.map_or_else(
        missing,
        |(key, value)| json!({ "status": "ok", "rows": [[written(key.as_key()), hex(&value)]], "more": false }),
    )
}

fn page(page: RowPage) -> Value {
    let rows: Vec<_> = page.iter().map(|(key, value)| [written(key), hex(value)]).collect();
    json!({ "status": "ok", "rows": rows, "more": page.rest().is_some() })
}

/// Returns the ends of a vector's range.
fn ends(ask: &Value, keys: &str) -> [Bound<OwnedKey>; 2] {
    [("start", "start_excluded"), ("end", "end_excluded")].map(|(end, excluded)| match ask.get(end) {
        None => Bound::Unbounded,
        Some(field) if ask[excluded] == true => Bound::Excluded(key(field, keys)),
        Some(field) => Bound::Included(key(field, keys)),
    })
}

#[test]
fn requests_and_responses_match_the_vectors() {
    let mut checked = BTreeMap::<String, usize>::new();
    for file in [NUMBERS, BYTES] {
        let (file, vectors) = read(file);
        let keys = text(&file, "keys");
        for vector in &vectors {
            let Some(ask) = vector.get("ask") else { continue };
            let op = text(ask, "op");
            let key = ask.get("key").map(|field| key(field, keys));
            let [start, end] = ends(ask, keys);
            let range = (start.as_ref().map(OwnedKey::as_key), end.as_ref().map(OwnedKey::as_key));
            let limit_rows = ask["limit"].as_u64().unwrap_or(0) as u32;
            let key = key.unwrap_or(OwnedKey::U64(0));
            // The crate does not send a request with an empty key.
            if key == OwnedKey::Bytes(Vec::new()) {
                continue;
            }
            let key = key.as_key();
            match op {
                "get" => check(vector, Get::new(key), |value| {
                    value.map_or_else(missing, |value| json!({ "status": "ok", "value": hex(&value) }))
                }),
                "exists" => check(vector, Exists::new(key), |there| match there {
                    true => json!({ "status": "ok" }),
                    false => missing(),
                }),
                "floor" => check(vector, Floor::new(key), row),
                "ceiling" => check(vector, Ceiling::new(key), row),
                "range" if ask["backward"] == true => check(vector, GetPage::last(range, limit_rows), page),
                "range" => check(vector, GetPage::first(range, limit_rows), page),
                "count" => check(vector, Count::new(range), |count| json!({ "status": "ok", "count": count })),
                _ => continue,
            }
            *checked.entry(op.to_owned()).or_default() += 1;
        }
    }
    assert_eq!(checked.len(), 6, "vectors of each op: {checked:?}");
}

#[test]
fn invalid_responses_are_rejected() {
    let (_, vectors) = read(REFUSED);
    for vector in &vectors {
        let (ask, answer) = (&vector["ask"], bytes(text(vector, "answer")));
        let key = ask.get("key").map_or(OwnedKey::U64(0), |field| key(field, text(vector, "keys")));
        let is_refused = match text(ask, "op") {
            "get" => decoded(&Get::new(&key).unwrap(), &answer).is_err(),
            "exists" => decoded(&Exists::new(&key).unwrap(), &answer).is_err(),
            "floor" => decoded(&Floor::new(&key).unwrap(), &answer).is_err(),
            "count" => decoded(&Count::new(..).unwrap(), &answer).is_err(),
            "info" => received(Op::Info, &answer, |_| ()).is_err(),
            "ping" => received(Op::Ping, &answer, |_| ()).is_err(),
            op => panic!("no decoder for the rejected vectors of {op}"),
        };
        assert!(is_refused, "{}: {}", text(vector, "name"), text(vector, "why"));
    }
}
