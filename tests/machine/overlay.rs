//! A file on an overlay file system, such as the root of a container. A mapping belongs to the file below the overlay,
//! so the overlay grants a lease although a process has a writable mapping.

use std::fs::File;

use memmap2::MmapMut;
use zero_kv::client::ClientError;

use super::mounted::Mounted;
use crate::helpers::generations::Shape;
use crate::helpers::scenes::Scene;
use crate::helpers::trials::Missing;

const SHAPE: Shape = Shape { rows: 500, len_max_bytes: 300 };
const KEY: u64 = 7;

const MOUNT: &str = "mkdir lower upper work merged &&
    mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged && cp storage.db merged/";

pub(crate) fn a_mapping_on_an_overlay_that_is_older_than_the_server_changes_no_value() -> Result<(), Missing> {
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    let overlay = Mounted::by_script(&scene, "overlay", MOUNT)?;
    let table = overlay.path(&scene.path("merged/storage.db"));
    let file = File::options().read(true).write(true).open(&table).unwrap();
    // SAFETY: Nobody truncates the file, and this test copies what it reads from the mapping.
    let mut mapping = unsafe { MmapMut::map_mut(&file).unwrap() };
    drop(file);

    let served = scene.run(scene.command_for(&table, &[]));
    let reason = "no: the file system has no leases that reveal every writer";
    assert_eq!(served.info().get("writers_detected"), Some(reason));
    let mut client = served.client();
    let value = SHAPE.value(1, KEY);
    assert_eq!(client.get(KEY).unwrap(), value);

    let len_bytes = value.as_ref().unwrap().len();
    let value_at = mapping.windows(len_bytes).position(|window| window == value.as_ref().unwrap()).unwrap();
    mapping[value_at..][..len_bytes].fill(b'#');
    assert!(matches!(client.get(KEY), Err(ClientError::Server { .. })));
    mapping[value_at..][..len_bytes].copy_from_slice(&value.unwrap());
    Ok(())
}
