//! `zkv diff`: the rows that differ between two files.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::Stdio;

use serde_json::Value;

use super::*;
use crate::helpers::random::Random;
use crate::helpers::rows::bake_to;

fn diff(a: &Path, b: &Path, more: &[&str]) -> Output {
    zkv().arg("diff").arg(a).arg(b).args(more).output().unwrap()
}

/// Bakes two tables with one kind of keys into a folder.
fn bake_two(keys: Keys, a: &[u8], b: &[u8]) -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let [path_a, path_b] = ["a.db", "b.db"].map(|name| folder.path().join(name));
    bake_text(&path_a, keys, a);
    bake_text(&path_b, keys, b);
    (folder, path_a, path_b)
}

#[test]
fn each_different_row_has_a_line() {
    let (_folder, a, b) = bake_two(Keys::U64, b"1,one\n2,two\n3,three\n4,\n", b"0,zero\n2,zwei\n3,three\n4,\n9,nine\n");
    let keys = "+ 0\n- 1\n~ 2\n+ 9\n";
    let counts = "1 only in A, 2 only in B, 1 changed, 2 equal\n";
    assert_answer(&diff(&a, &b, &[]), 1, format!("{keys}{counts}").as_bytes());
    assert_answer(&diff(&a, &b, &["--summary"]), 1, counts.as_bytes());
    let values = "+ 0 \"zero\"\n- 1 \"one\"\n~ 2 \"two\" \"zwei\"\n+ 9 \"nine\"\n";
    assert_answer(&diff(&a, &b, &["--values"]), 1, format!("{values}{counts}").as_bytes());
    let lines = b"{\"change\":\"only_in_b\",\"key\":0}\n{\"change\":\"only_in_a\",\"key\":1}\n{\"change\":\"changed\",\"key\":2}\n\
        {\"change\":\"only_in_b\",\"key\":9}\n{\"only_in_a\":1,\"only_in_b\":2,\"changed\":1,\"same\":2}\n";
    assert_answer(&diff(&a, &b, &["--format", "jsonl"]), 1, lines);
    let output = diff(&a, &b, &["--format", "jsonl", "--values"]);
    let lines: Vec<Value> = output.stdout.split(|byte| *byte == b'\n').flat_map(serde_json::from_slice).collect();
    assert_eq!((&lines[2]["a"], &lines[2]["b"]), (&Value::from("two"), &Value::from("zwei")));
    assert_eq!((&lines[3]["a"], &lines[3]["b"]), (&Value::Null, &Value::from("nine")));
}

#[test]
fn files_with_equal_rows_have_no_differences() {
    let same = b"0 only in A, 0 only in B, 0 changed, 2 equal\n";
    let (_folder, a, b) = bake_two(Keys::U64, b"1,one\n2,two\n", b"2,two\n1,one\n");
    assert_answer(&diff(&a, &b, &[]), 0, same);
    assert_answer(&diff(&a, &a, &["--values"]), 0, same);
    let (_folder, a, b) = bake_two(Keys::BYTES, b"", b"");
    assert_answer(&diff(&a, &b, &[]), 0, b"0 only in A, 0 only in B, 0 changed, 0 equal\n");
}

#[test]
fn files_with_equal_digests_are_not_read() {
    let (_folder, a, b) = bake_two(Keys::U64, b"7,seven\n", b"7,seven\n");
    let mut bytes = fs::read(&b).unwrap();
    let at = bytes.windows(5).position(|window| window == b"seven").unwrap();
    bytes[at] ^= 1;
    fs::write(&b, bytes).unwrap();
    assert_answer(&diff(&a, &b, &[]), 0, b"0 only in A, 0 only in B, 0 changed, 1 equal\n");
}

#[test]
fn keys_and_values_that_are_bytes_are_quoted_and_escaped() {
    let (_folder, a, b) = bake_two(Keys::BYTES, b"\"\x1b[1m,\"\"\",\xff\nb,\n", b"b,2\n\xc3\xa9,\n");
    let text = b"- \"\\x1b[1m,\\\"\" \"\\xff\"\n~ \"b\" \"\" \"2\"\n+ \"\\xc3\\xa9\" \"\"\n\
        1 only in A, 1 only in B, 1 changed, 0 equal\n";
    assert_answer(&diff(&a, &b, &["--values"]), 1, text);
    let output = diff(&a, &b, &["--format", "jsonl"]);
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(1), &b""[..]));
    let output = diff(&a, &b, &["--format", "jsonl", "--values"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("is not UTF-8") && stderr.contains("--format text"), "{stderr}");
}

#[test]
fn differences_of_random_tables_match_a_model() {
    let seed = 0xd1f;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let folder = tempfile::tempdir().unwrap();
    for rows in [0, 1, 5, 300] {
        let mut table = |name: &str| {
            let rows: BTreeMap<u64, Vec<u8>> =
                (0..rows).map(|_| (random.below(2 * rows) as u64, vec![b'0' + random.below(2) as u8])).collect();
            let path = folder.path().join(name);
            bake_to(&path, &rows.clone().into_iter().collect::<Vec<_>>());
            (path, rows)
        };
        let ((path_a, a), (path_b, b)) = (table("a.db"), table("b.db"));
        let (mut expected, mut counts) = (String::new(), [0; 4]);
        for key in 0..2 * rows as u64 {
            let (sign, count) = match (a.get(&key), b.get(&key)) {
                (None, None) => continue,
                (Some(a), Some(b)) if a == b => {
                    counts[3] += 1;
                    continue;
                }
                (Some(_), None) => ('-', 0),
                (None, Some(_)) => ('+', 1),
                (Some(_), Some(_)) => ('~', 2),
            };
            counts[count] += 1;
            expected += &format!("{sign} {key}\n");
        }
        let [only_a, only_b, changed, same] = counts;
        expected += &format!("{only_a} only in A, {only_b} only in B, {changed} changed, {same} equal\n");
        assert_answer(&diff(&path_a, &path_b, &[]), i32::from(a != b), expected.as_bytes());
    }
}

#[test]
fn files_that_cannot_be_compared_are_an_error() {
    let (folder, a, b) = bake_two(Keys::U64, b"7,seven\n", b"7,sieben\n");
    let bytes = folder.path().join("bytes.db");
    bake_text(&bytes, Keys::BYTES, b"7,seven\n");
    assert_error(&diff(&a, &bytes, &[]), &["a.db has keys that are u64", "pass two files with one type of keys"]);
    assert_error(&diff(&a, &folder.path().join("none.db"), &[]), &["none.db: ", "No such file"]);
    assert_usage_error(&diff(&a, &b, &["--summary", "--values"]), "cannot be used with");
    let mut damaged = fs::read(&b).unwrap();
    let at = damaged.windows(6).position(|window| window == b"sieben").unwrap();
    damaged[at] ^= 1;
    fs::write(&b, damaged).unwrap();
    assert_error(&diff(&a, &b, &[]), &["b.db: ", "damaged"]);
}

#[test]
fn a_closed_pipe_ends_the_program_without_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a.db", "b.db"].map(|name| folder.path().join(name));
    bake_to(&a, &(0..100_000).map(|key| (key, Vec::new())).collect::<Vec<(u64, _)>>());
    bake_to::<u64>(&b, &[]);
    let mut command = zkv();
    let mut child = command.arg("diff").args([&a, &b]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), &*stderr), (Some(1), ""));
}

#[test]
fn the_memory_of_a_diff_does_not_grow_with_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a.db", "b.db"].map(|name| folder.path().join(name));
    // 16 MB of values, all different.
    for (path, byte) in [(&a, b'a'), (&b, b'b')] {
        bake_to(path, &(0..80).map(|key| (key, vec![byte; 200_000])).collect::<Vec<(u64, _)>>());
    }
    for format in ["text", "jsonl"] {
        let mut command = zkv_within(4 << 10);
        let null = fs::File::options().write(true).open("/dev/null").unwrap();
        let output =
            command.args(["diff", "--values", "--format", format]).args([&a, &b]).stdout(null).output().unwrap();
        assert_answer(&output, 1, b"");
    }
}
