//! The requests and responses of `tests/vectors`, sent by and to `kv_store` and the crate's own client.
//! `tests/vectors/README.md` specifies the files.

mod requests;
mod served;

use serde_json::Value;

const NUMBERS: &str = include_str!("../../vectors/numbers.json");
const BYTES: &str = include_str!("../../vectors/bytes.json");
const TYPED: &str = include_str!("../../vectors/typed.json");
const REFUSED: &str = include_str!("../../vectors/refused.json");

/// Parses a file of vectors. Returns the whole file and its vectors.
fn read(text: &str) -> (Value, Vec<Value>) {
    let file: Value = serde_json::from_str(text).expect("JSON");
    let vectors = file["vectors"].as_array().expect("vectors").clone();
    (file, vectors)
}

fn text<'v>(vector: &'v Value, field: &str) -> &'v str {
    vector[field].as_str().unwrap_or_else(|| panic!("{field} of {}", vector["name"]))
}

/// Parses hexadecimal digits.
fn bytes(digits: &str) -> Vec<u8> {
    assert!(digits.is_ascii() && digits.len().is_multiple_of(2), "whole bytes: {digits}");
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits")).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn vectors_have_unique_names_and_descriptions() {
    for file in [NUMBERS, BYTES, TYPED, REFUSED] {
        let (_, vectors) = read(file);
        let mut names: Vec<&str> = vectors.iter().map(|vector| text(vector, "name")).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "a name occurs twice in {names:?}");
        for vector in &vectors {
            let what = vector.get("what").or(vector.get("why")).and_then(Value::as_str);
            assert!(what.is_some_and(|what| !what.is_empty()), "{} has no description", vector["name"]);
        }
    }
}
