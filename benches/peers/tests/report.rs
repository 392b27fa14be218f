//! Tests that measure tiny tables, with the engines that need no system library, and check the report.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Creates a temporary folder on the disk that the build is on.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn peers(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peers"));
    command.args(["--quick", "--rounds", "2", "--kv-store", "no/such/server", "--dir"]).arg(folder).args(arguments);
    command
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

/// Returns the cells of an engine's row in a table of the report.
fn cells<'r>(section: &'r str, engine: &str) -> Vec<&'r str> {
    let start = format!("| {engine} |");
    let line = section.lines().find(|line| line.starts_with(&start));
    line.unwrap_or_else(|| panic!("no {engine} in {section}")).trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn the_report_has_results_of_every_engine() {
    let (folder, documents) = (folder(), folder());
    let [document, chart] = ["page.md", "peers.svg"].map(|name| documents.path().join(name));
    fs::write(&document, "# Page\n\n<!-- figures: engines-3000x26 -->\n\nText.\n").unwrap();
    let mut command =
        peers(folder.path(), &["--table", "3000x26", "--mixed-rows", "2000", "--only", "zero-kv,lmdb,redb,hashmap"]);
    let output = command.arg(format!("--record={}", documents.path().display())).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(is_empty(folder.path()));

    let report = String::from_utf8(output.stdout).unwrap();
    for line in ["- Reproduce: `benches/peers/run.sh --quick", "- Machine: ", "- Date: "] {
        assert!(report.contains(line), "no {line} in {report}");
    }
    let sections: Vec<&str> = report.split("\n## ").skip(1).collect();
    let [table, mixed, servers] = sections[..] else { panic!("{report}") };
    assert!(table.starts_with("3,000 rows with values of 26 bytes\n"), "{table}");
    assert!(mixed.starts_with("Mixed load: 2,000 rows with values of 256 bytes\n"), "{mixed}");
    assert!(servers.starts_with("Servers: 3,000 rows with values of 26 bytes\n"), "{servers}");

    // Engine, get, batches, miss, floor, floor in batches, scan, build, file, cold open, bytes read.
    for (engine, without) in [
        ("Zero-KV", &[][..]),
        ("LMDB", &[2, 5]),
        ("redb", &[2, 5]),
        ("HashMap", &[2, 4, 5, 6, 8, 9, 10]),
        ("HashMap (rustc-hash)", &[2, 4, 5, 6, 8, 9, 10]),
    ] {
        let cells = cells(table, engine);
        assert_eq!(cells.len(), 11, "{table}");
        for (at, cell) in cells.iter().enumerate().skip(1) {
            let is_number = cell.parse::<f64>().is_ok_and(|number| number >= 0.0);
            // Some containers do not report reads from the disk.
            assert!(is_number != without.contains(&at) || at == 10, "{engine}, cell {at}: {table}");
        }
    }
    assert!(table.contains("\nVersions: Zero-KV 0"), "{table}");
    for engine in ["Zero-KV", "LMDB", "redb"] {
        assert!(cells(mixed, engine)[1].parse::<f64>().is_ok_and(|ns| ns > 0.0), "{mixed}");
    }
    assert!(mixed.contains("Not measured: HashMap, HashMap (rustc-hash): not part of the mixed load"), "{mixed}");
    let markdown_table = table.lines().filter(|line| line.starts_with('|')).collect::<Vec<_>>().join("\n");
    let page = fs::read_to_string(document).unwrap();
    let start = format!("# Page\n\n<!-- figures: engines-3000x26 -->\n\n{markdown_table}\n\nMeasured: 3,000 rows");
    assert!(page.starts_with(&start) && page.ends_with(".\n\nText.\n"), "{page}");
    let chart = fs::read_to_string(chart).unwrap();
    assert!(chart.starts_with("<svg ") && chart.ends_with("</svg>\n"), "{chart}");
    assert!(chart.matches("<rect class=\"ours\"").count() >= 2 && chart.contains("LMDB"), "{chart}");
}

#[test]
fn a_server_that_fails_is_reported_and_engines_are_measured() {
    let folder = folder();
    let arguments = ["--table", "1000x26", "--mixed-rows", "0", "--only", "zero-kv,hashmap"];
    let output = peers(folder.path(), &arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.contains("Not measured: Zero-KV (kv_store): no/such/server: cannot start"), "{report}");
    assert!(cells(&report, "HashMap")[1].parse::<f64>().is_ok(), "{report}");
}

#[test]
fn the_redis_protocol_can_be_measured_alone() {
    let folder = folder();
    let output = peers(folder.path(), &["--table", "1000x26", "--only", "resp"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = String::from_utf8(output.stdout).unwrap();
    assert_eq!(report.matches("\n## ").count(), 1, "{report}");
    assert!(report.contains("\n## Redis's protocol: 1,000 rows with values of 26 bytes\n"), "{report}");
    assert!(report.contains("Not measured: Redis's protocol: no/such/server: cannot start"), "{report}");
}

#[test]
fn an_interrupted_run_removes_its_files() {
    let folder = folder();
    let mut command = peers(folder.path(), &["--table", "2000000x100", "--mixed-rows", "0", "--only", "lmdb"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut progress = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(progress.next().unwrap().unwrap().contains("build"));
    assert!(!is_empty(folder.path()));
    let child_id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(child_id, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(is_empty(folder.path()));
}
