//! Reading a published folder through a plain HTTP server.

use std::fs;

use rustix::process::Signal;

use super::interrupts::{bake_large, interrupt_when};
use super::stores::Store;
use crate::helpers::hostile_responses::Hostile;
use crate::helpers::store_server::{Fault, StoreServer};

pub(crate) fn a_published_folder_is_read_over_http() {
    let store = Store::folder();
    for generation in 1..=3 {
        store.publish(generation);
    }
    store.zkv(&["pin", "URL", "2"]).succeeds();
    let server = StoreServer::start(store.files.path());
    let url = server.url("published/users");
    let pulled = store.zkv(&["pull", &url, "-o", "copy.db"]).succeeds();
    assert!(pulled.starts_with("copy.db: generation 2 (pinned), "), "{pulled}");
    store.zkv(&["pull", &url, "3", "-o", "copy.db"]).succeeds();
    assert!(fs::read(store.path("table.db")).unwrap() == fs::read(store.path("copy.db")).unwrap());
    assert_eq!(store.zkv(&["generations", &url]).succeeds().lines().count(), 5);
    store.zkv(&["unpin", &url]).fails(2, &["can only be read"]);
    store.zkv(&["gc", &url, "--keep", "1"]).fails(2, &["can only be read"]);
    store.zkv(&["store", "check", &url]).fails(2, &["can only be read"]);
}

pub(crate) fn a_download_over_http_continues() {
    let store = Store::folder();
    let len_bytes = bake_large(&store);
    store.zkv(&["publish", "large.db", "--to", "URL"]).succeeds();
    let server = StoreServer::start(store.files.path());
    let url = server.url("published/users");
    let pull = ["pull", &url, "-o", "copy.db", "--bandwidth", "20MiB"];
    let quarter = || server.sent_bytes() > len_bytes / 4;
    interrupt_when(store.zkv_command(&pull), Signal::INT, quarter);
    assert!(server.sent_bytes() < len_bytes && !store.path("copy.db").exists());
    store.zkv(&pull).succeeds();
    assert!(fs::read(store.path("large.db")).unwrap() == fs::read(store.path("copy.db")).unwrap());
    // At most the requests in flight were repeated.
    let sent_bytes = server.sent_bytes();
    assert!(sent_bytes < len_bytes + len_bytes / 2, "{sent_bytes} bytes of a file of {len_bytes} bytes were sent");
}

/// Each try would cost the whole object.
pub(crate) fn a_server_that_ignores_ranges_is_asked_once() {
    let store = Store::folder();
    bake_large(&store);
    store.zkv(&["publish", "large.db", "--to", "URL"]).succeeds();
    let server = StoreServer::start(store.files.path());
    server.fail("/data/", Fault::Hostile(Hostile::WholeObject));
    let ran = store.zkv(&["pull", &server.url("published/users"), "-o", "copy.db"]);
    ran.fails(2, &["the store ignores ranges", "use a server that supports ranges"]);
    // The first parts are requested at the same time.
    assert!(server.fault_count() <= 8, "{} requests", server.fault_count());
    // A file that has one part is requested once.
    store.bake("table.db", "1,one\n");
    store.zkv(&["publish", "table.db", "--to", "URL", "--allow-shrink"]).succeeds();
    let before = server.fault_count();
    store.zkv(&["pull", &server.url("published/users"), "-o", "copy.db"]).fails(2, &["the store ignores ranges"]);
    assert_eq!(server.fault_count() - before, 1);
}
