//! The native programs send the requests, read the responses, and reject the malformed responses of `tests/vectors`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::answering::FunctionServer;
use super::tools;
use crate::assert_output;
use crate::helpers::frames::answer;
use crate::helpers::trials::{Missing, require};

const NUMBERS: &str = include_str!("../vectors/numbers.json");
const BYTES: &str = include_str!("../vectors/bytes.json");
const REFUSED: &str = include_str!("../vectors/refused.json");
const OPS: [&str; 3] = ["get", "exists", "floor"];
const INFO: u8 = 6;

fn vectors(file: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(file).unwrap();
    file["vectors"].as_array().unwrap().clone()
}

fn bytes(digits: &Value) -> Vec<u8> {
    let digits = digits.as_str().unwrap();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// Returns a key as a command-line argument, or `None` if it cannot be one.
fn argument(key: &Value, numbers: bool) -> Option<String> {
    let written = key.as_str()?;
    if numbers {
        return Some(written.to_owned());
    }
    String::from_utf8(bytes(key)).ok().filter(|key| !key.is_empty() && !key.contains('\0'))
}

/// Returns the line that a program prints for a response.
fn line(op: &str, argument: &str, says: &Value, numbers: bool) -> Vec<u8> {
    let said = match (says["status"].as_str().unwrap(), op) {
        ("not found", _) => b"not found".to_vec(),
        (_, "get") => bytes(&says["value"]),
        (_, "exists") => b"yes".to_vec(),
        _ => {
            let row = &says["rows"][0];
            let key = if numbers { row[0].as_str().unwrap().as_bytes().to_vec() } else { bytes(&row[0]) };
            [key, b" ".to_vec(), bytes(&row[1])].concat()
        }
    };
    [op.as_bytes(), b" ", argument.as_bytes(), b": ", &said, b"\n"].concat()
}

/// Returns the response to Info, which names the kind of the keys, or `None` for other requests.
fn about(request: &[u8], numbers: bool) -> Option<Vec<u8>> {
    let text: &[u8] = if numbers { b"version 0\nkeys u64\n" } else { b"version 0\nkeys bytes\n" };
    (request[..4] == [0, 0, 0, INFO]).then(|| answer(0, text))
}

pub(crate) fn sends_and_reads_the_bytes_of_the_vectors(source: &'static str) -> Result<(), Missing> {
    let program = tools::program(source)?;
    for (file, numbers) in [(NUMBERS, true), (BYTES, false)] {
        // The lines for each key that the vectors request. A request that no vector contains is answered with "not
        // found".
        let mut lines = BTreeMap::<String, [Vec<u8>; 3]>::new();
        let mut answers = BTreeMap::new();
        for vector in vectors(file) {
            let op = OPS.iter().position(|op| vector["ask"]["op"] == *op);
            let argument = argument(&vector["ask"]["key"], numbers);
            let (Some(op), Some(argument)) = (op, argument) else { continue };
            let of_key = lines.entry(argument.clone());
            let not_found = serde_json::json!({ "status": "not found" });
            let of_key = of_key.or_insert_with(|| OPS.map(|op| line(op, &argument, &not_found, numbers)));
            of_key[op] = line(OPS[op], &argument, &vector["says"], numbers);
            answers.insert(bytes(&vector["request"]), bytes(&vector["answer"]));
        }
        assert!(lines.len() >= 8, "{} keys", lines.len());
        let keys: Vec<String> = lines.keys().cloned().collect();
        let expected = lines.into_values().flatten().flatten().collect::<Vec<u8>>();
        let server = FunctionServer::with(move |request| {
            let found = about(request, numbers).or_else(|| answers.get(request).cloned());
            found.unwrap_or_else(|| answer(1, b""))
        });
        if numbers || tools::looks_up_bytes(source) {
            assert_output(&program, &server.socket(), &keys, &expected, 1);
        }
    }
    Ok(())
}

pub(crate) fn rejects_malformed_response_headers(source: &'static str) -> Result<(), Missing> {
    let program = tools::program(source)?;
    let is_of_header = |vector: &Value| vector["part"] == "header" && OPS.iter().any(|op| vector["ask"]["op"] == *op);
    let refused: Vec<Value> = vectors(REFUSED).into_iter().filter(is_of_header).collect();
    assert!(refused.len() >= 8, "{} vectors", refused.len());
    for vector in refused {
        let op = OPS.iter().position(|op| vector["ask"]["op"] == *op).unwrap();
        let bad = bytes(&vector["answer"]);
        let server = FunctionServer::with(move |request| {
            let good = || answer(u32::from(request[3] != 1), b"");
            about(request, true).unwrap_or_else(|| if request[3] == op as u8 { bad.clone() } else { good() })
        });
        let output = program.command().arg(server.socket()).arg("7").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{program:?} {}: {said}", vector["name"]);
        assert!(!said.is_empty(), "{program:?} {}", vector["name"]);
    }
    Ok(())
}

pub(crate) fn the_python_check_of_the_vectors_passes() -> Result<(), Missing> {
    require("python3", "--version")?;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let check = repository.join("examples/native/python/check_vectors.py");
    let mut command = Command::new("python3");
    let output = command.arg("-B").arg(check).arg(repository.join("tests/vectors")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.ends_with(b" vectors\n"), "{}", output.stdout.escape_ascii());
    Ok(())
}
