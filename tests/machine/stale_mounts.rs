//! A server whose file is mounted alone, as a container runtime mounts it, and replaced outside of the mount.

use std::process::Command;

use super::mounted::Mounted;
use crate::helpers::generations::Shape;
use crate::helpers::scenes::{Scene, settle};
use crate::helpers::trials::Missing;
use crate::helpers::waiting::eventually;

const SHAPE: Shape = Shape { rows: 500, len_max_bytes: 300 };

pub(crate) fn a_file_that_was_replaced_outside_of_its_mount_is_reported() -> Result<(), Missing> {
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    settle(&scene.db());
    let script = "mkdir data && touch data/storage.db && mount --bind storage.db data/storage.db";
    let mounted = Mounted::by_script(&scene, "mounts", script)?;
    let mut server = scene.run(scene.command_for(&mounted.path(&scene.path("data/storage.db")), &[]));
    let refused = |server: &crate::helpers::servers::Server| server.info().get("file_refused").unwrap().to_owned();
    assert_eq!(refused(&server), "");

    SHAPE.bake(2, &scene.path("next.db"));
    scene.put(&scene.path("next.db"));
    eventually("the stale mount is noticed", || !refused(&server).is_empty());
    let reason = refused(&server);
    assert!(reason.starts_with("out of date: ") && reason.contains("mount the folder"), "{reason}");
    server.wait_for_log("this mount of a file still shows the old file");
    // The old file is intact, so it is served, and a restart would not help.
    assert_eq!(server.client().get(7_u64).unwrap(), SHAPE.value(1, 7));
    let zkv = |command: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_zkv")).arg(command).arg("--socket").arg(scene.socket()).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, note) = zkv("health");
    assert!(status == Some(0) && note.contains("the file at the path is out of date: "), "{note}");
    let (status, note) = zkv("reload");
    assert!(status == Some(1) && note.contains("mount the folder"), "{note}");
    Ok(())
}

pub(crate) fn a_file_that_was_replaced_in_its_mounted_folder_is_served() -> Result<(), Missing> {
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    settle(&scene.db());
    let mounted = Mounted::by_script(&scene, "mounts", "mkdir data && mount --bind . data")?;
    let server = scene.run(scene.command_for(&mounted.path(&scene.path("data/storage.db")), &[]));
    SHAPE.bake(2, &scene.path("next.db"));
    scene.put(&scene.path("next.db"));
    eventually("the new file is served", || server.info().get("generation") == Some("2"));
    assert_eq!(server.info().get("file_refused"), Some(""));
    Ok(())
}
