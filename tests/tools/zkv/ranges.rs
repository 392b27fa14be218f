//! `zkv dump` of tables of ranges: text that bakes to an identical file.

use super::*;
use crate::helpers::baker_runs::Folder;

/// Bakes a text, dumps the table, and bakes the dump.
#[track_caller]
fn assert_dumps(text: &str, bake: &[&str], dump: &[&str], expected: &str, bake_again: &[&str]) {
    let folder = Folder::new();
    folder.bake_text(text, bake).succeeds();
    let table = fs::read(folder.path("storage.db")).unwrap();
    let output = zkv().arg("dump").arg(folder.path("storage.db")).args(dump).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    folder.bake_text(expected, bake_again).succeeds();
    assert!(fs::read(folder.path("storage.db")).unwrap() == table, "{expected}");
}

#[test]
fn a_dump_of_ranges_has_their_ends() {
    for layout in ["fast", "compact"] {
        let numbers = ["--ranges", "1,2", "--layout", layout];
        assert_dumps(
            "10,19,b\n0,4,a\n5,9,a\n30,18446744073709551615,\"x,y\"\n",
            &numbers,
            &[],
            "0,9,a\n10,19,b\n30,18446744073709551615,\"x,y\"\n",
            &numbers,
        );
    }
    let numbers = ["--ranges", "1,2"];
    let tsv = ["--ranges", "1,2", "--format", "tsv"];
    assert_dumps("0,4,a\n", &numbers, &["--format", "tsv"], "0\t4\ta\n", &tsv);
    let json = ["--format", "jsonl", "--ranges", "key,end", "--value", "value"];
    assert_dumps("0,4,a\n", &numbers, &["--format", "jsonl"], "{\"key\":0,\"end\":4,\"value\":\"a\"}\n", &json);
    let dates = ["--header", "--key", "user", "--ranges", "from,to", "--keys", "bytes,date", "--typed"];
    let dumped = ["--header", "--key", "user", "--ranges", "from,end", "--keys", "bytes,date", "--typed"];
    let dumped = [&dumped[..], &["--quiet"]].concat();
    let dates = [&dates[..], &["--quiet"]].concat();
    assert_dumps(
        "user,from,to,plan\nbob,2026-01-01,2026-12-31,pro\nada,2026-01-01,2026-06-30,free\nada,2026-07-01,2026-07-01,pro\n",
        &dates,
        &[],
        "user,from,end,plan\nada,2026-01-01,2026-06-30,free\nada,2026-07-01,2026-07-01,pro\nbob,2026-01-01,2026-12-31,pro\n",
        &dumped,
    );
}

#[test]
fn a_dump_of_ranges_of_addresses_has_blocks() {
    let blocks = ["--cidr", "1"];
    let text = "10.1.0.0/16,b\n10.0.0.0/8,a\n192.0.2.1,c\n2001:db8::/32,d\n";
    let ranges = "10.0.0.0,10.0.255.255,a\n10.1.0.0,10.1.255.255,b\n10.2.0.0,10.255.255.255,a\n192.0.2.1,192.0.2.1,c\n\
                  2001:db8::,2001:db8:ffff:ffff:ffff:ffff:ffff:ffff,d\n";
    assert_dumps(text, &blocks, &[], ranges, &["--ranges", "1,2", "--keys", "ip"]);
    let list = "10.0.0.0/16,a\n10.1.0.0/16,b\n10.2.0.0/15,a\n10.4.0.0/14,a\n10.8.0.0/13,a\n10.16.0.0/12,a\n10.32.0.0/11,a\n\
                10.64.0.0/10,a\n10.128.0.0/9,a\n192.0.2.1/32,c\n2001:db8::/32,d\n";
    assert_dumps(text, &blocks, &["--cidr"], list, &blocks);
    let ipv4 = ["--cidr", "1", "--keys", "ipv4"];
    assert_dumps("0.0.0.0/0,a\n", &ipv4, &["--cidr"], "0.0.0.0/0,a\n", &ipv4);
}

#[test]
fn a_dump_that_cannot_have_ranges_or_blocks_is_an_error() {
    let folder = Folder::new();
    let refused = |args: &[&str], message: &str| {
        let output = zkv().arg("dump").arg(folder.path("storage.db")).args(args).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(message), "{error}");
    };
    folder.bake_text("1,a\n", &[]).succeeds();
    refused(&["--cidr"], "--cidr: the rows of the table are no ranges");
    folder.bake_text("1,5,a\n", &["--ranges", "1,2"]).succeeds();
    refused(&["--cidr"], "--cidr: keys are u64, where addresses were expected");
    folder.bake_text("10.0.0.0/8,a\n", &["--cidr", "1", "--allow-key-type-change"]).succeeds();
    refused(
        &["--cidr", "--format", "parquet"],
        "--cidr: a Parquet file has the first and the last key of each range: omit --cidr",
    );
}

#[test]
fn tables_of_ranges_that_differ_in_an_end_are_different() {
    let folder = Folder::new();
    let bake = |text: &str, args: &[&str], name: &str| {
        folder.bake_text(text, args).succeeds();
        fs::rename(folder.path("storage.db"), folder.path(name)).unwrap();
    };
    let diff = |args: &[&str], status: i32, expected: &str| {
        let output = zkv().current_dir(folder.path("")).args(["diff", "a.db", "b.db"]).args(args).output().unwrap();
        assert_answer(&output, status, expected.as_bytes());
    };
    let numbers = ["--ranges", "1,2"];
    bake("1,5,a\n10,20,b\n30,30,c\n", &numbers, "a.db");
    bake("1,5,a\n10,19,b\n30,30,d\n", &numbers, "b.db");
    diff(&[], 1, "+ 10 19\n- 10 20\n~ 30 30\n1 only in A, 1 only in B, 1 changed, 1 equal\n");
    let json = "{\"change\":\"only_in_b\",\"key\":10,\"end\":19}\n\
                {\"change\":\"only_in_a\",\"key\":10,\"end\":20}\n\
                {\"change\":\"changed\",\"key\":30,\"end\":30}\n\
                {\"only_in_a\":1,\"only_in_b\":1,\"changed\":1,\"same\":1}\n";
    diff(&["--format", "jsonl"], 1, json);
    let typed = ["--header", "--ranges", "from,to", "--keys", "date", "--types", "plan:text", "--quiet"];
    bake("from,to,plan\n2026-01-01,2026-01-31,pro\n", &typed, "a.db");
    bake("from,to,plan\n2026-01-01,2026-02-01,pro\n", &typed, "b.db");
    diff(
        &[],
        1,
        "- \"2026-01-01\" \"2026-01-31\"\n+ \"2026-01-01\" \"2026-02-01\"\n\
         1 only in A, 1 only in B, 0 changed, 0 equal\n",
    );
    bake("from,plan\n2026-01-01,pro\n", &["--header", "--key", "from", "--keys", "date", "--typed", "--quiet"], "b.db");
    let output = zkv().current_dir(folder.path("")).args(["diff", "a.db", "b.db"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("a.db is a table of ranges, and b.db is not: pass two tables of ranges or none"), "{error}");
}

#[cfg(feature = "parquet")]
#[test]
fn a_parquet_dump_of_ranges_has_a_column_of_ends_and_bakes_to_the_identical_file() {
    for (text, bake, bake_again) in [
        (
            "10,19,b\n0,9,a\n30,18446744073709551615,\"x,y\"\n",
            &["--ranges", "1,2"][..],
            &["--ranges", "key,end", "--value", "value"][..],
        ),
        ("10.0.0.0/8,a\n2001:db8::/32,b\n10.9.8.7,c\n", &["--cidr", "1"], &["--ranges", "key,end", "--keys", "ip"]),
        (
            "00000000-0000-0000-0000-000000000000,0fffffffffffffffffffffffffffffff,a\n",
            &["--ranges", "1,2", "--keys", "uuid"],
            &["--ranges", "key,end", "--value", "value"],
        ),
        (
            "user,from,to,plan\nada,2026-01-01,2026-06-30,free\nada,2026-07-01,2026-07-01,pro\nbob,2026-01-01,2026-12-31,pro\n",
            &["--header", "--key", "user", "--ranges", "from,to", "--keys", "bytes,date", "--typed", "--quiet"],
            &["--key", "user", "--ranges", "from,end", "--keys", "bytes,date", "--typed", "--quiet"],
        ),
    ] {
        let folder = Folder::new();
        folder.bake_text(text, bake).succeeds();
        let table = fs::read(folder.path("storage.db")).unwrap();
        let dump = ["dump", "storage.db", "--format", "parquet", "-o", "rows.parquet"];
        assert_answer(&zkv().current_dir(folder.path("")).args(dump).output().unwrap(), 0, b"");
        folder.bake(&[&["rows.parquet"], bake_again].concat()).succeeds();
        assert!(fs::read(folder.path("storage.db")).unwrap() == table, "{text}");
    }
}
