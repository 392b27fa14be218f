//! A disk that does not return the bytes that were written to it.
//!
//! A page of a sparse file on a full tmpfs cannot be read through a mapping. The access raises SIGBUS, as on a disk
//! that returns errors.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate};
use zero_kv::store::Unchecked;

use super::requirements::mounts;
use crate::helpers::generations::Shape;
use crate::helpers::mixed_load::MixedLoad;
use crate::helpers::pipelined_gets::{Answer, PipelinedConnection, Protocol};
use crate::helpers::scenes::{Scene, settle};
use crate::helpers::servers::Server;
use crate::helpers::trials::Missing;
use crate::helpers::waiting::eventually;

const SHAPE: Shape = Shape { rows: 20_000, len_max_bytes: 500 };

/// Asserts that every key has its value or an error. Returns the number of values.
fn right_count(served: &Server, generation: u64) -> u64 {
    let mut connection = PipelinedConnection::new(Protocol::Native, served.connect());
    let keys: Vec<u64> = (1..=SHAPE.rows).collect();
    let mut right_count = 0;
    for keys in keys.chunks(256) {
        connection.ask(keys);
        for (key, found) in keys.iter().zip(connection.answers(keys.len()).unwrap()) {
            if found != Answer::Error {
                assert_eq!(found, Answer::Value(SHAPE.value(generation, *key).unwrap()), "key {key}");
                right_count += 1;
            }
        }
    }
    right_count
}

pub(crate) fn a_server_survives_a_failing_disk_and_recovers_with_a_good_file() -> Result<(), Missing> {
    let mounter = mounts()?;
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    SHAPE.bake(3, &scene.path("next.db"));
    fs::create_dir(scene.path("disk")).unwrap();
    let script = "mount -t tmpfs -o size=32m none disk && cp -p storage.db disk/
                  exec \"$0\" --db disk/storage.db --socket s.sock --memory map";
    let mut command = Command::new(mounter[0]);
    command.args([mounter[1], "sh", "-c", script, env!("CARGO_BIN_EXE_kv_store")]);
    command.current_dir(scene.path("")).env("RUST_LOG", "info");
    let mut served = scene.run(command);
    assert_eq!(right_count(&served, 1), SHAPE.rows);

    // The path of the disk in the server's mount namespace.
    let folder = scene.path("disk");
    let disk = PathBuf::from(format!("/proc/{}/root{}", served.id(), folder.display()));
    let filler = File::create_new(disk.join("filler")).unwrap();
    fill(&filler);
    // Removes the middle of the records without any other sign of the loss.
    let file = File::options().write(true).open(disk.join("storage.db")).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    let records = Unchecked::open(scene.db()).unwrap().layout().records;
    let (start, end) = (records.offset_bytes + records.len_bytes / 3, records.offset_bytes + records.len_bytes / 2);
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, start, end - start).unwrap();
    file.set_modified(modified).unwrap();
    // The server trusts no byte of the file while a process has it open for writing.
    drop(file);
    fill(&filler);

    let load = MixedLoad::start(&served, SHAPE, 1);
    load.wait_for_errors(100);
    eventually("the intact rows are served", || right_count(&served, 1) > SHAPE.rows / 2);
    assert!(right_count(&served, 1) < SHAPE.rows);
    assert!(served.is_alive());
    let info = served.info();
    assert!(info.number::<u64>("faults").unwrap() > 0 && info.number::<u64>("errors").unwrap() > 0);
    eventually("the change is logged", || served.logged("was changed in place") > 0);

    load.allow(3);
    // Closes the filler's last descriptor.
    drop(filler);
    fs::remove_file(disk.join("filler")).unwrap();
    // A child process of another test may hold the filler's descriptor until it executes its program.
    eventually("the disk has space again", || fs::copy(scene.path("next.db"), disk.join("new")).is_ok());
    settle(&disk.join("new"));
    fs::rename(disk.join("new"), disk.join("storage.db")).unwrap();
    eventually("the other file is served", || served.logged("serving generation ") > 0);
    eventually("all rows are served", || right_count(&served, 3) == SHAPE.rows);
    load.expect_at_least(3);
    load.wait_for_right(1000);
    load.finish();
    Ok(())
}

/// Writes until the disk is full.
pub(crate) fn fill(file: &File) {
    let mut file = file;
    for len_bytes in [1 << 20, 4096, 1] {
        while file.write(&vec![1; len_bytes]).is_ok() {}
    }
}
