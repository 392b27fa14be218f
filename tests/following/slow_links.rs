//! Downloads over links that are slow, or that break.

use std::fs;

use rustix::process::Signal;

use crate::helpers::published::{Published, names, start_node, wait_until_served};
use crate::helpers::servers::Server;
use crate::helpers::store_server::{CUT_LEN_BYTES, Fault, StoreServer};
use crate::helpers::waiting::eventually;

/// Returns the number of bytes that the unfinished download of a node has recorded.
fn recorded_bytes(published: &Published) -> u64 {
    let data = published.cache("a").join("data");
    if !data.is_dir() {
        return 0;
    }
    let state = names(&data).into_iter().find(|name| name.ends_with(".partial.json"));
    let Some(json) = state.and_then(|name| fs::read(data.join(name)).ok()) else { return 0 };
    let state: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let ranges = state["complete"]["ranges"].as_array().unwrap().iter();
    ranges.map(|range| range["end"].as_u64().unwrap() - range["start"].as_u64().unwrap()).sum()
}

#[test]
fn a_download_continues_within_a_part_after_failures_and_restarts() {
    let published = Published::new();
    published.publish(1);
    let len_bytes = published.data_file(1).metadata().unwrap().len();
    assert!(len_bytes > 8 * CUT_LEN_BYTES as u64, "{len_bytes} bytes");
    let store = StoreServer::start(&published.store());
    // No request ever gets its part.
    store.fail("/data/", Fault::Cut);
    let command = || published.node_command("a", &store.url("users"));
    let mut node = Server::spawn(command(), &published.socket("a"));
    eventually("a half of the file has arrived", || store.sent_bytes() > len_bytes / 2);
    store.fail("/data/", Fault::Stalled);
    eventually("it is recorded", || recorded_bytes(&published) > len_bytes / 2 - 2 * CUT_LEN_BYTES as u64);
    node.signal(Signal::KILL);
    node.wait();
    store.fail("/data/", Fault::Cut);
    let node = start_node(command(), &published.socket("a"));
    wait_until_served(&node, 1);
    let sent_bytes = store.sent_bytes();
    assert!(sent_bytes < len_bytes + len_bytes / 2, "{sent_bytes} bytes for a file of {len_bytes} bytes");
}

#[test]
fn a_node_reports_what_it_fetches_while_it_fetches() {
    let published = Published::new();
    published.publish(1);
    let mut command = published.node_command("a", published.publication.url());
    command.args(["--fetch-bandwidth", "20KB"]);
    let node = start_node(command, &published.socket("a"));
    published.publish(2);
    let len_bytes = published.data_file(2).metadata().unwrap().len();
    let status = || published.publication.statuses().unwrap().into_iter().find(|status| status.node == "a").unwrap();
    let mut first = None;
    eventually("the node reports its fetch", || {
        let status = status();
        let is_fetching = status.fetching == 2 && status.fetched_bytes > 0;
        first = is_fetching.then_some(status);
        is_fetching
    });
    let first = first.unwrap();
    assert_eq!((first.serving, first.fetch_bytes), (1, len_bytes), "{first:?}");
    assert!(first.report_every_s > 0 && first.fetched_bytes <= len_bytes, "{first:?}");
    let mut later = None;
    eventually("the node reports again", || {
        let status = status();
        later = Some(status.clone());
        status.beat != first.beat && status.fetch_s > 0
    });
    let later = later.unwrap();
    assert!(later.serving == 1 && later.fetch_bytes_per_s > 0, "{later:?}");
    drop(node);
}
