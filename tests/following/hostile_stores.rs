//! Stores that answer as no store does. A node that reads them continues to serve, reports the reason in one short line,
//! reads a bounded number of bytes, and follows the table when the store answers as it should.

use crate::helpers::hostile_responses::Hostile;
use crate::helpers::mixed_load::MixedLoad;
use crate::helpers::published::{Published, SHAPE, health, wait_for_error, wait_until_served};
use crate::helpers::store_server::{Fault, StoreServer};
use crate::helpers::waiting::eventually;

/// What a client may take of a response that never ends: its limit, and what the buffers of the system hold.
const TAKEN_MAX_BYTES: u64 = 96 << 20;

/// Answers requests for objects whose path contains a text in a hostile way, while generation 2 is published. Checks
/// that the node reports it with a text.
fn survives(path_part: &str, cases: &[(Hostile, &str)]) {
    let published = Published::new();
    published.publish(1);
    let store = StoreServer::start(&published.store());
    let node = published.node_of("a", &store.url("users"));
    let load = MixedLoad::start(&node, SHAPE, 1);
    let mut published_second = false;
    for (hostile, error) in cases {
        let (faults, sent_bytes) = (store.fault_count(), store.sent_bytes());
        store.fail(path_part, Fault::Hostile(*hostile));
        if !published_second {
            published.publish(2);
            published_second = true;
        }
        let _ = node.client().reload();
        wait_for_error(&node, error);
        eventually("a request was hostile", || store.fault_count() > faults);
        // At most eight requests are in flight, and a failed request is repeated.
        let (requests, taken_bytes) = (store.fault_count() - faults, store.sent_bytes() - sent_bytes);
        assert!(taken_bytes / requests < TAKEN_MAX_BYTES, "{hostile:?}: {taken_bytes} bytes of {requests} responses");
        let shown = node.info().get("published_error").unwrap_or_default().to_owned();
        assert!(shown.chars().count() < 1000 && !shown.chars().any(char::is_control), "{hostile:?}: {shown:?}");
        let (status, lines) = health(&node);
        assert!(status == Some(0) && lines.lines().all(|line| line.len() < 2000), "{hostile:?}: {status:?}: {lines}");
        assert_eq!(node.number("published_generation"), 1, "{hostile:?}");
        load.wait_for_right(100);
    }
    let log = node.log();
    let longest = log.lines().map(str::len).max();
    assert!(longest < Some(2000) && !log.contains('\u{1b}'), "{longest:?}");
    assert!(!log.lines().any(|line| line.starts_with("forged:")), "{log}");
    load.allow(2);
    store.recover();
    let _ = node.client().reload();
    wait_until_served(&node, 2);
    load.expect_at_least(2);
    assert_eq!(load.finish(), 0);
}

#[test]
fn bodies_of_errors_are_cut() {
    survives(
        "/data/",
        &[
            (Hostile::ErrorBody(403, 200_000), "403"),
            (Hostile::ErrorBody(500, 5_000_000), "500"),
            (Hostile::EndlessErrorBody, "403"),
            (Hostile::HugeErrorBody, "403"),
        ],
    );
}

#[test]
fn bodies_that_are_longer_than_the_request_are_not_read() {
    survives(
        "/data/",
        &[
            (Hostile::EndlessBody, "bytes that were requested"),
            (Hostile::EndlessChunks, "users/data/"),
            (Hostile::WholeObject, "users/data/"),
            (Hostile::EndlessHeaders, "users/data/"),
        ],
    );
}

#[test]
fn headers_with_impossible_numbers_are_rejected() {
    survives(
        "/data/",
        &[
            (Hostile::ContentRange("bytes 0-18446744073709551615/18446744073709551615"), "content-range"),
            (Hostile::ContentRange("bytes 5-1/9"), "users/data/"),
            (Hostile::ContentRange("bytes -/*"), "users/data/"),
            (Hostile::ContentRange("\t"), "users/data/"),
            (Hostile::ContentLength("4611686018427387904"), "content-length"),
            (Hostile::ContentLength("99999999999999999999999"), "users/data/"),
            (Hostile::ContentLength("-1"), "users/data/"),
        ],
    );
}

#[test]
fn responses_that_are_not_the_object_are_rejected() {
    survives(
        "/data/",
        &[
            (Hostile::RedirectLoop, "users/data/"),
            (Hostile::NotHttp, "users/data/"),
            (Hostile::ErrorBody(304, 0), "users/data/"),
            (Hostile::ErrorBody(416, 100), "416"),
        ],
    );
}

#[test]
fn hostile_responses_instead_of_documents_are_rejected() {
    survives(
        "/manifests/",
        &[
            (Hostile::ErrorBody(401, 1_000_000), "401"),
            (Hostile::EndlessErrorBody, "403"),
            (Hostile::HugeErrorBody, "403"),
            (Hostile::EndlessBody, "/manifests/"),
            (Hostile::EndlessChunks, "/manifests/"),
            (Hostile::EndlessHeaders, "/manifests/"),
            (Hostile::ContentLength("4611686018427387904"), "/manifests/"),
            (Hostile::ContentLength("67108865"), "expected at most 67108864"),
            (Hostile::RedirectLoop, "/manifests/"),
            (Hostile::NotHttp, "/manifests/"),
        ],
    );
}

#[test]
fn a_body_that_claims_to_be_compressed_is_used_as_it_is() {
    let published = Published::new();
    published.publish(1);
    let store = StoreServer::start(&published.store());
    store.fail("/", Fault::Hostile(Hostile::Compressed));
    let node = published.node_of("a", &store.url("users"));
    wait_until_served(&node, 1);
    assert_eq!(node.info().get("published_error"), Some(""));
}
