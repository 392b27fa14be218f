//! Files on tmpfs that a process opens for writing while they are served. On tmpfs, a write through a mapping to a page
//! that was read before changes neither the modification time nor the length, so only the lease can reveal it.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use memmap2::MmapMut;
use rustix::process::Signal;
use zero_kv::Lookup;
use zero_kv::LookupError;
use zero_kv::client::{Client, ClientError, Direct};

use super::requirements::leases_in;
use crate::helpers::generations::Shape;
use crate::helpers::repeating::while_threads_repeat;
use crate::helpers::scenes::{SHARED_MEMORY, Scene, is_leased};
use crate::helpers::servers::Server;
use crate::helpers::trials::Missing;
use crate::helpers::waiting::eventually;

const SHAPE: Shape = Shape { rows: 500, len_max_bytes: 300 };
/// The key whose value the writer overwrites.
const KEY: u64 = 7;

fn served() -> (Scene, Server) {
    let scene = Scene::in_shared_memory();
    SHAPE.bake(1, &scene.db());
    let served = scene.serve(&[]);
    assert!(is_leased(&scene.db()), "tmpfs grants leases, and the server takes one");
    (scene, served)
}

/// A process with a writable mapping of the served file and no descriptor of it.
struct MappedWriter {
    mapping: MmapMut,
    value_at: usize,
    value: Vec<u8>,
}

impl MappedWriter {
    /// Waits until the server has released its lease.
    fn open(scene: &Scene) -> MappedWriter {
        let file = File::options().read(true).write(true).open(scene.db()).unwrap();
        // SAFETY: Nobody truncates the file, and this test copies what it reads from the mapping.
        let mapping = unsafe { MmapMut::map_mut(&file).unwrap() };
        let value = SHAPE.value(1, KEY).unwrap();
        // Reads all pages, which maps them writable: a later write to them is no page fault, and changes no time.
        let bytes = mapping.to_vec();
        let value_at = bytes.windows(value.len()).position(|window| window == value).unwrap();
        MappedWriter { mapping, value_at, value }
    }

    fn write(&mut self, value: &[u8]) {
        self.mapping[self.value_at..][..value.len()].copy_from_slice(value);
    }

    fn overwrite(&mut self) {
        self.write(&vec![b'#'; self.value.len()]);
    }

    fn restore(&mut self) {
        self.write(&self.value.clone());
    }
}

/// Looks all keys up over a socket and in direct mode, and asserts that no value is wrong.
fn look_up(client: &mut Client, direct: &Direct, found: &AtomicU64) {
    for key in 1..=SHAPE.rows {
        for value in [client.get(key).ok(), direct.get(key).ok()].into_iter().flatten() {
            assert_eq!(value, SHAPE.value(1, key), "key {key}");
            found.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns whether the server has answered with an error.
fn is_refused(answer: Result<Option<Vec<u8>>, ClientError>) -> bool {
    matches!(answer, Err(ClientError::Server { .. }))
}

pub(crate) fn values_that_a_process_overwrites_through_a_mapping_are_errors_until_it_has_restored_them()
-> Result<(), Missing> {
    leases_in(SHARED_MEMORY)?;
    let (scene, served) = served();
    let direct = served.client().direct().unwrap();
    let found = AtomicU64::new(0);
    let found_more = |what: &str| {
        let before = found.load(Ordering::Relaxed);
        eventually(what, || found.load(Ordering::Relaxed) >= before + 2 * SHAPE.rows);
    };
    let repeated = |_| {
        let (mut client, direct, found) = (served.client(), &direct, &found);
        move || look_up(&mut client, direct, found)
    };
    while_threads_repeat(2, repeated, || {
        for round in 0..3 {
            // Verifies every block, so that later lookups rely on the recorded verification.
            found_more(&format!("values are found in round {round}"));
            let mut writer = MappedWriter::open(&scene);
            writer.overwrite();
            assert!(is_refused(served.client().get(KEY)), "round {round}");
            assert_eq!(direct.get(KEY), Err(LookupError::Damaged), "round {round}");
            eventually("the server has detected the change", || served.info().get("state") == Some("changed"));
            writer.restore();
            drop(writer);
        }
        found_more("values are found again");
        // The client's thread maps the file again asynchronously.
        eventually("the direct client finds values again", || direct.get(KEY).is_ok());
        assert_eq!(direct.get(KEY).unwrap(), SHAPE.value(1, KEY));
    });
    eventually("the server logs that it serves again", || served.logged("serving again") == 3);
    Ok(())
}

pub(crate) fn a_file_put_in_place_is_served_while_a_process_still_has_the_old_one_mapped() -> Result<(), Missing> {
    leases_in(SHARED_MEMORY)?;
    let (scene, served) = served();
    assert_eq!(served.client().get(KEY).unwrap(), SHAPE.value(1, KEY));
    let mut writer = MappedWriter::open(&scene);
    writer.overwrite();
    assert!(is_refused(served.client().get(KEY)));
    SHAPE.bake(2, &scene.path("new.db"));
    std::fs::rename(scene.path("new.db"), scene.db()).unwrap();
    served.wait_for("generation", 2);
    assert_eq!(served.client().get(KEY).unwrap(), SHAPE.value(2, KEY));
    Ok(())
}

pub(crate) fn a_table_that_a_process_wrote_through_a_mapping_is_served_as_a_new_generation() -> Result<(), Missing> {
    leases_in(SHARED_MEMORY)?;
    let (scene, served) = served();
    assert_eq!(served.client().get(KEY).unwrap(), SHAPE.value(1, KEY));
    SHAPE.bake(3, &scene.path("other.db"));
    let other = std::fs::read(scene.path("other.db")).unwrap();
    let mut writer = MappedWriter::open(&scene);
    writer.mapping.copy_from_slice(&other);
    assert!(is_refused(served.client().get(KEY)));
    drop(writer);
    served.wait_for("generation", 2);
    assert_eq!(served.client().get(KEY).unwrap(), SHAPE.value(3, KEY));
    Ok(())
}

pub(crate) fn a_writer_that_changes_nothing_causes_errors_only_while_it_has_the_file_open() -> Result<(), Missing> {
    leases_in(SHARED_MEMORY)?;
    let (scene, served) = served();
    let mut client = served.client();
    // More epochs begin than a block's tag can distinguish.
    for _ in 0..140 {
        drop(File::options().append(true).open(scene.db()).unwrap());
        eventually("the key is served again", || client.get(KEY).is_ok_and(|value| value == SHAPE.value(1, KEY)));
    }
    assert_eq!(served.number("generation"), 1);
    Ok(())
}

pub(crate) fn a_lease_that_the_system_takes_from_a_stopped_server_ends_the_trust_in_the_file() -> Result<(), Missing> {
    leases_in(SHARED_MEMORY)?;
    let (scene, served) = served();
    let direct = served.client().direct().unwrap();
    for value in [served.client().get(KEY).unwrap(), direct.get(KEY).unwrap()] {
        assert_eq!(value, SHAPE.value(1, KEY));
    }
    served.signal(Signal::STOP);
    served.remove_lease(&scene.db());
    // The kernel makes a writer wait for longer than the server trusts a lease.
    thread::sleep(super::paused::LEASE_BREAK_TIME_MIN);
    let mut writer = MappedWriter::open(&scene);
    writer.overwrite();
    assert_eq!(direct.get(KEY), Err(LookupError::Damaged), "the server cannot confirm its lease");
    served.signal(Signal::CONT);
    assert!(is_refused(served.client().get(KEY)));
    assert_eq!(direct.get(KEY), Err(LookupError::Damaged));
    writer.restore();
    drop(writer);
    eventually("direct lookups succeed again", || direct.get(KEY).is_ok_and(|value| value == SHAPE.value(1, KEY)));
    eventually("the key is served again", || served.client().get(KEY).is_ok_and(|value| value == SHAPE.value(1, KEY)));
    Ok(())
}
