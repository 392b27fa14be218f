//! The crate's own questions: each has the bytes that its vector says, reads the answer
//! as the vector does, and refuses what is none.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound;

use serde_json::{Value, json};
use zero_kv::Key;
use zero_kv::client::question::{Ceiling, Count, Exists, Floor, Get, PageOf, Unanswered};
use zero_kv::client::{OwnedKey, Page, Question, Row};
use zero_kv::protocol::answer::Violation;
use zero_kv::protocol::native::{Op, VALUE_LEN_MAX_BYTES};
use zero_kv::protocol::reader::{Answer, AnswerReader};

use crate::{BYTES, NUMBERS, REFUSED, bytes, read, text};

/// A key as a file of these keys writes it.
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is made of the answer in these bytes, or why they are none.
fn received<T>(op: Op, mut bytes: &[u8], take: impl FnOnce(Answer<'_>) -> T) -> Result<T, Violation> {
    let mut reader = AnswerReader::new(VALUE_LEN_MAX_BYTES);
    while !bytes.is_empty() {
        let room = reader.room();
        let len_bytes = room.len().min(bytes.len());
        room[..len_bytes].copy_from_slice(&bytes[..len_bytes]);
        reader.received(len_bytes);
        bytes = &bytes[len_bytes..];
        if let Some(answer) = reader.next(op)? {
            return Ok(take(answer));
        }
    }
    panic!("{op:?} has no whole answer")
}

/// Why the bytes are no answer to the question, or what they say.
fn answered<Q: Question>(question: &Q, answer: &[u8]) -> Result<Q::Answer, Violation> {
    received(question.op(), answer, |answer| question.read(answer))?.map_err(|unanswered| match unanswered {
        Unanswered::Violation(violation) => violation,
        error => panic!("an answer, not {error:?}"),
    })
}

/// Holds a question's bytes, and what it reads, against a vector.
fn hold<Q: Question>(vector: &Value, question: Result<Q, impl Debug>, say: impl FnOnce(Q::Answer) -> Value) {
    let (name, question) = (text(vector, "name"), question.unwrap());
    let mut request = Vec::new();
    question.push(&mut request);
    assert!(request == bytes(text(vector, "request")), "{name}: the request is {}", hex(&request));
    let said = say(answered(&question, &bytes(text(vector, "answer"))).unwrap());
    let expected = &vector["says"];
    // A row that is too long to be said twice is in the answer alone.
    if expected.get("rows").is_some() == said.get("rows").is_some() {
        assert_eq!(said, *expected, "{name}");
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

fn page(page: Page) -> Value {
    let rows: Vec<_> = page.iter().map(|(key, value)| [written(key), hex(value)]).collect();
    json!({ "status": "ok", "rows": rows, "more": page.rest().is_some() })
}

/// The ends of a range that a vector asks about.
fn ends(ask: &Value, keys: &str) -> [Bound<OwnedKey>; 2] {
    [("start", "start_excluded"), ("end", "end_excluded")].map(|(end, excluded)| match ask.get(end) {
        None => Bound::Unbounded,
        Some(field) if ask[excluded] == true => Bound::Excluded(key(field, keys)),
        Some(field) => Bound::Included(key(field, keys)),
    })
}

#[test]
fn questions_are_asked_and_answered_as_the_vectors_say() {
    let mut held = BTreeMap::<String, usize>::new();
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
            // The crate asks about no key that cannot be.
            if key == OwnedKey::Bytes(Vec::new()) {
                continue;
            }
            let key = key.as_key();
            match op {
                "get" => hold(vector, Get::new(key), |value| {
                    value.map_or_else(missing, |value| json!({ "status": "ok", "value": hex(&value) }))
                }),
                "exists" => hold(vector, Exists::new(key), |there| match there {
                    true => json!({ "status": "ok" }),
                    false => missing(),
                }),
                "floor" => hold(vector, Floor::new(key), row),
                "ceiling" => hold(vector, Ceiling::new(key), row),
                "range" if ask["backward"] == true => hold(vector, PageOf::last(range, limit_rows), page),
                "range" => hold(vector, PageOf::first(range, limit_rows), page),
                "count" => hold(vector, Count::new(range), |count| json!({ "status": "ok", "count": count })),
                _ => continue,
            }
            *held.entry(op.to_owned()).or_default() += 1;
        }
    }
    assert_eq!(held.len(), 6, "vectors of each question: {held:?}");
}

#[test]
fn answers_that_are_none_are_refused() {
    let (_, vectors) = read(REFUSED);
    for vector in &vectors {
        let (ask, answer) = (&vector["ask"], bytes(text(vector, "answer")));
        let key = ask.get("key").map_or(OwnedKey::U64(0), |field| key(field, text(vector, "keys")));
        let is_refused = match text(ask, "op") {
            "get" => answered(&Get::new(&key).unwrap(), &answer).is_err(),
            "exists" => answered(&Exists::new(&key).unwrap(), &answer).is_err(),
            "floor" => answered(&Floor::new(&key).unwrap(), &answer).is_err(),
            "count" => answered(&Count::new(..).unwrap(), &answer).is_err(),
            "info" => received(Op::Info, &answer, |_| ()).is_err(),
            "ping" => received(Op::Ping, &answer, |_| ()).is_err(),
            op => panic!("{op} is among the refused"),
        };
        assert!(is_refused, "{}: {}", text(vector, "name"), text(vector, "why"));
    }
}
