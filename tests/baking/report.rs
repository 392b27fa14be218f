//! `--report`, and the progress on standard error.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use serde_json::Value;

use crate::helpers::baker_runs::{BAKER, Folder};
use crate::helpers::terminal::Terminal;

fn report(folder: &Folder, name: &str) -> Value {
    serde_json::from_slice(&fs::read(folder.path(name)).expect("a report")).expect("JSON")
}

#[test]
fn the_report_describes_inputs_output_and_stages() {
    let folder = Folder::new();
    // Values of 0 to 999 bytes, each length once, in two files; one row is bad, and one key is a duplicate.
    let rows =
        |keys: std::ops::Range<usize>| keys.map(|key| format!("{key},{}\n", "v".repeat(key))).collect::<String>();
    let (a, b) = (rows(500..1000) + "bad,row\n", rows(0..500) + "7,again\n");
    folder.write("a.csv", &a);
    folder.write("b.csv", &b);
    let ended = folder.bake(&[
        "a.csv",
        "b.csv",
        "--duplicates",
        "first",
        "--bad-rows",
        "skip",
        "--memory",
        "32MiB",
        "--threads",
        "2",
        "--report",
        "report.json",
    ]);
    ended.succeeds();
    assert!(
        ended.out.starts_with("storage.db: 1000 rows (1 duplicates dropped, 1 bad rows skipped), "),
        "{}",
        ended.out
    );
    assert_eq!(folder.names(), ["a.csv", "b.csv", "report.json", "storage.db"]);
    assert_eq!(fs::metadata(folder.path("report.json")).unwrap().permissions().mode() & 0o444, 0o444);

    let report = report(&folder, "report.json");
    let store = folder.open("storage.db");
    let file_len_bytes = fs::metadata(folder.path("storage.db")).unwrap().len();
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    for (input, (name, text)) in [("a.csv", &a), ("b.csv", &b)].iter().enumerate() {
        let input = &report["inputs"][input];
        assert_eq!((&input["name"], &input["compression"]), (&Value::from(*name), &"none".into()));
        assert_eq!(input["len_bytes"], text.len());
        let digest = twox_hash::XxHash3_128::oneshot(text.as_bytes());
        assert_eq!(input["xxh3_128"], format!("{digest:032x}"));
    }
    let rows = &report["rows"];
    assert_eq!((&rows["read"], &rows["baked"], &rows["bad"]), (&1001.into(), &1000.into(), &1.into()));
    assert_eq!(rows["duplicates_dropped"], 1);
    let output = &report["output"];
    assert_eq!((&output["name"], &output["keys"]), (&"storage.db".into(), &"u64".into()));
    assert_eq!(output["len_bytes"], file_len_bytes);
    assert_eq!(output["digest"], format!("{:032x}", store.digest()));
    let sections = output["sections_len_bytes"].as_object().unwrap();
    let names: Vec<_> = sections.keys().collect();
    assert_eq!(names, ["block_sums", "fence_tree", "fences", "pilots", "places", "records", "schema"]);
    let all: u64 = sections.values().map(|len_bytes| len_bytes.as_u64().unwrap()).sum();
    assert!(all < file_len_bytes && all + 4096 + 1024 > file_len_bytes, "{all} of {file_len_bytes}");
    let lens = &output["value_len_bytes"];
    for (name, expected) in [("min", 0), ("p50", 499), ("p90", 899), ("p99", 989), ("p99.9", 998), ("max", 999)] {
        assert_eq!(lens[name], expected, "{name}");
    }
    assert_eq!((&lens["mean"], &lens["total"]), (&499.5.into(), &499_500.into()));
    assert_eq!(output["overhead_bytes_per_row"], (file_len_bytes - 499_500) as f64 / 1000.0);
    assert_eq!((&report["memory_limit_bytes"], &report["threads"]), (&(32 << 20).into(), &2.into()));
    assert!(report["memory_peak_bytes"].as_u64().unwrap() > 1 << 20);
    assert_eq!((&report["runs_spilled"], &report["keys_looked_up"]), (&0.into(), &1000.into()));
    let stages: Vec<_> = report["stages"].as_array().unwrap().iter().map(|stage| stage["stage"].as_str()).collect();
    assert_eq!(stages, ["read", "write", "index", "verify", "settle"].map(Some));
    let seconds = report["stages"].as_array().unwrap().iter().map(|stage| stage["seconds"].as_f64().unwrap());
    assert!(seconds.sum::<f64>() <= report["seconds"].as_f64().unwrap());
}

#[test]
fn the_report_has_the_length_of_the_file_in_the_other_layout() {
    let folder = Folder::new();
    let single =
        |count: u64| -> String { (0..count).map(|i| format!("{},{}\n", i * i, "v".repeat(i as usize % 30))).collect() };
    let range = |i: u64| format!("{},{},{i}\n", i * 10, i * 10 + if i.is_multiple_of(7) { 4 } else { 9 });
    let tables: [(String, &[&str]); 3] =
        [((0..1000).map(range).collect(), &["--ranges", "1,2"]), (single(2000), &[]), (single(40_000), &[])];
    for (number, (text, args)) in tables.iter().enumerate() {
        let bake = |layout: &str| {
            let args = [args, &["--layout", layout, "--report", "report.json"][..]].concat();
            let out = folder.bake_text(text, &args).succeeds().out.clone();
            (out, report(&folder, "report.json")["output"].clone())
        };
        let ((fast_out, fast), (compact_out, compact)) = (bake("fast"), bake("compact"));
        let expected = serde_json::json!({"layout": "compact", "len_bytes": compact["len_bytes"], "is_exact": true});
        assert_eq!(fast["other_layout"], expected, "table {number}");
        let text = format!("{} bytes (--layout compact: {}) in ", fast["len_bytes"], compact["len_bytes"]);
        assert!(fast_out.contains(&text), "{fast_out}");
        let other = &compact["other_layout"];
        let (estimate, len_bytes) = (other["len_bytes"].as_u64().unwrap(), fast["len_bytes"].as_u64().unwrap());
        // Hashes decide how long an index of several parts is.
        match number {
            2 => assert!(other["is_exact"] == false && estimate.abs_diff(len_bytes) < len_bytes / 500, "{other}"),
            _ => assert!(other["is_exact"] == true && estimate == len_bytes, "table {number}: {other}, {len_bytes}"),
        }
        let about = if number == 2 { "about " } else { "" };
        assert!(compact_out.contains(&format!("(--layout fast: {about}{estimate}) in ")), "{compact_out}");
    }
    let shards = ["--shards", "2", "-o", "shards", "--report", "report.json"];
    folder.bake_text(&tables[1].0, &shards).succeeds();
    let output = &report(&folder, "report.json")["output"];
    let of_shards =
        output["shards"].as_array().unwrap().iter().map(|shard| shard["other_layout"]["len_bytes"].as_u64());
    assert_eq!(of_shards.sum::<Option<u64>>(), output["other_layout"]["len_bytes"].as_u64());
    let folder = Folder::new();
    let ended = folder.bake_text("a,b\n", &["--keys", "bytes", "--report", "report.json"]);
    assert!(!ended.succeeds().out.contains("--layout"), "{}", ended.out);
    assert_eq!(report(&folder, "report.json")["output"]["other_layout"], Value::Null);
}

#[test]
fn standard_output_has_only_the_report() {
    let folder = Folder::new();
    let ended = folder.bake_text("1,one\n", &["--report", "-"]);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["inputs"][0]["name"], "standard input");
    assert!(ended.err.starts_with("storage.db: 1 row, "), "{}", ended.err);
    let ended = folder.bake_text("1,one\n", &["--report", "-", "--quiet"]);
    assert_eq!(serde_json::from_str::<Value>(&ended.succeeds().out).unwrap()["rows"]["baked"], 1);
    assert!(ended.stages.is_empty());
    // The report does not replace a special file.
    mknodat(CWD, folder.path("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Open for writing, too, so that opening waits for no other process.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = fs::OpenOptions::new();
    let mut pipe = options.read(true).write(true).custom_flags(nonblocking).open(folder.path("pipe")).unwrap();
    folder.bake_text("1,one\n", &["--report", "pipe", "--quiet"]).succeeds();
    let mut report = vec![0; 64 << 10];
    let len_bytes = pipe.read(&mut report).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&report[..len_bytes]).unwrap()["rows"]["baked"], 1);
    assert!(fs::metadata(folder.path("pipe")).unwrap().file_type().is_fifo());
    assert_eq!(folder.names(), ["pipe", "storage.db"]);
}

#[test]
fn a_bake_that_fails_leaves_the_old_report() {
    let folder = Folder::new();
    folder.write("report.json", "from before");
    let report = ["--report", "report.json"];
    assert_eq!(folder.bake_text("1,one\n1,two\n", &report).status.code(), Some(1));
    assert_eq!(fs::read(folder.path("report.json")).unwrap(), b"from before");
    assert_eq!(folder.names(), ["report.json"]);
    folder.bake_text("1,one\n", &report).succeeds();
    assert_eq!(self::report(&folder, "report.json")["rows"]["baked"], 1);
    assert_eq!(folder.names(), ["report.json", "storage.db"]);
}

#[test]
fn a_report_that_cannot_be_written_is_an_error_before_the_bake() {
    let folder = Folder::new();
    fs::create_dir(folder.path("sub")).unwrap();
    for (path, why) in [("none/report.json", "No such file or directory"), ("sub", "is a folder: name a file in it")] {
        let ended = folder.bake_text("1,one\n", &["--report", path]);
        assert!(ended.err.starts_with(&format!("baker: {path}: {why}")), "{}", ended.err);
        assert_eq!((ended.status.code(), folder.names()), (Some(1), vec!["sub".to_owned()]));
    }
}

#[test]
fn each_stage_is_printed_on_one_line_and_quiet_prints_none() {
    let folder = Folder::new();
    let ended = folder.bake_text("2,two\n1,one\n", &[]);
    let stages: Vec<Vec<&str>> = ended.succeeds().stages.iter().map(|line| line.split_whitespace().collect()).collect();
    let names: Vec<_> = stages.iter().map(|words| words[0]).collect();
    assert_eq!(names, ["read", "write", "index", "verify", "settle"]);
    assert_eq!(stages[0][1..5], ["2", "rows", "0.0", "MiB"], "{:?}", ended.stages);
    assert_eq!((stages[0][6], stages[1][1]), ("s", "2"));
    assert!(folder.bake_text("1,one\n", &["--quiet"]).succeeds().stages.is_empty());
}

#[test]
fn a_terminal_that_cannot_redraw_shows_a_line_for_each_stage() {
    let folder = Folder::new();
    folder.write("rows.csv", "1,one\n");
    let mut command = folder.command(&BAKER);
    command.arg(folder.path("rows.csv")).arg("--output").arg(folder.path("storage.db")).env("TERM", "dumb");
    let mut terminal = Terminal::new();
    let mut child = terminal.start(&command);
    for stage in ["read ", "write ", "index ", "verify ", "settle "] {
        terminal.wait_for(stage);
    }
    assert!(child.wait().unwrap().success());
}
