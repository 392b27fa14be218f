//! Files that a process has open for writing when the server opens them.

use std::fs::File;
use std::path::Path;

use memmap2::MmapRaw;

use super::requirements::leases;
use crate::helpers::generations::Shape;
use crate::helpers::scenes::Scene;
use crate::helpers::trials::Missing;
use crate::helpers::waiting::eventually;

const SHAPE: Shape = Shape { rows: 100, len_max_bytes: 50 };
const REFUSED: &str = "a process has it open for writing";

/// Maps a file for writing, and closes its descriptor.
fn mapped(path: &Path) -> MmapRaw {
    let file = File::options().read(true).write(true).open(path).unwrap();
    MmapRaw::map_raw(&file).unwrap()
}

fn scene() -> Scene {
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    scene
}

pub(crate) fn a_server_does_not_start_with_a_file_that_a_process_can_write_to() -> Result<(), Missing> {
    leases()?;
    let scene = scene();
    let mapping = mapped(&scene.db());
    let output = scene.command(&["--verify", "full"]).output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && log.contains(REFUSED) && log.contains("--memory copy"), "{log}");
    for memory in ["copy", "sealed"] {
        let served = scene.serve(&["--memory", memory]);
        assert_eq!(served.client().get(7).unwrap(), SHAPE.value(1, 7));
    }
    drop(mapping);
    let served = scene.serve(&[]);
    assert_eq!(served.client().get(7).unwrap(), SHAPE.value(1, 7));
    assert_eq!(served.info().get("writers_detected"), Some("yes"));
    Ok(())
}

pub(crate) fn a_starting_server_waits_for_a_writer_to_close_the_file() -> Result<(), Missing> {
    leases()?;
    let scene = scene();
    // On a busy machine, the test may close the file after the server has given up.
    eventually("a server starts", || {
        let mapping = mapped(&scene.db());
        let log = scene.path("waiting.log");
        let mut child = scene.command(&[]).stderr(File::create(&log).unwrap()).spawn().unwrap();
        let logged = || std::fs::read_to_string(&log).unwrap();
        eventually("the server waits", || logged().contains("waiting up to 2 s until"));
        drop(mapping);
        eventually("the server has started or ended", || {
            logged().contains("ready on") || child.try_wait().unwrap().is_some()
        });
        let is_ready = logged().contains("ready on");
        let _ = child.kill();
        child.wait().unwrap();
        assert!(is_ready || logged().contains(REFUSED), "{}", logged());
        is_ready
    });
    Ok(())
}

pub(crate) fn a_file_is_served_once_its_writer_has_closed_it() -> Result<(), Missing> {
    leases()?;
    let scene = scene();
    let served = scene.serve(&[]);
    SHAPE.bake(2, &scene.path("new.db"));
    let mapping = mapped(&scene.path("new.db"));
    std::fs::rename(scene.path("new.db"), scene.db()).unwrap();
    served.wait_for("refused_files", 1);
    served.expect_logged(REFUSED, 1);
    let attempt = served.client().reload().unwrap();
    assert!(served.outcome_of(attempt).contains(REFUSED));
    assert_eq!(served.number("generation"), 1);
    assert_eq!(served.client().get(7).unwrap(), SHAPE.value(1, 7));
    // The server retries without another log line.
    served.wait_for("uptime_s", served.number("uptime_s") + 3);
    served.expect_logged(REFUSED, 2);
    assert_eq!(served.number("refused_files"), 2);
    drop(mapping);
    served.wait_for("generation", 2);
    assert_eq!(served.client().get(7).unwrap(), SHAPE.value(2, 7));
    Ok(())
}

pub(crate) fn a_server_that_cannot_detect_writers_reports_it() {
    let scene = scene();
    let served = scene.serve(&["--no-lease"]);
    served.expect_logged("processes that write to the file cannot be detected: leases are switched off", 1);
    assert_eq!(served.info().get("writers_detected"), Some("no: leases are switched off"));
    drop(served);
    let served = scene.serve(&["--no-lease", "--memory", "sealed"]);
    assert_eq!(served.logged("cannot be detected"), 0);
    assert_eq!(served.info().get("writers_detected"), Some("yes"));
}
