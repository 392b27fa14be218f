//! Stores whose objects or answers no publisher, operator, or node has written.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::json;

use super::stores::{Ran, Store};
use crate::helpers::published::sealed;

pub(crate) fn a_status_that_cannot_be_read_is_skipped_and_reported(store: &Store) {
    store.publish(1);
    store.publish(2);
    let status = |node: &str, change: &[(&str, serde_json::Value)]| {
        let mut status = json!({"node": node, "serving": 1, "digest": "", "prepared": 0, "newest": 1, "pin": 1_u64 << 52,
            "lag_s": 0, "error": "", "failed": 0, "updated": "", "tool": ""});
        change.iter().for_each(|(field, value)| status[*field] = value.clone());
        sealed(&status.to_string())
    };
    store.write("status/good.json", status("good", &[]));
    let hostile = [
        ("long", vec![b' '; (1 << 20) + 1], "expected at most 1048576"),
        ("endless", vec![b' '; 65 << 20], "expected at most 1048576"),
        ("none", b"{}".to_vec(), "is not a document"),
        ("other", status("good", &[("serving", json!(2))]), "is the status of node \"good\", expected \"other\""),
        ("number", status("number", &[("serving", json!(u64::MAX))]), "a number is 18446744073709551615"),
        (
            "slots",
            status("slots", &[("slots", json!([{"first_slot": 9, "last_slot": 65535}]))]),
            "the slots are 9-65535",
        ),
        (
            "ranges",
            status("ranges", &[("slots", json!(vec![json!({"first_slot": 0, "last_slot": 0}); 9000]))]),
            "more than 8192",
        ),
        ("text", status("text", &[("tool", json!("\u{1b}".repeat(2000)))]), "a text has 2000 bytes"),
    ];
    for (node, bytes, _) in &hostile {
        store.write(&format!("status/{node}.json"), bytes.clone());
    }
    // Objects that are not statuses are left alone.
    store.write("status/notes.txt", b"x".to_vec());
    store.write("status/\u{1b}[2J.json", status("\u{1b}[2J", &[]));
    store.write("status/failed.json", status("failed", &[("error", json!("line\n\u{1b}[2J".repeat(10_000)))]));
    let expect_warnings = |ran: &Ran| {
        for (node, _, problem) in &hostile {
            let found = ran.err.lines().any(|line| {
                line.contains(&format!("/status/{node}.json: ")) && line.contains(problem) && line.ends_with("skipped")
            });
            assert!(found, "{node}: {problem}: {}", ran.err);
        }
        assert!(ran.err.lines().all(|line| line.len() < 2000) && !ran.err.contains('\u{1b}'), "{}", ran.err);
    };
    let listed = store.zkv(&["generations", "URL", "--json"]);
    expect_warnings(&listed);
    assert_eq!(listed.json()["generations"][0]["nodes"], json!(["failed", "good"]));
    let pinned = store.zkv(&["pin", "URL", "1", "--node", "good"]);
    expect_warnings(&pinned);
    pinned.succeeds();
    store.zkv(&["unpin", "URL"]).succeeds();
    let collected = store.zkv(&["gc", "URL", "--keep", "1", "--older-than", "0s", "--json"]);
    expect_warnings(&collected);
    assert_eq!(collected.json()["objects"], json!([]), "a node serves generation 1");
    let rollout = store.zkv(&["rollout", "URL", "1", "--wait", "--json"]);
    expect_warnings(&rollout);
    rollout.succeeds();
}

/// Starts a server that answers every request with this response. Returns its address, and the number of requests.
fn answer_everything(response: &'static str) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, requests) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&requests);
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let lines = BufReader::new(&stream).lines();
            lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
            counted.fetch_add(1, Ordering::Relaxed);
            // A client may close its connection at any time.
            let _ = stream.write_all(response.as_bytes());
        }
    });
    (address, requests)
}

pub(crate) fn a_store_that_has_every_document_is_rejected() {
    let store = Store::folder();
    let (address, requests) = answer_everything("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}");
    let url = format!("http://{address}/users");
    for args in [&["generations", &url][..], &["pull", &url, "-o", "copy.db"], &["topology", "show", &url]] {
        let before = requests.load(Ordering::Relaxed);
        store.zkv(args).fails(2, &["00000000000000000000.json exists, which nobody creates"]);
        let sent = requests.load(Ordering::Relaxed) - before;
        assert!(sent < 10, "{args:?}: {sent} requests");
    }
    assert!(!store.path("copy.db").exists());
}

/// The list of a bucket in which each file has the maximum length. The sum does not fit into 64 bits.
const LISTING: &str = "<?xml version='1.0'?><ListBucketResult><Contents><Key>users/data/a/b.zkv</Key>\
    <LastModified>2009-10-12T17:50:30.000Z</LastModified><ETag>x</ETag><Size>18446744073709551615</Size></Contents>\
    <Contents><Key>users/data/a/c.zkv</Key><LastModified>+262142-12-31T23:59:59Z</LastModified><ETag>x</ETag>\
    <Size>18446744073709551615</Size></Contents><Contents><Key>users/data/../../etc/passwd</Key>\
    <LastModified>0000-01-01T00:00:00Z</LastModified><ETag>x</ETag><Size>1</Size></Contents></ListBucketResult>";

const EMPTY_LISTING: &str = "<ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated></ListBucketResult>";

/// Runs a command whose URL is in a bucket. The server answers requests whose first line contains `part` with the body,
/// and has no other object.
fn run_with_answer(store: &Store, args: &[&str], part: &'static str, body: String) -> Ran {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let answer = match first.contains(part) {
                true => Some(&body[..]),
                false => first.contains("list-type").then_some(EMPTY_LISTING),
            };
            let response = match answer {
                Some(body) => format!("200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()),
                None => "404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned(),
            };
            let _ = stream.write_all(format!("HTTP/1.1 {response}").as_bytes());
        }
    });
    let mut command = store.zkv_command(args);
    command.env("AWS_ENDPOINT_URL", format!("http://{address}")).env("AWS_ALLOW_HTTP", "true");
    command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret").env("AWS_REGION", "us-east-1");
    Ran::new(command.output().unwrap())
}

pub(crate) fn a_listing_of_impossible_lengths_is_added_up() {
    let args = ["gc", "s3://bucket/users", "--keep", "18446744073709551615", "--older-than", "0s"];
    let ran = run_with_answer(&Store::folder(), &args, "list-type", LISTING.to_owned());
    // Whether the crate rejects such a listing or not, nothing panics.
    assert!(matches!(ran.output.status.code(), Some(0 | 2)) && !ran.err.contains("panicked"), "{ran:?}");
}

/// The token is a part of the URL of the next request.
pub(crate) fn a_listing_that_continues_with_an_impossible_token_is_rejected() {
    let store = Store::folder();
    for (token, problem) in [
        ("x".repeat(70_000), "a token of 70000 bytes, expected a new one of at most 8192"),
        ("\u{20ac}".repeat(8193 / 3), "a token of 8193 bytes"),
        // The pages would never end.
        ("same".to_owned(), "a token of 4 bytes, expected a new one"),
    ] {
        let listing = format!(
            "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>\
             </ListBucketResult>"
        );
        let commands = [
            &["generations", "s3://bucket/users"][..],
            &["gc", "s3://bucket/users", "--keep", "1"],
            &["watch", "s3://bucket/users", "--once"],
        ];
        for args in commands {
            let ran = run_with_answer(&store, args, "list-type", listing.clone());
            ran.fails(2, &["the listing continues with ", problem]);
        }
    }
}

/// The name is a part of the URLs of later requests.
pub(crate) fn a_long_name_of_an_upload_is_rejected() {
    let store = Store::folder();
    store.bake("table.db", "1,one\n");
    for len_bytes in [8193, 100_000] {
        let name = "\u{20ac}".repeat(len_bytes / 3 + 1);
        let answer =
            format!("<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>");
        let ran = run_with_answer(&store, &["publish", "table.db", "--to", "s3://bucket/users"], "?uploads", answer);
        ran.fails(2, &[&format!("name of the upload has {} bytes, expected at most 8192", name.len())]);
    }
}

pub(crate) fn texts_beyond_the_limits_are_not_published() {
    let store = Store::folder();
    store.bake("table.db", "1,one\n");
    fs::write(store.path("canaries"), "1,absent\n".repeat((1 << 16) + 1)).unwrap();
    // The canaries are wrong, too, but their number is checked first.
    store
        .zkv(&["publish", "table.db", "--to", "URL", "--canary", "canaries"])
        .fails(2, &["has 65537 canaries, expected at most 65536"]);
    assert_eq!((store.objects("data"), store.objects("manifests")), (vec![], vec![]));
    // The longest note that a program can be passed.
    let note = "n".repeat((128 << 10) - 1);
    store.zkv(&["publish", "table.db", "--to", "URL", "--note", &note]).succeeds();
    assert_eq!(store.zkv(&["generations", "URL", "--json"]).json()["generations"][0]["note"], note);
}
