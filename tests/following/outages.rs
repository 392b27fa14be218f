//! What a node reports while it cannot read the store.

use std::process::Command;

use crate::helpers::published::{Published, health, health_within, wait_for_error, wait_until_served};
use crate::helpers::store_server::{Fault, StoreServer};
use crate::helpers::waiting::eventually;

#[test]
fn a_node_that_cannot_read_the_store_reports_since_when() {
    let published = Published::new();
    published.publish(1);
    let store = StoreServer::start(&published.store());
    let node = published.node_of("a", &store.url("users"));
    assert_eq!(health(&node), (Some(0), String::new()));
    // A store that finds nothing, for example because its bucket was deleted, is an outage, too.
    for fault in [Fault::Dead, Fault::Stalled, Fault::Status(404), Fault::Status(500)] {
        store.fail("/", fault);
        node.wait_for("published_poll_age_s", 2);
        let (status, text) = health_within(&node, "1");
        assert_eq!(status, Some(1), "{fault:?}: {text}");
        assert!(text.contains(" was not read successfully for "), "{fault:?}: {text}");
        assert!(text.contains("so newer generations and pins are unknown: "), "{fault:?}: {text}");
        // The rows are served all the time, and a restart would not help.
        wait_until_served(&node, 1);
        assert_eq!(health(&node).0, Some(0), "{fault:?}");
        store.recover();
        eventually("the outage is over", || node.number("published_poll_age_s") <= 1 && health(&node).1.is_empty());
    }
    let age_s = node.number("published_serving_age_s");
    node.wait_for("published_serving_age_s", age_s + 1);
}

#[test]
fn a_missing_bucket_is_an_outage_and_no_table_without_new_documents() {
    let published = Published::new();
    published.publish(1);
    let store = StoreServer::start(&published.store());
    let node = published.node_of("a", &store.url("users"));
    // Only the reads of pins find it: a missing pin alone would mean that there is none.
    store.fail("/pins/", Fault::NoBucket);
    wait_for_error(&node, "the bucket does not exist");
    node.wait_for("published_poll_age_s", 2);
    store.fail("/", Fault::NoBucket);
    let polls = node.number("published_polls");
    node.wait_for("published_polls", polls + 24);
    let (status, text) = health_within(&node, "1");
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("the bucket does not exist: check the URL and the endpoint"), "{text}");
    assert!(!text.contains("empty the cache"), "{text}");
    wait_until_served(&node, 1);
    store.recover();
    eventually("the outage is over", || node.number("published_poll_age_s") <= 1 && health(&node).1.is_empty());
}

#[test]
fn commands_name_a_missing_bucket() {
    let published = Published::new();
    published.publish(1);
    let store = StoreServer::start(published.folder.path());
    store.fail("/", Fault::NoBucket);
    for args in [
        &["generations", "s3://store/users"][..],
        &["pull", "s3://store/users", "-o", "x.db"],
        &["pin", "s3://store/users", "1"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zkv"));
        command.args(args).current_dir(published.folder.path()).env("AWS_ENDPOINT_URL", store.url(""));
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret").env("AWS_REGION", "us-east-1");
        let output = command.env("AWS_ALLOW_HTTP", "true").output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.contains("the bucket does not exist: check the URL and the endpoint"), "{args:?}: {text}");
    }
}
