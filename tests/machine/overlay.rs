//! A file on an overlay, which is what a container has as its root. A mapping belongs to the file below the overlay, so the
//! overlay grants a lease although a process has a writable mapping.

use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use memmap2::MmapMut;

use super::requirements::mounts;
use crate::helpers::generations::Shape;
use crate::helpers::scenes::Scene;
use crate::helpers::trials::{Missing, missing};

const SHAPE: Shape = Shape { rows: 500, len_max_bytes: 300 };
const KEY: u64 = 7;

/// A mount namespace with an overlay that holds the scene's table.
struct Overlay {
    shell: Child,
    table: PathBuf,
}

impl Overlay {
    fn mount(scene: &Scene) -> Result<Overlay, Missing> {
        let [program, option] = mounts()?;
        for folder in ["lower", "upper", "work", "merged"] {
            fs::create_dir(scene.path(folder)).unwrap();
        }
        let script = "mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged &&
                      cp storage.db merged/ && echo mounted && exec cat";
        let mut command = Command::new(program);
        command.args([option, "sh", "-c", script]).current_dir(scene.path(""));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut shell = command.spawn().unwrap();
        let mut line = [0; 8];
        if shell.stdout.as_mut().unwrap().read_exact(&mut line).is_err() {
            let output = shell.wait_with_output().unwrap();
            return Err(missing("overlay", String::from_utf8_lossy(&output.stderr).trim()));
        }
        let table = format!("/proc/{}/root{}", shell.id(), scene.path("merged/storage.db").display());
        Ok(Overlay { shell, table: table.into() })
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

pub(crate) fn a_process_that_mapped_a_file_on_an_overlay_before_the_server_changes_no_value() -> Result<(), Missing> {
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    let overlay = Overlay::mount(&scene)?;
    let file = File::options().read(true).write(true).open(&overlay.table).unwrap();
    // SAFETY: Nobody truncates the file, and this test copies what it reads from the mapping.
    let mut mapping = unsafe { MmapMut::map_mut(&file).unwrap() };
    drop(file);

    let served = scene.run(scene.command_for(&overlay.table, &[]));
    let reason = "no: the file system has no leases that reveal every writer";
    assert_eq!(served.info().get("writers_detected"), Some(reason));
    let mut client = served.client();
    let value = SHAPE.value(1, KEY);
    assert_eq!(client.get(KEY).unwrap(), value);

    let len_bytes = value.as_ref().unwrap().len();
    let value_at = mapping.windows(len_bytes).position(|window| window == value.as_ref().unwrap()).unwrap();
    mapping[value_at..][..len_bytes].fill(b'#');
    assert!(client.get(KEY).is_err());
    mapping[value_at..][..len_bytes].copy_from_slice(&value.unwrap());
    Ok(())
}
