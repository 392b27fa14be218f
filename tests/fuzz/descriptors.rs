//! Properties of a client in direct mode whose server passes any descriptors: the client rejects them, or every lookup
//! returns without a panic and without a SIGBUS, even after the file is truncated.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use zero_kv::Lookup;
use zero_kv::client::{Client, DirectOptions, Options};

use super::in_process_server::InProcessServer;
use super::rows::{Numbers, Rows};
use super::source::Source;
use super::tamper::{self, Answer, Relay};
use crate::helpers::encoder::{HEADER, seal, seal_header};

/// A server, and the relay that tampers with the descriptors and bytes that the server passes.
pub struct TamperingServer {
    rows: Rows,
    relay: Relay,
}

impl TamperingServer {
    pub fn start(folder: &Path) -> TamperingServer {
        let rows: Rows = (0..200_u64).map(|i| ((i * 3).to_be_bytes().to_vec(), vec![i as u8; 40])).collect();
        let db = folder.join("storage.db");
        Numbers(true).bake(&rows, &db);
        let socket = db.with_extension("sock");
        InProcessServer::start(&db, socket.clone());
        TamperingServer { rows, relay: Relay::start(&socket, pass) }
    }
}

/// Opens the table through the relay, with the changes that the bytes describe, and looks keys up in it.
pub fn check(passing: &TamperingServer, data: &[u8]) {
    // The relay tampers with the first response.
    passing.relay.follow(&[&[0], data].concat());
    let client = Options { call_timeout: Some(Duration::from_secs(60)), retries: 0, ..Options::default() };
    let options = DirectOptions { client: client.clone(), ..DirectOptions::default() };
    let connected = Client::connect_with(&passing.relay.socket, &client).unwrap();
    match connected.direct_with(&options) {
        Err(error) => {
            assert!(!data.is_empty(), "an unchanged answer was refused: {error}");
            assert!(!error.to_string().is_empty() && !error.to_string().contains("timed out"), "{error}");
        }
        Ok(direct) => {
            // A forged table may return any value, but every lookup must return.
            let table = direct.snapshot();
            for key in passing.rows.keys().map(|key| Numbers(true).key(key)) {
                let _ = (direct.get(key), direct.floor(key), direct.ceiling(key), table.count(..key));
            }
            let _ = table.iter().flatten().map(|(_, value)| value.len()).sum::<usize>();
            let _ = table.iter().rev().flatten().map(|(key, _)| key.to_string().len()).sum::<usize>();
            for row in [0, 1, passing.rows.len() / 2, table.len(), usize::MAX] {
                let _ = table.row(row);
            }
            // A response without changes is correct.
            if data.is_empty() {
                assert!(
                    passing
                        .rows
                        .iter()
                        .all(|(key, value)| { direct.get(Numbers(true).key(key)).unwrap().as_deref() == Some(value) })
                );
            }
        }
    }
}

/// Replaces the descriptors, or changes the bytes that are sent with them.
fn pass(source: &mut Source<'_>, answer: &mut Answer) {
    if source.is_empty() {
        return;
    }
    match source.below(8) {
        0 => tamper::change(source, &mut answer.bytes),
        1 => answer.descriptors.truncate(source.below(2)),
        2 => answer.descriptors.reverse(),
        3 => {
            let added = (0..1 + source.below(5)).map(|_| unrelated_descriptor(source)).collect::<Vec<_>>();
            answer.descriptors.extend(added);
        }
        4 if answer.descriptors.len() == 2 => {
            let which = source.below(2);
            answer.descriptors[which] = unrelated_descriptor(source);
        }
        5 if answer.descriptors.len() == 2 => {
            let page = File::from(answer.descriptors.remove(1));
            answer.descriptors.push(other_page(source, &page).into());
        }
        _ if !answer.descriptors.is_empty() => {
            let table = File::from(answer.descriptors.remove(0));
            answer.descriptors.insert(0, other_table(source, &table).into());
        }
        _ => {}
    }
}

/// Returns a descriptor that is neither a table nor a shared page.
fn unrelated_descriptor(source: &mut Source<'_>) -> OwnedFd {
    match source.below(6) {
        0 => File::open("/").unwrap().into(),
        1 => File::open("/dev/null").unwrap().into(),
        2 => File::open("/dev/zero").unwrap().into(),
        3 => std::os::unix::net::UnixStream::pair().unwrap().0.into(),
        4 => std::io::pipe().unwrap().0.into(),
        _ => {
            let file = memory();
            file.set_len(source.number() >> 20).unwrap();
            file.into()
        }
    }
}

fn memory() -> File {
    File::from(memfd_create("fuzz", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap())
}

fn bytes_of(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Returns a page with any length and words, sealed or not.
fn other_page(source: &mut Source<'_>, page: &File) -> File {
    let (mut bytes, file) = (bytes_of(page), memory());
    for _ in 0..source.below(4) {
        let at = source.below(40) * 8;
        bytes[at..at + 8].copy_from_slice(&source.number().to_ne_bytes());
    }
    bytes.resize([4096, 0, 8192, 4095][source.below(4)], 0);
    file.write_all_at(&bytes, 0).unwrap();
    let seals = [SealFlags::SHRINK, SealFlags::SHRINK | SealFlags::WRITE, SealFlags::GROW, SealFlags::empty()];
    fcntl_add_seals(&file, seals[source.below(4)]).unwrap();
    file
}

/// Returns a changed table, with or without corrected checksums, which may shrink while it is read.
fn other_table(source: &mut Source<'_>, table: &File) -> File {
    let (is_sealed, sealing, shrinks) = (source.one_in(2), source.below(3), source.one_in(3));
    let left_len_bytes = u64::from(source.byte()) << 7;
    let mut bytes = bytes_of(table);
    tamper::change(source, &mut bytes);
    if bytes.len() >= HEADER {
        match sealing {
            0 => {}
            1 => seal_header(&mut bytes),
            _ => seal(&mut bytes),
        }
    }
    if is_sealed {
        let file = memory();
        file.write_all_at(&bytes, 0).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE).unwrap();
        return file;
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    let opened = File::open(file.path()).unwrap();
    if shrinks {
        let writing = file.reopen().unwrap();
        std::thread::spawn(move || {
            std::thread::yield_now();
            writing.set_len(left_len_bytes)
        });
    }
    opened
}
