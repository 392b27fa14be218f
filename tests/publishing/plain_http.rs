//! Reading a published folder through a plain HTTP server.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::Signal;
use zero_kv::format::header::SectionKind;

use super::interrupts::{bake_large, interrupt_when};
use super::stores::{Ran, Store};
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

/// Starts a server that redirects every request to another server. Returns its address, and the requests that it got.
fn redirect_to(other: String) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, requests) = (listener.local_addr().unwrap().to_string(), Arc::<Mutex<Vec<String>>>::default());
    let got = Arc::clone(&requests);
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let path = head.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
            got.lock().unwrap().push(head.join("\n"));
            let response = format!("HTTP/1.1 302 Found\r\nLocation: {other}{path}\r\nContent-Length: 0\r\n\r\n");
            let _ = stream.write_all(response.as_bytes());
        }
    });
    (address, requests)
}

pub(crate) fn redirects_lead_to_another_host_only_without_credentials() {
    let store = Store::folder();
    store.publish(1);
    let server = StoreServer::start(store.files.path());
    let other = server.url("").trim_end_matches('/').to_owned();
    let (address, _) = redirect_to(other);
    store.zkv(&["pull", &format!("http://{address}/published/users"), "-o", "copy.db"]).succeeds();
    assert!(fs::read(store.path("table.db")).unwrap() == fs::read(store.path("copy.db")).unwrap());

    // Another server, which gets no request.
    let (other, requests) = redirect_to("http://127.0.0.1:1".to_owned());
    let (address, _) = redirect_to(format!("http://{other}"));
    let mut command = store.zkv_command(&["pull", "s3://bucket/users", "-o", "other.db"]);
    command.env("AWS_ENDPOINT", format!("http://{address}")).env("AWS_REGION", "us-east-1");
    command.envs([("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "key"), ("AWS_SESSION_TOKEN", "token")]);
    let ran = Ran::new(command.output().unwrap());
    ran.fails(2, &["redirects to http://127.0.0.1, another host, which is not followed"]);
    assert_eq!(*requests.lock().unwrap(), [""; 0]);
}

pub(crate) fn a_folder_in_the_place_of_a_partial_download_is_named_with_the_remedy() {
    let store = Store::folder();
    store.publish(1);
    let pulled = store.zkv(&["pull", "URL", "-o", "copy.db"]).succeeds();
    let digest = pulled.trim_end().rsplit(' ').next().unwrap();
    fs::remove_file(store.path("copy.db")).unwrap();
    for name in ["partial", "partial.json"].map(|suffix| format!("copy.db.{digest}.{suffix}")) {
        let name = name.as_str();
        fs::create_dir(store.path(name)).unwrap();
        let ran = store.zkv(&["pull", "URL", "-o", "copy.db"]);
        ran.fails(2, &[name, "is a folder where a partial download was expected: move it, or choose another output"]);
        assert!(!store.path("copy.db").exists());
        fs::remove_dir(store.path(name)).unwrap();
    }
    store.zkv(&["pull", "URL", "-o", "copy.db"]).succeeds();
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

/// Returns the number of bytes of bodies that a pull needs in addition to the file, if the byte at an offset is changed once.
fn repaired_bytes(store: &Store, server: &StoreServer, offset: u64) -> u64 {
    let expected = fs::read(store.path("large.db")).unwrap();
    let before = server.sent_bytes();
    server.fail("/data/", Fault::FlippedAt(offset));
    store.zkv(&["pull", &server.url("published/users"), "-o", "copy.db"]).succeeds();
    assert!(fs::read(store.path("copy.db")).unwrap() == expected, "byte {offset}");
    assert!(!store.path("copy.db.partial").exists());
    server.recover();
    server.sent_bytes() - before - expected.len() as u64
}

pub(crate) fn a_changed_byte_costs_its_block_and_not_the_file() {
    // The manifest, and other documents.
    const DOCUMENTS_MAX: u64 = 16 << 10;
    const BLOCK: u64 = 4096;
    let store = Store::folder();
    bake_large(&store);
    store.zkv(&["publish", "large.db", "--to", "URL"]).succeeds();
    let server = StoreServer::start(store.files.path());
    let len_bytes = fs::metadata(store.path("large.db")).unwrap().len();
    let file = zero_kv::store::Unchecked::open(store.path("large.db")).unwrap();
    let sections = file.layout().sections();
    let sums = sections.iter().find(|(kind, _)| *kind == SectionKind::BlockSums).unwrap().1;
    for (_, section) in
        sections.iter().filter(|(kind, section)| *kind != SectionKind::BlockSums && section.len_bytes > 0)
    {
        for offset in [section.offset_bytes, section.offset_bytes + section.len_bytes / 2] {
            let bytes = repaired_bytes(&store, &server, offset);
            assert!(bytes <= BLOCK + DOCUMENTS_MAX, "byte {offset}: {bytes} bytes");
        }
    }
    // Padding after a section belongs to no block, but is verified, too.
    for (_, section) in sections {
        let offset = section.offset_bytes + section.len_bytes;
        if offset < len_bytes && sections.iter().all(|(_, other)| other.offset_bytes != offset) {
            let bytes = repaired_bytes(&store, &server, offset);
            assert!(bytes <= 3 * BLOCK + DOCUMENTS_MAX, "byte {offset}: {bytes} bytes");
        }
    }
    // The header, and the root of the checksums at the end of the file.
    for offset in [0, 40, len_bytes - 1] {
        let bytes = repaired_bytes(&store, &server, offset);
        assert!(bytes <= 3 * BLOCK + DOCUMENTS_MAX, "byte {offset}: {bytes} bytes");
    }
    // A block of checksums has those of 512 blocks.
    let bytes = repaired_bytes(&store, &server, sums.offset_bytes);
    assert!(len_bytes > 4 * 512 * BLOCK && bytes <= 513 * BLOCK + DOCUMENTS_MAX, "{bytes} of {len_bytes} bytes");
}
